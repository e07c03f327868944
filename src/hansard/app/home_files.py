"""Files of the home: TOML read with care, with the line of each key; notices.toml; who else can change or read them.

Of modes and owners, those of the home, `config.toml` and `keys.toml` count, and those of every folder on the way to
them, links followed. Others are all users but Hansard's own and root: whoever changes `config.toml` can have Hansard
start any program. Reads these files, and writes nothing.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from hansard.domain.limits import MIB
from hansard.domain.notices import ENGLISH, KEYS, Wording, what_is_wrong
from hansard.errors import ConfigInvalid, HomeUnsafe

FILE_BYTES_MAX: Final = 1 * MIB
"""More than the longest system prompt takes; what is larger was put there by mistake."""

NAME_CHARACTERS_MAX: Final = 30
"""Names longer than any setting's are cut where they are shown: a secret may stand where a name belongs."""

LONG_WORD: Final = rf"[^\s'\",()]{{{NAME_CHARACTERS_MAX + 1},}}"


class ConfigFinding(NamedTuple):
    """Something that is wrong: where, and what is allowed there."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


UNREADABLE: Final = "it cannot be read: "
"""How findings begin that are about a file or folder as a whole, and name no setting."""

UNREADABLE_HINT: Final = (
    "Check the path, and who may read it. Run hansard as the user who owns the home, or choose another home (--home)."
)


COMMAND_LINE: Final = "command line"
"""Where a finding is that an option brought in; `hansard config check` does not know of it."""


def refusal_of(findings: Iterable[ConfigFinding]) -> ConfigInvalid:
    """Return the error of everything that is wrong. Its hint speaks of settings where the findings do."""
    told = list(dict.fromkeys(findings))
    hint = ""
    if all(finding.where == COMMAND_LINE for finding in told):
        hint = "Correct the command line: `hansard --help` lists its options."
    elif all(finding.what.startswith(UNREADABLE) for finding in told):
        hint = UNREADABLE_HINT
    return ConfigInvalid("\n".join(map(str, told)), hint)


class TomlFile(NamedTuple):
    """A file of settings as text, and what it says."""

    text: str
    document: dict[str, object]


def read_toml(
    path: Path, why_not: Callable[[os.stat_result], str] = lambda _look: ""
) -> TomlFile | ConfigFinding | None:
    """Read a file of TOML; None when there is none. `why_not` looks at that very file, and may refuse it."""
    try:
        # Without waiting for a writer, should it be a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            look = os.fstat(descriptor)
            if not stat.S_ISREG(look.st_mode):
                return ConfigFinding(place(path), "it is not a regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(FILE_BYTES_MAX + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return ConfigFinding(place(path), "it is a link that leads nowhere") if path.is_symlink() else None
    except OSError as error:
        return ConfigFinding(place(closed_folder(path) or path), f"{UNREADABLE}{error.strerror}")
    if len(data) > FILE_BYTES_MAX:
        return ConfigFinding(place(path), f"it has more than {FILE_BYTES_MAX:,} bytes")
    if what := why_not(look):
        return ConfigFinding(place(path), what)
    return parse_toml(path, data)


def closed_folder(path: Path) -> Path | None:
    """Return the folder of a file if this user may not look into it: then nobody knows whether the file is there."""
    return None if os.access(path.parent, os.X_OK) else path.parent


def parse_toml(path: Path, data: bytes) -> TomlFile | ConfigFinding:
    """Read TOML, or say in which line it is none."""
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        return TomlFile(text, tomllib.loads(text))
    except UnicodeDecodeError as error:
        return ConfigFinding(place(path, data.count(b"\n", 0, error.start) + 1), "it is not UTF-8")
    except tomllib.TOMLDecodeError as error:
        what = re.sub(LONG_WORD, "…", printable(str(error).partition(" (at ")[0]))
        found = re.search(r"\(at line ([0-9]+)", str(error))
        return ConfigFinding(place(path, int(found[1]) if found else text.count("\n") + 1), f"it is not TOML: {what}")
    except (ValueError, RecursionError):
        return ConfigFinding(place(path), "it is not TOML: a number is too long, or lists are nested too deeply")


def place(path: Path, line: int | str = "") -> str:
    """A file, and maybe a line of it, as findings name it."""
    return f"{printable(str(path))}, line {line}" if line else printable(str(path))


def printable(text: str) -> str:
    """Text that a terminal can be given: one line, what is not printable escaped."""
    return "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in text)


def short(name: str) -> str:
    return printable(name if len(name) <= NAME_CHARACTERS_MAX else f"{name[:12]}…")


PART: Final = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
NAME: Final = rf"{PART}(?:[ \t]*\.[ \t]*{PART})*"
HEADER: Final = rf"\[\[?[ \t]*({NAME})[ \t]*\]\]?"
ASSIGNED: Final = rf"({NAME})[ \t]*=[ \t]*"
GAP: Final = r"(?:[ \t\n,]|#[^\n]*)*"
SCALAR: Final = (
    r'''"""(?:[^"\\]|\\.|"(?!""))*"""(?:"{0,2})|"(?:[^"\\\n]|\\.)*"|'''
    r"""'''(?:[^']|'(?!''))*'''(?:'{0,2})|'[^'\n]*'|[^,\]}#\n]+"""
)


@cache
def patterns() -> tuple[re.Pattern[str], ...]:
    """Return how a gap, a header, an assignment and a scalar are read; without a file nobody pays for them."""
    return re.compile(GAP), re.compile(HEADER), re.compile(ASSIGNED), re.compile(SCALAR, re.DOTALL)


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line of each key in a text that tomllib has accepted, which itself tells no lines.

    Tables in a list share their keys: the first one counts.
    """
    a_gap, a_header, an_assignment, a_scalar = patterns()
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    opened: list[tuple[bool, tuple[str, ...]]] = []  # What is not closed yet: whether it is a list, and its key.
    at, line = 0, 1
    while True:
        gap = a_gap.match(text, at)
        assert gap is not None, "it matches nothing, too"
        line += text.count("\n", at, gap.end())
        at = gap.end()
        if at == len(text):
            return lines
        if opened and text[at] in "]}":
            opened.pop()
            at += 1
            continue
        header = None if opened else a_header.match(text, at)
        if header is not None:
            table = name_parts(header[1])
            add_line(lines, table, line)
            at = header.end()
            continue
        in_list, key = opened[-1] if opened else (False, table)
        if not in_list:
            assigned = an_assignment.match(text, at)
            assert assigned is not None, "tomllib accepted the text"
            key = (*key, *name_parts(assigned[1]))
            add_line(lines, key, line)
            at = assigned.end()
        if text[at] in "[{":
            opened.append((text[at] == "[", key))
            at += 1
        else:
            scalar = a_scalar.match(text, at)
            assert scalar is not None, "tomllib accepted the text"
            line += text.count("\n", at, scalar.end())
            at = scalar.end()


def add_line(lines: dict[tuple[str, ...], int], key: tuple[str, ...], line: int) -> None:
    """Note where a key stands first, and the sections that it lies in."""
    for depth in range(1, len(key) + 1):
        lines.setdefault(key[:depth], line)


def name_parts(name: str) -> tuple[str, ...]:
    """The parts of a dotted name; quoted ones as tomllib reads them."""
    if "'" not in name and '"' not in name:
        return tuple(part.strip(" \t") for part in name.split("."))
    parts, inner = [], tomllib.loads(f"{name} = 0")
    while isinstance(inner, dict):
        ((part, inner),) = inner.items()
        parts.append(part)
    return tuple(parts)


NOTICES_NAME: Final = "notices.toml"


def load_wording(home: Path) -> Wording:
    """Return the wording of a home, or raise ConfigInvalid with everything that is wrong."""
    words, findings = read_wording(home)
    if findings:
        raise refusal_of(findings)
    return words


def read_wording(home: Path) -> tuple[Wording, list[ConfigFinding]]:
    """Return the wording of a home, and everything that is wrong. If anything is wrong, the wording is English."""
    path = home / NOTICES_NAME
    parsed = read_toml(path)
    if parsed is None:
        return ENGLISH, []
    if isinstance(parsed, ConfigFinding):
        return ENGLISH, [parsed]
    lines = key_lines(parsed.text)
    findings = []
    for key, template in parsed.document.items():
        wrong = what_is_wrong(key, template) if key in KEYS else f"there is no notice {short(key)}"
        if wrong:
            findings.append(ConfigFinding(place(path, lines[key,]), printable(wrong)))
    return (ENGLISH, findings) if findings else (msgspec.convert(parsed.document, Wording), [])


ROOT_USER: Final = 0
WRITING: Final = 0o022
ANYTHING: Final = 0o077
GUARDED: Final = {"": WRITING, "config.toml": WRITING, "keys.toml": ANYTHING}
"""What lies in a home, the home itself first, and which rights of others are too many there."""

LINKS_MAX: Final = 40
"""Links on the way to one file: as many as Linux follows."""


class Unsafe(NamedTuple):
    """A path that is open to others."""

    path: Path
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


class PathStep(NamedTuple):
    """One step on the way to a path: something in a folder that is reached without links."""

    folder: Path
    inner: Path


def find_unsafe(home: Path) -> list[Unsafe]:
    """Return how each path of a home is open to others, with the command that closes it. A folder is named once."""
    found: list[Unsafe] = []
    told: set[Path] = set()
    for name, refused in GUARDED.items():
        path = home / name
        try:
            if what := why_open(path, refused):
                found.append(Unsafe(path, what))
            steps = list(steps_to(path))
            for step in steps:
                if step.folder not in told and (what := why_replaceable(step)):
                    found.append(Unsafe(path, f"others can put another in its place: {what}"))
                    told.add(step.folder)
            told.update(step.inner for step in steps[-1:])  # of the home itself why_open tells
        except OSError:
            continue  # what is not there, or cannot be looked at, is told by whoever opens it
    return found


def why_open(path: Path, refused: int) -> str:
    """Return why others can change or read what a path leads to; empty when they cannot, or when it is not there."""
    try:
        look = path.stat()
    except FileNotFoundError:
        return ""
    if look.st_uid not in ({os.geteuid()} if refused == ANYTHING else {os.geteuid(), ROOT_USER}):
        return told_owner("it", path, look.st_uid, "-R " if path.is_dir() else "")
    mode = stat.S_IMODE(look.st_mode)
    if not mode & refused:
        return ""
    change = "go-w" if refused == WRITING else "600"
    command = f"chmod {change} {shlex.quote(str(path))}"
    return f"others can {'change' if mode & WRITING else 'read'} it (mode {mode:04o}); run: {command}"


def why_replaceable(step: PathStep) -> str:
    """Return why others can rename or remove something in a folder; empty when they cannot.

    In a sticky folder only the owners of the folder and of the thing can. Owners of files and folders are looked at
    anyway, so here those of links.
    """
    look = step.folder.lstat()
    if look.st_uid not in {os.geteuid(), ROOT_USER}:
        return told_owner(str(step.folder), step.folder, look.st_uid)
    mode = stat.S_IMODE(look.st_mode)
    if not mode & WRITING:
        return ""
    if not mode & stat.S_ISVTX:
        return f"{step.folder} (mode {mode:04o}); run: chmod go-w {shlex.quote(str(step.folder))}"
    if not step.inner.is_symlink() or (owner := step.inner.lstat().st_uid) in {os.geteuid(), ROOT_USER}:
        return ""
    return told_owner(f"the link {step.inner}", step.inner, owner, OF_THE_LINK)


OF_THE_LINK: Final = "-h "
"""An option of chown: the link itself, not what it leads to."""


def told_owner(what: str, path: Path, owner: int, option: str = "") -> str:
    """Return that something belongs to another user, and the command that changes that."""
    real = path if option == OF_THE_LINK else path.resolve()
    command = f"sudo chown {option}{os.geteuid()} {shlex.quote(str(real))}"
    return f"{what} belongs to another user (user id {owner}); run hansard as that user, or run: {command}"


def steps_to(path: Path) -> Iterator[PathStep]:
    """Yield each step to what a path leads to, as the system goes there, as far as there is something."""
    whole = path.absolute()
    folder, names, links = Path(whole.anchor), list(reversed(whole.parts[1:])), 0
    while names:
        name = names.pop()
        if name == "..":
            folder = folder.parent
            continue
        inner = folder / name
        yield PathStep(folder, inner)
        if not inner.is_symlink():
            if not inner.is_dir():
                return
            folder = inner
            continue
        links += 1
        if links > LINKS_MAX:
            return
        target = inner.readlink()
        folder = Path(target.anchor) if target.anchor else folder
        names.extend(reversed(target.parts[1:] if target.anchor else target.parts))


def check_modes(home: Path) -> None:
    """Raise HomeUnsafe when others can change what Hansard goes by, or read its keys."""
    if found := find_unsafe(home):
        raise HomeUnsafe("\n".join(map(str, found)))
