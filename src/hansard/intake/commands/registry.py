"""Slash commands: one registry and one help text, for the terminal and for every channel.

Reads: the record, as far as the owner may see it (L11). Writes: what the command does, the command itself and its
reply, as notices (L1); in a chat, the reply in one commit with where the chat leads, and the cursor.
Invariants: a text is a command only if its first word is a slash and letters; everything else is said to the model.
On crash, in a chat: a command that may be repeated is run again when its event comes again; of another one people are
told that nobody knows whether it was carried out.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable

import msgspec

from hansard.domain.access import Right, Standpoint, deed_of, is_denied, refusal, right
from hansard.domain.arrivals import ArrivalOutcome, Origin
from hansard.domain.budgets import quota_of
from hansard.domain.chats import reply_id_of
from hansard.domain.messages import Message, Role
from hansard.domain.policy import policy_of
from hansard.domain.settings import Settings
from hansard.errors import Ambiguous, HansardError, NotFound, OutcomeUnknown, RecordUnavailable, SessionEnded
from hansard.intake.commands import agent, people, sessions, turns
from hansard.intake.commands.scene import CommandReply, CommandScene
from hansard.intake.speak import CommandLine
from hansard.record.api import Record
from hansard.record.intake.events import Received
from hansard.record.messages.entries import Entry


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command: what may follow its name, what it does."""

    arguments: str
    summary: str
    run: Callable[[CommandScene, str], Awaitable[CommandReply]]
    deny: Callable[[CommandScene, str], Awaitable[CommandReply]] | None = None
    """What is done where the command is denied; None: the person is told so."""


async def show_help(scene: CommandScene, argument: str) -> CommandReply:
    del argument
    return scene.reply(help_text())


COMMANDS: dict[str, Command] = {
    "new": Command(arguments="[title]", summary="Begin a new session; the present one ends.", run=sessions.new),
    "resume": Command(
        arguments="[n|id|title]", summary="Go on with another session; alone, lists them.", run=sessions.resume
    ),
    "sessions": Command(arguments="", summary="List your sessions, the latest first.", run=sessions.sessions),
    "search": Command(arguments="words", summary="Find what was said, in all your sessions.", run=sessions.search),
    "title": Command(arguments="[title]", summary="Give this session a title; alone, shows it.", run=sessions.title),
    "undo": Command(arguments="[n]", summary="Undo the last exchange, or the last n.", run=turns.undo),
    "retry": Command(arguments="", summary="Undo the last answer and ask again.", run=turns.retry),
    "fork": Command(arguments="[title]", summary="Go on in a copy; this session stays as it is.", run=sessions.fork),
    "stop": Command(arguments="", summary="Stop the answer that runs and what waits.", run=turns.stop),
    "queue": Command(arguments="[text]", summary="Say it after this answer; alone, shows what waits.", run=turns.queue),
    "steer": Command(arguments="text", summary="Tell the running answer something at its next step.", run=turns.steer),
    "busy": Command(
        arguments="[mode]", summary="A message may interrupt, queue or steer; alone, shows it.", run=turns.busy
    ),
    "compact": Command(
        arguments="[focus]", summary="Sum up what was said, for the model; nothing is lost.", run=turns.compact
    ),
    "model": Command(arguments="[name]", summary="Ask another model from here on; alone, shows it.", run=agent.model),
    "status": Command(arguments="", summary="Show session, model and the state of the record.", run=sessions.status),
    "usage": Command(arguments="", summary="Show tokens and cost, and what is left today.", run=agent.usage),
    "why": Command(arguments="[turn]", summary="Say why tools were run or not, in the last turn.", run=turns.why),
    "yes": Command(arguments="[code]", summary="Let the tool run that asks for it.", run=turns.yes),
    "no": Command(arguments="[code] [why]", summary="Do not let it run; the model is told why.", run=turns.no),
    "file": Command(
        arguments="path [words]", summary="At the terminal: show the model a file.", run=agent.file, deny=agent.file
    ),
    "memory": Command(arguments="[add …]", summary="Show or change what is remembered here.", run=agent.memory),
    "link": Command(
        arguments="[code]",
        summary="Be one person here and elsewhere; alone, shows a code.",
        run=people.link,
        deny=people.void,
    ),
    "unlink": Command(
        arguments="", summary="Part from those whom you were linked to.", run=people.unlink, deny=people.unlink_room
    ),
    "help": Command(arguments="", summary="Show this.", run=show_help),
}


