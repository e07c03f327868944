"""The configuration: what a person set, from where, and what is wrong with it.

Reads: `config.toml` in the home, environment variables, options of the command line. Writes nothing.
Invariants: option before environment before file before default; whatever is given is checked, also when something
else overrules it; no text of a finding repeats a value that may be a secret.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from hansard.domain.limits import MIB
from hansard.domain.settings import PREFIX, SECTIONS, SETTINGS, Setting, Settings, bare_type
from hansard.errors import ConfigInvalid

FILE_NAME: Final = "config.toml"
FILE_BYTES_MAX: Final = 1 * MIB
"""More than the longest system prompt takes; what is larger was put there by mistake."""

NAME_CHARACTERS_MAX: Final = 30
"""Names longer than any setting's are cut where they are shown: a secret may stand where a name belongs."""

LATER: Final = frozenset({"people", "channels", "resets"})
"""Sections of the design which no part of this version reads."""

SECRET_NAME: Final = re.compile(r"(?:key|token|secret|password)s?\Z", re.IGNORECASE)

ALIASES: Final = {
    "providers.openai.base_url": "OPENAI_BASE_URL",
    "providers.anthropic.base_url": "ANTHROPIC_BASE_URL",
}
"""The variables of the providers' own libraries, which people have set already. Hansard's own come first."""

WHERE_KEYS_BELONG: Final = "set OPENAI_API_KEY or ANTHROPIC_API_KEY, or write keys.toml beside it, mode 0600"

LIKENESS_MIN: Final = 0.75
"""How like a setting's name a variable must be to count as misspelt, of 1."""

NOT_SETTINGS: Final = frozenset({"HANSARD_HOME", "HANSARD_DEMO_FOLDER"})
"""Variables that look like settings and are not."""

INTEGER_BITS_SHOWN_MAX: Final = 64
"""Python refuses to write out integers of thousands of digits, and nobody would read them."""

LOOPBACK: Final = re.compile(r"127(?:\.[0-9]{1,3}){3}")
LONG_WORD: Final = re.compile(rf"[^\s'\",()]{{{NAME_CHARACTERS_MAX + 1},}}")

Section = TypeVar("Section", bound=msgspec.Struct)


class SourceKind(StrEnum):
    """Who set a value."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    OPTION = "option"


class Source(NamedTuple):
    """Where a value comes from. The detail is a line of the file, or the name of a variable."""

    kind: SourceKind
    detail: str = ""

    def __str__(self) -> str:
        if self.kind is SourceKind.FILE:
            return f"{FILE_NAME} line {self.detail}"
        if self.kind is SourceKind.ENVIRONMENT:
            return f"environment {self.detail}"
        return "command line" if self.kind is SourceKind.OPTION else "default"


class Finding(NamedTuple):
    """Something that is wrong: where, and what is allowed there."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class Value(NamedTuple):
    """A setting as it is now."""

    key: str
    value: object
    source: Source


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All settings, and where each was set."""

    path: Path
    settings: Settings
    sources: dict[str, Source]
    """By key, such as `limits.steps_max`; what is not in here has its default."""

    def source(self, key: str) -> Source:
        """Where a setting comes from."""
        return self.sources.get(SETTINGS[key].key, Source(SourceKind.DEFAULT))

    def values(self) -> list[Value]:
        """Every setting, in the order of the schema."""
        return [Value(key, value_at(self.settings, key), self.source(key)) for key in SETTINGS]


def value_at(settings: object, key: str) -> object:
    """The value of a setting, by its key."""
    for name in key.split("."):
        settings = getattr(settings, name)
    return settings


def load_config(home: Path, environment: Mapping[str, str], options: Mapping[str, object]) -> Config:
    """Return the settings, or raise ConfigInvalid with everything that is wrong. None in the options is not given."""
    config, findings = read_config(home, environment, options)
    if findings:
        raise ConfigInvalid("\n".join(map(str, findings)))
    return config


def read_config(
    home: Path, environment: Mapping[str, str], options: Mapping[str, object]
) -> tuple[Config, list[Finding]]:
    """Return what can be read and everything that is wrong; a setting that is wrong is as if it were not given."""
    gathered = Gathered(home / FILE_NAME)
    from_file(gathered)
    from_environment(gathered, environment)
    from_options(gathered, options)
    config = Config(path=gathered.path, settings=with_values(Settings(), gathered.values), sources=gathered.sources)
    for key, what in wrong_addresses(config.settings):
        gathered.find(config.source(key), what)
    return config, gathered.findings


class Gathered:
    """What has been read so far. A later source overrules an earlier one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, object] = {}
        self.sources: dict[str, Source] = {}
        self.findings: list[Finding] = []

    def take(self, setting: Setting, given: object, source: Source) -> None:
        """Check a value and keep it, or say what is allowed in its place."""
        try:
            value = checked(setting, given, is_text=source.kind is not SourceKind.FILE)
        except (msgspec.ValidationError, UnicodeEncodeError):
            self.find(source, f"{setting.key} must be {setting.allowed}{what_was_wrong(setting, given)}")
        else:
            self.values[setting.key], self.sources[setting.key] = value, source

    def find(self, source: Source, what: str) -> None:
        """Note that something is wrong."""
        if source.kind is SourceKind.FILE:
            where = place(self.path, source.detail)
        else:
            where = f"environment variable {printable(source.detail)}" if source.detail else str(source)
        self.findings.append(Finding(where, what))


