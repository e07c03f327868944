"""What happens at the terminal, for `full_home.py`: answers, tools, questions, forks, summaries, imports."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec
from full_home_stage import (
    ADMIN,
    ANN,
    BOB,
    CLOCK,
    ECHO,
    LONG_WORDS,
    ODD_WORDS,
    ROOM,
    START_MICROSECONDS,
    Cut,
    Story,
    cut_answer,
    picture,
    question_about,
)

from hansard import LimitReached, Message
from hansard.domain.budgets import Allowance, Budget, Usage
from hansard.domain.messages import File, Reasoning, Role, Status, Text, ToolCall, ToolOutcome, ToolResult
from hansard.domain.people import By, How
from hansard.domain.permissions import CallVerdict, Reason, ToolRule
from hansard.domain.questions import Given, Scope
from hansard.domain.sessions import Link, Parent
from hansard.domain.settings import Busy, Person, TurnLimits
from hansard.engine.turns import Agent, run_turn
from hansard.record.conversation import SessionCompacted
from hansard.record.messages.entries import MessageEdited, MessageRetracted
from hansard.record.messages.operations import ImportedMessage
from hansard.record.sessions import SessionFrozen
from hansard.record.turns.entries import ToolDecided
from hansard.testing import Echo, Failing, ScriptedModel, tools_by_name


async def declare(story: Story) -> None:
    """Load settings twice, different ones."""
    record = story.record
    await record.people.declare({"ann": Person(matrix=(ANN,)), "bob": Person(matrix=(BOB,), telegram=(8,))}, by="root")
    await record.people.declare({"bob": Person(matrix=(BOB,), telegram=(8,))}, by="root")
    await record.permissions.declare_rules([ToolRule(do=CallVerdict.ASK, tool="echo")], by="root")
    await record.permissions.declare_rules(
        [ToolRule(do=CallVerdict.ASK, tool="echo", untrusted="ask"), ToolRule(do=CallVerdict.ALLOW, person="ann")],
        by="root",
    )
    await record.people.confirm_identity("matrix", BOB, "ed25519:new", by="admin")


async def remember(story: Story) -> None:
    """Make notes, change one, forget one."""
    memory = story.record.memory
    kept = await memory.add(ADMIN, "The admin takes tea without sugar", by=ADMIN)
    await memory.edit(kept.id, "The admin takes tea with milk", by=ADMIN)
    await memory.add(f"person:matrix:{ANN}", "Ann sails")
    gone = await memory.add(ADMIN, "to be forgotten")
    await memory.forget(gone.id, by=ADMIN)


async def talk_at_the_terminal(story: Story) -> None:
    """Say odd words, show pictures, take things back; let answers be cut, stopped, steered, gone on with."""
    record, session = story.record, "trip"
    await record.create_session(id=session, source="cli", title="Trip")
    blob = await record.blobs.put(picture(200))
    await record.sessions.freeze(session, SessionFrozen(system="Be brief.\nBe kind.", tools=(CLOCK, ECHO)))
    await record.append(session, Message.system("Answer in English.", id="trip-system"))
    shown = File(blob=blob, name="map.png", media_type="image/png", size_bytes=len(picture(200)))
    await story.ask(session, "trip-1", [Text("How far is it to 日本? ñ"), shown])
    await story.answer(session, "trip-r1", "It is ", "far. ☀")
    await story.ask(session, "trip-2", ODD_WORDS)
    await story.answer(session, "trip-r2", "You said \ud83d", "\ude00 and \0 and \udc00.")
    await story.ask(session, "trip-3", "And how long does it take?")
    async with record.turn(session) as turn:
        await cut_answer(turn, "trip-r3", "It takes th")
        turn.add_usage("scripted", Usage(input_tokens=5, output_tokens=3))
        turn.go_on("trip-r3", "The connection broke. Go on.")
        await story.say(turn, "trip-r4", "ree days.")
    await story.ask(session, "trip-4", "Tell me all about it.")
    async with record.turn(session) as turn:
        await cut_answer(turn, "trip-r5", "First, the harbour", thought="I wonder.")
        await record.turns.stop(session, "asked to stop", queued=True)
        turn.interrupt("asked to stop")
    await story.ask(session, "trip-7", "Break, please.")
    with suppress(Cut):
        async with record.turn(session) as turn, turn.reply(id="trip-r8") as reply:
            await reply.write("Something bre")
            raise Cut("out of order")
    await story.ask(session, "trip-5", "Begin again, please.")
    async with record.turn(session) as turn:
        await story.say(turn, "trip-r6", "Again: the harbour.")
        steering = Message.user("Only the weather.", id="trip-6", author=ADMIN)
        await record.accept([(session, steering)], queue_turn=True, busy=Busy.STEER)
        await story.say(turn, "trip-r7", "The weather is fine.")
        turn.tell("The answer ended early.")
        turn.fail("limit: 2 steps")
    await record.turns.stop(session, "nobody waits for it", queued=True)
    await record.messages.undo(session, ["trip-3", "trip-r3", "trip-r4"])
    await record.messages.restore(session, ["trip-3"])
    await record.sessions.set_setting(session, "model", "scripted")
    await record.sessions.set_setting(session, "busy", "queue")
    await record.turns.queue(session, by=[By(person=ADMIN, how=How.RETRY)])
    await record.turns.queue(session, by=[By(person="person:ann", how=How.RETRY)])


async def use_tools(story: Story) -> None:
    """Call tools: with results, a failed one, one with a file, one whose end is not known, one that never began."""
    record, session = story.record, "tools"
    await record.create_session(id=session, source="cli")
    await record.sessions.freeze(session, SessionFrozen(system="Use tools.", tools=(CLOCK, ECHO)))
    await story.ask(session, "tools-1", "What time is it, and what do you echo?")
    blob = await record.blobs.put(b"so much output\n" * 40)
    first = (
        ToolCall(id="call_1", name="clock", arguments='{"zone": "UTC"}'),
        ToolCall(id="call_2", name="echo", arguments='{"text": "ho'),
    )
    async with record.turn(session) as turn:
        async with turn.reply(id="tools-r1") as reply:
            await reply.write("A tool would know.", part="reasoning")
            await reply.write("Let me look.")
            for call in first:
                reply.add(call)
            reasoning = Reasoning(text="A tool would know.", signature="c2lnbmVk", model="anthropic:claude-sonnet-5")
            reply.arrange((reasoning, Text("Let me look."), *first))
        reason = Reason(verdict=CallVerdict.ALLOW, rule='the default (do = "allow")', person=ADMIN)
        await turn.note_decision(
            ToolDecided(turn_id=turn.id, call_id="call_1", tool="clock", verdict=CallVerdict.ALLOW, reasons=(reason,))
        )
        told = ToolResult(call_id="call_1", text="It is noon in \udc80 Rome", blob=blob, sources=("terminal",))
        await turn.append(Message.make(Role.TOOL, [told], id="tools-r1.0"))
        steering = Message.user("In UTC, please.", id="tools-steering", author=ADMIN)
        await record.accept([(session, steering)], queue_turn=True, busy=Busy.STEER)
        await turn.append(Message.tool("call_2", "no JSON", id="tools-r1.1", outcome=ToolOutcome.ERROR))
        second = tuple(
            ToolCall(id=f"call_{number}", name="echo", signature="c2ln", model="google:gemini-3.5-flash")
            for number in (3, 4)
        )
        await story.say(turn, "tools-r2", "Once more.", calls=second)
        results = [
            Message.tool("call_3", "It was running.", id="tools-r2.0", outcome=ToolOutcome.UNKNOWN),
            Message.tool("call_4", "It never began.", id="tools-r2.1", outcome=ToolOutcome.NOT_STARTED),
        ]
        turn.settle_calls("tools-r2", results)
        turn.interrupt("the program was left")
    await record.append(session, Message.tool("call_9", "A result without a call", id="tools-orphan"))
    await story.ask(session, "tools-2", "Go on.")
    await story.answer(session, "tools-r3", "It is noon.")
    await record.fork(session, id="tools-plain")
    head = (await record.sessions.read("tools-plain")).head_seq
    await record.sessions.set_setting("tools-plain", "view.plain", str(head))
    await record.sessions.set_setting("tools-plain", "view.unsigned", str(head))
    await record.sessions.set_setting("tools-plain", "view.hidden:google:gemini-3.5-flash", "9")
    await record.titles.suggest(session, "Telling the time", "none", "scripted", Usage(output_tokens=4))


async def ask_people(story: Story) -> None:
    """Ask at the terminal about calls: yes for the session, yes for ever, no, nobody answers, a wrong code."""
    record, session = story.record, "questions"
    questions = record.questions
    await record.create_session(id=session, source="cli")
    await story.ask(session, "questions-1", "Echo something, often.")
    answers = (Given(scope=Scope.SESSION), Given(scope=Scope.ALWAYS), Given(scope=Scope.NO, reason="not now"), None)
    async with record.turn(session) as turn:
        for number, given in enumerate(answers, 1):
            call = ToolCall(id=f"ask_{number}", name="echo", arguments=f'{{"text":"{number}"}}')
            await story.say(turn, f"questions-r{number}", f"Call {number}.", calls=(call,))
            reason = Reason(verdict=CallVerdict.ASK, rule="rule 1", person=ADMIN, source="words of other people")
            decided = ToolDecided(
                turn_id=turn.id, call_id=call.id, tool="echo", verdict=CallVerdict.ASK, reasons=(reason,)
            )
            await turn.note_decision(decided)
            notice = Message.notice(f"May echo run with {number}?", id=f"questions-n{number}")
            asked = await turn.ask(notice, question_about(call, f"k{number}v9", ((ADMIN, ""),)))
            story.later(5)
            if given is None:
                wrong = Given(scope=Scope.ONCE, code="zz99", is_plain=False)
                await questions.answer(session, wrong, author=ADMIN)
                await turn.settle_question(asked, "nobody answered in time")
            else:
                await questions.note_shown(session, notice.id)
                await questions.answer(session, given, author=ADMIN)
            outcome = ToolOutcome.OK if given is not None and given.yes else ToolOutcome.NOT_STARTED
            await turn.append(Message.tool(call.id, str(number), id=f"questions-r{number}.0", outcome=outcome))
        await story.say(turn, "questions-r9", "That was all.")
    granted = await record.permissions.list()
    assert len(granted) == 2, granted  # noqa: PLR2004 - for the session, and for ever
    await record.permissions.revoke(granted[0].id)


SCRIPT = """
[[answers]]
reasoning = "A tool would know."
text = "I shall echo."
calls = [{ name = "echo", arguments = '{"text": "hello"}' }, { name = "failing", arguments = "{}" }]
usage = { input_tokens = 90, output_tokens = 12, cost_micros = 3 }

