"""Entries about who is one person with whom, and what they may do. A part of `hansard.domain.entries`, which see."""

from __future__ import annotations

import msgspec

from hansard.domain.entry_body import Body


class PeopleDeclared(Body, frozen=True):
    """Whom config.toml makes one person, by name: all of it, in place of what was declared before."""

    people: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    by: str = ""
    """The user of this machine whose process loaded it."""


class RulesDeclared(Body, frozen=True):
    """The rules of `[[tools.rules]]` as a process loaded them, where they differ from those that were loaded before."""

    digest: str
    rules: tuple[str, ...] = ()
    by: str = ""
    """The user of this machine whose process loaded it."""


class PersonLinked(Body, frozen=True):
    """Two owners, with all whom each was linked to, are one person from now on. `code`: the one that was entered."""

    owners: tuple[str, str]
    by: str = ""
    code: str = ""


class PersonUnlinked(Body, frozen=True):
    """Owners are linked to nobody any more. Whom they were linked to stay one person among themselves."""

    owners: tuple[str, ...]
    by: str = ""


class LinkShown(Body, frozen=True):
    """A person was shown a one-time code, to be entered where they are called something else. It replaces an older."""

    owner: str
    code: str
    expires_at: int
    identity: str = ""
    chat: str = ""


class LinkTried(Body, frozen=True):
    """Somebody entered a code that was shown to nobody, or no longer counts. The code is not kept."""

    owner: str


class LinkVoided(Body, frozen=True):
    """A code counts no longer: others could read where it was said."""

    owner: str


class IdentityConfirmed(Body, frozen=True):
    """A person's changed identity on a platform is theirs, somebody says. `key`: the new one; empty: they have none."""

    channel: str
    identity: str
    key: str
    by: str = ""
