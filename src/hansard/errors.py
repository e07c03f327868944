"""Every error that Hansard raises, in one tree.

    HansardError
    ├── InvalidInput             a value that cannot be recorded
    │   ├── TooLarge             over a limit of hansard.domain.limits
    │   ├── FileUnreadable       a file that a person named is not there, or cannot be read
    │   └── ConfigInvalid        a setting, or a file of settings, is not as it must be
    │       └── HomeUnsafe       others can change the home or its settings, or read its keys
    ├── IdConflict               the id is taken by something else
    ├── NotFound                 no such session, entry, blob, route or delivery
    ├── Ambiguous                several sessions match; carries the candidates
    ├── SessionEnded             the session takes no new words until it is reopened
    ├── LeaseHeld                another turn runs in the session; names the holder
    ├── StaleLease               this turn was closed or replaced; names the new holder
    ├── WrongState               the move is not allowed from the present state
    ├── ModelMissing             there is no model to talk to
    ├── LimitReached             a limit of the day ended a turn before it began; people were told
    ├── OutputClosed             standard output is closed: nothing could be shown
    ├── GatewayRuns              another gateway serves this account already
    ├── StatusUnusable           a gateway may run, and cannot be asked: its file is damaged, or it is silent
    │   └── GatewaySilent        its process is there, and is stopped or does not answer
    ├── ChannelError             a platform did not do what it was asked
    │   ├── ChannelBusy          it asks to wait; surely nothing was shown
    │   ├── ChannelDown          it cannot be reached; surely nothing was shown
    │   ├── ChatGone             the chat is gone or forbidden: no other attempt helps
    │   ├── PostRefused          this post can never be shown
    │   └── PostUnknown          it may have been shown, or not
    ├── UsedAfterFork            a record that was opened before fork() is used in the child
    ├── RecordUnavailable        not written or not read; what was recorded is safe
    │   └── LogUnwritable        the log of one journal cannot be written; the other journals go on
    ├── OutcomeUnknown           written or not: repeat with the same id to know
    └── RecordRefused            the record cannot be used as it is
        ├── RecordReadOnly       it was opened for reading only
        ├── RecordTooNew         written by a newer Hansard
        │   └── RecordMigrated   by one that came while this one ran
        ├── HomeMoved            the home is not where it was when it was opened
        ├── RecordDamaged        a file is not what it must be
        ├── LogForked            a log and the database tell two different stories
        ├── PastMissing          a fork's parent does not hold the entries that the fork continues
        ├── LegsMixed            the database and the logs belong to two different homes
        ├── UnsafeFilesystem     WAL cannot be trusted there
        └── UnsupportedSQLite    the SQLite library has a known corruption bug

Each class says whether repeating the call can help (``retryable``) and what a person can do (``hint``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class HansardError(Exception):
    """The base of every error here."""

    retryable: ClassVar[bool] = False
    hint: str = "Run the command again as `hansard --debug …`, and report what it prints."
    """What a person can do. An error of `hansard.journal.causes` has the hint of its cause instead of its class's."""

    cause: str = ""
    """A `Cause` of `hansard.journal.causes`; empty for errors that are not about files, disks and locks."""

    def __init__(self, message: str = "", hint: str = "") -> None:
        """`hint` takes the place of the hint of the class."""
        super().__init__(message)
        if hint:
            self.hint = hint


class InvalidInput(HansardError):
    """A value cannot be recorded as it is; nothing was written."""

    hint = "Correct the value that the message names. Nothing was written."


class TooLarge(InvalidInput):
    """A value exceeds a limit; nothing was written."""

    hint = "Shorten the content, or split it. Nothing was written."


class FileUnreadable(InvalidInput):
    """A file that a person named is not there, or cannot be read; nothing was sent."""

    hint = "Check the path, and whether you may read the file. Nothing was sent or recorded."


class ConfigInvalid(InvalidInput):
    """A setting is not as it must be; nothing was changed."""

    hint = "Correct the setting that the message names; `hansard config check` lists all findings."


class HomeUnsafe(ConfigInvalid):
    """Others can change the home or its settings, or read its keys; nothing was written."""

    hint = "Do what the message names. Commands that only read work meanwhile."


class IdConflict(HansardError):
    """The same id was already recorded with another body."""

    hint = "Use a new id for a new message; repeat an id only with the very same content."


class NotFound(HansardError):
    """Nothing of that name is in the record."""

    hint = "List what there is with `hansard sessions`."


