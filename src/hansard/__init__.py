"""Hansard: an AI agent whose record never loses a word that anyone was shown.

Nothing in the program can talk to a person. It can only append to the record, and people see what is read back:

    inbound ──► intake ──► ┌────────────┐ ──► delivery ──► Matrix, Telegram
                           │ THE RECORD │ ──► terminal, web page, API (followers)
    model, tools ◄► engine ─► append-only ──► search, resume, export, context (views)
                           └────────────┘

    errors    the whole error tree
    tasks     cancel and wait, run side by side
    domain    pure values and rules that several stages share: messages, permissions, settings, limits, ids
    ports     what the outside must offer: a clock, a model, a tool, a channel
    journal   append, group commit, chain, two legs, streams, follow, verify; nothing of conversations
    record    one module for each concept: sessions, messages, turns, people, memory, deliveries, search
    models    OpenAI-compatible, Anthropic, the demo model, a scripted one; discovery
    channels  Matrix, with end-to-end encryption
    tools     what a model may call
    intake    what people say and command, into the record
    engine    turns: context, replies, tools, interrupts
    delivery  from the record to chats: posts, edits, receipts, audit
    interop   out of the record and into it: exports, imports from Hermes and from an export
    testing   conformance suite for record backends, fake clock, crash points, test tools
    app       configuration and wiring
    gateway   the process that runs channels: start, reload, health, leave
    cli       the terminal, and one file a command
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hansard.domain.deliveries import Cursor, Delivery, DeliveryState, Intake, Operation
    from hansard.domain.messages import File, Message, Reasoning, Role, Status, Text, ToolCall, ToolOutcome, ToolResult
    from hansard.domain.sessions import Link, Parent, Route, Session, SessionState, TurnInfo, TurnState
    from hansard.domain.settings import Busy
    from hansard.errors import (
        Ambiguous,
        ChannelBusy,
        ChannelDown,
        ChannelError,
        ChatGone,
        ConfigInvalid,
        FileUnreadable,
        GatewayRuns,
        HansardError,
        HomeMoved,
        HomeUnsafe,
        IdConflict,
        InvalidInput,
        LeaseHeld,
        LegsMixed,
        LimitReached,
        LogForked,
        LogUnwritable,
        ModelMissing,
        NotFound,
        OutcomeUnknown,
        OutputClosed,
        PastMissing,
        PostRefused,
        PostUnknown,
        RecordDamaged,
        RecordMigrated,
        RecordReadOnly,
        RecordRefused,
        RecordTooNew,
        RecordUnavailable,
        SessionEnded,
        StaleLease,
        StatusUnusable,
        TooLarge,
        UnsafeFilesystem,
        UnsupportedSQLite,
        UsedAfterFork,
        WrongState,
    )
    from hansard.journal.verify import Finding, Report
    from hansard.record.api import Record
    from hansard.record.conversation import Conversation
    from hansard.record.intake.events import Accepted
    from hansard.record.messages.entries import Chunk, Entry
    from hansard.record.search.asking import Hit
    from hansard.record.turns.holding import Reply, Turn

__version__ = "0.1.0"

__all__ = [
    "Accepted",
    "Ambiguous",
    "Busy",
    "ChannelBusy",
    "ChannelDown",
    "ChannelError",
    "ChatGone",
    "Chunk",
    "ConfigInvalid",
    "Conversation",
    "Cursor",
    "Delivery",
    "DeliveryState",
    "Entry",
    "File",
    "FileUnreadable",
    "Finding",
    "GatewayRuns",
    "HansardError",
    "Hit",
    "HomeMoved",
    "HomeUnsafe",
    "IdConflict",
    "Intake",
    "InvalidInput",
    "LeaseHeld",
    "LegsMixed",
    "LimitReached",
    "Link",
    "LogForked",
    "LogUnwritable",
    "Message",
    "ModelMissing",
    "NotFound",
    "Operation",
    "OutcomeUnknown",
    "OutputClosed",
    "Parent",
    "PastMissing",
    "PostRefused",
    "PostUnknown",
    "Reasoning",
    "Record",
    "RecordDamaged",
    "RecordMigrated",
    "RecordReadOnly",
    "RecordRefused",
    "RecordTooNew",
    "RecordUnavailable",
    "Reply",
    "Report",
    "Role",
    "Route",
    "Session",
    "SessionEnded",
    "SessionState",
    "StaleLease",
    "Status",
    "StatusUnusable",
    "Text",
    "TooLarge",
    "ToolCall",
    "ToolOutcome",
    "ToolResult",
    "Turn",
    "TurnInfo",
    "TurnState",
    "UnsafeFilesystem",
    "UnsupportedSQLite",
    "UsedAfterFork",
    "WrongState",
]

_HOMES = {
    "Accepted": "hansard.record.intake.events",
    "Ambiguous": "hansard.errors",
    "Busy": "hansard.domain.settings",
    "Chunk": "hansard.record.messages.entries",
    "ConfigInvalid": "hansard.errors",
    "Conversation": "hansard.record.conversation",
    "Cursor": "hansard.domain.deliveries",
    "Delivery": "hansard.domain.deliveries",
    "DeliveryState": "hansard.domain.deliveries",
    "Entry": "hansard.record.messages.entries",
    "File": "hansard.domain.messages",
    "Finding": "hansard.journal.verify",
    "HansardError": "hansard.errors",
    "HomeMoved": "hansard.errors",
    "Hit": "hansard.record.search.asking",
    "IdConflict": "hansard.errors",
    "Intake": "hansard.domain.deliveries",
    "InvalidInput": "hansard.errors",
    "LeaseHeld": "hansard.errors",
    "LimitReached": "hansard.errors",
    "Link": "hansard.domain.sessions",
    "LegsMixed": "hansard.errors",
    "LogForked": "hansard.errors",
    "LogUnwritable": "hansard.errors",
    "Message": "hansard.domain.messages",
    "ChannelBusy": "hansard.errors",
    "ChannelDown": "hansard.errors",
    "ChannelError": "hansard.errors",
    "ChatGone": "hansard.errors",
    "GatewayRuns": "hansard.errors",
    "HomeUnsafe": "hansard.errors",
    "StatusUnusable": "hansard.errors",
    "FileUnreadable": "hansard.errors",
    "OutputClosed": "hansard.errors",
    "PastMissing": "hansard.errors",
    "PostRefused": "hansard.errors",
    "PostUnknown": "hansard.errors",
    "ModelMissing": "hansard.errors",
    "NotFound": "hansard.errors",
    "Operation": "hansard.domain.deliveries",
    "OutcomeUnknown": "hansard.errors",
    "Parent": "hansard.domain.sessions",
    "Reasoning": "hansard.domain.messages",
    "Record": "hansard.record.api",
    "RecordDamaged": "hansard.errors",
    "RecordMigrated": "hansard.errors",
    "RecordReadOnly": "hansard.errors",
    "RecordRefused": "hansard.errors",
    "RecordTooNew": "hansard.errors",
    "RecordUnavailable": "hansard.errors",
    "Reply": "hansard.record.turns.holding",
    "Report": "hansard.journal.verify",
    "Role": "hansard.domain.messages",
    "Route": "hansard.domain.sessions",
    "Session": "hansard.domain.sessions",
    "SessionEnded": "hansard.errors",
    "SessionState": "hansard.domain.sessions",
    "StaleLease": "hansard.errors",
    "Status": "hansard.domain.messages",
    "Text": "hansard.domain.messages",
    "TooLarge": "hansard.errors",
    "ToolCall": "hansard.domain.messages",
    "ToolOutcome": "hansard.domain.messages",
    "ToolResult": "hansard.domain.messages",
    "Turn": "hansard.record.turns.holding",
    "TurnInfo": "hansard.domain.sessions",
    "TurnState": "hansard.domain.sessions",
    "UnsafeFilesystem": "hansard.errors",
    "UnsupportedSQLite": "hansard.errors",
    "UsedAfterFork": "hansard.errors",
    "WrongState": "hansard.errors",
}
"""Where each public name lives. It is imported when it is first used: `hansard --help` needs none of them."""


def __getattr__(name: str) -> object:
    """Import a public name."""
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return [*__all__, "__version__"]