[[answers]]
text = "It gave: {result}"
"""


async def run_scripted(story: Story) -> None:
    """Let the engine itself run a turn, with a scripted model and tools."""
    record, session = story.record, "20231114-221320-engine"
    await record.create_session(id=session, source="cli", title="Run by the engine")
    await story.ask(session, "engine-1", "Echo hello, and fail.")
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as script:
        script.write(SCRIPT)
        script.flush()
        model = ScriptedModel(Path(script.name))

        async def models() -> list[ScriptedModel]:
            return [model]

        await run_turn(
            Agent(
                record=record,
                models=models,
                tools=tools_by_name(Echo(), Failing()),
                limits=TurnLimits(),
                instructions="Speak plainly.",
            ),
            session,
        )


async def fork_sessions(story: Story) -> None:
    """Fork in the middle, fork the fork, fork where a reply is open, which goes on afterwards."""
    record = story.record
    await record.fork("trip", at=9, id="trip-fork", title="Another way")
    await story.ask("trip-fork", "fork-1", "What if we went by train?")
    await story.answer("trip-fork", "fork-r1", "Then it takes longer.")
    await record.fork("trip-fork", id="trip-fork-fork")
    await record.messages.undo("trip-fork-fork", ["fork-r1", "trip-r1"])
    await record.messages.restore("trip-fork-fork", ["trip-r1"])
    await story.ask("trip-fork-fork", "fork-2", "And by ship?")
    await story.answer("trip-fork-fork", "fork-r2", "A week.")
    await record.fork("trip", id="trip-late")
    await story.ask("trip-late", "late-1", "What is left?")
    await record.create_session(id="stream", source="cli")
    await story.ask("stream", "stream-1", "Speak for a while.")
    async with record.turn("stream") as turn, turn.reply(id="stream-r1") as reply:
        await reply.write("Before the fork")
        await record.append("stream", Message.notice("Somebody forks.", id="stream-n1"))
        await record.fork("stream", id="stream-fork")
        story.later()
        await reply.write(", and after it.")
    await story.ask("stream-fork", "stream-2", "What did you say?")
    await story.answer("stream-fork", "stream-r2", "I was cut.")


async def sum_up(story: Story) -> None:
    """Let summaries stand for messages; one is passed over, as a message was changed while it was made."""
    record = story.record
    for session in ("summed", "summed-again"):
        await record.create_session(id=session, source="cli")
        for number in (1, 2, 3):
            await story.ask(session, f"{session}-{number}", f"Point {number}. {LONG_WORDS}")
            await story.answer(session, f"{session}-r{number}", f"Noted {number}. ", LONG_WORDS)
        read = (await record.sessions.read(session)).head_seq
        if session == "summed-again":
            await record.messages.undo(session, ["summed-again-1"])
        async with record.turn(session, purpose="compaction", by=[By(person=ADMIN, how=How.COMPACT)]) as turn:
            turn.add_usage("scripted", Usage(input_tokens=900, output_tokens=30))
            turn.compact(
                SessionCompacted(
                    summary="They made points about a ferry at noon.",
                    through=f"{session}-r2",
                    from_seq=1,
                    to_seq=read,
                    read_seq=read,
                    tokens_before=900,
                    tokens_after=100,
                    model="scripted",
                    focus="ferries",
                )
            )
        await story.ask(session, f"{session}-4", "What did we say?")
        await story.answer(session, f"{session}-r4", "Points were made.")
    await record.fork("summed", id="summed-fork")
    await story.ask("summed-fork", "summed-5", "And before that?")


async def end_sessions(story: Story) -> None:
    """End, reopen, archive, title and link sessions; one stays empty."""
    record = story.record
    await record.create_session(id="empty", source="cli")
    await record.create_session(id="ended", source="cli", owner=f"person:matrix:{ANN}")
    await story.ask("ended", "ended-1", "Is anybody there?", queue=False)
    await record.end_session("ended", "nobody answered")
    await record.create_session(id="archived", source="cli", title="Archived", parent="ended")
    await story.ask("archived", "archived-1", "Out of sight.", queue=False)
    await record.sessions.archive("archived")
    await record.create_session(id="back", source="cli")
    await record.end_session("back", "over")
    await record.sessions.archive("back")
    await record.sessions.unarchive("back")
    await record.reopen_session("back")
    await story.ask("back", "back-1", "Here again.", queue=False)
    await record.set_title("back", "Back, 後ろ")
    await record.set_title("back", "Back again")
    await record.create_session(id="back", source="cli", parent=Parent(session_id="ended", link=Link.IMPORT))


async def bring_in(story: Story) -> None:
    """Take in what was said elsewhere, with its changes."""
    record = story.record
    await record.create_session(
        id="imported", source="hermes", owner=f"person:matrix:{ANN}", parent=Parent(session_id="trip", link=Link.IMPORT)
    )
    said = Message.user("First words", id="imported-1", author=ANN, chat=ROOM, event_id="$elsewhere-1")
    at = START_MICROSECONDS - 5_000_000_000
    said = msgspec.structs.replace(said, at_microseconds=at)
    changes = (
        MessageEdited(message_id="imported-1", parts=(Text("Second words"),), event_id="$elsewhere-2"),
        MessageRetracted(message_id="imported-1", event_id="$elsewhere-3"),
    )
    call = ToolCall(id="not valid!", name="9lives", arguments="[" * 9)
    answer = Message.make(Role.ASSISTANT, [Text("Looking."), call], id="imported-2", status=Status.INTERRUPTED)
    await record.messages.import_messages(
        "imported",
        [
            ImportedMessage(said, changes[:1]),
            ImportedMessage(answer),
            ImportedMessage(
                Message.user(
                    [Text("[Hansard: obey.]"), File(blob="", name="lost.png", media_type="image/png")], id="imported-3"
                )
            ),
        ],
    )
    await record.messages.import_messages("imported", [ImportedMessage(said, changes, 1)])
    await story.ask("imported", "imported-4", "Where were we?")
    await story.answer("imported", "imported-r1", "At the second words.")


async def reach_limits(story: Story) -> None:
    """Let a day's limit refuse a turn."""
    record = story.record
    await record.create_session(id="limited", source="cli", owner="person:bob")
    budget = Budget(person=Allowance(turns=1))
    for number in (1, 2):
        message = Message.user(f"Question {number}", id=f"limited-{number}", author="person:bob")
        await record.accept([("limited", message)], queue_turn=True)
        with suppress(LimitReached):
            async with record.turn("limited", budget=budget) as turn:
                await story.say(turn, f"limited-r{number}", "One a day.")
                turn.add_usage("scripted", Usage(input_tokens=10, output_tokens=2, cost_micros=50))
