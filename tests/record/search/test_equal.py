"""Search finds what a scan finds, in any record, with an index that is whole, behind or dropped."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hansard import Message, Record
from hansard.domain.messages import Text, ToolCall
from hansard.record.search.index import search_index
from tests.counts import times
from tests.record.search.oracle import Asked, Said
from tests.record.search.samples import queries, texts
from tests.record.search.scene import (
    check,
    delete_in_chat,
    drop_index,
    edit_in_chat,
    everything_said,
    index_all,
    message,
    say_in_chat,
)

OWNERS = ("person:admin", "person:ada", "room:!x:server")
SOURCES = ("cli", "matrix")
TITLES = (None, "Trip to Łódź", "100% a_b", "trip")
TOOLS = ("read_file", "web.search", "日本")
SESSIONS = ("s0", "s1", "s2")
EXAMPLES = times(test=8, long=12, prove=300)
"""Records that are drawn, each searched dozens of times at eight stages."""


class Step(NamedTuple):
    """One thing that happens in a record."""

    do: str
    session: int
    text: str
    role: str
    tool: str


steps = st.builds(
    Step,
    st.sampled_from(
        ("say",) * 6
        + ("chat",) * 4
        + ("edit",) * 4
        + ("delete", "call", "call", "reply", "undo", "undo", "restore", "fork", "end", "archive", "index")
    ),
    st.integers(0, 5),
    texts(),
    st.sampled_from(("user", "assistant", "user", "assistant", "system", "notice")),
    st.sampled_from(TOOLS),
)


@st.composite
def askings(draw: st.DrawFn) -> Asked:
    """A query with filters, or mostly without."""
    plain = draw(st.booleans())
    return Asked(
        draw(queries()),
        role=None if plain else draw(st.sampled_from((None, None, "user", "assistant", "tool", "system", "notice"))),
        owner=None if plain else draw(st.sampled_from((None, None, *OWNERS))),
        source=None if plain else draw(st.sampled_from((None, None, None, *SOURCES))),
        session_id=None if plain else draw(st.sampled_from((None, None, None, "s0", "nowhere"))),
        title=None if plain else draw(st.sampled_from((None, None, None, "TRIP", "ł", "%", "a_b", "aXb"))),
        tool=None if plain else draw(st.sampled_from((None, None, None, *TOOLS))),
        tools=draw(st.booleans()),
        everything=draw(st.booleans()),
    )


class Story:
    """A record that grows by steps."""

    def __init__(self, record: Record) -> None:
        """Nothing happened yet."""
        self.record = record
        self.sessions: list[str] = []
        self.calls = 0
        self.undone: list[tuple[str, str]] = []
        self.events: list[str] = []

    async def begin(self) -> None:
        """Create the sessions that steps speak in."""
        for number, name in enumerate(SESSIONS):
            await self.record.create_session(
                id=name, source=SOURCES[number % 2], owner=OWNERS[number], title=TITLES[number]
            )
            self.sessions.append(name)

    async def play(self, step: Step) -> None:
        """Do one step."""
        session = self.sessions[step.session % len(self.sessions)]
        if step.do == "index":
            index_all(self.record)
        elif step.do == "fork":
            entries = await self.record.sessions.read_entries(session)
            forked = await self.record.fork(session, entries[len(step.text) % len(entries)].seq, title=TITLES[3])
            self.sessions.append(forked.id)
        elif step.do == "restore" and self.undone:
            gone_from, message_id = self.undone[len(step.text) % len(self.undone)]
            await self.record.messages.restore(gone_from, [message_id])
        elif step.do in {"edit", "delete"} and self.events:
            event_id = self.events[len(step.text) % len(self.events)]
            if step.do == "edit":
                await edit_in_chat(self.record, event_id, step.text)
            else:
                await delete_in_chat(self.record, event_id)
        elif step.do == "archive":
            await self.record.sessions.archive(session)
        elif step.do == "end":
            await self.record.end_session(session, "the end")
        else:
            await self.record.reopen_session(session)
            await self.speak(session, step)

    async def speak(self, session: str, step: Step) -> None:
        """Do a step that adds words to a session, or takes them back."""
        if step.do == "say":
            await self.record.append(session, message(step.role, step.text))
        elif step.do in {"chat", "edit", "delete"}:
            self.events.append(f"$event{len(self.events)}")
            await say_in_chat(self.record, session, step.text, self.events[-1])
        elif step.do == "call":
            self.calls += 1
            call = ToolCall(id=f"c{self.calls % 3}", name=step.tool, arguments=f'{{"q": "{step.text}"}}')
            await self.record.append(session, Message.assistant([Text(step.text[:3]), call]))
            await self.record.append(session, Message.tool(call.id, step.text))
        elif step.do == "reply":
            async with self.record.turn(session) as turn, turn.reply() as reply:
                await reply.write(step.text)
        elif transcript := await self.record.load_transcript(session):
            gone = transcript[len(step.text) % len(transcript)].id
            await self.record.messages.undo(session, [gone])
            self.undone.append((session, gone))


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(steps, min_size=5, max_size=25), st.lists(askings(), min_size=5, max_size=15), st.data())
@pytest.mark.loss("D8", "D19", "K5", "K6", "K8")
async def test_search_is_a_scan(story: list[Step], asked: list[Asked], data: st.DataObject) -> None:
    """Whatever was said, edited, deleted, undone, forked, ended or archived: search finds what a scan does, always."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        async with Record.open(home) as record:
            tale = Story(record)
            await tale.begin()
            for step in story:
                await tale.play(step)
            said = await everything_said(record)
            asked = [*asked, *own_words(said, data)]
            await check(record, asked, said)
            index_all(record)
            await check(record, asked, said)
            drop_index(home)
            await check(record, asked, said)
            index_all(record)
            await check(record, asked, said)
        (home / "search.db").unlink(missing_ok=True)
        async with Record.open(home) as record:
            await check(record, asked, said)
            search_index(record.store).step()
            await check(record, asked, said)
        for side in ("", "-wal", "-shm"):
            (home / f"state.db{side}").unlink(missing_ok=True)
        async with Record.open(home) as record:
            again = await everything_said(record)
            assert sorted(each.place for each in again) == sorted(each.place for each in said)
            await check(record, asked, again)
            index_all(record)
            await check(record, asked, again)


def own_words(said: list[Said], data: st.DataObject) -> list[Asked]:
    """Queries that are pieces of what was said, as somebody types who remembers it."""
    found = []
    texts_said = [text for each in said for version in each.versions for text in version[:2] if text]
    for text in data.draw(st.lists(st.sampled_from(texts_said), max_size=5)) if texts_said else []:
        start = data.draw(st.integers(0, len(text) - 1))
        piece = text[start : start + data.draw(st.integers(1, 12))]
        found.append(Asked(piece, tools=True))
        found.append(Asked(f'"{piece}"*', tools=True, everything=True))
    return found
