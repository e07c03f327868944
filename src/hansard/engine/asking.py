"""Whether a call may be run: by the rules, or by a yes of those who asked, in the chat in which they asked.

Reads: the rules; who asked for the turn. Writes: what was decided and why; the question, as a notice and as a fact; a
no when time is over.
Invariants: nothing is run before its yes is recorded; the yes is for the exact call that was shown, by its hash; one
question at a time; only those who asked for the turn can say it, where they asked; arguments are shown whole.
On crash: the call was not begun. The turn is lost, and a yes that comes later answers nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import msgspec

from hansard.domain.chats import parse_owner
from hansard.domain.messages import File, Message, Part, Role, Text, ToolCall
from hansard.domain.people import asker_owner
from hansard.domain.permissions import CallVerdict, Decision
from hansard.domain.policy import BARRED, GUESTS_DENIED, JudgedCall, KnownAsker, Policy, denied_barred
from hansard.domain.questions import (
    CHOOSING,
    CHOOSING_ELSEWHERE,
    FILE_BYTES_MAX,
    TERMINAL_CHARACTERS_MAX,
    Answered,
    Scope,
    fits_in_post,
    hash_call,
    new_question_code,
    show_arguments,
    show_line,
)
from hansard.domain.trust import sources_of, untrusted_text
from hansard.ports.tool import ToolScene
from hansard.record.api import Record
from hansard.record.conversation import Conversation, needed_of
from hansard.record.messages.entries import Entry
from hansard.record.questions import QuestionAnswered, QuestionAsked, answered_value
from hansard.record.turns.entries import ToolDecided
from hansard.record.turns.holding import Turn

FILE_NAME = "arguments.txt"

BY_SETTINGS = "the settings do not allow it"
DENIED = "The tool {tool} is not allowed here: {why}. It was not run."
CHANGED = "The call was changed after people were asked about it. It was not run."
TOO_LONG = "The arguments of {tool} are too long to be shown to anybody, so nobody can allow it. It was not run."
NOT_JSON = "The arguments of {tool} are not a JSON object: {why}. Nobody was asked, and it was not run."


def changes_memory(call: ToolCall) -> bool:
    """Return whether a call may change what is remembered. What cannot be read counts as a change."""
    if call.name != "memory":
        return False
    try:
        arguments = msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        return True
    return not (isinstance(arguments, dict) and arguments.get("action") == "list")


class Permits:
    """What the calls of one step may do."""

    def __init__(self, turn: Turn, record: Record, policy: Policy, conversation: Conversation) -> None:
        """The conversation is as it stands when the model has called."""
        self._turn = turn
        self._record = record
        self._policy = policy
        self._owner = conversation.owner
        self._people = sorted({each.place for each in conversation.by.get(turn.id, ())})
        self._needed = sorted({each.place for each in needed_of(conversation, turn.id)})
        self._sources = sources_of(placed.message for placed in conversation.placed)
        self._order = asyncio.Lock()
        self._asked = asyncio.Event()
        """Set once every question so far is over. Each call that asks waits for the one before it."""
        self._asked.set()

    @property
    def scene(self) -> ToolScene:
        people = tuple(dict.fromkeys(person for person, _ in self._people))
        return ToolScene(
            session_id=self._turn.session_id,
            owner=self._owner,
            people=people,
            chat=next((chat for _, chat in self._people), ""),
        )

    async def decide(self, call: ToolCall) -> Decision:
        """Decide what becomes of a call, and record that with its reasons."""
        granted = await self._record.permissions.granted(call.name, self._turn.session_id, self._needed)
        source, people = await self._untrusted(), await self._known()
        judged = JudgedCall(
            tool=call.name, owner=self._owner, people=people, source=source, changes_memory=changes_memory(call)
        )
        decision = self._policy.judge_call(judged, granted)
        decided = ToolDecided(
            turn_id=self._turn.id,
            call_id=call.id,
            tool=call.name,
            verdict=decision.verdict,
            reasons=decision.reasons,
        )
        await self._turn.note_decision(decided)
        return decision

    async def _known(self) -> tuple[KnownAsker, ...]:
        """Return whose permission the calls need, with what the record says of their access now."""
        access = self._record.access
        return tuple([
            KnownAsker(person, chat, (await access.find(chat.partition(":")[0], person)).state)
            for person, chat in self._needed
        ])  # fmt: skip

    async def _untrusted(self) -> str:
        """Return which text of the request none of those who asked wrote; empty when there is none."""
        trusted: set[str] = set()
        for place in self._people:
            trusted |= {*await self._record.people.circle(asker_owner(*place))}
        return show_line(untrusted_text(self._sources, trusted))

    async def refusal(self, call: ToolCall) -> str:
        """Return why a call is not run; empty when it may be."""
        async with self._order:
            decision = await self.decide(call)
            before, over = self._asked, asyncio.Event()
            if decision.verdict is CallVerdict.ASK:
                self._asked = over
        if decision.verdict is CallVerdict.ALLOW:
            return ""
        if not self._needed:
            return f"It is not recorded who asked for this, so no tool is run. {call.name} was not run."
        if decision.verdict is CallVerdict.DENY:
            why = next((each.rule for each in decision.reasons if each.rule in {BARRED, GUESTS_DENIED}), BY_SETTINGS)
            return DENIED.format(tool=call.name, why=why)
        try:
            if self._policy.ask_seconds <= 0:
                return f"The tool {call.name} needs a yes of the person, and nobody can be asked here. It was not run."
            await before.wait()  # questions come in the order of the calls
            refusal = await self._ask_each(call, decision)
            # Somebody who asked may have been barred while others were asked.
            is_barred = not refusal and denied_barred(await self._known())
            return DENIED.format(tool=call.name, why=BARRED) if is_barred else refusal
        finally:
            over.set()

    async def _ask_each(self, call: ToolCall, decision: Decision) -> str:
        """Ask each person about a call who has to allow it; return why it is not run, empty when all of them do."""
        waiting = {(each.person, each.chat) for each in decision.reasons if each.verdict is CallVerdict.ASK}
        people: dict[tuple[str, ...], list[tuple[str, str]]] = {}
        for place in self._needed:
            if place in waiting:
                people.setdefault(tuple(await self._record.people.circle(asker_owner(*place))), []).append(place)
        for places in people.values():
            if refusal := await self._ask_about(call, decision.source, tuple(places)):
                return refusal
        return "" if people else f"Nobody can be asked about {call.name}. It was not run."

    async def _ask_about(self, call: ToolCall, source: str, places: tuple[tuple[str, str], ...]) -> str:
        """Ask one person about a call; return why it is not run, empty when they allow exactly this call.

        `source`: the untrusted text because of which they are asked, if that is why.
        """
        try:
            shown = show_arguments(call.arguments)
        except ValueError as error:
            return NOT_JSON.format(tool=call.name, why=error)
        in_chat = any(chat for _, chat in self._needed)
        is_too_long = len(shown.encode()) > FILE_BYTES_MAX if in_chat else len(shown) > TERMINAL_CHARACTERS_MAX
        if is_too_long:
            return TOO_LONG.format(tool=call.name)
        answered = await self._ask(*await self._question(call, shown, source, places))
        if not answered.yes and not answered.by:
            await self._turn.append(Message.notice(f"Nobody answered in time, so {show_line(call.name)} was not run."))
        if answered.yes:
            return "" if answered.call_hash == hash_call(call.name, call.arguments) else CHANGED
        why = f": {answered.reason}" if answered.reason else ""
        return f"The person did not allow this call{why}. It was not run."

    async def _scopes(self) -> tuple[Scope, ...]:
        """Return which answers are offered: for more than this call only while nobody else's words are in the request.

        Always is never offered in rooms.
        """
        if await self._untrusted():
            return (Scope.ONCE, Scope.NO)
        return (Scope.ONCE, Scope.SESSION, *(() if parse_owner(self._owner) else (Scope.ALWAYS,)), Scope.NO)

    async def _question(
        self, call: ToolCall, shown: str, source: str, places: tuple[tuple[str, str], ...]
    ) -> tuple[list[Part], QuestionAsked]:
        """Return what people are asked about a call. What is too long for a post is attached to it, whole."""
        code = new_question_code()
        is_attached = any(chat for _, chat in self._needed) and not fits_in_post(shown)
        lines = "\n".join(f"    {line}" for line in shown.splitlines())
        given = f"the arguments in the attached file {FILE_NAME}?" if is_attached else f"this?\n\n{lines}"
        why = f"I ask because this conversation holds {source}.\n\n" if source else ""
        scopes = await self._scopes()
        asks = f"May I run the tool {show_line(call.name)} with {given}\n\n{why}{self._how_to_answer(code, scopes)}"
        parts: list[Part] = [Text(asks)]
        if is_attached:
            data = shown.encode()
            blob = await self._record.blobs.put(data)
            parts.append(File(blob=blob, name=FILE_NAME, media_type="text/plain", size_bytes=len(data)))
        asked = QuestionAsked(
            turn_id="",
            call_id=call.id,
            message_id="",
            people=places,
            tool=call.name,
            call_hash=hash_call(call.name, call.arguments),
            code=code,
            scopes=scopes,
        )
        return parts, asked

    def _how_to_answer(self, code: str, scopes: tuple[Scope, ...] = ()) -> str:
        seconds = self._policy.ask_seconds
        time = f"{seconds / 60:g} minutes" if seconds >= 120 else f"{seconds:g} seconds"  # noqa: PLR2004
        more = [f"/yes {code} {each}" for each in scopes if each in {Scope.SESSION, Scope.ALWAYS}]
        longer = f"{' or '.join(more)} allows this tool for longer. " if more else ""
        late = f"{longer}Without an answer within {time} it is a no."
        if room := parse_owner(self._owner):
            choosing = CHOOSING.get(room.channel, CHOOSING_ELSEWHERE)
            return (
                f"Answer with /yes {code} or /no {code}, by a reply to this message (yes or no), or {choosing}. "
                f"A reason after /no {code} is given to the model. {late}"
            )
        return f"Say yes or no (/yes {code}, /no {code}). A reason after a no is given to the model: no, REASON. {late}"

    async def agree(self, text: str, what: str) -> bool:
        """Ask the people who asked for the turn, before its calls, and return whether they say yes.

        It is a no when the turn was asked for by nobody.
        """
        if not self._people or self._policy.ask_seconds <= 0:
            return False
        code = new_question_code()
        asked = QuestionAsked(
            turn_id="",
            call_id=what,
            message_id="",
            people=tuple(self._people),
            call_hash=hash_call("", what),
            code=code,
            scopes=(Scope.ONCE, Scope.NO),
        )
        return (await self._ask([Text(f"{text}\n\n{self._how_to_answer(code)}")], asked)).yes

    async def _ask(self, parts: list[Part], asked: QuestionAsked) -> Answered:
        """Ask, and wait for the answer, no longer than the settings say."""
        seconds = self._policy.ask_seconds
        number = await self._turn.ask(Message.make(Role.NOTICE, parts), asked)
        try:
            async with asyncio.timeout(seconds):
                return await self._answer(number)
        except TimeoutError:
            return await self._turn.settle_question(number, f"nobody answered within {seconds:g} s")

    async def _answer(self, number: int) -> Answered:
        session_id, fence = self._turn.session_id, self._turn.fence
        async with aclosing(self._record.follow(session_id, fence, chunks=False)) as items:
            async for item in items:
                body = item.body if isinstance(item, Entry) else None
                if isinstance(body, QuestionAnswered) and (body.turn_id, body.number) == (self._turn.id, number):
                    return answered_value(body)
        raise AssertionError("a follower never ends")
