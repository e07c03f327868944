"""Slash commands: one registry and one help text, for the terminal and for every channel.

Reads: the record, as far as the owner may see it (L11). Writes: what the command does, the command itself and its
reply, as notices (L1); in a chat, the reply in one commit with where the chat leads, and the cursor.
Invariants: a text is a command only if its first word is a slash and letters; everything else is said to the model.
On crash, in a chat: a command that may be repeated is run again when its event comes again; of another one people are
told that nobody knows whether it was carried out.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.access import Right, deed_of, is_denied, refusal, right
from hansard.domain.arrivals import ArrivalOutcome
from hansard.domain.budgets import quota_of
from hansard.domain.chats import reply_id_of
from hansard.domain.messages import Message
from hansard.domain.policy import policy_of
from hansard.errors import Ambiguous, HansardError, NotFound, OutcomeUnknown, RecordUnavailable, SessionEnded
from hansard.intake.commands import agent, people, sessions, turns
from hansard.intake.commands.scene import CommandReply, CommandScene

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hansard.domain.access import Standpoint
    from hansard.domain.arrivals import Origin
    from hansard.domain.settings import Settings
    from hansard.intake.speak import CommandLine
    from hansard.record.api import Record
    from hansard.record.intake.events import Received
    from hansard.record.messages.entries import Entry


class Command(NamedTuple):
    """One command: its name, what may follow it, what it does."""

    name: str
    arguments: str
    summary: str
    run: Callable[[CommandScene, str], Awaitable[CommandReply]]
    deny: Callable[[CommandScene, str], Awaitable[CommandReply]] | None = None
    """What is done where the command is denied; None: the person is told so."""


COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        Command("new", "[title]", "Begin a new session; the present one ends.", sessions.new),
        Command("resume", "[n|id|title]", "Go on with another session; alone, lists them.", sessions.resume),
        Command("sessions", "", "List your sessions, the latest first.", sessions.sessions),
        Command("search", "words", "Find what was said, in all your sessions.", sessions.search),
        Command("title", "[title]", "Give this session a title; alone, shows it.", sessions.title),
        Command("undo", "[n]", "Take back the last exchange, or the last n.", turns.undo),
        Command("retry", "", "Take back the last answer and ask again.", turns.retry),
        Command("fork", "[title]", "Go on in a copy; this session stays as it is.", sessions.fork),
        Command("stop", "", "Stop the answer that runs and what waits.", turns.stop),
        Command("queue", "[text]", "Say it after this answer; alone, shows what waits.", turns.queue),
        Command("steer", "text", "Tell the running answer something at its next step.", turns.steer),
        Command("busy", "[mode]", "A message may interrupt, queue or steer; alone, shows it.", turns.busy),
        Command("compact", "[focus]", "Sum up what was said, for the model; nothing is lost.", turns.compact),
        Command("model", "[name]", "Ask another model from here on; alone, shows it.", agent.model),
        Command("status", "", "Show session, model and the state of the record.", sessions.status),
        Command("usage", "", "Show tokens and cost, and what is left today.", agent.usage),
        Command("why", "[turn]", "Say why tools were run or not, in the last turn.", turns.why),
        Command("yes", "[code]", "Let the tool run that asks for it.", turns.yes),
        Command("no", "[code] [why]", "Do not let it run; the model is told why.", turns.no),
        Command("file", "path [words]", "At the terminal: show the model a file.", agent.file, agent.file),
        Command("memory", "[add …]", "Show or change what is remembered here.", agent.memory),
        Command("link", "[code]", "Be one person here and elsewhere; alone, shows a code.", people.link, people.void),
        Command("unlink", "", "Part from those whom you were linked to.", people.unlink, people.unlink_room),
    )
}
"""Every command but /help, which lists them."""


def names() -> list[str]:
    """Return every command's name, for completion."""
    return sorted([*COMMANDS, "help"])


def summaries() -> dict[str, str]:
    """Return what each command does, by its name with the stroke, for completion."""
    return {f"/{name}": COMMANDS[name].summary if name in COMMANDS else "List the commands." for name in names()}


def help_text() -> str:
    shown = [(f"/{command.name} {command.arguments}".strip(), command.summary) for command in COMMANDS.values()]
    shown.append((f"/{HELP.name}", HELP.summary))
    width = max(len(name) for name, _ in shown)
    return "\n".join(f"{name:<{width}}  {summary}" for name, summary in shown)


async def show_help(scene: CommandScene, argument: str) -> CommandReply:
    del argument
    return CommandReply(help_text(), scene.session_id)


HELP = Command("help", "", "Show this.", show_help)

MEANT = {
    "clear": "new",
    "reset": "new",
    "restart": "new",
    "cancel": "stop",
    "abort": "stop",
    "list": "sessions",
    "history": "sessions",
    "continue": "resume",
    "load": "resume",
    "rename": "title",
    "name": "title",
    "find": "search",
    "cost": "usage",
    "tokens": "usage",
    "summarize": "compact",
    "attach": "file",
    "again": "retry",
    "regenerate": "retry",
    "info": "status",
    "commands": "help",
}
"""What people mean by commands of other programs."""

LIKENESS_MIN = 0.65
"""A name that is less alike than this is no slip of the finger: nothing is suggested for it."""


def suggestion(name: str) -> str:
    """Return what to say about a command that does not exist."""
    meant = MEANT.get(name, "")
    near = [meant] if meant in names() else difflib.get_close_matches(name, names(), n=1, cutoff=LIKENESS_MIN)
    return f"There is no command /{name}. " + (f"Did you mean /{near[0]}?" if near else "/help lists them.")


