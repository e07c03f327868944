"""Rules 14, 15 and 16: the digest chain, ids, and text that JSON or UTF-8 cannot carry."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hansard import IdConflict, InvalidInput, Message, Record, TooLarge, ToolCall
from hansard.domain.messages import clean_part
from hansard.domain.text import clean_value
from hansard.journal.entries import chain_start, decode_line, row_digest
from tests.record.helpers_facts import (
    SESSION,
    assert_clean,
    fingerprint,
    ids_of,
    log_lines,
    log_of,
    new_session,
    raw_rows,
    say,
)

HIGH, LOW = "\ud83d", "\ude42"  # the two halves of 🙂


async def test_the_bytes_that_are_stored_are_logged_and_hashed(home: Path) -> None:
    """Each body is the same bytes in both legs, and a chain computed from the log alone ends at the stored head."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a", "b")
        await record.append(SESSION, Message.user("é \u2028 </script> \x7f 🙂", id="odd"))
    digest = chain_start(SESSION)
    query = "SELECT body, digest FROM entry e JOIN journal j ON j.key = e.journal WHERE j.id = ? ORDER BY e.key"
    stored = raw_rows(home, query, SESSION)
    raw = log_of(home).read_bytes().splitlines()
    for line, data, (body, known) in zip(log_lines(home), raw, stored, strict=True):
        assert bytes(body) in data
        decoded = decode_line(data + b"\n")
        assert decoded is not None
        assert decoded.row().body == bytes(body)
        digest = row_digest(SESSION, digest, decoded.row())
        assert digest == bytes(known) == bytes.fromhex(line["digest"])
    assert raw_rows(home, "SELECT head_digest FROM journal WHERE id = ?", SESSION) == [(digest,)]
    # Not only by our own function: the formula of the protocol, spelled out.
    first = log_lines(home)[0]
    head = f"{SESSION}\n1\n{first['id']}\n{first['kind']}\n1\n0\n{first['at']}\n".encode()
    body_hash = hashlib.sha256(bytes.fromhex(first["salt"]) + bytes(stored[0][0])).digest()
    assert hashlib.sha256(chain_start(SESSION) + head + body_hash).hexdigest() == first["digest"]


@pytest.mark.loss("B13")
@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("UPDATE entry SET body = CAST(replace(body, 'of b', 'of x') AS BLOB) WHERE id = 'b'", "chain"),
        ("UPDATE entry SET id = 'x' WHERE id = 'b'", "chain"),
        ("UPDATE entry SET at = at + 1 WHERE id = 'b'", "chain"),
        ("UPDATE entry SET salt = zeroblob(16) WHERE id = 'b'", "chain"),
        ("DELETE FROM entry WHERE id = 'b'", "contiguity"),
        ("DELETE FROM entry WHERE id = 'c'", "head"),
        ("UPDATE journal SET messages = 7 WHERE id = 'talk'", "projection"),
        ("UPDATE session SET title = 'forged'", "projection"),
        ("UPDATE journal SET head_seq = head_seq + 1 WHERE id = 'talk'", "head"),
    ],
)
async def test_verify_finds_each_change_of_the_database(home: Path, change: str, what: str) -> None:
    """One cell is changed behind our back: verify names the session and what is wrong."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a", "b", "c")
        raw_rows(home, change)
        report = await record.verify()
        assert not report.ok
        assert (SESSION, what) in [(finding.session_id, finding.what) for finding in report.findings]


@pytest.mark.loss("B13")
@pytest.mark.parametrize("table", ["session", "entry"])
async def test_verify_finds_rows_of_no_session(home: Path, table: str) -> None:
    """A row whose journal is not there belongs to nothing that is compared: verify names its table all the same."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a")
        (columns,) = raw_rows(home, "SELECT group_concat(name) FROM pragma_table_info(?)", table)[0]
        strange = {"session": ("journal", "999"), "entry": ("key", "999 << 32")}[table]
        values = columns.replace("id", "'ghost' || id", 1) if table == "session" else columns
        names = [
            value if name != strange[0] else strange[1]
            for name, value in zip(columns.split(","), values.split(","), strict=True)
        ]
        raw_rows(home, f"INSERT INTO {table} ({columns}) SELECT {', '.join(names)} FROM {table} LIMIT 1")  # noqa: S608
        assert [(found.session_id, found.what) for found in (await record.verify()).findings] == [("", "projection")]


