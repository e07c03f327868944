"""A whole text, cut into posts."""

from __future__ import annotations

from hansard.delivery.split import PostSpace, PostStretch, next_post


def split(text: str, room: PostSpace) -> list[PostStretch]:
    """Return the posts of a whole text, none of which shows more than there is room for."""
    posts = [next_post(text, 0, room)]
    while posts[-1].end < len(text.encode()):
        posts.append(next_post(text, posts[-1].end, room))
    return posts
