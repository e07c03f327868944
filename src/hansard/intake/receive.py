"""What happens on a platform, event by event, into the record.

Reads: batches of a channel; what the record knows of people and chats. Writes: each event in one commit with all that
it means, the last of a batch with the cursor (L2).
Invariants: an event is taken once, in its order; who may not talk leaves no word behind; nothing is sent from here, and
no other server is waited for: what the platform has to be asked for is a fact in the record, and done beside this.
On crash: what was not committed comes again with the next batch; a command that was begun says so.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from hansard.domain.access import MAY, Action, Standpoint, is_denied
from hansard.domain.arrivals import Arrival, ArrivalKind, ArrivalOutcome, IntakeRules, Origin
from hansard.domain.budgets import quota_of
from hansard.domain.chats import check_sender, key_in_chat, message_id_of, parse_key
from hansard.domain.ids import HOME_JOURNAL
from hansard.domain.limits import TITLE_CHARACTERS_MAX
from hansard.domain.messages import Message, Part, Role, Text, TextForm
from hansard.domain.people import People
from hansard.domain.questions import CHOICES, Given
from hansard.domain.settings import Settings
from hansard.domain.settings.channels import Answers, RoomSharing
from hansard.errors import (
    MUST_END,
    HansardError,
    LogUnwritable,
    OutcomeUnknown,
    RecordRefused,
    RecordUnavailable,
)
from hansard.intake.beside import HEAL_SECONDS, Beside, Report
from hansard.intake.commands.registry import ChatCommands, names
from hansard.intake.commands.turns import read_command
from hansard.intake.files import Files, Named
from hansard.intake.invitations import ChatInvitations
from hansard.intake.speak import CommandLine, busy_of, parse, unescaped
from hansard.journal.entries import log_name
from hansard.ports import Clock
from hansard.ports.channel import Batch, Channel, Event, EventKind, Fetches, ReplyKind
from hansard.record.api import Record
from hansard.record.questions import read_words

UNWRITABLE = "this conversation's log cannot be written; the admin is told why"
"""What a chat is told of a file of this machine; the log of the gateway names it."""

HOME_LOG = log_name(HOME_JOURNAL)

QUIET_CURSOR_SECONDS = 60.0
"""How often the cursor is noted while nothing happens: an older one only means that nothing is received again."""

Result = TypeVar("Result")


class Wake(NamedTuple):
    """A turn that waits to be run; without an id, whichever does."""

    session_id: str
    turn_id: str
    after_seconds: float = 0.0
    """How long nothing more of the same must have come before it is run."""


class Age:
    """How old a message is, by a clock that may be set: the smaller of two readings counts.

    One is the wall clock's; the other is what the wall clock would say if nobody had set it since the start.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.now_microseconds() - round(clock.monotonic_seconds() * 1_000_000)

    def seconds(self, sent_at_ms: int) -> float:
        """Return how long ago a message was sent; 0 when nobody knows."""
        unset = self._began + round(self._clock.monotonic_seconds() * 1_000_000)
        now = min(self._clock.now_microseconds(), unset)
        return max(0.0, (now - sent_at_ms * 1000) / 1_000_000) if sent_at_ms else 0.0


class HeldEvents(list[str]):
    """Events that could not be read yet, as they came; it says of later ones whether the record keeps them."""

    def __init__(self, raws: Sequence[str], keeps: Callable[[str], bool]) -> None:
        """Ask `keeps`, whenever a channel wants to know."""
        super().__init__(raws)
        self.keeps = keeps


def names_command(event: Event) -> bool:
    """Return whether an event gives one of Hansard's own commands: nobody else is meant by it."""
    parsed = None if event.is_forwarded else parse(event.words)
    return parsed is not None and parsed.name in names()