@pytest.mark.loss("B17")
@pytest.mark.parametrize("old", [b"text of b", b'"id":"b"', b'"seq":3'])
async def test_verify_finds_each_change_of_the_log(home: Path, old: bytes) -> None:
    """One byte of the log is changed: verify tells, and the database still has the truth."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a", "b", "c")
        data = log_of(home).read_bytes()
        assert old in data
        log_of(home).write_bytes(data.replace(old, old[:-1] + b"9"))
        report = await record.verify()
        assert (SESSION, "log") in [(finding.session_id, finding.what) for finding in report.findings]
        assert await ids_of(record) == ["a", "b", "c"]


async def test_a_cut_tail_is_found(home: Path) -> None:
    """Both legs lose their last entry, consistently: the anchored head still tells that it is missing."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a", "b")
        lines = log_of(home).read_bytes().splitlines(keepends=True)
        log_of(home).write_bytes(b"".join(lines[:-1]))
        raw_rows(home, "DELETE FROM entry WHERE id = 'b'")
        report = await record.verify()
        assert "head" in [finding.what for finding in report.findings]


@pytest.mark.loss("B26", "B13")
@pytest.mark.parametrize("gone", [["a"], ["b"], ["c"], ["a", "b", "c"]], ids=["first", "middle", "last", "all"])
async def test_verify_blames_the_leg_that_is_wrong(home: Path, gone: list[str]) -> None:
    """Entries are gone from the database, and the log is whole: nobody is advised to move that log away."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a", "b", "c")
        for entry_id in gone:
            raw_rows(home, "DELETE FROM entry WHERE id = ?", entry_id)
        findings = [finding for finding in (await record.verify()).findings if finding.session_id == SESSION]
    blamed = [finding for finding in findings if finding.what in {"contiguity", "head"}]
    assert blamed
    assert all(finding.detail.startswith("state.db is wrong, not the log: ") for finding in blamed)
    assert "log" not in {finding.what for finding in findings}
    assert not [finding for finding in findings if "jsonl" in finding.detail]
    for advice in (finding.detail for finding in findings if "move " in finding.detail):
        assert "move state.db, state.db-wal and state.db-shm away together" in advice


@pytest.mark.loss("I1", "I3", "I13", "A10")
async def test_ids_are_unique_and_sameness_is_of_meaning(home: Path) -> None:
    """The same id and body again is a no-op, whatever time it bears; another body is an error that changes nothing."""
    async with Record.open(home) as record:
        await new_session(record)
        first = await record.append(SESSION, Message.user("hello", id="m", at=datetime(2026, 1, 1, tzinfo=UTC)))
        again = await record.append(SESSION, Message.user("hello", id="m", at=datetime(2027, 1, 1, tzinfo=UTC)))
        assert (first.seq, first.at_microseconds) == (again.seq, again.at_microseconds)
        before = raw_rows(home, "SELECT count(*), max(key) FROM entry")
        for other in (
            Message.user("hello!", id="m"),
            Message.assistant("hello", id="m"),
            Message.user("hello", id="m", author="someone"),
            Message.user([ToolCall(id="1", name="t")], id="m"),
        ):
            with pytest.raises(IdConflict, match="'m'"):
                await record.append(SESSION, other)
        assert raw_rows(home, "SELECT count(*), max(key) FROM entry") == before
        await new_session(record, "other")
        await record.append("other", Message.user("another session, another m", id="m"))
        await assert_clean(record)


@pytest.mark.loss("I3")
async def test_a_forks_inherited_ids_are_taken(home: Path) -> None:
    """An id of the shared prefix is the same entry in the child; an id after the fork point is free there."""
    async with Record.open(home) as record:
        await new_session(record)
        seqs = await say(record, "a", "b")
        child = await record.fork(SESSION, at=seqs[0])
        assert await say(record, "a", session_id=child.id) == seqs[:1]
        with pytest.raises(IdConflict):
            await record.append(child.id, Message.user("other", id="a"))
        await record.append(child.id, Message.user("its own", id="b"))
        grandchild = await record.fork(child.id)
        assert await say(record, "a", session_id=grandchild.id) == seqs[:1]
        assert await ids_of(record, grandchild.id) == ["a", "b"]
        await assert_clean(record)


@pytest.mark.parametrize("id", ["", "A", "-a", "a/b", "../x", "a.b", "é", "a" * 65, "~home", "a\n", " a"])
async def test_session_ids_that_are_no_file_names_are_refused(home: Path, id: str) -> None:
    """Only `[a-z0-9][a-z0-9-]{0,63}`; a refusal leaves the record as it was."""
    async with Record.open(home) as record:
        with pytest.raises(InvalidInput):
            await record.create_session(id=id, source="test")
        assert await record.sessions() == []


@pytest.mark.parametrize("id", ["", "~x", "a\nb", "a\0b", "x" * 256, HIGH])
async def test_entry_ids_that_cannot_be_printed_are_refused(home: Path, id: str) -> None:
    """Before anything is written."""
    async with Record.open(home) as record:
        await new_session(record)
        with pytest.raises(InvalidInput):
            await record.append(SESSION, Message.user("x", id=id))
        assert await ids_of(record) == []


async def test_the_path_is_a_function_of_the_id(home: Path) -> None:
    """Dated ids lie by year and month, all others in `other`."""
    async with Record.open(home) as record:
        for id in ("20261115-201233-k3v9qd", "plain", "20261315-201233-month13"):
            await record.create_session(id=id, source="test")
    found = sorted(str(path.relative_to(home / "sessions")) for path in (home / "sessions").rglob("*.jsonl"))
    assert found == ["2026/11/20261115-201233-k3v9qd.jsonl", "other/20261315-201233-month13.jsonl", "other/plain.jsonl"]


@pytest.mark.loss("C11")
@pytest.mark.parametrize(
    ("text", "recorded"),
    [
        ("plain", "plain"),
        (f"a{HIGH}b", "a\ufffdb"),
        (f"a{LOW}b", "a\ufffdb"),
        (f"{LOW}{HIGH}", "\ufffd\ufffd"),
        (f"a{HIGH}{LOW}b", "a🙂b"),
        ("a\0b\0", "a\ufffdb\ufffd"),
        ("\u2028\x1b[31m\r\n\t\ufeff", "\u2028\x1b[31m\r\n\t\ufeff"),
        ("", ""),
    ],
)
async def test_the_table_of_text(home: Path, text: str, recorded: str) -> None:
    """Whole messages, streamed ones and tool calls are cleaned by one table, and read back equal after a rebuild."""
    async with Record.open(home) as record:
        await new_session(record)
        await record.append(SESSION, Message.user(text, id="whole"))
        await record.append(SESSION, Message.user(text, id="whole"))
        await record.append(SESSION, Message.user([ToolCall(id="1", name="n", arguments=text)], id="call"))
        async with record.turn(SESSION) as turn, turn.reply(id="streamed") as reply:
            for character in text:
                await reply.write(character)
        await assert_clean(record)
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / name).unlink()
    async with Record.open(home) as record:
        whole, call, streamed = await record.load_transcript(SESSION)
        assert (whole.text, streamed.text) == (recorded, recorded)
        assert call.parts == (clean_part(ToolCall(id="1", name="n", arguments=text)),)
        assert [part.arguments for part in call.parts if isinstance(part, ToolCall)] == [recorded]
        await assert_clean(record)


@pytest.mark.loss("C11")
async def test_a_pair_split_over_two_chunks_is_one_character(home: Path) -> None:
    """Halves that arrive in two writes are joined; a half that stays alone, also at the end, is replaced."""
    async with Record.open(home) as record:
        await new_session(record)
        async with record.turn(SESSION) as turn:
            async with turn.reply(id="joined") as reply:
                await reply.write(f"a{HIGH}")
                await reply.write(f"{LOW}b")
            async with turn.reply(id="alone") as reply:
                await reply.write(f"a{HIGH}")
                await reply.write(f"b{HIGH}")
            async with turn.reply(id="parts") as reply:
                await reply.write(f"a{HIGH}", part="reasoning")
                await reply.write(f"{LOW}b")
        joined, alone, parts = await record.load_transcript(SESSION)
        assert joined.text == "a🙂b"
        assert alone.text == "a\ufffdb\ufffd"
        assert parts.text == "\ufffdb"
        await assert_clean(record)


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (2**53, 2**53),
        (2**53 + 1, str(2**53 + 1)),
        (-(2**53) - 1, str(-(2**53) - 1)),
        (True, True),
        ({1: "a", "b": [0.1, None, ("\0",)]}, {"1": "a", "b": [0.1, None, ["\ufffd"]]}),
    ],
)
def test_the_table_of_numbers(value: object, recorded: object) -> None:
    """What JSON has no number for becomes text; the result goes through JSON unchanged."""
    cleaned = clean_value(value)
    assert cleaned == recorded
    assert json.loads(json.dumps(cleaned, allow_nan=False)) == recorded


def test_what_is_not_json_is_refused() -> None:
    """No guess: bytes, sets and objects are refused, and so is endless nesting."""
    endless: list[object] = []
    endless.append(endless)
    for value in (b"bytes", {1, 2}, object()):
        with pytest.raises(InvalidInput):
            clean_value(value)
    with pytest.raises(TooLarge):
        clean_value(endless)


@pytest.mark.loss("B3")
async def test_refused_input_leaves_no_trace(home: Path) -> None:
    """After every kind of refusal the files of the home are the very same bytes."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a")
    before = fingerprint(home)
    async with Record.open(home) as record:
        for bad in (b"bytes", 7, None, ["a list"]):
            with pytest.raises(InvalidInput):
                await record.append(SESSION, Message.user(bad))  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            await record.append(SESSION, "not a message")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            await record.create_session(source="two\nlines")
        with pytest.raises(InvalidInput):
            await record.set_title(SESSION, "")
    after = {name: digest for name, digest in fingerprint(home).items() if name.endswith(".jsonl")}
    assert after == {name: digest for name, digest in before.items() if name.endswith(".jsonl")}