def with_values(section: Section, values: Mapping[str, object], prefix: str = "") -> Section:
    """Return a section of the schema, or all of it, with checked values, by key, in place of its defaults."""
    given: dict[str, object] = {}
    for name in section.__struct_fields__:
        key = prefix + name
        if key in SECTIONS:
            given[name] = with_values(getattr(section, name), values, f"{key}.")
        elif key in values:
            given[name] = values[key]
    return msgspec.structs.replace(section, **given)


def from_options(gathered: Gathered, options: Mapping[str, object]) -> None:
    """Take what the command line sets, by key; text is read as a variable's would be."""
    for key, given in options.items():
        if given is None:
            continue
        if key in SETTINGS:
            gathered.take(SETTINGS[key], given, Source(SourceKind.OPTION))
        else:
            gathered.find(Source(SourceKind.OPTION), unknown(key))


def from_environment(gathered: Gathered, environment: Mapping[str, str]) -> None:
    """Take what environment variables set. An empty one is not set."""
    known = {setting.variable for setting in SETTINGS.values()}
    for key, setting in SETTINGS.items():
        for variable in (ALIASES.get(key, ""), setting.variable):
            if environment.get(variable):
                gathered.take(setting, environment[variable], Source(SourceKind.ENVIRONMENT, variable))
    for name in environment:
        if not name.startswith(PREFIX) or name in known or name in NOT_SETTINGS or not environment[name]:
            continue
        bare = name.removeprefix(PREFIX)
        near = get_close_matches(bare, [variable.removeprefix(PREFIX) for variable in known], 1, LIKENESS_MIN)
        # Anything else may belong to something else: a name is an error only when it was surely meant to be ours.
        if near or ("__" in bare and bare.partition("__")[0].lower() in SECTIONS):
            hint = f"; did you mean {PREFIX}{near[0]}?" if near else ""
            gathered.find(Source(SourceKind.ENVIRONMENT, name), f"there is no such setting{hint}")