REPEATABLE = frozenset(
    {"help", "resume", "sessions", "title", "stop", "busy", "compact", "model", "status", "usage", "unlink", "why"}
)
"""Commands that may be run again when nobody knows whether they were: twice is the same as once."""


RECORDED_BY_THEMSELVES = frozenset({"new"})
"""Commands that are one commit with what they do and with their reply."""


async def run_command(scene: CommandScene, text: str, parsed: CommandLine) -> CommandReply:
    """Run a command. The command and its reply are recorded, the reply where the conversation then is."""
    asked = asked_by(Message.notice(text.strip()), scene.owner)
    if parsed.name not in RECORDED_BY_THEMSELVES:
        await append_open(scene, scene.session_id, asked)
    outcome = await perform(scene._replace(asked=asked), parsed)
    if outcome.seq or not outcome.text:
        return outcome
    if parsed.name in RECORDED_BY_THEMSELVES:
        await append_open(scene, scene.session_id, asked)  # it was refused
    entry = await append_open(scene, outcome.session_id, Message.notice(outcome.text))
    return outcome._replace(seq=entry.seq)


async def perform(scene: CommandScene, parsed: CommandLine) -> CommandReply:
    """Do what a command asks for, and return its reply; whoever calls records both."""
    command = HELP if parsed.name == HELP.name else COMMANDS.get(parsed.name)
    try:
        if command is None:
            return CommandReply(suggestion(parsed.name), scene.session_id)
        return await run_allowed(scene, command, parsed.argument)
    except Ambiguous as error:
        return CommandReply(await sessions.candidates(scene, error), scene.session_id)
    except (RecordUnavailable, OutcomeUnknown):
        raise
    except HansardError as error:
        hint = "/sessions lists yours." if scene.chat and isinstance(error, NotFound) else error.hint
        return CommandReply(f"{error}. {hint}", scene.session_id)


async def run_allowed(scene: CommandScene, command: Command, argument: str) -> CommandReply:
    """Run a command as far as the table of ranks allows it: the one place that asks."""
    deed = deed_of(command.name, argument)
    if not is_denied(scene.standpoint, scene.owner, deed):
        is_own_only = right(scene.standpoint, deed) is Right.OWN
        return await command.run(scene._replace(is_own_only=is_own_only), argument)
    if command.deny is not None:
        return await command.deny(scene, argument)
    return CommandReply(refusal(deed, scene.standpoint), scene.session_id)


def asked_by(asked: Message, owner: str) -> Message:
    """Return a notice that a person wrote: a command."""
    return Message.make(asked.role, asked.text, id=asked.id, author=owner)


async def append_open(scene: CommandScene, session_id: str, message: Message) -> Entry:
    """Append a notice; a session that ended meanwhile takes it too, and is open again."""
    try:
        return await scene.record.append(session_id, message)
    except SessionEnded:
        await scene.record.reopen_session(session_id)
        return await scene.record.append(session_id, message)


LISTS_MAX = 1000
"""Chats of which it is remembered what was listed there last."""


class ChatCommands:
    """Runs the commands of one channel."""

    def __init__(self, record: Record, source: str, settings: Settings, model: Callable[[], str]) -> None:
        self._record = record
        self._source = source
        self._model = model
        self._listed: dict[tuple[str, str], tuple[str, ...]] = {}
        self.apply_settings(settings)

    def apply_settings(self, settings: Settings) -> None:
        self._settings = settings

    async def run(
        self, origin: Origin, received: Received, parsed: CommandLine, standpoint: Standpoint
    ) -> tuple[str, str] | None:
        """Run a command that is recorded already; return the turn (session, id) that it asks for."""
        is_again = received.outcome is ArrivalOutcome.KNOWN
        intake = self._record.intake
        if is_again and await intake.is_concluded(origin):
            outcome = CommandReply("", received.session_id)
        elif is_again and parsed.name not in REPEATABLE:
            outcome = CommandReply(self._record.words.interrupted, received.session_id)
        elif parsed.name == "fork" and not await self._may_begin_session(origin):
            outcome = CommandReply(self._record.words.over_sessions, received.session_id)
        else:
            outcome = await perform(self._scene(origin, received.session_id, standpoint), parsed)
        self._remember(origin, outcome.listed)
        reply = Message.notice(outcome.text, id=reply_id_of(received.message_id), chat=origin.chat)
        reason = parsed.name if outcome.session_id != received.session_id else ""
        await intake.conclude(origin, outcome.session_id, reply, reason)
        return (outcome.session_id, outcome.wake) if outcome.wake is not None else None

    async def _may_begin_session(self, origin: Origin) -> bool:
        return await self._record.quotas.may_begin_session(origin.person, quota_of(self._settings.limits))

    def _scene(self, origin: Origin, session_id: str, standpoint: Standpoint) -> CommandScene:
        return CommandScene(
            self._record,
            session_id,
            owner=origin.owner,
            source=self._source,
            busy=self._settings.busy,
            left_sessions=self._settings.left_sessions,
            model=self._model(),
            listed=self._listed.get((origin.key, origin.owner), ()),
            author=origin.identity,
            chat=origin.chat,
            budget=policy_of(self._settings).budget,
            words=self._record.words,
            standpoint=standpoint,
            models_allowed=self._settings.models_allowed,
        )

    def _remember(self, origin: Origin, listed: tuple[str, ...]) -> None:
        """A list means something to those who saw it: others who are in the chat later have not."""
        if listed:
            self._listed.pop((origin.key, origin.owner), None)
            self._listed[origin.key, origin.owner] = listed
            if len(self._listed) > LISTS_MAX:
                del self._listed[next(iter(self._listed))]
