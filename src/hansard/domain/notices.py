"""What people in chats are told by Hansard itself: templates by key, in one file a language.

`languages/en.toml` is the truth: its keys are the fields here, and the words in braces of each of its templates are
what a template of that key may name. A notice is made into words when it is recorded, so a change of language changes
nothing that was said before.
"""

from __future__ import annotations

import string
from functools import cache
from importlib import import_module, resources
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from hansard.errors import ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping

LANGUAGES: Final = ("en", "de")
"""Those that are shipped."""

TEMPLATE_CHARACTERS_MAX: Final = 2000
"""What fits into one post everywhere, with room for what is put in."""


NoticesName = Annotated[
    str,
    Meta(
        pattern=r"\A(?:en|de|[A-Za-z0-9_-]{1,60}\.toml)\Z",
        description="In which words people are told what Hansard itself has to say: `en`, `de`, or a file in the home. "
        "Not set: `notices.toml` in the home if there is one, otherwise English.",
        extra={"allowed": "en, de, or the name of a file in the home, such as notices.toml"},
    ),
]


class Notices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every template, in one language. What each is for stands in `languages/en.toml`."""

    session_new: str
    session_idle: str
    session_daily: str
    session_others: str
    session_parted: str
    session_kept: str
    reopened: str
    late: str
    cut: str
    unreadable: str
    unverified: str
    unanswerable: str
    company: str
    opened: str
    replaced_here: str
    not_followed: str
    recovered: str
    interrupted: str
    code: str
    declined: str
    welcome: str
    code_entered: str
    said_elsewhere: str
    said_at_terminal: str
    said_files: str
    message_refused: str
    file_not_kept: str
    file_not_shown: str
    file_unnamed: str
    file_no_way: str
    file_too_large: str
    file_failed: str
    file_too_many: str
    file_over: str
    over_files: str
    over_bytes: str
    over_sessions: str
    queued: str
    steered: str
    stopped: str
    nothing_runs: str


KEYS: Final = Notices.__struct_fields__


def placeholders(template: str) -> frozenset[str]:
    """Return the words in braces of a template. ConfigInvalid when the braces hold anything but a plain word."""
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigInvalid("its braces do not fit: write {name} for what is put in, {{ and }} for braces") from error
    found = set()
    for _, name, form, conversion in pieces:
        if name is None:
            continue
        if not name.isidentifier() or form or conversion:
            raise ConfigInvalid("braces hold a plain word: {name}; write {{ and }} for braces")
        found.add(name)
    return frozenset(found)


def what_is_wrong(key: str, template: object) -> str:
    """Return why a template cannot stand at a key; empty when it can."""
    if not isinstance(template, str) or not template.strip():
        return f"{key} must be text"
    if len(template) > TEMPLATE_CHARACTERS_MAX:
        return f"{key} must have at most {TEMPLATE_CHARACTERS_MAX} characters"
    try:
        given = placeholders(template)
    except ConfigInvalid as error:
        return f"{key}: {error}"
    allowed = placeholders(getattr(language("en"), key))
    if not given - allowed:
        return ""
    may = "may name " + ", ".join(f"{{{name}}}" for name in sorted(allowed)) if allowed else "may name nothing"
    return f"{key} names {{{min(given - allowed)}}}; it {may}"


def with_templates(base: Notices, templates: Mapping[str, str]) -> Notices:
    """Return notices with some templates, which were checked, in place of others."""
    return msgspec.structs.replace(base, **templates)


@cache
def language(name: str) -> Notices:
    """Return a shipped language. It is read when it is first wanted: most commands never do."""
    text = resources.files(__package__).joinpath("languages", f"{name}.toml").read_text(encoding="utf-8")
    return msgspec.convert(import_module("tomllib").loads(text), Notices)


def in_english(_chat: str) -> Notices:
    """Return in which words people in a chat are told something, when nobody chose a language."""
    return language("en")
