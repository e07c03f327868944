"""Access: who may talk. Strangers are shown a code, and the admin decides.

Entries (home journal): access.asked, .tried, .changed, rules.declared. Table: access. SQL: access.sql.
Invariant: what the admin revoked stays revoked, whatever the settings say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hansard.domain.access import (
    DAY_MICROSECONDS,
    HOUR_MICROSECONDS,
    Access,
    Action,
    Grant,
    Pace,
    may,
    may_be_shown_code,
    may_try_code,
    new_code,
    read_code,
    stranger_source,
    written_code,
)
from hansard.domain.chats import identity_of, person_owner
from hansard.domain.ids import HOME_JOURNAL, new_id
from hansard.domain.limits import NAME_CHARACTERS_MAX
from hansard.domain.messages import Message, Role, Text, join_text
from hansard.domain.permissions import digest_of
from hansard.domain.sessions import SessionState
from hansard.domain.settings import Pairing
from hansard.domain.text import clean_name
from hansard.errors import NotFound
from hansard.journal.concepts import Body, Concept, EntryPlace, Table
from hansard.journal.reading import SQL as JOURNAL
from hansard.journal.reading import home_journal
from hansard.record.circles import read_circle
from hansard.record.messages.entries import MessageAdded
from hansard.record.messages.operations import append, offer
from hansard.record.pace import PACE
from hansard.record.routes import find_route
from hansard.record.sessions import ALL_ROWS, session_journal
from hansard.record.turns.entries import TURNS
from hansard.record.turns.operations import stop_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from hansard.domain.arrivals import IntakeRules, Invited
    from hansard.domain.notices import Wording
    from hansard.domain.permissions import ToolRule
    from hansard.journal.backend import Reads
    from hansard.journal.calls import Caller
    from hansard.journal.transaction import Transaction
    from hansard.record.turns.operations import IsAlive

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


@ACCESS.entry("rules.declared")
class RulesDeclared(Body, frozen=True):
    """The rules of `[[tools.rules]]` as a process loaded them, where they differ from those that were loaded before."""

    digest: str
    rules: tuple[str, ...] = ()
    by: str = ""
    """The user of this machine whose process loaded it."""


@ACCESS.projects(AccessAsked)
def project_access_asked(place: EntryPlace, body: AccessAsked) -> None:
    asked = (body.channel, body.identity, body.code, body.expires_at, body.chat)
    place.run(SQL.ask_access, (*asked, place.at, DAY_MICROSECONDS))
    for name in ("asked", f"asked {stranger_source(body.channel, body.identity, body.chat)}"):
        place.run(PACE.queries.add_pace, (name, place.at, HOUR_MICROSECONDS, 1))


@ACCESS.projects(AccessTried)
def project_access_tried(place: EntryPlace, _body: AccessTried) -> None:
    place.run(PACE.queries.add_pace, ("tried", place.at, HOUR_MICROSECONDS, 1))


@ACCESS.projects(AccessChanged)
def project_access_changed(place: EntryPlace, body: AccessChanged) -> None:
    state = Grant.ALLOWED if body.allowed else Grant.REVOKED
    place.run(SQL.change_access, (body.channel, body.identity, state, place.at, body.by))


MINUTE_MICROSECONDS = 60_000_000
BARRED = "the person may talk no longer"
"""Why the turns of somebody who is barred end."""


def access_value(row: tuple[Any, ...]) -> Access:
    """Return what a row says."""
    channel, identity, state, code, expires_at, chat, changed_at, changed_by, asked_since, asked_count = row
    return Access(
        channel=channel,
        identity=identity,
        state=Grant(state),
        code=code,
        expires_at=expires_at,
        chat=chat,
        changed_at=changed_at,
        by=changed_by,
        asked_since=asked_since,
        asked_count=asked_count,
    )


def find_access(tx: Transaction, channel: str, identity: str) -> Access | None:
    """Return what is known of somebody, or None."""
    row = tx.row(SQL.find_access, (channel, identity))
    return None if row is None else access_value(row)


def grant_of(tx: Transaction, channel: str, identity: str) -> Grant:
    """Return what the record says of somebody."""
    known = find_access(tx, channel, identity)
    return Grant.NONE if known is None else known.state


def read_pace(tx: Transaction, name: str) -> Pace:
    """Return how often something happened."""
    row = tx.row(PACE.queries.find_pace, (name,))
    return Pace() if row is None else Pace(*row)


def tell_at_home(tx: Transaction, chat: str, text: str, id: str = "") -> str:
    """Tell something in a chat that has no session: a notice of the home journal."""
    message_id = id or new_id()
    tx.add(home_journal(tx), message_id, MessageAdded(role=Role.NOTICE, parts=(Text(text),), chat=chat))
    return message_id


def tell_in_chat(tx: Transaction, chat: str, text: str) -> None:
    """Tell something in a chat: in the session that it leads to, so that it stands in that session's transcript.

    A chat that leads to no open session is told in the home journal.
    """
    route = find_route(tx, chat)
    if route is None or session_journal(tx, route.session_id)[1].state == SessionState.ENDED:
        tell_at_home(tx, chat, text)
    else:
        append(tx, route.session_id, offer(Message.notice(text, chat=chat)))


class Stranger(NamedTuple):
    """A stranger, and where they are."""

    channel: str
    identity: str
    chat: str


def ask(tx: Transaction, asking: Stranger, rules: IntakeRules, words: Wording) -> bool:
    """Show a stranger a code for the admin, if it is time for one; return whether it was."""
    code = give_code(tx, asking, rules)
    if code:
        tell_at_home(tx, asking.chat, words.code.format(code=written_code(code), minutes=rules.pairing.code_minutes))
    return bool(code)


def decline(tx: Transaction, invited: Invited, rules: IntakeRules, words: Wording) -> str:
    """Return why an invitation is declined, with a code where it is time for one; nothing for who may not even ask.

    No chat can show it, so it is a notice without one. While the code waits, the same words are given again.
    """
    known = find_access(tx, invited.channel, invited.identity)
    if not rules.pairing.enabled or not may(Action.ASK, invited.standing, known.state if known else Grant.NONE):
        return ""
    waits = known is not None and known.is_waiting(tx.clock.now_microseconds())
    code = known.code if known and waits else give_code(tx, Stranger(invited.channel, invited.identity, ""), rules)
    if not code:
        return ""
    text = words.declined.format(code=written_code(code), minutes=rules.pairing.code_minutes)
    home = home_journal(tx)
    told = tx.find(home, f"declined-{code}")
    if told is None:
        tell_at_home(tx, "", text, f"declined-{code}")
        return text
    body = tx.decode(told)
    return join_text(body.parts) if isinstance(body, MessageAdded) else ""


def give_code(tx: Transaction, asking: Stranger, rules: IntakeRules) -> str:
    """Return a new code for a stranger, if it is time for one."""
    now = tx.clock.now_microseconds()
    known = find_access(tx, asking.channel, asking.identity)
    source = stranger_source(asking.channel, asking.identity, asking.chat)
    if not may_be_shown_code(known, read_pace(tx, "asked"), read_pace(tx, f"asked {source}"), rules.pairing, now):
        return ""
    code = new_code()
    while tx.row(SQL.find_access_by_code, (code,)) is not None:
        code = new_code()
    asked = AccessAsked(
        channel=asking.channel,
        identity=asking.identity,
        code=code,
        expires_at=now + rules.pairing.code_minutes * MINUTE_MICROSECONDS,
        chat=asking.chat,
    )
    home = home_journal(tx)
    tx.add(home, f"~asked:{home.head_seq + 1}", asked)
    return code


class Approval(NamedTuple):
    """What the admin asks for: a code, in the name of whom, and what the person is told then."""

    code: str
    by: str
    welcome: str
    pairing: Pairing
    operation_id: str


class Approved(NamedTuple):
    """Who may talk now; None with why not."""

    access: Access | None
    refusal: str = ""


NO_SUCH_CODE = "no such code waits: it was never given, was used, or its time is over"


def approve(tx: Transaction, approval: Approval) -> Approved:
    """Allow whoever was shown a code. A code counts once, for that person; wrong ones are counted."""
    home = home_journal(tx)
    done = tx.find(home, f"~access:{approval.operation_id}")
    if done is not None:
        body = tx.decode(done)
        return Approved(_read(tx, body.channel, body.identity) if isinstance(body, AccessChanged) else None)
    if tx.find(home, f"~tried:{approval.operation_id}") is not None:
        return Approved(None, NO_SUCH_CODE)
    now = tx.clock.now_microseconds()
    if not may_try_code(read_pace(tx, "tried"), approval.pairing, now):
        return Approved(None, "too many wrong codes were tried: wait an hour")
    row = tx.row(SQL.find_access_by_code, (approval.code,))
    known = None if row is None else access_value(row)
    if known is None or not known.is_waiting(now):
        tx.add(home, f"~tried:{approval.operation_id}", AccessTried(by=approval.by))
        return Approved(None, NO_SUCH_CODE)
    changed = AccessChanged(
        channel=known.channel, identity=known.identity, allowed=True, by=approval.by, code=approval.code
    )
    tx.add(home, f"~access:{approval.operation_id}", changed)
    if known.chat and approval.welcome:
        tell_in_chat(tx, known.chat, approval.welcome)
    return Approved(_read(tx, known.channel, known.identity))


def change(tx: Transaction, changed: AccessChanged, operation_id: str) -> Access:
    """Allow somebody by name, or bar them; what is so already stays as it is."""
    home = home_journal(tx)
    wanted = Grant.ALLOWED if changed.allowed else Grant.REVOKED
    if grant_of(tx, changed.channel, changed.identity) is not wanted:
        tx.add(home, f"~access:{operation_id}", changed)
    return _read(tx, changed.channel, changed.identity)


def last_rules(reads: Reads, home: int) -> tuple[int, str]:
    """Return how many times rules were recorded, and the hash of the last ones; empty when there were none."""
    number, digest = 0, ""
    while found := reads.rows(JOURNAL.find_entry, (home, f"~rules:{number + 1}")):
        number += 1
        _, kind, version, _, data = found[0]
        body = reads.schema.decode_body(kind, version, data)
        digest = body.digest if isinstance(body, RulesDeclared) else digest
    return number, digest


def declare_rules(tx: Transaction, declared: RulesDeclared) -> bool:
    """Record the rules that a process loaded, unless they are those of before; return whether that is news."""
    home = home_journal(tx)
    number, digest = last_rules(tx, home.key)
    if digest == declared.digest:
        return False
    tx.add(home, f"~rules:{number + 1}", declared)
    return True


class Barring(NamedTuple):
    """Whom the admin bars: every account of one person, the named one first."""

    identities: tuple[tuple[str, str], ...]
    by: str
    operation_id: str


def bar_person(tx: Transaction, barring: Barring, is_alive: IsAlive, words: Wording) -> tuple[Access, ...]:
    """Bar a person on all accounts, linked ones included, and stop the turns that only this person asked for."""
    owners = {each for one in barring.identities for each in read_circle(tx.rows, person_owner(*one))}
    linked = sorted(found for each in owners if (found := identity_of(each)) is not None)
    barred = tuple(dict.fromkeys((*barring.identities, *linked)))
    for number, (channel, identity) in enumerate(barred):
        changed = AccessChanged(channel=channel, identity=identity, allowed=False, by=barring.by)
        change(tx, changed, f"{barring.operation_id}:{number}" if number else barring.operation_id)
    for (session_id,) in tx.rows(TURNS.queries.list_asked_sessions, (msgspec.json.encode(sorted(owners)).decode(),)):
        stop_turns(tx, session_id, BARRED, is_alive, words=words, queued=True, asked_by=owners)
    return tuple(_read(tx, *each) for each in barred)


def _read(tx: Transaction, channel: str, identity: str) -> Access:
    return find_access(tx, channel, identity) or Access(channel=channel, identity=identity)


class AccessBook:
    """Who asked to talk, who may, and who may no longer."""

    def __init__(self, caller: Caller, words: Callable[[], Wording]) -> None:
        """Use `record.access`."""
        self._caller, self._words = caller, words

    async def list(self, channel: str | None = None) -> list[Access]:
        """Return everybody whose access is known, the latest change first."""
        rows = await self._caller.read(lambda snapshot: snapshot.rows(SQL.list_access, (channel, ALL_ROWS)))
        return [access_value(row) for row in rows]

    async def declare_rules(self, rules: Iterable[ToolRule], *, by: str = "") -> bool:
        """Record the rules of tools that a process loaded; return whether they are news. If not, nothing is written."""
        table = tuple(rules)
        declared = RulesDeclared(digest=digest_of(table), rules=tuple(str(each) for each in table), by=by)

        def read(snapshot: Reads) -> str:
            home = snapshot.row(JOURNAL.read_journal, (HOME_JOURNAL,))
            return last_rules(snapshot, home[0])[1] if home is not None else ""

        if await self._caller.read(read) == declared.digest:
            return False
        return await self._caller.write(lambda tx: declare_rules(tx, declared))

    async def find(self, channel: str, identity: str) -> Access:
        """Return what is known of somebody; of a stranger, that nothing is."""

        def read(snapshot: Reads) -> Access:
            row = snapshot.row(SQL.find_access, (channel, identity))
            return Access(channel=channel, identity=identity) if row is None else access_value(row)

        return await self._caller.read(read)

    async def approve(
        self,
        code: str,
        *,
        by: str = "admin",
        welcome: str = "",
        pairing: Pairing | None = None,
    ) -> Access:
        """Allow whoever was shown this code; `welcome` of the channel is said to them. NotFound when none waits."""
        approval = Approval(
            read_code(code), clean_name(by, "a name", NAME_CHARACTERS_MAX), welcome, pairing or Pairing(), new_id()
        )
        approved = await self._caller.write(lambda tx: approve(tx, approval))
        if approved.access is None:
            raise NotFound(approved.refusal)
        return approved.access

    async def allow(self, channel: str, identity: str, *, by: str = "admin") -> Access:
        """Allow somebody by name."""
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
        barring = Barring(accounts, clean_name(by, "a name", NAME_CHARACTERS_MAX), new_id())
        is_alive, words = self._caller.store.is_alive, self._words()
        return await self._caller.write(lambda tx: bar_person(tx, barring, is_alive, words))
