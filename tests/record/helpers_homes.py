"""Homes of former schemas, as they were left."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

from hansard.domain.ids import HOME_JOURNAL

ARCHIVES = sorted((Path(__file__).parent / "homes").glob("schema-*.tar.xz"))
Entries = dict[tuple[str, int], tuple[str, str, str]]


def unpack(archive: Path, home: Path) -> Entries:
    """Unpack a home; return every entry of its logs by journal and seq, with id, kind and digest."""
    with tarfile.open(archive) as packed:
        packed.extractall(home, filter="data")
    entries: Entries = {}
    for path in [home / "home.jsonl", *sorted((home / "sessions").rglob("*.jsonl"))]:
        journal_id = path.stem if path.parent != home else HOME_JOURNAL
        for data in path.read_bytes().splitlines():
            line = json.loads(data)
            entries[journal_id, line["seq"]] = (line["id"], line["kind"], line["digest"])
    return entries