def from_file(gathered: Gathered) -> None:
    """Take what the file sets, each with its line. A file that is not there sets nothing."""
    contents = read_file(gathered.path)
    if contents is None:
        return
    parsed = contents if isinstance(contents, Finding) else parse_toml(gathered.path, contents.data)
    if isinstance(parsed, Finding):
        gathered.findings.append(parsed)
        return
    lines = key_lines(parsed.text)

    def walk(table: dict[str, object], prefix: tuple[str, ...]) -> None:
        for name, given in table.items():
            parts = (*prefix, name)
            source = Source(SourceKind.FILE, str(lines[parts]))
            # A dot within a quoted name is not the dot between two names.
            key = ".".join(parts) if "." not in name else ""
            if key in SETTINGS:
                gathered.take(SETTINGS[key], given, source)
            elif key not in SECTIONS:
                gathered.find(source, unknown(".".join(map(short, parts))))
            elif isinstance(given, dict):
                walk(given, parts)
            else:
                gathered.find(source, f"{key} is a section: write [{key}], and its settings below that line")

    walk(parsed.document, ())


def checked(setting: Setting, given: object, *, is_text: bool) -> object:
    """A value as the schema has it; what is text at its source becomes a number, a switch or a list."""
    if isinstance(given, str):
        # A variable that is not UTF-8 arrives with surrogates, which nothing after this could carry.
        given.encode()
        if is_text and setting.is_list:
            given = [part.strip() for part in given.split(",") if part.strip()]
    return msgspec.convert(given, setting.type, strict=not (is_text and isinstance(given, str)))


def what_was_wrong(setting: Setting, given: object) -> str:
    """The end of a finding: a number, the kind of value, or the nearest that is allowed; never the text itself."""
    if isinstance(given, str):
        kind = bare_type(setting.type)
        near = get_close_matches(given, list(kind), 1) if not setting.is_list and issubclass(kind, StrEnum) else []
        return f"; did you mean {near[0]}?" if near else ""
    if isinstance(given, bool):
        return f", not {str(given).lower()}"
    if isinstance(given, int | float):
        return f", not {given}" if isinstance(given, float) or given.bit_length() <= INTEGER_BITS_SHOWN_MAX else ""
    return ", not a list" if isinstance(given, list) and not setting.is_list else ""


def unknown(key: str) -> str:
    """What to say about a key that is not in the schema."""
    name = key.rpartition(".")[2]
    if SECRET_NAME.search(name):
        return f"{key} looks like a secret, and {FILE_NAME} is no place for one: {WHERE_KEYS_BELONG}"
    if key.partition(".")[0] in LATER:
        return f"{key} is not known to this version of Hansard yet"
    near = next((known for known in SETTINGS if known.rpartition(".")[2] == name), None)
    if near is not None and "." not in near:
        return f"{key} is not a setting; {near} is: write it above the first [section]"
    if near is None:
        near = next(iter(get_close_matches(key, [*SETTINGS, *sorted(SECTIONS)], 1)), None)
    return f"{key} is not a setting" + (
        f"; did you mean {near}?" if near else "; see `hansard config` for those that are"
    )


def wrong_addresses(settings: Settings) -> Iterator[tuple[str, str]]:
    """Addresses which keys and words should not be sent to, by setting, and what is wrong with each."""
    for key, setting in SETTINGS.items():
        url = value_at(settings, key)
        if not key.endswith(".base_url") or not isinstance(url, str):
            continue
        permission = key.removesuffix("base_url") + "allow_http"
        if not is_address(url):
            yield key, f"{key} must be {setting.allowed}"
        elif url.lower().startswith("http:") and not (is_loopback(url) or value_at(settings, permission)):
            yield (
                key,
                f"{key} is http: others on the way could read keys and words. Use https, or set {permission} = true",
            )


def is_address(url: str) -> bool:
    """Whether a text is an address of a server, and nothing that hides a password or cuts a path."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    plain = url.isprintable() and not re.search(r"[\s\\@?#]", url)
    return plain and has_host and parts.scheme in {"http", "https"}


def is_loopback(url: str) -> bool:
    """Whether an address stays on this machine, by its mere name: nothing is looked up."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    return host in {"localhost", "::1"} or host.endswith(".localhost") or bool(LOOPBACK.fullmatch(host))


class Contents(NamedTuple):
    """What a file holds, and what it is."""

    data: bytes
    look: os.stat_result


