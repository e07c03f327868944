"""Tells stories into a real record: what people and engines do to a session, one step at a time, kills included."""

from __future__ import annotations

import itertools
from typing import Any

from hansard.domain.limits import READ_ROWS_MAX
from hansard.domain.messages import Message, Part, Role, Status, Text, ToolCall, ToolResult
from hansard.domain.requests import Said, ToolSpec
from hansard.domain.settings import Busy
from hansard.engine.calls import Calls
from hansard.engine.context import render
from hansard.engine.requests import build_request
from hansard.record.conversation import Conversation, SessionCompacted, exchange_starts, last_exchange, last_undone
from hansard.record.messages.entries import Entry
from hansard.record.sessions import SessionFrozen
from tests.engine.journals import contexts
from tests.engine.validator import assert_begins, assert_valid
from tests.record.state_driver import Driver, Speaker, Trouble

FROZEN = SessionFrozen(system="Be brief.", tools=(ToolSpec(name="echo", description="Says it again."),))
MODES = tuple(Busy)
ANSWERS = ("Yes.", " ", "A longer answer, with \N{GRINNING FACE}.")
CALL_IDS = ("c1", "c1", "not valid!", "call_2", "")


class Teller:
    """One session of a record that is stepped by hand; every step that cannot be made now is left out."""

    def __init__(self, driver: Driver) -> None:
        """Begin a session."""
        self.driver = driver
        self.sessions: list[str] = []
        self.asked: list[list[Said]] = []
        """What a model was asked in this session so far; an undo begins a new list."""
        self._numbers = itertools.count()
        self._waits_for_answer = False
        self._goes_on = False
        self._calling_id = ""
        self._results: list[Message] = []
        self._enter(self._run(self._record.create_session(source="test")).id)

    @property
    def _record(self) -> Any:  # noqa: ANN401 - its coroutines go through the driver, which knows no types
        return self.driver.record

    def _run(self, call: Any) -> Any:  # noqa: ANN401
        return self.driver.run(call)

    @property
    def session_id(self) -> str:
        """Where the story goes on."""
        return self.sessions[-1]

    @property
    def _speaker(self) -> Speaker | None:
        return self.driver.speakers.get(self.session_id)

    def _enter(self, session_id: str) -> None:
        self.sessions.append(session_id)
        self.asked = []
        self._forget_turn()

    def _forget_turn(self) -> None:
        self._waits_for_answer = self._goes_on = False
        self._results = []

    def conversation(self) -> Conversation:
        """The fold that the record keeps."""
        found: Conversation = self._run(self._record.conversation(self.session_id))
        return found

    def _new_id(self) -> str:
        return f"m{next(self._numbers)}"

    # What people do.

    def say(self, pick: int) -> None:
        """Say something, in one of the modes."""
        message = Message.user(f"words {next(self._numbers)}", id=self._new_id())
        mode = MODES[pick % len(MODES)]
        self._run(self._record.accept([(self.session_id, message)], queue_turn=True, busy=mode))

    def undo(self, pick: int) -> None:
        """Take back the last exchanges, or any messages at all, when nothing runs."""
        if self._speaker is not None:
            return
        conversation = self.conversation()
        everything = [placed.message.id for placed in conversation.placed + conversation.waiting]
        chosen = (
            [placed.message.id for placed in last_exchange(conversation, 1 + pick % 3)]
            if pick % 2
            else everything[pick % 5 :: 3]
        )
        self._run(self._record.messages.undo(self.session_id, chosen))
        if chosen:
            self.asked = []

    def restore(self, pick: int) -> None:
        """Let what was taken back last be there again, or any of it, when nothing runs."""
        if self._speaker is not None:
            return
        conversation = self.conversation()
        chosen = last_undone(conversation, 1 + pick % 3) if pick % 2 else list(conversation.undone)[pick % 3 :: 2]
        self._run(self._record.messages.restore(self.session_id, chosen))
        if chosen:
            self.asked = []

    def fork(self, pick: int) -> None:
        """Go on in a fork, at the end or somewhere before it; a turn that runs ends in the session that it is in."""
        head = self._run(self._record.sessions.read(self.session_id)).head_seq
        at = None if pick % 2 else 1 + pick % head
        child = self._run(self._record.fork(self.session_id, at)).id
        self.end_turn(0)
        self._enter(child)

    def bring_in(self, pick: int) -> None:
        """Append what an import may bring: any role, results of no call, calls of no turn."""
        if self._speaker is not None:
            return
        call_id = CALL_IDS[pick % len(CALL_IDS)]
        contents: tuple[list[Part], ...] = (
            [Text("imported")],
            [Text(""), ToolCall(id=call_id, name="echo")],
            [ToolResult(call_id=call_id, text="imported")],
            [],
        )
        role = (Role.ASSISTANT, Role.ASSISTANT, Role.TOOL, Role.USER, Role.SYSTEM, Role.NOTICE)[pick % 6]
        message = Message.make(role, contents[pick % 4], id=self._new_id(), status=tuple(Status)[1 + pick % 2])
        self._run(self._record.append(self.session_id, message))

    # What an engine does.

    def start(self, _pick: int) -> None:
        """Begin a turn."""
        if self._speaker is None:
            manager = self.driver.record.turn(self.session_id)
            self.driver.speakers[self.session_id] = Speaker(manager, self._run(manager.__aenter__()))
            self._forget_turn()

    def ask(self, _pick: int) -> None:
        """Build the next request: it is valid, and begins with the one before."""
        if self._speaker is None or self._waits_for_answer or self._results:
            return
        conversation = self.conversation()
        if not conversation.wants_reply and not self._goes_on:
            return
        request = build_request(conversation, FROZEN, None)
        assert_valid(request.messages)
        if self.asked:
            assert_begins(self.asked[-1], request.messages)
        self.asked.append(list(request.messages))
        self._waits_for_answer = True

    def answer(self, pick: int) -> None:
        """Give a whole answer, which may call tools."""
        if self._speaker is None or not self._waits_for_answer:
            return
        calls = tuple(ToolCall(id=CALL_IDS[(pick + n) % len(CALL_IDS)], name="echo") for n in range(pick % 4))
        reply = self._speaker.turn.reply(id=self._new_id())
        self._run(reply.__aenter__())
        self._run(reply.write(ANSWERS[pick % len(ANSWERS)]))
        for call in calls:
            reply.add(call)
        self._run(reply.__aexit__(None, None, None))
        self._waits_for_answer = self._goes_on = False
        self._calling_id, self._results = reply.id, Calls(reply.id, calls).unfinished()

    def cut(self, pick: int) -> None:
        """Let an answer break off; the turn may be about to go on with another one."""
        if self._speaker is None or not self._waits_for_answer:
            return
        reply = self._speaker.turn.reply(id=self._new_id())
        self._run(reply.__aenter__())
        self._run(reply.write(ANSWERS[pick % len(ANSWERS)]))
        self._run(reply.__aexit__(Trouble, Trouble(), None))
        self._goes_on = bool(pick % 4)
        if self._goes_on:
            self._speaker.turn.go_on(reply.id)
        self._run(self._speaker.turn.append(Message.notice("It was cut.", id=self._new_id())))
        self._waits_for_answer = False

    def result(self, pick: int) -> None:
        """Record the result of one of the calls."""
        if self._speaker is None or not self._results:
            return
        self._run(self._speaker.turn.append(self._results.pop(pick % len(self._results))))

    def end_turn(self, pick: int) -> None:
        """End the turn, with a result for each call that has none."""
        speaker = self._speaker
        if speaker is None:
            return
        speaker.turn.settle_calls(self._calling_id, self._results)
        if pick % 2:
            speaker.turn.interrupt("stopped by the person")
        self._run(speaker.manager.__aexit__(None, None, None))
        del self.driver.speakers[self.session_id]
        self._forget_turn()

    def compact(self, pick: int) -> None:
        """Sum up what was said before one of the exchanges, in a turn of its own, unless one runs; or give up."""
        if self._speaker is not None:
            return
        conversation = self.conversation()
        starts = [start for start in exchange_starts(conversation.placed) if start > conversation.covered]
        manager = self._record.turn(self.session_id, purpose="compaction")
        turn = self._run(manager.__aenter__())
        if starts and pick % 4:
            cut = starts[pick % len(starts)]
            placed = conversation.placed[:cut]
            turn.compact(
                SessionCompacted(
                    summary=f"summary {next(self._numbers)}",
                    through=placed[-1].message.id,
                    from_seq=placed[0].seq,
                    to_seq=max(each.seq for each in placed),
                    read_seq=conversation.seq,
                )
            )
            self.asked = []
        elif pick % 3:
            turn.fail("it is empty")
        self._run(manager.__aexit__(None, None, None))

    def crash(self, _pick: int) -> None:
        """Be killed, and start again."""
        self.driver.crash()
        self.driver.open()
        self._forget_turn()

    def set_clock(self, pick: int) -> None:
        """Let the wall clock jump by up to an hour, forth or back."""
        self.driver.clock.jump((pick - 500) * 7.2)

    # What must hold.

    def entries(self, session_id: str) -> list[Entry]:
        """The whole journal of a session, what it inherited included."""
        found: list[Entry] = []
        while True:
            page = self._run(self._record.sessions.read_entries(session_id, found[-1].seq if found else 0))
            found += page
            if len(page) < READ_ROWS_MAX:
                return found

    def check(self) -> None:
        """Every beginning of every journal has a valid context, and the kept fold is the fold of the entries."""
        for session_id in self.sessions:
            fresh: list[Said] = []
            for fresh in contexts(self.entries(session_id)):
                assert_valid(fresh)
            kept: Conversation = self._run(self._record.conversation(session_id))
            assert render(kept.placed, kept.ends) == fresh
        self.driver.verify()
