"""Who may talk: strangers ask, the admin decides. Facts of the home journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hansard.domain import entries as e
from hansard.domain.access import (
    Access,
    Action,
    Grant,
    Pace,
    may,
    may_be_shown_code,
    may_try_code,
    new_code,
    stranger_source,
    written_code,
)
from hansard.domain.chats import identity_of, person_owner
from hansard.domain.entries_people import RulesDeclared
from hansard.domain.ids import new_id
from hansard.domain.messages import Message, Role, Text, join_text
from hansard.domain.sessions import SessionState
from hansard.domain.settings import Pairing
from hansard.record.operations.following import read_circle
from hansard.record.operations.home import find_route, home_journal
from hansard.record.operations.messages import append, offer
from hansard.record.operations.talk import stop_turns
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from hansard.domain.arrivals import Invited, Rules
    from hansard.record.operations.following import Rows
    from hansard.record.operations.turns import IsAlive
    from hansard.record.transaction import Transaction

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
    row = tx.row(SQL.find_pace, (name,))
    return Pace() if row is None else Pace(*row)


def tell_at_home(tx: Transaction, chat: str, text: str, id: str = "") -> str:
    """Tell something in a chat that has no session: a notice of the home journal."""
    message_id = id or new_id()
    tx.add(home_journal(tx), message_id, e.MessageAdded(role=Role.NOTICE, parts=(Text(text),), chat=chat))
    return message_id


def tell_in_chat(tx: Transaction, chat: str, text: str) -> None:
    """Tell something in a chat: in the session that it leads to, so that it stands in that session's transcript.

    A chat that leads to no open session is told in the home journal.
    """
    route = find_route(tx, chat)
    if route is None or tx.session(route.session_id)[1].state == SessionState.ENDED:
        tell_at_home(tx, chat, text)
    else:
        append(tx, route.session_id, offer(Message.notice(text, chat=chat)))


class Asking(NamedTuple):
    """A stranger, and where they are."""

    channel: str
    identity: str
    chat: str


def ask(tx: Transaction, asking: Asking, rules: Rules) -> bool:
    """Show a stranger a code for the admin, if it is time for one; return whether it was."""
    code = give_code(tx, asking, rules)
    if code:
        tell_at_home(tx, asking.chat, rules.words.code(written_code(code), rules.pairing.code_minutes))
    return bool(code)


def decline(tx: Transaction, invited: Invited, rules: Rules) -> str:
    """Return why an invitation is declined, with a code where it is time for one; nothing for who may not even ask.

    No chat can show it, so it is a notice without one. While the code waits, the same words are given again.
    """
    known = find_access(tx, invited.channel, invited.identity)
    if not rules.pairing.enabled or not may(Action.ASK, invited.standing, known.state if known else Grant.NONE):
        return ""
    waits = known is not None and known.is_waiting(tx.clock.now_microseconds())
    code = known.code if known and waits else give_code(tx, Asking(invited.channel, invited.identity, ""), rules)
    if not code:
        return ""
    text, home = rules.words.declined(written_code(code), rules.pairing.code_minutes), home_journal(tx)
    told = tx.find(home, f"declined-{code}")
    if told is None:
        tell_at_home(tx, "", text, f"declined-{code}")
        return text
    body = e.decode_body(told.kind, told.version, told.body)
    return join_text(body.parts) if isinstance(body, e.MessageAdded) else ""


def give_code(tx: Transaction, asking: Asking, rules: Rules) -> str:
    """Return a new code for a stranger, if it is time for one."""
    now = tx.clock.now_microseconds()
    known = find_access(tx, asking.channel, asking.identity)
    source = stranger_source(asking.channel, asking.identity, asking.chat)
    if not may_be_shown_code(known, read_pace(tx, "asked"), read_pace(tx, f"asked {source}"), rules.pairing, now):
        return ""
    code = new_code()
    while tx.row(SQL.find_access_by_code, (code,)) is not None:
        code = new_code()
    asked = e.AccessAsked(
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
    welcome: Callable[[str], str]
    """By the channel on which it is said."""
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
        body = e.decode_body(done.kind, done.version, done.body)
        return Approved(_read(tx, body.channel, body.identity) if isinstance(body, e.AccessChanged) else None)
    if tx.find(home, f"~tried:{approval.operation_id}") is not None:
        return Approved(None, NO_SUCH_CODE)
    now = tx.clock.now_microseconds()
    if not may_try_code(read_pace(tx, "tried"), approval.pairing, now):
        return Approved(None, "too many wrong codes were tried: wait an hour")
    row = tx.row(SQL.find_access_by_code, (approval.code,))
    known = None if row is None else access_value(row)
    if known is None or not known.is_waiting(now):
        tx.add(home, f"~tried:{approval.operation_id}", e.AccessTried(by=approval.by))
        return Approved(None, NO_SUCH_CODE)
    changed = e.AccessChanged(
        channel=known.channel, identity=known.identity, allowed=True, by=approval.by, code=approval.code
    )
    tx.add(home, f"~access:{approval.operation_id}", changed)
    welcome = approval.welcome(known.channel) if known.chat else ""
    if welcome:
        tell_in_chat(tx, known.chat, welcome)
    return Approved(_read(tx, known.channel, known.identity))


def change(tx: Transaction, changed: e.AccessChanged, operation_id: str) -> Access:
    """Allow somebody by name, or bar them; what is so already stays as it is."""
    home = home_journal(tx)
    wanted = Grant.ALLOWED if changed.allowed else Grant.REVOKED
    if grant_of(tx, changed.channel, changed.identity) is not wanted:
        tx.add(home, f"~access:{operation_id}", changed)
    return _read(tx, changed.channel, changed.identity)


def last_rules(rows: Rows, home: int) -> tuple[int, str]:
    """Return how many times rules were recorded, and the hash of the last ones; empty when there were none."""
    number, digest = 0, ""
    while found := rows(SQL.find_entry, (home, f"~rules:{number + 1}")):
        number += 1
        _, kind, version, _, data = found[0]
        body = e.decode_body(kind, version, data)
        digest = body.digest if isinstance(body, RulesDeclared) else digest
    return number, digest


def declare_rules(tx: Transaction, declared: RulesDeclared) -> bool:
    """Record the rules that a process loaded, unless they are those of before; return whether that is news."""
    home = home_journal(tx)
    number, digest = last_rules(tx.rows, home.key)
    if digest == declared.digest:
        return False
    tx.add(home, f"~rules:{number + 1}", declared)
    return True


class Barring(NamedTuple):
    """Whom the admin bars: every account of one person, the named one first."""

    identities: tuple[tuple[str, str], ...]
    by: str
    operation_id: str


def bar_person(tx: Transaction, barring: Barring, is_alive: IsAlive) -> tuple[Access, ...]:
    """Bar a person on all accounts, linked ones included, and stop the turns that only this person asked for."""
    owners = {each for one in barring.identities for each in read_circle(tx.rows, person_owner(*one))}
    linked = sorted(found for each in owners if (found := identity_of(each)) is not None)
    barred = tuple(dict.fromkeys((*barring.identities, *linked)))
    for number, (channel, identity) in enumerate(barred):
        changed = e.AccessChanged(channel=channel, identity=identity, allowed=False, by=barring.by)
        change(tx, changed, f"{barring.operation_id}:{number}" if number else barring.operation_id)
    for (session_id,) in tx.rows(SQL.list_asked_sessions, (msgspec.json.encode(sorted(owners)).decode(),)):
        stop_turns(tx, session_id, BARRED, is_alive, queued=True, asked_by=owners)
    return tuple(_read(tx, *each) for each in barred)


def _read(tx: Transaction, channel: str, identity: str) -> Access:
    return find_access(tx, channel, identity) or Access(channel=channel, identity=identity)
