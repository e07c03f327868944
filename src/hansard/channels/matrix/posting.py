"""What is posted: the contents of events, each small enough to be taken by every homeserver.

An event may have 64 KiB as canonical JSON, with everything that homeservers add. An edit holds the words twice, each
time plain and as HTML; encryption makes four bytes of three. Whatever does not fit is left out in this order: the
HTML, then the plain copy for clients that know no edits. The words themselves are never cut here.
"""

from __future__ import annotations

import base64
from typing import Final

from hansard.channels import Json, canonical
from hansard.channels.matrix.contents import html_of
from hansard.channels.matrix.reading import KEY_FIELD, MatrixPlace
from hansard.ports.channel import LocalFile, Post, file_key

EVENT_BYTES_MAX: Final = 65_536
ENVELOPE_BYTES: Final = 6_144
"""Kept free for what is around the content: ids, signatures, the hashes of twenty events before it."""
BASE64_GROWTH: Final = 4 / 3
ENCRYPTED_BYTES: Final = 1_024
"""Names and keys around an encrypted content."""

TEXT_BYTES_MAX: Final = 7_000
"""Of one post. Were every byte a control character, six bytes in JSON, and encrypted, it would still fit."""

TRANSACTION: Final = "h."
"""How the transaction ids begin which hold the key of a post."""

BODY_PARTED: Final = "* (edited)"
UNNAMED: Final = "file"
"""The name of a file that has none: an event must have one."""


def transaction_of(key: str) -> str:
    """The transaction id of a post. It can be turned back: the homeserver tells it to the device that sent it."""
    return TRANSACTION + base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def key_of(transaction: str) -> str:
    """The key that a transaction id was made from; empty when it was not made here."""
    if not transaction.startswith(TRANSACTION):
        return ""
    packed = transaction.removeprefix(TRANSACTION)
    try:
        return base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)).decode()
    except ValueError:
        return ""


def event_bytes(content: Json, *, is_encrypted: bool) -> int:
    """How large an event with this content may become on its way."""
    size = len(canonical(content))
    if is_encrypted:
        size = int((size + 256) * BASE64_GROWTH) + ENCRYPTED_BYTES
    return size + ENVELOPE_BYTES


def text_content(post: Post, place: MatrixPlace, *, is_encrypted: bool) -> Json:
    """The content of a post's words: a new message, or the replacement of one."""
    html = html_of(post.markdown, post.reading)
    forms = [words(post, html), words(post, "")] if html else [words(post, "")]
    if not post.edits:
        contents = [{**form, **relation_of(post, place)} for form in forms]
    else:
        about = {"m.relates_to": {"rel_type": "m.replace", "event_id": post.edits}}
        contents = [{**copied(form), "m.new_content": form, **about} for form in forms]
        bare = {"msgtype": forms[-1]["msgtype"], "body": BODY_PARTED, "m.mentions": {}}
        contents.append({**bare, "m.new_content": forms[-1], **about})
    fitting = (c for c in contents if event_bytes(c, is_encrypted=is_encrypted) <= EVENT_BYTES_MAX)
    return {**next(fitting, contents[-1]), KEY_FIELD: post.key}


def words(post: Post, html: str) -> Json:
    """The words of a post. Nobody is called by them: an agent's words must not ring in a whole room."""
    content: Json = {"msgtype": "m.notice" if post.notice else "m.text", "body": post.markdown, "m.mentions": {}}
    if html:
        content |= {"format": "org.matrix.custom.html", "formatted_body": html}
    return content


def copied(content: Json) -> Json:
    """The copy for clients that know no edits, marked as one."""
    marked = content | {"body": f"* {content['body']}"}
    if "formatted_body" in content:
        marked["formatted_body"] = f"* {content['formatted_body']}"
    return marked


def relation_of(post: Post, place: MatrixPlace) -> Json:
    """Where a new message belongs: its thread, and what it answers."""
    related: Json = {}
    if place.thread_id:
        related = {"rel_type": "m.thread", "event_id": place.thread_id, "is_falling_back": not post.reply_to}
        related["m.in_reply_to"] = {"event_id": post.reply_to or place.thread_id}
    elif post.reply_to:
        related["m.in_reply_to"] = {"event_id": post.reply_to}
    return {"m.relates_to": related} if related else {}


def file_content(post: Post, place: MatrixPlace, file: LocalFile, address: Json, number: int) -> Json:
    """The content of a file's message; `address` is `url`, or `file` with the keys of an encrypted one."""
    kind = file.media_type.partition("/")[0]
    name = file.name or UNNAMED
    return {
        "msgtype": f"m.{kind}" if kind in {"image", "audio", "video"} else "m.file",
        "body": name,
        "filename": name,
        "info": {"mimetype": file.media_type, "size": len(file.data)},
        "m.mentions": {},
        KEY_FIELD: file_key(post.key, number),
        **address,
        **relation_of(post, place),
    }
