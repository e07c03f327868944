"""Reading a Hermes home: `state.db`, `sessions/*.jsonl`, `sessions/session_*.json`, `sessions/sessions.json`.

Reads: these files, of any version from 0.13 on. Writes: nothing.
Invariants: what cannot be read is listed with its place, and the rest is read all the same; nothing is guessed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from hansard.errors import InvalidInput
from hansard.interop.hermes_merge import Merged, merge
from hansard.interop.hermes_parts import (
    Copy,
    Facts,
    HermesFinding,
    HermesSource,
    parse_json,
    read_copy,
    read_time,
    text_of,
)
from hansard.journal.concepts import Queries
from hansard.journal.sqlite.foreign import ForeignDatabase, Row, open_foreign

SQL = Queries(resources.files(__package__).joinpath("hermes.sql").read_text(encoding="utf-8"))

IDS_ROWS: Final = 10_000
LINE_BYTES_MAX: Final = 64 * 1024 * 1024
SNAPSHOT_BYTES_MAX: Final = 256 * 1024 * 1024
SHOWN_CHARACTERS_MAX: Final = 80

A_LINK: Final = "it is a link, and links are not followed"

META_ROLES: Final = frozenset({"session_meta"})
"""Lines of a log that describe the session and say nothing."""


class HermesHome:
    """A Hermes home, open for reading. Use `open_hermes`."""

    def __init__(self, path: Path, database: ForeignDatabase | None) -> None:
        self.path = path
        self._database = database
        self.findings: list[HermesFinding] = []
        self.kinds: set[HermesSource] = set()

    # Which sessions there are.

    def sessions(self) -> list[Facts]:
        """Return every session of every source, the earliest first."""
        found = {facts.id: facts for facts in self._sessions_of_database()}
        snapshots = filter(None, map(self._facts_of_snapshot, self._files("session_*.json")))
        logs = (Facts(id=path.stem, log=path, started_at=path.stat().st_mtime) for path in self._files("*.jsonl"))
        for facts in chain(snapshots, logs):
            known = found.get(facts.id)
            found[facts.id] = _fill(known, facts) if known else facts
            self.kinds.update(facts.sources)
        for facts in self._facts_of_index():
            if facts.id in found:
                found[facts.id] = _fill(found[facts.id], facts)
        return sorted(found.values(), key=lambda facts: (facts.started_at, facts.id))

    def _files(self, pattern: str) -> Iterator[Path]:
        """Yield the files of a pattern. What is a link is listed, and not followed: it may lead to anybody's file."""
        folder = self.path / "sessions"
        found = [folder] if folder.is_symlink() else sorted(folder.glob(pattern))
        for path in found:
            if path.is_symlink():
                link = HermesFinding(kind="unreadable", session="", where=self._name(path), detail=A_LINK)
                if link not in self.findings:
                    self.findings.append(link)
            elif path.is_file():
                yield path

    def _sessions_of_database(self) -> Iterator[Facts]:
        if self._database is None:
            return
        try:
            tables = {row["name"] for row in self._database.rows(SQL.tables)}
            if tables != {"sessions", "messages"}:
                self._list("unreadable", "", "state.db", "it has no tables of sessions and messages")
                return
            for row in self._database.rows(SQL.computed_tables):
                why = f"cannot be read: its table {row['name']} computes what it gives"
                self._list("unreadable", "", "state.db", f"{self.path / 'state.db'} {why}")
                return
            self.kinds.add(HermesSource.DATABASE)
            after = 0
            while keys := self._database.rows(SQL.session_keys, (after, IDS_ROWS)):
                after = keys[-1]["row"]
                for key in keys:
                    yield from self._session_of_database(self._database, key["row"])
            for row in self._database.rows(SQL.sessions_without_row, (IDS_ROWS,)):
                session_id = text_of(row["session_id"])
                self._list("no session row", session_id, "state.db", "its messages are there, its own row is not")
                yield Facts(id=session_id, in_database=True)
        except InvalidInput as error:
            self._list("unreadable", "", "state.db", str(error))

    def _session_of_database(self, database: ForeignDatabase, row: int) -> Iterator[Facts]:
        """Yield the facts of a session; of one whose row cannot be read, its id, so that its messages come."""
        try:
            yield from map(_facts_of_row, database.rows(SQL.session, (row,)))
        except InvalidInput as error:
            self._list("unreadable", "", f"state.db, session {row}", str(error))
            for each in database.rows(SQL.session_id, (row,)):
                yield Facts(id=text_of(each["id"]), in_database=True)

    def _facts_of_snapshot(self, path: Path) -> Facts | None:
        fields = self._read_json(path)
        if not isinstance(fields, dict) or not isinstance(fields.get("messages"), list):
            self._list("unreadable", path.stem.removeprefix("session_"), self._name(path), "it is not a whole snapshot")
            return None
        return Facts(
            id=text_of(fields.get("session_id")) or path.stem.removeprefix("session_"),
            source=text_of(fields.get("platform")),
            model=text_of(fields.get("model")),
            started_at=read_time(fields.get("session_start")) / 1e6,
            snapshot=path,
        )

    def _facts_of_index(self) -> Iterator[Facts]:
        """Yield what the gateway's index says of the sessions that its chats are in now."""
        path = next(self._files("sessions.json"), None)
        if path is None:
            return
        index = self._read_json(path)
        if not isinstance(index, dict):
            self._list("unreadable", "", self._name(path), "it is not a JSON object")
            return
        for entry in index.values():
            if isinstance(entry, dict) and entry.get("session_id"):
                origin = entry.get("origin")
                origin = origin if isinstance(origin, dict) else {}
                yield Facts(
                    id=text_of(entry["session_id"]),
                    source=text_of(entry.get("platform") or origin.get("platform")),
                    chat_type=text_of(entry.get("chat_type") or origin.get("chat_type")),
                    **texts_of(origin, "user_id", "chat_id", "thread_id"),
                    **texts_of(entry, "session_key", "display_name"),
                )

    # What was said in them.

    def messages(self, facts: Facts) -> Merged:
        merged = Merged([], [])
        archived, live = self._rows(self._database, facts) if self._database and facts.in_database else ([], [])
        # Hermes' own compaction writes the end of the talk a second time, after the rows that it puts aside.
        lines, kept = list(self._lines(facts)), list(self._kept(facts))
        sources = (archived, True), (live, True), (lines, False), (kept, False)
        for copies, in_order in sources:
            if not merged.messages:
                merged = Merged(copies, merged.ambiguities)
            elif copies:
                more = merge(merged.messages, copies, in_writing_order=in_order)
                merged = Merged(more.messages, merged.ambiguities + more.ambiguities)
        return merged

    def _rows(self, database: ForeignDatabase, facts: Facts) -> tuple[list[Copy], list[Copy]]:
        """Return the rows that a compaction put aside, and the others."""
        archived: list[Copy] = []
        live: list[Copy] = []
        after = 0
        try:
            while ids := database.rows(SQL.message_ids, (facts.id, after, IDS_ROWS)):
                after = ids[-1]["id"]
                for row in ids:
                    fields = self._read_message(database, facts, row["id"])
                    if fields is not None and text_of(fields["role"]) not in META_ROLES:
                        is_undone = fields.get("active", 1) == 0 and not fields.get("compacted")
                        copy = msgspec.structs.replace(read_copy(fields), undone=is_undone)
                        (archived if fields.get("compacted") else live).append(copy)
        except InvalidInput as error:
            self._list("unreadable", facts.id, f"state.db, messages after {after}", str(error))
        return archived, live

    def _read_message(self, database: ForeignDatabase, facts: Facts, row_id: int) -> Row | None:
        try:
            rows = database.rows(SQL.message, (row_id,))
        except InvalidInput as error:
            self._list("unreadable", facts.id, f"state.db, message {row_id}", str(error))
            return None
        return rows[0] if rows else None

    def _lines(self, facts: Facts) -> Iterator[Copy]:
        if facts.log is None:
            return
        with open_plain(facts.log) as file:
            for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES_MAX), b""), 1):
                if line.strip():
                    yield from self._read_copy(facts, f"{self._name(facts.log)}:{number}", _decode(line), line)

    def _kept(self, facts: Facts) -> Iterator[Copy]:
        if facts.snapshot is not None:
            fields = self._read_json(facts.snapshot)
            for number, value in enumerate(fields["messages"] if isinstance(fields, dict) else [], 1):
                yield from self._read_copy(facts, f"{self._name(facts.snapshot)}, message {number}", value, b"")

    def _read_copy(self, facts: Facts, where: str, value: object, raw: bytes) -> Iterator[Copy]:
        if isinstance(value, dict) and isinstance(value.get("role"), str):
            if value["role"] not in META_ROLES:
                yield read_copy(value)
        else:
            shown = raw.decode(errors="replace").strip() if raw else str(value)
            self._list("unreadable", facts.id, where, f"no message: {shown[:SHOWN_CHARACTERS_MAX]!r}")

    # Helpers.

    def _read_json(self, path: Path) -> Any:  # noqa: ANN401 - JSON
        with open_plain(path) as file:
            data = file.read(SNAPSHOT_BYTES_MAX + 1)
        return parse_json(data.decode(errors="replace")) if len(data) <= SNAPSHOT_BYTES_MAX else None

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.path))

    def _list(self, kind: str, session: str, where: str, detail: str) -> None:
        self.findings.append(HermesFinding(kind=kind, session=session, where=where, detail=detail))