class Parsed(NamedTuple):
    """A file of settings as text, and what it says."""

    text: str
    document: dict[str, object]


def read_file(path: Path) -> Contents | Finding | None:
    """Read a file and look at that very file; None when there is none."""
    try:
        # Without waiting for a writer, should it be a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            look = os.fstat(descriptor)
            if not stat.S_ISREG(look.st_mode):
                return Finding(place(path), "it is not a regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(FILE_BYTES_MAX + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return Finding(place(path), "it is a link that leads nowhere") if path.is_symlink() else None
    except OSError as error:
        return Finding(place(path), f"it cannot be read: {error.strerror}")
    if len(data) > FILE_BYTES_MAX:
        return Finding(place(path), f"it has more than {FILE_BYTES_MAX:,} bytes")
    return Contents(data, look)


def parse_toml(path: Path, data: bytes) -> Parsed | Finding:
    """Read TOML, or say in which line it is none."""
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        return Parsed(text, tomllib.loads(text))
    except UnicodeDecodeError as error:
        return Finding(place(path, data.count(b"\n", 0, error.start) + 1), "it is not UTF-8")
    except tomllib.TOMLDecodeError as error:
        what = LONG_WORD.sub("…", printable(str(error).partition(" (at ")[0]))
        found = re.search(r"\(at line ([0-9]+)", str(error))
        return Finding(place(path, int(found[1]) if found else text.count("\n") + 1), f"it is not TOML: {what}")
    except (ValueError, RecursionError):
        return Finding(place(path), "it is not TOML: a number is too long, or lists are nested too deeply")


def place(path: Path, line: int | str = "") -> str:
    """A file, and maybe a line of it, as findings name it."""
    return f"{printable(str(path))}, line {line}" if line else printable(str(path))


def printable(text: str) -> str:
    """Text that a terminal can be given: one line, what is not printable escaped."""
    return "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in text)


def short(name: str) -> str:
    """A name as it may be shown."""
    return printable(name if len(name) <= NAME_CHARACTERS_MAX else f"{name[:12]}…")


PART: Final = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
NAME: Final = rf"{PART}(?:[ \t]*\.[ \t]*{PART})*"
HEADER: Final = re.compile(rf"\[\[?[ \t]*({NAME})[ \t]*\]\]?")
ASSIGNED: Final = re.compile(rf"({NAME})[ \t]*=[ \t]*")
GAP: Final = re.compile(r"(?:[ \t\n,]|#[^\n]*)*")
SCALAR: Final = re.compile(
    r'''"""(?:[^"\\]|\\.|"(?!""))*"""(?:"{0,2})|"(?:[^"\\\n]|\\.)*"|'''
    r"""'''(?:[^']|'(?!''))*'''(?:'{0,2})|'[^'\n]*'|[^,\]}#\n]+""",
    re.DOTALL,
)


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line of each key in a text that tomllib has accepted, which itself tells no lines.

    Tables in a list share their keys: the first one counts.
    """
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    opened: list[tuple[bool, tuple[str, ...]]] = []  # What is not closed yet: whether it is a list, and its key.
    at, line = 0, 1
    while True:
        gap = GAP.match(text, at)
        assert gap is not None, "it matches nothing, too"
        line += text.count("\n", at, gap.end())
        at = gap.end()
        if at == len(text):
            return lines
        if opened and text[at] in "]}":
            opened.pop()
            at += 1
            continue
        header = None if opened else HEADER.match(text, at)
        if header is not None:
            table = name_parts(header[1])
            add_line(lines, table, line)
            at = header.end()
            continue
        in_list, key = opened[-1] if opened else (False, table)
        if not in_list:
            assigned = ASSIGNED.match(text, at)
            assert assigned is not None, "tomllib accepted the text"
            key = (*key, *name_parts(assigned[1]))
            add_line(lines, key, line)
            at = assigned.end()
        if text[at] in "[{":
            opened.append((text[at] == "[", key))
            at += 1
        else:
            scalar = SCALAR.match(text, at)
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