def names() -> list[str]:
    return sorted(COMMANDS)


def summaries() -> dict[str, str]:
    """Return what each command does, by its name with the stroke, for completion.

    "Show this." would say nothing there.
    """
    return {f"/{name}": COMMANDS[name].summary for name in names()} | {"/help": "List the commands."}


def help_text() -> str:
    shown = [(f"/{name} {command.arguments}".strip(), command.summary) for name, command in COMMANDS.items()]
    width = max(len(name) for name, _ in shown)
    return "\n".join(f"{name:<{width}}  {summary}" for name, summary in shown)


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
    asked = Message.make(Role.NOTICE, text.strip(), author=scene.owner)
    if parsed.name not in RECORDED_BY_THEMSELVES:
        await append_open(scene, scene.session_id, asked)
    outcome = await perform(msgspec.structs.replace(scene, asked=asked), parsed)
    if outcome.seq or not outcome.text:
        return outcome
    if parsed.name in RECORDED_BY_THEMSELVES:
        await append_open(scene, scene.session_id, asked)  # it was refused
    entry = await append_open(scene, outcome.session_id, Message.notice(outcome.text))
    return msgspec.structs.replace(outcome, seq=entry.seq)


async def perform(scene: CommandScene, parsed: CommandLine) -> CommandReply:
    """Do what a command asks for, and return its reply; whoever calls records both."""
    command = COMMANDS.get(parsed.name)
    try:
        if command is None:
            return scene.reply(suggestion(parsed.name))
        return await run_allowed(scene, command, parsed)
    except Ambiguous as error:
        return scene.reply(await sessions.candidates(scene, error))
    except (RecordUnavailable, OutcomeUnknown):
        raise
    except HansardError as error:
        hint = "/sessions lists yours." if scene.chat and isinstance(error, NotFound) else error.hint
        return scene.reply(f"{error}. {hint}")


async def run_allowed(scene: CommandScene, command: Command, parsed: CommandLine) -> CommandReply:
    """Run a command as far as the table of ranks allows it: the one place that asks."""
    deed = deed_of(parsed.name, parsed.argument)
    if not is_denied(scene.standpoint, scene.owner, deed):
        is_own_only = right(scene.standpoint, deed) is Right.OWN
        return await command.run(msgspec.structs.replace(scene, is_own_only=is_own_only), parsed.argument)
    if command.deny is not None:
        return await command.deny(scene, parsed.argument)
    return scene.reply(refusal(deed, scene.standpoint))


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
        quota, may_begin = quota_of(self._settings.limits), self._record.quotas.may_begin_session
        intake = self._record.intake
        if is_again and await intake.is_concluded(origin):
            outcome = CommandReply(text="", session_id=received.session_id)
        elif is_again and parsed.name not in REPEATABLE:
            outcome = CommandReply(text=self._record.words.interrupted, session_id=received.session_id)
        elif parsed.name == "fork" and not await may_begin(origin.person, quota):
            outcome = CommandReply(text=self._record.words.over_sessions, session_id=received.session_id)
        else:
            outcome = await perform(self._scene(origin, received.session_id, standpoint), parsed)
        self._remember(origin, outcome.listed)
        reply = Message.notice(outcome.text, id=reply_id_of(received.message_id), chat=origin.chat)
        reason = parsed.name if outcome.session_id != received.session_id else ""
        await intake.conclude(origin, outcome.session_id, reply, reason)
        return (outcome.session_id, outcome.wake) if outcome.wake is not None else None

    def _scene(self, origin: Origin, session_id: str, standpoint: Standpoint) -> CommandScene:
        return CommandScene(
            record=self._record,
            session_id=session_id,
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