def open_plain(path: Path) -> BinaryIO:
    """Open a file of the home for reading, and never what a link leads to."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW))


def _decode(line: bytes) -> object:
    try:
        return parse_json(line.decode())
    except UnicodeDecodeError:
        return None


def texts_of(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: text_of(fields.get(name)) for name in names}


def _facts_of_row(row: Row) -> Facts:
    return Facts(
        **texts_of(row, "id", "source", "user_id", "chat_id", "chat_type", "thread_id", "session_key"),
        **texts_of(row, "display_name", "title", "model", "end_reason"),
        parent_id=text_of(row.get("parent_session_id")),
        started_at=read_time(row.get("started_at")) / 1e6,
        ended=row.get("ended_at") is not None,
        claimed=row["message_count"] if isinstance(row.get("message_count"), int) else 0,
        archived=bool(row.get("archived")),
        in_database=True,
    )


def _fill(known: Facts, more: Facts) -> Facts:
    """Return the facts with the empty ones filled from another source."""
    changes = {name: getattr(more, name) for name in Facts.__struct_fields__ if not getattr(known, name)}
    return msgspec.structs.replace(known, **changes)


@contextmanager
def open_hermes(path: Path) -> Iterator[HermesHome]:
    """Open a Hermes home; the path may also be its `state.db`."""
    home = path.parent if path.name == "state.db" else path
    if not (home / "state.db").is_file() and not (home / "sessions").is_dir():
        raise InvalidInput(f"there is no Hermes home at {home}: neither state.db nor sessions/")
    if (home / "home.jsonl").is_file():
        raise InvalidInput(f"{home} is a home of Hansard, not of Hermes")
    with ExitStack() as stack:
        file = home / "state.db"
        yield HermesHome(home, stack.enter_context(open_foreign(file)) if file.is_file() else None)
