"""Hansard's own export and its way back in: nothing is lost, nothing is doubled, nothing is guessed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from hansard.domain.messages import File, Message, Status
from hansard.domain.sessions import Link, SessionState
from hansard.errors import InvalidInput, NotFound
from hansard.interop.jsonl import BLOB_PIECE_BYTES, JsonlExport
from hansard.interop.jsonl_import import import_file
from hansard.record.api import Record
from tests.interop.told import ATTACHMENT, Teller, cut_answer, everything, export, export_jsonl, take, tell_story

ROUNDS = 6
LATER = datetime(2026, 11, 16, tzinfo=UTC)


async def story_file(tmp_path: Path) -> Path:
    """An export of a home with one story."""
    async with Record.open(tmp_path / "origin") as record:
        await tell_story(record)
    return await export_jsonl(tmp_path / "origin", tmp_path / "export.jsonl")


def change_line(path: Path, number: int, text: str) -> None:
    """Write another line in place of one, counted from 1."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[number - 1] = text
    path.write_text("".join(lines), encoding="utf-8")


def number_of(path: Path, message_id: str) -> int:
    """The number of a message's line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if json.loads(line).get("id") == message_id)


async def heads(home: Path) -> dict[str, int]:
    """How far every journal has come."""
    async with Record.open(home) as record:
        return {session.id: session.head_seq for session in await record.sessions(archived=None)}


@pytest.mark.loss("N3", "N4", "D19")
async def test_a_story_comes_back_as_it_was(home: Path, tmp_path: Path) -> None:
    """Messages with all their parts, attachments, what was taken back, the title and the end come through."""
    path = await story_file(tmp_path)
    report = await take(home, path)
    assert (report.sessions, report.messages, report.skipped, report.findings) == (1, 9, 0, ())
    assert await everything(home) == await everything(tmp_path / "origin")
    async with Record.open(home) as record:
        first = (await record.load_transcript("story"))[0].parts[1]
        assert isinstance(first, File)
        assert await record.blobs.read(first.blob) == ATTACHMENT


@pytest.mark.drawn(2)
@pytest.mark.parametrize("number", range(ROUNDS))
async def test_random_homes_come_back_as_they_were(home: Path, tmp_path: Path, seed: int, number: int) -> None:
    """Whatever was said in whichever order, with forks at any entry: equal transcripts, and verify is clean."""
    async with Record.open(tmp_path / "origin") as record:
        await Teller(record, seed + number).sessions(8)
    path = await export_jsonl(tmp_path / "origin", tmp_path / "export.jsonl")
    report = await take(home, path)
    assert report.findings == ()
    assert await everything(home) == await everything(tmp_path / "origin")
    before = await heads(home)
    again = await take(home, path)
    assert (again.sessions, again.messages, again.findings) == (0, 0, ())
    assert await heads(home) == before
    assert (await export_jsonl(tmp_path / "origin", tmp_path / "again.jsonl")).read_bytes() == path.read_bytes()


async def test_import_where_it_came_from_changes_nothing(tmp_path: Path) -> None:
    """Streamed answers are the same messages as whole ones: an import into the origin finds everything there."""
    path = await story_file(tmp_path)
    before = await heads(tmp_path / "origin")
    report = await take(tmp_path / "origin", path)
    assert (report.sessions, report.messages, report.skipped, report.findings) == (0, 0, 9, ())
    assert await heads(tmp_path / "origin") == before


async def test_a_second_import_leaves_what_a_person_changed(home: Path, tmp_path: Path) -> None:
    """A session that was imported, then renamed, listed, reopened and talked in stays so when it is imported again."""
    async with Record.open(tmp_path / "origin") as record:
        await tell_story(record)
        await record.sessions.archive("story")
    path = await export_jsonl(tmp_path / "origin", tmp_path / "export.jsonl")
    await take(home, path)
    async with Record.open(home) as record:
        assert (await record.sessions.unarchive("story")).archived is False
        await record.set_title("story", "Mine")
        await record.reopen_session("story")
        await record.append("story", Message.user("still here", id="mine"))
        await record.messages.restore("story", ["m2"])
        await record.messages.undo("story", ["m4"])
    before = await everything(home)
    report = await take(home, path)
    assert (report.messages, report.findings) == (0, ())
    assert await everything(home) == before


@pytest.mark.loss("M4")
async def test_an_import_that_was_cut_off_is_completed_by_the_next(home: Path, tmp_path: Path) -> None:
    """Cut off after any commit, a second import takes the rest, in order, and nothing twice."""
    async with Record.open(tmp_path / "origin") as record:
        await record.create_session(id="long", source="cli", title="Long")
        for start in range(0, 450, 90):
            await record.accept([("long", Message.user(f"word {n}", id=f"m{n}")) for n in range(start, start + 90)])
        await record.end_session("long", "done")
    path = await export_jsonl(tmp_path / "origin", tmp_path / "export.jsonl")

    class Stopped(BaseException):
        """Somebody pressed Ctrl-C."""

    def stop(done_bytes: int, all_bytes: int) -> None:
        if done_bytes > all_bytes // 2:
            raise Stopped

    async with Record.open(home) as record:
        with pytest.raises(Stopped):
            await import_file(record, path, stop)
        taken = len(await record.load_transcript("long"))
        assert 0 < taken < 450
    report = await take(home, path)
    assert (report.sessions, report.messages, report.skipped, report.findings) == (0, 450 - taken, taken, ())
    assert await everything(home) == await everything(tmp_path / "origin")


async def test_progress_ends_at_the_end_of_the_file(home: Path, tmp_path: Path) -> None:
    """Whoever waits is told bytes that only grow, up to the size of the file."""
    path = await story_file(tmp_path)
    told: list[tuple[int, int]] = []
    async with Record.open(home) as record:
        await import_file(record, path, lambda done, size: told.append((done, size)))
    assert told == sorted(told)
    assert told[-1] == (path.stat().st_size, path.stat().st_size)


async def test_a_torn_last_line_is_listed(home: Path, tmp_path: Path) -> None:
    """A file that ends in the middle of a message: what came before is taken, and two findings say what is missing."""
    path = await story_file(tmp_path)
    number = number_of(path, "r3")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: number - 1]) + lines[number - 1][:40])
    report = await take(home, path)
    assert report.messages == 7
    assert [finding.line for finding in report.findings] == [number, number]
    assert "torn" in report.findings[0].what
    assert "no end of this session" in report.findings[1].what
    async with Record.open(home) as record:
        assert [message.id for message in await record.load_transcript("story")] == ["m1", "r1", "t1", "r2", "m4"]


@pytest.mark.parametrize(
    "foreign",
    [
        '{"role":"user","content":"hello"}\n',
        '{"type":"message","session_id":"story","id":"m4","role":"robot","parts":[]}\n',
        '{"type":"message","session_id":"story","id":"m4","role":"user","parts":[],"mood":"good"}\n',
        "not json\n",
        '{"type":"message","session_id":"elsewhere","id":"m4","role":"user","parts":[]}\n',
    ],
)
async def test_a_foreign_line_is_listed_and_nothing_is_guessed(home: Path, tmp_path: Path, foreign: str) -> None:
    """A line that is not Hansard's is a finding with its number; every other line is taken."""
    path = await story_file(tmp_path)
    number = number_of(path, "m4")
    change_line(path, number, foreign)
    report = await take(home, path)
    assert report.findings[0].line == number
    assert not report.ok
    assert report.messages == 8
    async with Record.open(home) as record:
        assert "m4" not in [message.id for message in await record.load_transcript("story")]


