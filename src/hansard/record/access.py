"""Access: who may talk. Strangers are shown a code, and the admin decides.

Entries (home journal): access.asked, .tried, .changed. Table: access. SQL: access.sql.
Invariant: what the admin revoked stays revoked, whatever the settings say.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec

from hansard.domain.access import (
    DAY_MICROSECONDS,
    MINUTE_MICROSECONDS,
    Access,
    Action,
    Grant,
    may,
    may_show_pairing_code,
    may_try_code,
    new_code,
    read_code,
    stranger_source,
    written_code,
)
from hansard.domain.arrivals import IntakeRules, Origin
from hansard.domain.chats import identity_of, person_owner
from hansard.domain.ids import new_id
from hansard.domain.limits import NAME_CHARACTERS_MAX
from hansard.domain.messages import join_text
from hansard.domain.notices import Wording
from hansard.domain.people import asker_owner
from hansard.domain.settings import Pairing
from hansard.domain.text import clean_name
from hansard.errors import NotFound
from hansard.journal.backend import Reads
from hansard.journal.concepts import Body, Concept, EntryPlace, IsAlive, Table
from hansard.journal.transaction import Transaction, home_journal
from hansard.record import TellingNamespace
from hansard.record.messages.entries import MessageAdded
from hansard.record.people import add_at_home, count_pace, read_circle, read_pace
from hansard.record.routes import tell_at_home, tell_in_chat
from hansard.record.sessions import ALL_ROWS
from hansard.record.turns.entries import TURNS
from hansard.record.turns.operations import stop_turns

ACCESS = Concept("access", "hansard.record", tables=(Table(name="access", order="channel, identity", of_home=True),))
SQL = ACCESS.queries


@ACCESS.entry("access.asked")
class AccessAsked(Body, frozen=True):
    """A person who may not talk here was shown a one-time code; the admin may approve it until it expires."""

    channel: str
    identity: str
    code: str
    expires_at: int
    chat: str = ""


@ACCESS.entry("access.tried")
class AccessTried(Body, frozen=True):
    """Somebody tried to approve a code that was not given to anyone, or no longer counts. The code is not kept."""

    by: str = ""


@ACCESS.entry("access.changed")
class AccessChanged(Body, frozen=True):
    """A person was allowed to talk, or is so no longer. `code` is the one that was approved."""

    channel: str
    identity: str
    allowed: bool
    by: str = ""
    code: str = ""


@ACCESS.projects(AccessAsked, AccessTried, AccessChanged)
def project_access(place: EntryPlace, body: Body) -> None:
    match body:
        case AccessAsked():
            asked = (body.channel, body.identity, body.code, body.expires_at, body.chat)
            place.run(SQL.ask_access, (*asked, place.at, DAY_MICROSECONDS))
            for name in ("asked", f"asked {stranger_source(body.channel, body.identity, body.chat)}"):
                count_pace(place, name)
        case AccessTried():
            count_pace(place, "tried")
        case AccessChanged():
            state = Grant.ALLOWED if body.allowed else Grant.REVOKED
            place.run(SQL.change_access, (body.channel, body.identity, state, place.at, body.by))


BARRED = "the person may talk no longer"
"""Why the turns of somebody who is barred end."""


def access_value(row: tuple[Any, ...]) -> Access:
    return msgspec.convert(dict(zip(Access.__struct_fields__, row, strict=True)), Access)


def find_access(reads: Reads, channel: str, identity: str) -> Access:
    """Return what is known of somebody; of a stranger, that nothing is."""
    row = reads.row(SQL.find_access, (channel, identity))
    return Access(channel=channel, identity=identity) if row is None else access_value(row)


def grant_of(tx: Transaction, channel: str, identity: str) -> Grant:
    return find_access(tx, channel, identity).state


def ask(tx: Transaction, channel: str, identity: str, chat: str, rules: IntakeRules, *, words: Wording) -> bool:
    """Show a stranger a code for the admin, if it is time for one; return whether it was."""
    code = give_code(tx, channel, identity, chat, rules)
    if code:
        tell_at_home(tx, chat, words.code.format(code=written_code(code), minutes=rules.pairing.code_minutes))
    return bool(code)


def decline(tx: Transaction, invited: Origin, rules: IntakeRules, words: Wording) -> str:
    """Return why an invitation is declined, with a code where it is time for one; nothing for who may not even ask.

    No chat can show it, so it is a notice without one. While the code waits, the same words are given again.
    """
    known = find_access(tx, invited.channel, invited.identity)
    if not rules.pairing.enabled or not may(Action.ASK, invited.standing, known.state):
        return ""
    waits = known.is_waiting(tx.clock.now_microseconds())
    code = known.code if waits else give_code(tx, invited.channel, invited.identity, "", rules)
    if not code:
        return ""
    text = words.declined.format(code=written_code(code), minutes=rules.pairing.code_minutes)
    home = home_journal(tx)
    told = tx.find_body(home, f"declined-{code}", MessageAdded)
    if told is None:
        tell_at_home(tx, "", text, f"declined-{code}")
        return text
    return join_text(told.parts)


def give_code(tx: Transaction, channel: str, identity: str, chat: str, rules: IntakeRules) -> str:
    """Return a new code for a stranger, if it is time for one."""
    now = tx.clock.now_microseconds()
    known = find_access(tx, channel, identity)
    source = stranger_source(channel, identity, chat)
    if not may_show_pairing_code(known, read_pace(tx, "asked"), read_pace(tx, f"asked {source}"), rules.pairing, now):
        return ""
    code = new_code()
    while tx.row(SQL.find_access_by_code, (code,)) is not None:
        code = new_code()
    asked = AccessAsked(
        channel=channel,
        identity=identity,
        code=code,
        expires_at=now + rules.pairing.code_minutes * MINUTE_MICROSECONDS,
        chat=chat,
    )
    add_at_home(tx, "asked", asked)
    return code


NO_SUCH_CODE = "no such code waits: it was never given, was used, or its time is over"


def approve(tx: Transaction, code: str, *, by: str, welcome: str, pairing: Pairing, token: str) -> Access | str:
    """Allow whoever was shown a code, or return why not. A code counts once, for one person; wrong ones are counted."""
    home = home_journal(tx)
    done = tx.find_body(home, f"~access:{token}", AccessChanged)
    if done is not None:
        return find_access(tx, done.channel, done.identity)
    if tx.find(home, f"~tried:{token}") is not None:
        return NO_SUCH_CODE
    now = tx.clock.now_microseconds()
    if not may_try_code(read_pace(tx, "tried"), pairing, now):
        return "too many wrong codes were tried: wait an hour"
    row = tx.row(SQL.find_access_by_code, (code,))
    known = None if row is None else access_value(row)
    if known is None or not known.is_waiting(now):
        tx.add(home, f"~tried:{token}", AccessTried(by=by))
        return NO_SUCH_CODE
    changed = AccessChanged(channel=known.channel, identity=known.identity, allowed=True, by=by, code=code)
    tx.add(home, f"~access:{token}", changed)
    if known.chat and welcome:
        tell_in_chat(tx, known.chat, welcome)
    return find_access(tx, known.channel, known.identity)


def change(tx: Transaction, changed: AccessChanged, operation_id: str) -> Access:
    """Allow somebody by name, or bar them; what is so already stays as it is."""
    home = home_journal(tx)
    wanted = Grant.ALLOWED if changed.allowed else Grant.REVOKED
    if grant_of(tx, changed.channel, changed.identity) is not wanted:
        tx.add(home, f"~access:{operation_id}", changed)
    return find_access(tx, changed.channel, changed.identity)


def bar_person(
    tx: Transaction, identities: tuple[tuple[str, str], ...], *, by: str, token: str, is_alive: IsAlive, words: Wording
) -> tuple[Access, ...]:
    """Bar a person on these accounts and those linked to them, and stop the turns that only this person asked for."""
    owners = {each for one in identities for each in read_circle(tx, person_owner(*one))}
    linked = sorted(found for each in owners if (found := identity_of(each)) is not None)
    barred = tuple(dict.fromkeys((*identities, *linked)))
    for number, (channel, identity) in enumerate(barred):
        changed = AccessChanged(channel=channel, identity=identity, allowed=False, by=by)
        change(tx, changed, f"{token}:{number}" if number else token)
    asked = tx.rows(TURNS.queries.list_asked_turns)
    for session_id in dict.fromkeys(each for each, person, chat in asked if asker_owner(person, chat) in owners):
        stop_turns(tx, session_id, BARRED, is_alive, words=words, queued=True, asked_by=owners)
    return tuple(find_access(tx, *each) for each in barred)


class AccessList(TellingNamespace):
    """`record.access`: who asked to talk, who may, and who may no longer."""

    async def list(self, channel: str | None = None) -> list[Access]:
        """Return everybody whose access is known, the latest change first."""
        rows = await self._caller.read(lambda snapshot: snapshot.rows(SQL.list_access, (channel, ALL_ROWS)))
        return [access_value(row) for row in rows]

    async def find(self, channel: str, identity: str) -> Access:
        return await self._caller.read(lambda snapshot: find_access(snapshot, channel, identity))

    async def approve(
        self, code: str, *, by: str = "admin", welcome: str = "", pairing: Pairing | None = None
    ) -> Access:
        """Allow whoever was shown this code; `welcome` of the channel is said to them. NotFound when none waits."""
        approval = partial(
            approve,
            code=read_code(code),
            by=clean_name(by, "a name", NAME_CHARACTERS_MAX),
            welcome=welcome,
            pairing=pairing or Pairing(),
            token=new_id(),
        )
        approved = await self._caller.write(approval)
        if isinstance(approved, str):
            raise NotFound(approved)
        return approved

    async def allow(self, channel: str, identity: str, *, by: str = "admin") -> Access:
        changed = AccessChanged(
            channel=clean_name(channel, "a channel", NAME_CHARACTERS_MAX),
            identity=clean_name(identity, "a person", NAME_CHARACTERS_MAX),
            allowed=True,
            by=clean_name(by, "a name", NAME_CHARACTERS_MAX),
        )
        operation_id = new_id()
        return await self._caller.write(lambda tx: change(tx, changed, operation_id))

    async def revoke(
        self, channel: str, identity: str, *, also: Iterable[tuple[str, str]] = (), by: str = "admin"
    ) -> tuple[Access, ...]:
        """Bar a person, whatever the settings say: on this account, on those that are linked to it, and on `also`.

        Turns that this person asked for and nobody else are stopped. What they said stays.
        """
        accounts = tuple(
            (clean_name(where, "a channel", NAME_CHARACTERS_MAX), clean_name(who, "a person", NAME_CHARACTERS_MAX))
            for where, who in ((channel, identity), *also)
        )
        bar = partial(
            bar_person,
            identities=accounts,
            by=clean_name(by, "a name", NAME_CHARACTERS_MAX),
            token=new_id(),
            is_alive=self._caller.store.is_alive,
            words=self._words(),
        )
        return await self._caller.write(bar)
