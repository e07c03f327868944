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
    channels  Matrix, with end-to-end encryption; Telegram
    tools     what a model may call
    intake    what people say and command, into the record
    engine    turns: context, replies, tools, interrupts
    delivery  from the record to chats: posts, edits, receipts, audit
    interop   out of the record and into it: exports, imports from Hermes and from an export
    testing   conformance suites for record backends and channels, fake clock, crash points, test tools
    app       configuration and wiring
    gateway   the process that runs channels: start, reload, health, leave
    cli       the terminal, and one file a command
"""

from importlib import import_module

TYPE_CHECKING = False  # Not imported from typing: until Ctrl-C is handled, nothing more is imported.

if TYPE_CHECKING:
    from hansard.domain.arrivals import Cursor, Intake
    from hansard.domain.deliveries import Delivery, DeliveryState, Operation
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
        GatewaySilent,
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
    "GatewaySilent",
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
    "hansard.domain.arrivals": ("Cursor", "Intake"),
    "hansard.domain.deliveries": ("Delivery", "DeliveryState", "Operation"),
    "hansard.domain.messages": (
        "File",
        "Message",
        "Reasoning",
        "Role",
        "Status",
        "Text",
        "ToolCall",
        "ToolOutcome",
        "ToolResult",
    ),
    "hansard.domain.sessions": ("Link", "Parent", "Route", "Session", "SessionState", "TurnInfo", "TurnState"),
    "hansard.domain.settings": ("Busy",),
    "hansard.journal.verify": ("Finding", "Report"),
    "hansard.record.api": ("Record",),
    "hansard.record.conversation": ("Conversation",),
    "hansard.record.intake.events": ("Accepted",),
    "hansard.record.messages.entries": ("Chunk", "Entry"),
    "hansard.record.search.asking": ("Hit",),
    "hansard.record.turns.holding": ("Reply", "Turn"),
}
"""Where public names live; all others are errors. Each is imported at its first use: `hansard --help` needs none."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = next((home for home, names in _HOMES.items() if name in names), "hansard.errors")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