async def test_a_taken_id_is_reported_and_never_overwritten(home: Path, tmp_path: Path) -> None:
    """A message that is there with other words stays as it is; the others are no news."""
    path = await story_file(tmp_path)
    await take(home, path)
    before = await everything(home)
    number = number_of(path, "r2")
    change_line(
        path, number, path.read_text(encoding="utf-8").splitlines(keepends=True)[number - 1].replace("noon", "one")
    )
    report = await take(home, path)
    assert [(finding.line, finding.session_id) for finding in report.findings] == [(number, "story")]
    assert "r2" in report.findings[0].what
    assert await everything(home) == before


@pytest.mark.parametrize(("owner", "said"), [("person:bob", "m1"), ("person:admin", "other")])
async def test_another_session_of_the_same_id_is_left_alone(home: Path, tmp_path: Path, owner: str, said: str) -> None:
    """An id that names another person's session, or another conversation, is reported; the two are never mixed."""
    path = await story_file(tmp_path)
    async with Record.open(home) as record:
        await record.create_session(id="story", source="cli", owner=owner)
        await record.append("story", Message.user("mine", id=said))
    report = await take(home, path)
    assert (report.sessions, report.messages, len(report.findings)) == (0, 0, 1)
    assert "taken by" in report.findings[0].what
    async with Record.open(home) as record:
        assert [message.text for message in await record.load_transcript("story")] == ["mine"]


