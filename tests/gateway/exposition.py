"""A reader of Prometheus's text format 0.0.4, written from its description: what is not of the format is an error."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import NamedTuple

from hansard.gateway.health import read_status

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*,?)?\}})?[ \t]+(\S+)(?:[ \t]+(-?\d+))?")
KINDS = {"counter", "gauge", "histogram", "summary", "untyped"}
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}


class Family(NamedTuple):
    """A metric: its kind, its help, and its samples by name and labels."""

    kind: str
    help: str
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], float]


def number(text: str) -> float:
    """Return a value, as Go reads one."""
    return {"+Inf": float("inf"), "-Inf": float("-inf")}.get(text) or float(text)


def labels_of(text: str) -> tuple[tuple[str, str], ...]:
    """Return labels; none may come twice."""
    found = re.findall(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"', text)
    assert len({name for name, _ in found}) == len(found), text
    replaced = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
    return tuple((name, re.sub(r'\\[\\"n]', lambda match: replaced[match[0]], value)) for name, value in found)


def parse(page: str) -> dict[str, Family]:
    """Return the metrics of a page, by name."""
    assert page.endswith("\n"), "the last line must end, too"
    families: dict[str, Family] = {}
    helps: dict[str, str] = {}
    current = ""
    for line in page[:-1].split("\n"):
        words = line.split(" ", 3)
        if words[:2] == ["#", "HELP"]:
            assert words[2] not in helps, f"a second HELP of {words[2]}"
            helps[words[2]] = words[3]
        elif words[:2] == ["#", "TYPE"]:
            assert words[3] in KINDS, line
            assert words[2] not in families, f"a second TYPE of {words[2]}, or one after its samples"
            current = words[2]
            families[current] = Family(words[3], helps.get(current, ""), {})
        elif line and not line.startswith("#"):
            add_sample(families, current, line)
    for name, family in families.items():
        assert family.samples, name
        if family.kind == "histogram":
            check_histogram(name, family)
    return families


def add_sample(families: dict[str, Family], current: str, line: str) -> None:
    """Add a line's sample to the metric that it belongs to: all of one stand together."""
    match = SAMPLE.fullmatch(line)
    assert match is not None, line
    family = families[current]
    assert match[1] in {current + suffix for suffix in SUFFIXES.get(family.kind, ("",))}, line
    key = (match[1], labels_of(match[2] or ""))
    assert key not in family.samples, f"twice: {line}"
    family.samples[key] = number(match[3])


def check_histogram(name: str, family: Family) -> None:
    """Buckets grow, end with +Inf, and that one is the count."""
    buckets = [(dict(labels)["le"], value) for (sample, labels), value in family.samples.items() if "_bucket" in sample]
    bounds = [number(bound) for bound, _ in buckets]
    assert bounds == sorted(bounds)
    assert bounds[-1] == float("inf")
    counts = [value for _, value in buckets]
    assert counts == sorted(counts)
    assert family.samples[f"{name}_count", ()] == counts[-1]
    assert family.samples[f"{name}_sum", ()] >= 0


async def ask(home: Path, path: str, method: str = "GET") -> tuple[str, str]:
    """Return the head and the body of a page."""
    running = read_status(home)
    assert running is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head, _, body = (await asyncio.wait_for(reader.read(), 120)).decode().partition("\r\n\r\n")
    writer.close()
    return head, body


def one(families: dict[str, Family], name: str, **labels: str) -> float:
    """Return one number."""
    return families[name].samples[name, tuple(labels.items())]