class Ambiguous(HansardError):
    """A text matches several sessions."""

    hint = "Give more of the id; `hansard sessions` lists the ids."

    def __init__(self, message: str, candidates: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.candidates = tuple(candidates)


class SessionEnded(HansardError):
    """The session has ended and takes no new words."""

    hint = "Reopen the session first: record.reopen_session(id)."


class LeaseHeld(HansardError):
    """Another turn is running in this session."""

    retryable = True
    hint = "Wait for the other turn to end, or interrupt it."

    def __init__(self, message: str, holder: str = "", hint: str = "") -> None:
        super().__init__(message, hint)
        self.holder = holder


class StaleLease(HansardError):
    """This turn no longer holds its session: its write was refused."""

    hint = "Stop this turn. What it had recorded is kept; another holder goes on."

    def __init__(self, message: str, holder: str = "") -> None:
        super().__init__(message)
        self.holder = holder


class WrongState(HansardError):
    """A state does not allow the move that was asked for."""

    hint = "Read the present state again and decide anew."


class ModelMissing(HansardError):
    """No model is configured, found in the environment, running on this machine or installed."""

    hint = (
        "Set OPENAI_API_KEY or ANTHROPIC_API_KEY, start Ollama or LM Studio, "
        "or fetch the small demo model: hansard models install-demo"
    )


class LimitReached(HansardError):
    """A limit of the day is reached. The turn was ended, and people were told, in the record."""

    hint = "Wait until the day is over, or raise the limit in config.toml; `/usage` shows what is left."


class OutputClosed(HansardError):
    """Standard output is closed. Nothing was done."""

    hint = "Send standard output to a file, a pipe or /dev/null, and run the command again."


class GatewayRuns(HansardError):
    """Another gateway serves this account, on this home."""

    hint = "Use the one that runs, or stop it first: `hansard gateway status` tells which process it is."


class StatusUnusable(HansardError):
    """The file that says where a gateway answers cannot be used, or nothing answers there; one may run."""

    hint = "Move that file away, and start the gateway again: it writes a new one."


class GatewaySilent(StatusUnusable):
    """The process of a gateway is there, and does not answer: it is stopped, or very busy."""

    hint = "Ask again in a moment: the gateway or the machine is busy."

    def __init__(self, message: str, hint: str = "", *, pid: int = 0, is_stopped: bool = False) -> None:
        super().__init__(message, hint)
        self.pid = pid
        self.is_stopped = is_stopped


class UsedAfterFork(HansardError):
    """A record crossed a fork(); its locks stayed with the parent."""

    hint = "Open the record again in the child process."


class RecordUnavailable(HansardError):
    """The record cannot be written or read for now. Nothing of this call was written."""

    retryable = True
    hint = "What was recorded is safe. Remove the cause that the message names, and try again."


class LogUnwritable(RecordUnavailable):
    """A file of one journal's log cannot be written. Nothing of this call was written; other journals go on."""

    hint = "What was recorded is safe, and other sessions go on. Make the file that the message names writable again."

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name
        self.is_unread = False


class OutcomeUnknown(HansardError):
    """The store failed in the middle of a commit: the entry may or may not be there."""

    retryable = True
    hint = "Repeat the call with the same id: it is written once, whatever happened before."


class RecordRefused(HansardError):
    """The record cannot be used as it is. It was left untouched."""

    hint = "The record was left untouched. Follow what the message says, then open it again."


class RecordReadOnly(RecordRefused):
    """The record was opened for reading only. Nothing of this call was written."""

    hint = "Open the record without read_only, on a home that this user may write to."


class RecordTooNew(RecordRefused):
    """The record holds something that only a newer Hansard understands."""

    hint = "Upgrade Hansard. The record was left untouched."


class RecordMigrated(RecordTooNew):
    """A newer Hansard migrated the record while this process had it open. Nothing of this call was written."""

    hint = "Start this program again: the newer Hansard goes on where this one stopped. Nothing was lost."


class HomeMoved(RecordRefused):
    """The home, or its folder of locks, was moved, removed or replaced while this process had it open."""

    hint = (
        "Nothing of this call was written. Put the folder back, or start this program again to use what is there now."
    )


class RecordDamaged(RecordRefused):
    """A file of the record is not what it must be."""

    hint = "Move the damaged file aside and open the record again: each leg is rebuilt from the other."


class LogForked(RecordRefused):
    """A session's log does not continue the database's history."""

    hint = (
        "`hansard verify` names the entry at which they part. Copy the home, then move that log away: it is written "
        "anew from the database. What only the log has stays in the file that was moved."
    )


class PastMissing(RecordRefused):
    """The entries that a fork continues are not in the record. Its own words are."""

    hint = "Put back the newer log of the session that it is a fork of. `hansard sessions show` gives its own words."


class LegsMixed(RecordRefused):
    """The database and the logs belong to two different homes. Nothing was written."""

    hint = "Move one of the two away, as the message says, and keep it: what the other one holds is then read."


MUST_END = (RecordMigrated, HomeMoved, GatewayRuns)
"""Errors after which a program that serves chats ends: another one serves them, or the record is not here."""


class UnsafeFilesystem(RecordRefused):
    """The home lies on a file system where SQLite's WAL is not safe."""

    hint = "Put the home on a local disk: set HANSARD_HOME or --home."


class UnsupportedSQLite(RecordRefused):
    """The SQLite library is too old to be trusted with several processes."""

    hint = "Install apsw 3.54.1 or newer, which carries its own SQLite."


class ChannelError(HansardError):
    """A platform did not do what it was asked."""

    hint = "`hansard deliveries` lists what was not shown; `hansard gateway status` tells about the channel."


class ChannelBusy(ChannelError):
    """The platform asks to wait. Surely nothing was shown."""

    retryable = True
    hint = "Nothing to do: it is tried again after the time that the platform asked for."

    def __init__(self, message: str, seconds: float = 1.0, *, is_of_chat: bool = False) -> None:
        super().__init__(message)
        self.seconds = seconds
        self.is_of_chat = is_of_chat


class ChannelDown(ChannelError):
    """The platform cannot be reached. Surely nothing was shown."""

    retryable = True
    hint = "Nothing is lost: it is tried again by itself. `hansard gateway status` tells since when it fails."


class ChatGone(ChannelError):
    """The chat is gone, or the agent may not write there."""

    hint = "Invite the agent again, then `hansard deliveries retry ID`; or `hansard deliveries drop ID`."


class PostRefused(ChannelError):
    """The platform refuses this post for what it is; others may pass."""

    hint = "`hansard deliveries` tells why; the words are in the record. Drop it, or retry when the reason is gone."


class PostUnknown(ChannelError):
    """The connection broke before the answer came: it may have been shown."""

    retryable = True
    hint = (
        "Nothing to do now: Hansard finds out, or sends it again. On Telegram it may then appear twice, the second "
        "time marked ↻. `hansard deliveries` lists what is left to decide."
    )
