"""What callers ask of a record, checked and cleaned before anything is written."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, TypedDict, TypeVar

import msgspec

from hansard.domain.deliveries import Cursor, Delivery, DeliveryState, Intake
from hansard.domain.entries import SessionSet
from hansard.domain.ids import check_entry_id, check_session_id, new_id
from hansard.domain.limits import (
    CONTEXT_MESSAGES_MAX,
    HITS_MAX,
    NAME_CHARACTERS_MAX,
    REASON_CHARACTERS_MAX,
    TITLE_CHARACTERS_MAX,
    UNIT_ENTRIES_MAX,
)
from hansard.domain.messages import Role
from hansard.domain.sessions import Link, Parent
from hansard.domain.text import INTEGER_MAX, clean_name, clean_text
from hansard.errors import InvalidInput, TooLarge
from hansard.record.operations import deliveries, messages, sessions
from hansard.record.operations import home as home_ops
from hansard.record.searching import AT_MAX, AT_MIN, SAID_ROLES, Search

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hansard.domain.messages import Message
    from hansard.domain.settings import Busy

Value = TypeVar("Value", Intake, Cursor, Delivery)


State = TypeVar("State", bound=StrEnum)


@cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a kind of value; msgspec reads its annotations anew each time."""
    return msgspec.structs.fields(kind)


def clean_struct(value: Value) -> Value:
    """Return a value of names with every text as it can be recorded; only fields with a default may be empty."""
    changes = {}
    for field in fields_of(type(value)):
        text = getattr(value, field.name)
        if isinstance(text, str) and not isinstance(text, StrEnum) and (text or field.required):
            changes[field.name] = clean_name(text, f"a {field.name.replace('_', ' ')}", NAME_CHARACTERS_MAX)
    return msgspec.structs.replace(value, **changes)


def one_of(states: type[State], text: str | None) -> State | None:
    """Return a state by its name."""
    if text is None:
        return None
    try:
        return states(text)
    except ValueError:
        message = f"{text!r} is none of {', '.join(states)}"
        raise InvalidInput(message) from None


def describe_session(
    id: str, source: str, owner: str, title: str | None, parent: str | Parent | None, *, given: bool
) -> sessions.NewSession:
    """Check and clean what a caller says of a session."""
    parent = Parent(session_id=parent) if isinstance(parent, str) else parent
    if parent is not None:
        check_session_id(parent.session_id)
        if parent.link == Link.FORK:
            message = "a fork is made by Record.fork, which shares the parent's entries"
            raise InvalidInput(message)
    return sessions.NewSession(
        check_session_id(id),
        given,
        new_id(),
        clean_name(source, "a source", NAME_CHARACTERS_MAX),
        clean_name(owner, "an owner", NAME_CHARACTERS_MAX),
        None if title is None else clean_name(title, "a title", TITLE_CHARACTERS_MAX),
        parent,
    )


def describe_fork(parent_id: str, at: int | None, id: str, title: str | None, *, given: bool) -> sessions.Fork:
    """Check and clean what a caller says of a fork."""
    cleaned = None if title is None else clean_name(title, "a title", TITLE_CHARACTERS_MAX)
    return sessions.Fork(parent_id, at, check_session_id(id), given, new_id(), cleaned)


def describe_inbound(
    entries: Sequence[tuple[str, Message]],
    intake: Intake | None,
    cursor: Cursor | None,
    busy: Busy,
    *,
    queue_turn: bool,
    answers: bool = False,
) -> home_ops.Inbound:
    """Check and clean an inbound event."""
    if len(entries) > UNIT_ENTRIES_MAX:
        message = f"{len(entries)} entries in one call; the limit is {UNIT_ENTRIES_MAX}"
        raise TooLarge(message)
    offered = tuple((session_id, messages.offer(each)) for session_id, each in entries)
    cleaned_intake = clean_struct(intake) if intake else None
    cleaned_cursor = clean_struct(cursor) if cursor else None
    return home_ops.Inbound(offered, cleaned_intake, cleaned_cursor, queue_turn, busy, answers)


def describe_setting(name: str, value: str) -> SessionSet:
    """Check and clean a setting of a session."""
    return SessionSet(
        name=clean_name(name, "a setting", NAME_CHARACTERS_MAX), value=clean_name(value, "a value", NAME_CHARACTERS_MAX)
    )


def describe_route_move(key: str, session_id: str, reason: str, expect: int | None) -> home_ops.RouteMove:
    """Check and clean where a session key is to lead."""
    return home_ops.RouteMove(
        clean_name(key, "a session key", NAME_CHARACTERS_MAX),
        check_session_id(session_id),
        clean_text(reason)[:REASON_CHARACTERS_MAX],
        expect,
        new_id(),
    )


def check_delivery(delivery: Delivery) -> Delivery:
    """Check and clean a delivery."""
    check_entry_id(delivery.id)
    cleaned = clean_struct(delivery)
    if not 0 <= delivery.start_bytes <= delivery.end_bytes <= INTEGER_MAX:
        message = f"a delivery of the bytes {delivery.start_bytes} to {delivery.end_bytes}"
        raise InvalidInput(message)
    if not 0 <= delivery.file <= INTEGER_MAX:
        message = f"a delivery of file {delivery.file}"
        raise InvalidInput(message)
    return cleaned


def describe_delivery_move(  # noqa: PLR0917
    session_id: str, delivery_id: str, state: DeliveryState | str, receipt: str, reason: str, owner: str
) -> deliveries.DeliveryMove:
    """Check and clean where a delivery goes."""
    return deliveries.DeliveryMove(
        session_id,
        delivery_id,
        one_of(DeliveryState, state) or DeliveryState.PENDING,
        owner,
        clean_text(receipt)[:NAME_CHARACTERS_MAX],
        clean_text(reason)[:REASON_CHARACTERS_MAX],
        new_id(),
    )


class Filters(TypedDict, total=False):
    """Where to search. Times are moments; `everything` finds what was undone, too."""

    role: str
    owner: str
    source: str
    session_id: str
    title: str
    tool: str
    since: datetime
    until: datetime
    tools: bool
    everything: bool


def describe_search(query: str, limit: int, context: int, filters: Filters) -> Search:
    """Check what a caller searches for."""
    role = one_of(Role, filters.get("role"))
    since, until = filters.get("since"), filters.get("until")
    return Search(
        clean_text(query),
        max(0, min(limit, HITS_MAX)),
        max(0, min(context, CONTEXT_MESSAGES_MAX)),
        (role,) if role is not None else SAID_ROLES,
        filters.get("owner"),
        filters.get("source"),
        filters.get("session_id"),
        filters.get("title"),
        AT_MIN if since is None else round(since.timestamp() * 1_000_000),
        AT_MAX if until is None else round(until.timestamp() * 1_000_000),
        filters.get("tool", ""),
        filters.get("tools", False) or bool(filters.get("tool")) or role is Role.TOOL,
        filters.get("everything", False),
    )
