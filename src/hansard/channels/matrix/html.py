"""Markdown to the HTML that Matrix allows: every tag and scheme of `domain.markup` is in the specification's lists.

The plain body stays the Markdown itself, so nothing is lost on those who see only that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain import markup
from hansard.ports.channel import Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.token import Token


def html_of(markdown: str, reading: Reading = Reading.MARKDOWN) -> str:
    """Return the HTML of a text; empty when it would say no more than the text itself."""
    if reading is Reading.LITERAL:
        return ""
    tokens = markup.parse(markdown, within_line=reading is Reading.CONTINUED)
    return "" if is_plain(tokens) else markup.html_of(tokens)


def is_plain(tokens: Sequence[Token]) -> bool:
    """Whether a text is one paragraph of words and nothing else."""
    inline = [child.type for token in tokens for child in token.children or ()]
    blocks = [token.type for token in tokens]
    return blocks in ([], ["paragraph_open", "inline", "paragraph_close"]) and set(inline) <= {"text", "softbreak"}