async def test_what_is_new_on_both_sides_is_kept_and_reported(home: Path, tmp_path: Path) -> None:
    """Talked on here and there since: the words from there stand after those from here, and the report says so."""
    path = await story_file(tmp_path)
    await take(home, path)
    for place, words in ((home, "here"), (tmp_path / "origin", "there")):
        async with Record.open(place) as record:
            await record.reopen_session("story")
            await record.append("story", Message.user(words, id=words))
    report = await take(home, await export_jsonl(tmp_path / "origin", path))
    assert (report.messages, len(report.findings)) == (1, 1)
    async with Record.open(home) as record:
        assert [message.id for message in await record.load_transcript("story")][-2:] == ["here", "there"]


async def test_a_later_export_of_an_ended_session_adds_what_is_new(home: Path, tmp_path: Path) -> None:
    """A session that went on where it came from goes on here too, and ends here as it ended there."""
    path = await story_file(tmp_path)
    await take(home, path)
    async with Record.open(tmp_path / "origin") as record:
        await record.reopen_session("story")
        await record.append("story", Message.user("one more thing", id="later"))
        await record.end_session("story", "really back")
    report = await take(home, await export_jsonl(tmp_path / "origin", path))
    assert (report.messages, report.skipped, report.findings) == (1, 9, ())
    assert await everything(home) == await everything(tmp_path / "origin")


async def test_a_fork_is_a_fork_again(home: Path, tmp_path: Path) -> None:
    """Where the parent is here and begins the same, the fork shares its entries; nothing is copied."""
    async with Record.open(tmp_path / "origin") as record:
        await tell_story(record)
        await record.fork("story", 9, id="child", title="Another way")
        await record.append("child", Message.user("another way", id="c-m1"))
    path = await export_jsonl(tmp_path / "origin", tmp_path / "export.jsonl")
    report = await take(home, path)
    assert (report.sessions, report.messages, report.skipped, report.findings) == (2, 10, 4, ())
    async with Record.open(home) as record:
        child = await record.sessions.read("child")
        assert child.parent is not None
        assert (child.parent.session_id, child.parent.link, child.title) == ("story", Link.FORK, "Another way")
    assert await everything(home) == await everything(tmp_path / "origin")


@pytest.mark.loss("D19")
async def test_what_a_fork_restored_is_there(home: Path, tmp_path: Path) -> None:
    """A fork that restored what its parent took back comes so into a home that has the parent; a second time too."""
    async with Record.open(tmp_path / "origin") as record:
        await tell_story(record)
    await take(home, await export_jsonl(tmp_path / "origin", tmp_path / "parent.jsonl"))
    for place in (home, tmp_path / "origin"):
        async with Record.open(place) as record:
            await record.reopen_session("story")
            await record.append("story", Message.user("later", id="m9", at=LATER))
            await record.end_session("story", "we are back")
    async with Record.open(tmp_path / "origin") as record:
        await record.fork("story", id="child")
        await record.messages.restore("child", ["m2"])
        await record.messages.undo("child", ["m9"])
    path = await export_jsonl(tmp_path / "origin", tmp_path / "export.jsonl")
    for new in (1, 0):
        report = await take(home, path)
        assert (report.sessions, report.messages, report.findings) == (new, 0, ())
        assert await everything(home) == await everything(tmp_path / "origin")


async def test_a_fork_without_its_parent_is_whole(home: Path, tmp_path: Path) -> None:
    """A fork that is carried alone has every word; that its parent is missing is a note, not a finding."""
    async with Record.open(tmp_path / "origin") as record:
        await tell_story(record)
        child = await record.fork("story", id="child")
        expected = await record.load_transcript("child")
        (tmp_path / "one.jsonl").write_bytes(await export(record, JsonlExport(print), [child]))
    report = await take(home, tmp_path / "one.jsonl")
    assert (report.findings, len(report.notes)) == ((), 1)
    async with Record.open(home) as record:
        found = await record.load_transcript("child")
        assert found == [replace(message, is_imported=True) for message in expected]
    await take(home, await export_jsonl(tmp_path / "origin", tmp_path / "all.jsonl"))
    async with Record.open(home) as record:
        linked = await record.sessions.read("child")
        assert linked.parent is not None
        assert (linked.parent.session_id, linked.parent.link) == ("story", Link.IMPORT)
        assert (await record.verify()).ok