class ChannelIntake:
    """Takes in what happens on one channel."""

    def __init__(  # noqa: PLR0917
        self,
        record: Record,
        channel: Channel,
        settings: Settings,
        fetches: Fetches | None = None,
        report: Report = lambda _event_id, _error: None,
        model: Callable[[], str] = lambda: "",
    ) -> None:
        """`report` hears of events that could not be taken, and `model` says which one answers."""
        self._record = record
        self._channel = channel
        self.files = Files(record, channel, fetches, report)
        self._report = report
        self._clock = record.clock
        self._age = Age(self._clock)
        self.invitations = ChatInvitations(record, channel, report)
        self._commands = ChatCommands(record, channel.name, settings, model)
        self.apply_settings(settings)
        self._held: set[str] = set()
        self._knows_held = False
        self._noted_at = -QUIET_CURSOR_SECONDS
        self._mention = mention_of(channel.account)

    def apply_settings(self, settings: Settings) -> None:
        self._settings = settings
        self._options = settings.channels.section(self._channel.name)
        self._people = People(settings, self._channel.name)
        quota = quota_of(settings.limits)
        self._rules = IntakeRules(settings.resets, settings.pairing, quota)
        self.files.apply_settings(self._options.attachment_bytes_max, quota)
        self._commands.apply_settings(settings)

    def jobs(self) -> list[Beside[Any]]:
        """Return what is done beside receiving: each is run by whoever serves the channel."""
        return [self.invitations.beside, self.files.beside]

    async def held(self) -> HeldEvents:
        """Return the events that could not be read yet, for the channel to try again."""
        raws = await self._record.intake.list_held(self._channel.name, self._channel.account)
        return HeldEvents(raws, lambda event_id: event_id in self._held)

    async def take_batch(self, batch: Batch) -> list[Wake]:
        """Take in a batch, and return the turns that it asks for. The same batch again changes nothing.

        While the record cannot be written this waits: the platform keeps what was not taken.
        """
        if not self._knows_held:
            ids = await self._persist(
                lambda: self._record.intake.list_held_ids(self._channel.name, self._channel.account)
            )
            self._held, self._knows_held = set(ids), True
        for chat in batch.cut:
            await self._tell_cut(chat, batch.cursor)
        rooms: dict[str, list[Event]] = {}
        for event in batch.events:
            rooms.setdefault(event.chat.partition(":thread:")[0], []).append(event)
        if len(rooms) <= 1:
            wakes = await self._take_room(batch.events, batch.cursor)
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._take_room(events, "")) for events in rooms.values()]
            wakes = [wake for task in tasks for wake in task.result()]
            await self._persist(lambda: self._record.intake.pass_event(self._origin(batch.cursor)))
        now = self._clock.monotonic_seconds()
        if batch.events:
            self._noted_at = now
        elif now - self._noted_at >= QUIET_CURSOR_SECONDS:
            await self._persist(lambda: self._record.intake.pass_event(self._origin(batch.cursor)))
            self._noted_at = now
        return wakes

    async def _take_room(self, events: Sequence[Event], cursor: str) -> list[Wake]:
        """Take in what happened in one room, in its order, and the cursor with the last of it.

        Rooms do not wait for one another: their commits are made together. The cursor comes when all are durable.
        """
        wakes: list[Wake] = []
        for number, event in enumerate(events, 1):
            wake = await self._take_event(event, cursor if number == len(events) else "")
            if wake is not None:
                wakes.append(wake)
        return wakes

    async def _tell_cut(self, chat: str, cursor: str) -> None:
        """Tell people that something is missing: once, although the batch may come again."""
        origin = msgspec.structs.replace(self._origin(""), event_id=message_id_of(chat, "cut", cursor), chat=chat)
        await self._persist(lambda: self._record.intake.pass_event(origin, self._record.words.cut))

    async def _persist(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Make a call that may be repeated, until the record could be written.

        One session's log that cannot be written must not hold up the other chats: that call is refused. The log of
        the home is waited for, because without it no event can be taken at all.
        """
        while True:
            try:
                return await call()
            except (RecordUnavailable, OutcomeUnknown) as error:
                if isinstance(error, LogUnwritable) and error.name != HOME_LOG:
                    raise
                self._report("", error)
                await asyncio.sleep(HEAL_SECONDS)

    async def _take_event(self, event: Event, cursor: str) -> Wake | None:
        """Take in one event; one that cannot be recorded stops no other."""
        handle = ChannelIntake._unverified if event.is_unverified else HANDLERS[event.kind]
        try:
            parse_key(event.chat)
            check_sender(event.sender)
            return await self._persist(lambda: handle(self, event, cursor))
        except MUST_END:
            raise  # it is not taken, and comes again to whoever serves next
        except HansardError as error:
            self._report(event.id, error)
            why = UNWRITABLE if isinstance(error, LogUnwritable) else str(error)
            at_home = isinstance(error, LogUnwritable | RecordRefused)
        try:
            tells = event.kind is EventKind.MESSAGE and self._is_for_agent(event)
            text = ""
            if tells and await self._may(event, Action.TALK):
                text = self._record.words.message_refused.format(why=why)
            origin = self._origin(cursor, event)
            await self._persist(lambda: self._record.intake.pass_event(origin, text, at_home=at_home))
        except HansardError:  # not even that: the cursor alone
            await self._persist(lambda: self._record.intake.pass_event(self._origin(cursor)))
        return None

    def _origin(self, cursor: str, event: Event | None = None) -> Origin:
        """Return where an event comes from; without one, the channel and its cursor."""
        channel, account = self._channel.name, self._channel.account
        if event is None:
            return Origin(channel=channel, account=account, cursor=cursor)
        is_shared = event.is_direct or self._options.rooms is RoomSharing.SHARED
        key = key_in_chat(event.chat, "" if is_shared else event.sender)
        return Origin(
            channel=channel,
            account=account,
            event_id=event.id,
            key=key,
            chat=event.chat,
            owner=self._people.owner(event.sender, key, is_direct=event.is_direct),
            identity=event.sender,
            standing=self._people.standing(event.sender, event.chat),
            is_direct=event.is_direct,
            cursor=cursor,
        )

    async def _ignore(self, event: Event, cursor: str) -> None:
        if cursor or event.id in self._held:
            await self._record.intake.pass_event(self._origin(cursor, event))
            self._held.discard(event.id)

    def _is_for_agent(self, event: Event) -> bool:
        return event.is_direct or event.is_for_agent or self._options.answer is Answers.EVERYTHING

    async def _may(self, event: Event, action: Action) -> bool:
        """Return whether somebody may do something, as far as that is known before the commit."""
        return action in MAY[(await self._standpoint(event)).rank]

    async def _standpoint(self, event: Event) -> Standpoint:
        """Return what somebody is where they speak, as far as that is known before the commit."""
        known = await self._persist(lambda: self._record.access.find(self._channel.name, event.sender))
        return self._people.standpoint(event.sender, event.chat, known.state, is_direct=event.is_direct)

    # Words.

    async def _message(self, event: Event, cursor: str) -> Wake | None:
        wants_answer = event.reply is ReplyKind.ANSWER
        is_meant = self._is_for_agent(event)
        if wants_answer and not is_meant and names_command(event) and await self._may(event, Action.COMMAND):
            event = msgspec.structs.replace(event, is_for_agent=True)
        if not self._is_for_agent(event) and not self._options.observe:
            await self._ignore(event, cursor)
            return None
        text = event.command or self._mention.sub("", event.words, count=1)
        may_command = wants_answer and self._is_for_agent(event) and not event.is_forwarded
        return await self._say(event, cursor, parse(text) if may_command else None)

    async def _say(self, event: Event, cursor: str, parsed: CommandLine | None) -> Wake | None:
        """Record what somebody said, and run it when it is a command."""
        origin = self._origin(cursor, event)
        standpoint = await self._standpoint(event)
        kind = self._kind_of(event, parsed, may_begin=not is_denied(standpoint, origin.owner, "new"))
        runs = kind is ArrivalKind.COMMAND
        asked_at = msgspec.structs.replace(origin, cursor="") if runs else origin
        arrival = await self._arrival(event, asked_at, kind, parsed)
        received = await self._record.intake.receive(arrival, self._rules)
        if arrival.files:
            self.files.beside.wake()
        if received.outcome in {ArrivalOutcome.TAKEN, ArrivalOutcome.KNOWN}:
            self._held.discard(event.id)
        elif runs and cursor:
            await self._record.intake.pass_event(self._origin(cursor))
        if not received.session_id:
            return None
        if runs and parsed is not None:
            wake = await self._commands.run(origin, received, parsed, standpoint)
            return Wake(*wake) if wake is not None else None
        return Wake(received.session_id, received.turn_id, event.gather_seconds) if received.turn_id else None

    def _kind_of(self, event: Event, parsed: CommandLine | None, *, may_begin: bool) -> ArrivalKind:
        """Return how something was said. What waited for its keys was said when it was sent, however late it comes."""
        if event.kind is not EventKind.ANSWER and not self._is_for_agent(event):
            return ArrivalKind.OBSERVED
        if event.kind is not EventKind.ANSWER and event.reply is not ReplyKind.ANSWER:
            return ArrivalKind.KEPT
        if event.is_unverified or self._age.seconds(event.sent_at_ms) > self._options.answer_age_seconds_max:
            return ArrivalKind.UNVERIFIED if event.is_unverified else ArrivalKind.LATE
        if event.kind is EventKind.ANSWER or (parsed is not None and parsed.name in ANSWER_COMMANDS):
            return ArrivalKind.ANSWER
        if parsed is None:
            return ArrivalKind.ASK
        return ArrivalKind.NEW if parsed.name == "new" and may_begin else ArrivalKind.COMMAND

    async def _arrival(self, event: Event, origin: Origin, kind: ArrivalKind, parsed: CommandLine | None) -> Arrival:
        may_send = bool(event.files) and await self._may(event, Action.TALK)
        files = self.files.name_files(event.files) if may_send else Named()
        parts, notes = [*text_parts(event), *files.parts], [*files.notes]
        if event.reply is ReplyKind.EXPLAIN:
            notes.append(self._record.words.unanswerable)
        overheard = ArrivalKind.OBSERVED if self._options.observe else None
        kept = ArrivalKind.KEPT if self._is_for_agent(event) else overheard
        otherwise = kept if kind is ArrivalKind.ANSWER else None
        is_late = event.id in self._held  # it could be read only now, so it was said before
        given = None if is_late else read_answer(event, parsed, kind, self._channel.account)
        message = message_of(event, origin, parts, otherwise or kind, is_command=parsed is not None)
        title = " ".join(parsed.argument.split())[:TITLE_CHARACTERS_MAX] if parsed is not None else ""
        busy = self._settings.busy
        if session_id := await self._record.intake.busy_session(origin.key):
            busy = await busy_of(self._record, session_id, busy)
        return Arrival(
            origin=origin,
            said=(("", message),),
            kind=kind,
            busy=busy,
            title=title if kind is ArrivalKind.NEW and title else None,
            notes=tuple(notes) if kind is not ArrivalKind.OBSERVED else (),
            files=files.awaited,
            answer=given,
            otherwise=otherwise,
        )

    # Other events.

    async def _unverified(self, event: Event, cursor: str) -> Wake | None:
        """Somebody who is not verified said or changed something: that is no command, and answers nothing."""
        if self._is_for_agent(event) or self._options.observe:
            return await self._say(event, cursor, None)
        await self._ignore(event, cursor)
        return None

    async def _choice(self, event: Event, cursor: str) -> Wake | None:
        """Somebody chose an answer beside a post. A sign that is no answer to a question is kept as what it says."""
        if event.choice not in CHOICES:
            await self._ignore(event, cursor)
            return None
        return await self._say(event, cursor, None)

    async def _edit(self, event: Event, cursor: str) -> Wake | None:
        """Somebody changed what they had said. What was not known before is new to the agent, and never a command."""
        if await self._record.intake.edit_message(self._origin(cursor, event), event.about, event.text) is not None:
            return None
        if not self._is_for_agent(event) or not event.text:
            await self._ignore(event, cursor)
            return None
        return await self._say(event, cursor, None)

    async def _deletion(self, event: Event, cursor: str) -> None:
        if await self._record.intake.retract_message(self._origin(cursor, event), event.about) is None:
            await self._ignore(event, cursor)

    async def _unreadable(self, event: Event, cursor: str) -> None:
        origin = self._origin(cursor, event)
        if await self._record.intake.hold_event(origin, event.raw, tells=event.is_direct):
            self._held.add(event.id)

    async def _invitation(self, event: Event, cursor: str) -> None:
        replaces = event.chat if event.kind is EventKind.REPLACED else ""
        origin = self._origin(cursor, event)
        if replaces:
            origin = msgspec.structs.replace(origin, chat=event.about)
        await self.invitations.take_invitation(origin, self._rules, replaces=replaces)

    async def _company(self, event: Event, cursor: str) -> None:
        """A direct chat has become a room, where the agent may answer only to its name: people have to know that."""
        template = self._record.words.company if event.text else self._record.words.opened
        told = template.format(who=event.text, name=localpart_of(self._channel.account))
        text = "" if self._options.answer is Answers.EVERYTHING else told
        await self._record.intake.pass_event(self._origin(cursor, event), text)


Handler = Callable[[ChannelIntake, "Event", str], Awaitable[Wake | None]]

HANDLERS: dict[EventKind, Handler] = {
    EventKind.MESSAGE: ChannelIntake._message,  # noqa: SLF001 - the table stands beside its class
    EventKind.EDIT: ChannelIntake._edit,  # noqa: SLF001
    EventKind.DELETION: ChannelIntake._deletion,  # noqa: SLF001
    EventKind.UNREADABLE: ChannelIntake._unreadable,  # noqa: SLF001
    EventKind.INVITATION: ChannelIntake._invitation,  # noqa: SLF001
    EventKind.LEFT: ChannelIntake._ignore,  # noqa: SLF001
    EventKind.ANSWER: ChannelIntake._choice,  # noqa: SLF001
    EventKind.COMPANY: ChannelIntake._company,  # noqa: SLF001
    EventKind.REPLACED: ChannelIntake._invitation,  # noqa: SLF001
}


# What an event says, and what it answers. Whether an answer counts is decided by the record.

ANSWER_COMMANDS = frozenset({"yes", "no"})
"""Commands that answer. They are carried out in the commit that records them."""


def read_answer(event: Event, parsed: CommandLine | None, kind: ArrivalKind, account: str) -> Given | None:
    """Return what an event answers; None when it says something else. What was edited or passed on answers nothing."""
    if kind not in {ArrivalKind.ASK, ArrivalKind.ANSWER} or event.kind is EventKind.EDIT or event.is_forwarded:
        return None
    if event.kind is EventKind.ANSWER:
        return Given(scope=CHOICES[event.choice], about=event.about, is_plain=False)
    if parsed is not None:
        return read_command(parsed.argument, yes=parsed.name == "yes")
    given = read_words(event.words, account)
    return msgspec.structs.replace(given, about=event.reply_to) if given is not None else None


def localpart_of(account: str) -> str:
    return account.removeprefix("@").partition(":")[0]


def mention_of(account: str) -> re.Pattern[str]:
    """Return how a command begins that is said to the agent by its name."""
    names = "|".join(re.escape(name) for name in (account, localpart_of(account)) if name)
    return re.compile(rf"\s*@?(?:{names})\s*[:,]?\s+(?=/)", re.IGNORECASE)


def message_of(event: Event, origin: Origin, parts: list[Part], kind: ArrivalKind, *, is_command: bool) -> Message:
    return Message(
        id=message_id_of(*origin.event),
        role=Role.NOTICE if is_command or event.is_unverified else Role.USER,
        parts=tuple(parts),
        at_microseconds=event.sent_at_ms * 1000,
        author=event.sender,
        chat=event.chat,
        event_id=event.id,
        is_observed=kind is ArrivalKind.OBSERVED,
        is_unverified=event.is_unverified,
    )


def text_parts(event: Event) -> list[Part]:
    """Return what an event says, all of it; nothing for a file without a caption."""
    if not event.text and event.files:
        return []
    quoted = [Text(event.quoted, TextForm.QUOTED)] if event.quoted else []
    formatted = [Text(f"\n\n{event.formatted}", TextForm.FORMATTED)] if event.formatted else []
    said = Text(event.words, TextForm.FORWARDED) if event.is_forwarded else Text(unescaped(event.words))
    return [*quoted, said, *formatted]
