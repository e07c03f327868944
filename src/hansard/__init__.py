"""Hansard: an AI agent whose record never loses a word that anyone was shown.

Nothing in the program can talk to a person. It can only append to the record, and people see what is read back:

    inbound ──► intake ──► ┌────────────┐ ──► delivery ──► Matrix, Telegram
                           │ THE RECORD │ ──► terminal, web page, API (followers)
    model, tools ◄► engine ─► append-only ──► search, resume, export, context (views)
                           └────────────┘

    errors    the whole error tree
    domain    pure values and rules: messages, entries, sessions, turns, deliveries, limits, ids
    ports     what the outside must offer
    record    the only place that knows a database: writer, log, projections, follow, verify
    testing   conformance suite for record backends, fake clock, crash points
    cli       one file a command
"""

from hansard.domain.deliveries import Cursor, Delivery, DeliveryState, Intake, Operation
from hansard.domain.entries import Chunk, Entry
from hansard.domain.messages import File, Message, Reasoning, Role, Status, Text, ToolCall, ToolOutcome, ToolResult
from hansard.domain.sessions import Link, Parent, Route, Session, SessionState
from hansard.domain.turns import TurnInfo, TurnState
from hansard.errors import (
    Ambiguous,
    HansardError,
    IdConflict,
    InvalidInput,
    LeaseHeld,
    LogForked,
    NotFound,
    OutcomeUnknown,
    RecordDamaged,
    RecordRefused,
    RecordTooNew,
    RecordUnavailable,
    SessionEnded,
    StaleLease,
    TooLarge,
    UnsafeFilesystem,
    UnsupportedSQLite,
    UsedAfterFork,
    WrongState,
)
from hansard.record.api import Record
from hansard.record.operations.home import Accepted
from hansard.record.turn import Reply, Turn
from hansard.record.verify import Finding, Report

__version__ = "0.1.0"

__all__ = [
    "Accepted",
    "Ambiguous",
    "Chunk",
    "Cursor",
    "Delivery",
    "DeliveryState",
    "Entry",
    "File",
    "Finding",
    "HansardError",
    "IdConflict",
    "Intake",
    "InvalidInput",
    "LeaseHeld",
    "Link",
    "LogForked",
    "Message",
    "NotFound",
    "Operation",
    "OutcomeUnknown",
    "Parent",
    "Reasoning",
    "Record",
    "RecordDamaged",
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