async def test_an_attachment_that_is_not_in_the_file_is_a_finding(home: Path, tmp_path: Path) -> None:
    """Exported without attachments, a message that has one is not taken, and the report names it; the rest is."""
    async with Record.open(tmp_path / "origin") as record:
        await tell_story(record)
    path = await export_jsonl(tmp_path / "origin", tmp_path / "export.jsonl", blobs=False)
    report = await take(home, path)
    assert (report.messages, [finding.line for finding in report.findings]) == (8, [number_of(path, "m1")])
    assert "m1" in report.findings[0].what


@pytest.mark.parametrize("data", ["AAAA", "A", "é"])
async def test_a_damaged_attachment_is_never_stored(home: Path, tmp_path: Path, data: str) -> None:
    """Bytes that do not have the digest they claim, or are none, are refused, and so is the message that needs them."""
    path = await story_file(tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    number = next(number for number, line in enumerate(lines, 1) if '"type":"blob"' in line)
    blob = json.loads(lines[number - 1])
    change_line(path, number, json.dumps(blob | {"data": data}) + "\n")
    report = await take(home, path)
    assert {finding.line for finding in report.findings} == {number, number_of(path, "m1")}
    async with Record.open(home) as record:
        with pytest.raises(NotFound):
            await record.blobs.read(blob["digest"])


async def test_a_large_attachment_comes_in_pieces(home: Path, tmp_path: Path) -> None:
    """An attachment of several lines is put together again; an empty one is one as well."""
    large = bytes(range(256)) * (BLOB_PIECE_BYTES * 2 // 256 + 1)
    async with Record.open(tmp_path / "origin") as record:
        await record.create_session(id="s", source="cli")
        digests = [await record.blobs.put(data) for data in (large, b"")]
        await record.append("s", Message.user([File(blob=digest) for digest in digests], id="m1"))
    path = await export_jsonl(tmp_path / "origin", tmp_path / "export.jsonl")
    assert path.read_bytes().count(b'"type":"blob"') == 4
    assert (await take(home, path)).ok
    async with Record.open(home) as record:
        assert [await record.blobs.read(digest) for digest in digests] == [large, b""]


async def test_an_open_answer_is_carried_as_far_as_it_was_said(home: Path, tmp_path: Path) -> None:
    """Exported while an answer is being given, its words so far are in the file, and here it reads as interrupted."""
    async with Record.open(tmp_path / "origin") as record:
        await record.create_session(id="s", source="cli")
        async with record.turn("s") as turn, turn.reply(id="r1") as reply:
            await reply.write("so far")
            await record.append("s", Message.user("meanwhile", id="m1"))
            data = await export(record, JsonlExport(print))
    (tmp_path / "open.jsonl").write_bytes(data)
    assert (await take(home, tmp_path / "open.jsonl")).ok
    async with Record.open(home) as record:
        found = await record.load_transcript("s")
    assert [(message.id, message.text, message.status) for message in found] == [
        ("r1", "so far", Status.INTERRUPTED),
        ("m1", "meanwhile", Status.COMPLETE),
    ]


@pytest.mark.parametrize(
    "content",
    [b"", b"hello\n", b'{"role":"user","content":"hi"}\n', b'{"type":"hansard","version":2}\n', b"\xff\xfe\n"],
)
async def test_a_file_of_something_else_is_refused(home: Path, tmp_path: Path, content: bytes) -> None:
    """A file that does not say that it is an export, or is of a newer Hansard, is refused; nothing is written."""
    path = tmp_path / "foreign.jsonl"
    path.write_bytes(content)
    with pytest.raises(InvalidInput):
        await take(home, path)
    assert await heads(home) == {}


async def test_an_imported_session_can_be_spoken_in(home: Path, tmp_path: Path) -> None:
    """An imported session takes new words and turns once it is reopened."""
    await take(home, await story_file(tmp_path))
    async with Record.open(home) as record:
        assert (await record.reopen_session("story")).state == SessionState.OPEN
        await record.append("story", Message.user("go on", id="new"))
        await cut_answer(record, "story", "new-answer", "I go on")
        assert (await record.load_transcript("story"))[-1].text == "I go on"
        assert (await record.verify()).ok
