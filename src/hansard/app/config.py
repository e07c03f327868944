"""The configuration: what a person set, from where, and what is wrong with it.

Reads: `config.toml` in the home, environment variables, options of the command line. Writes nothing.
Invariants: option before environment before file before default; whatever is given is checked, also when something
else overrules it; no text of a finding repeats a value that may be a secret.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from hansard.app.home_files import (
    COMMAND_LINE,
    ConfigFinding,
    key_lines,
    place,
    printable,
    read_toml,
    refusal_of,
    short,
)
from hansard.app.table_findings import close_matches, explain_error, line_in_list, line_of
from hansard.domain.chats import zone_of
from hansard.domain.permissions import ToolRule
from hansard.domain.settings import PREFIX, SECTIONS, SETTINGS, Person, Setting, Settings, bare_type
from hansard.domain.settings.agent import SERVER_NAME, McpServer, RoomSettings
from hansard.domain.settings.channels import PERSON_NAME

FILE_NAME: Final = "config.toml"

PEOPLE: Final = "people"

TABLES: Final[dict[str, tuple[type[msgspec.Struct], str]]] = {
    PEOPLE: (Person, PERSON_NAME),
    "rooms": (RoomSettings, PERSON_NAME),
    "mcp": (McpServer, SERVER_NAME),
}
"""The settings that are tables of names: what stands under a name, and what a name looks like."""

LISTS: Final[dict[str, type[msgspec.Struct]]] = {"tools.rules": ToolRule}
"""The settings that are lists of sections, and what one of them is."""

SECRET_NAME: Final = re.compile(r"(?:(?:key|secret|password)s?|token|\btokens)\Z", re.IGNORECASE)
"""`window_tokens` and the like are counted, not kept secret."""

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

Section = TypeVar("Section", bound=msgspec.Struct)


class SourceKind(StrEnum):
    """Who set a value."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    OPTION = "option"


class SettingSource(NamedTuple):
    """Where a value comes from. The detail is a line of the file, or the name of a variable."""

    kind: SourceKind
    detail: str = ""

    def __str__(self) -> str:
        if self.kind is SourceKind.FILE:
            return f"{FILE_NAME} line {self.detail}"
        if self.kind is SourceKind.ENVIRONMENT:
            return f"environment {self.detail}"
        return COMMAND_LINE if self.kind is SourceKind.OPTION else "default"

    def where(self, path: Path) -> str:
        """Return where it is, as findings name it. `path`: of the file."""
        if self.kind is SourceKind.FILE:
            return place(path, self.detail)
        return f"environment variable {printable(self.detail)}" if self.detail else str(self)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All settings, and where each was set."""

    path: Path
    settings: Settings
    sources: dict[str, SettingSource]
    """By key, such as `limits.steps_max`; what is not in here has its default."""
    lines: dict[tuple[str, ...], int] = {}
    """Where in the file each key stands."""

    def source(self, key: str) -> SettingSource:
        return self.sources.get(SETTINGS[key].key, SettingSource(SourceKind.DEFAULT))


def value_at(settings: object, key: str) -> object:
    for name in key.split("."):
        settings = getattr(settings, name)
    return settings


def load_config(home: Path, environment: Mapping[str, str], options: Mapping[str, object]) -> Config:
    """Return the settings, or raise ConfigInvalid with everything that is wrong. None in the options is not given."""
    config, findings = read_config(home, environment, options)
    if findings:
        raise refusal_of(findings)
    return config


def read_config(
    home: Path, environment: Mapping[str, str], options: Mapping[str, object]
) -> tuple[Config, list[ConfigFinding]]:
    """Return what can be read and everything that is wrong; a setting that is wrong is as if it were not given."""
    gathered = Gathered(home / FILE_NAME)
    from_file(gathered)
    from_environment(gathered, environment)
    from_options(gathered, options)
    config = Config(
        path=gathered.path,
        settings=with_values(Settings(), gathered.values),
        sources=gathered.sources,
        lines=gathered.lines,
    )
    wrong = (wrong_addresses, wrong_people, wrong_rules, wrong_zone, wrong_servers)
    for key, what in (found for find in wrong for found in find(config.settings)):
        gathered.find(gathered.source_of(key), what)
    return config, gathered.findings


class Gathered:
    """What has been read so far. A later source overrules an earlier one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, object] = {}
        self.sources: dict[str, SettingSource] = {}
        self.findings: list[ConfigFinding] = []
        self.text = ""
        """What the file says."""
        self.lines: dict[tuple[str, ...], int] = {}
        """Where in it each key stands."""

    def source_of(self, key: str) -> SettingSource:
        """Return where a setting, or a part of it, was set: by its own line, if the file has one."""
        line = line_of(self.lines, tuple(key.split(".")))
        while key and key not in SETTINGS:
            key = key.rpartition(".")[0]
        source = self.sources.get(key, SettingSource(SourceKind.DEFAULT))
        return SettingSource(SourceKind.FILE, str(line)) if source.kind is SourceKind.FILE and line else source

    def take_value(self, setting: Setting, given: object, source: SettingSource) -> None:
        """Check a value and keep it, or say what is allowed in its place."""
        try:
            value = checked(setting, given, is_text=source.kind is not SourceKind.FILE)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            # A ValidationError is JSON that says something else.
            is_json = isinstance(error, msgspec.ValidationError) or not setting.is_table
            what = setting.allowed if is_json else f"JSON, and this is not. In {FILE_NAME} it is {setting.allowed}"
            self.find(source, f"{setting.key} must be {what}{what_was_wrong(setting, given)}")
        else:
            self.values[setting.key], self.sources[setting.key] = value, source

    def find(self, source: SettingSource, what: str) -> None:
        self.findings.append(ConfigFinding(source.where(self.path), what))


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
            gathered.take_value(SETTINGS[key], given, SettingSource(SourceKind.OPTION))
        else:
            gathered.find(SettingSource(SourceKind.OPTION), unknown(key))


def from_environment(gathered: Gathered, environment: Mapping[str, str]) -> None:
    """Take what environment variables set. An empty one is not set."""
    known = {setting.variable for setting in SETTINGS.values()}
    for key, setting in SETTINGS.items():
        for variable in (ALIASES.get(key, ""), setting.variable):
            if environment.get(variable):
                gathered.take_value(setting, environment[variable], SettingSource(SourceKind.ENVIRONMENT, variable))
    for name in environment:
        if not name.startswith(PREFIX) or name in known or name in NOT_SETTINGS or not environment[name]:
            continue
        bare = name.removeprefix(PREFIX)
        near = close_matches(bare, [variable.removeprefix(PREFIX) for variable in known], 1, LIKENESS_MIN)
        # Anything else may belong to something else: a name is an error only when it was surely meant to be ours.
        if near or ("__" in bare and bare.partition("__")[0].lower() in SECTIONS):
            hint = f"; did you mean {PREFIX}{near[0]}?" if near else ""
            gathered.find(SettingSource(SourceKind.ENVIRONMENT, name), f"there is no such setting{hint}")


def from_file(gathered: Gathered) -> None:
    """Take what the file sets, each with its line. A file that is not there sets nothing."""
    parsed = read_toml(gathered.path)
    if parsed is None:
        return
    if isinstance(parsed, ConfigFinding):
        gathered.findings.append(parsed)
        return
    lines = key_lines(parsed.text)
    gathered.text, gathered.lines = parsed.text, lines

    def walk(table: dict[str, object], prefix: tuple[str, ...]) -> None:
        for name, given in table.items():
            parts = (*prefix, name)
            source = SettingSource(SourceKind.FILE, str(lines[parts]))
            # A dot within a quoted name is not the dot between two names.
            key = ".".join(parts) if "." not in name else ""
            if key in TABLES and isinstance(given, dict):
                take_table(gathered, key, given, source)
            elif key in LISTS and isinstance(given, list):
                take_list(gathered, key, given, source)
            elif key in SETTINGS:
                gathered.take_value(SETTINGS[key], given, source)
            elif key not in SECTIONS:
                gathered.find(source, unknown(".".join(map(short, parts))))
            elif isinstance(given, dict):
                walk(given, parts)
            else:
                gathered.find(source, f"{key} is a section: write [{key}], and its settings below that line")

    walk(parsed.document, ())


def take_table(gathered: Gathered, key: str, given: Mapping[str, object], source: SettingSource) -> None:
    """Take what stands under names, one by one: what is wrong with one of them is said at that one's line."""
    kind, pattern = TABLES[key]
    taken: dict[str, msgspec.Struct] = {}
    for name, fields in given.items():
        where = SettingSource(SourceKind.FILE, str(gathered.lines[key, name]))
        if re.fullmatch(pattern, name) is None:
            more = ", without __ and without _ at its end" if kind is McpServer else ""
            gathered.find(where, f"{key}.{short(name)}: a NAME is of a-z, 0-9, _ and -{more}")
        elif not isinstance(fields, dict):
            gathered.find(where, f"{key} must be {SETTINGS[key].allowed}")
        else:
            try:
                taken[name] = msgspec.convert(fields, kind)
            except msgspec.ValidationError as error:
                wrong = explain_error(error, kind, f"{key}.{name}")
                line = line_of(gathered.lines, (key, name, *wrong.path))
                gathered.find(SettingSource(SourceKind.FILE, str(line)), wrong.what)
    gathered.values[key], gathered.sources[key] = taken, source


def take_list(gathered: Gathered, key: str, given: Sequence[object], source: SettingSource) -> None:
    """Take a list of sections: what is wrong with one of them is said at that one's line."""
    found = len(gathered.findings)
    for number, fields in enumerate(given):
        try:
            msgspec.convert(fields, LISTS[key])
        except msgspec.ValidationError as error:
            wrong = explain_error(error, LISTS[key], f"{key}[{number + 1}]")
            line = line_in_list(gathered.text, key, number, wrong.path[0] if wrong.path else "") or source.detail
            gathered.find(SettingSource(SourceKind.FILE, str(line)), wrong.what)
    if len(gathered.findings) == found:
        gathered.take_value(SETTINGS[key], given, source)


def checked(setting: Setting, given: object, *, is_text: bool) -> object:
    """A value as the schema has it; what is text at its source becomes a number, a switch or a list."""
    if isinstance(given, str):
        # A variable that is not UTF-8 arrives with surrogates, which nothing after this could carry.
        given.encode()
        if is_text and setting.is_table:
            return msgspec.json.decode(given, type=setting.type)
        if is_text and setting.is_list:
            given = [part.strip() for part in given.split(",") if part.strip()]
    return msgspec.convert(given, setting.type, strict=not (is_text and isinstance(given, str)))


def what_was_wrong(setting: Setting, given: object) -> str:
    """The end of a finding: a number, the kind of value, or the nearest that is allowed; never the text itself."""
    if isinstance(given, str):
        kind = bare_type(setting.type)
        is_choice = isinstance(kind, type) and issubclass(kind, StrEnum)
        near = close_matches(given, list(kind), 1) if is_choice else []
        return f"; did you mean {near[0]}?" if near else ""
    if isinstance(given, bool):
        return f", not {str(given).lower()}"
    if isinstance(given, int | float):
        return f", not {given}" if isinstance(given, float) or given.bit_length() <= INTEGER_BITS_SHOWN_MAX else ""
    return ", not a list" if isinstance(given, list) and not setting.is_list else ""


def unknown(key: str) -> str:
    name = key.rpartition(".")[2]
    if SECRET_NAME.search(name):
        return f"{key} looks like a secret, and {FILE_NAME} is no place for one: {WHERE_KEYS_BELONG}"
    if name == "notices":
        return f"{key} is no longer a setting; notices.toml in the home replaces the wording, on all channels"
    near = next((known for known in SETTINGS if known.rpartition(".")[2] == name), None)
    if near is not None and "." not in near:
        return f"{key} is not a setting; {near} is: write it above the first [section]"
    if near is None:
        near = next(iter(close_matches(key, [*SETTINGS, *sorted(SECTIONS)], 1)), None)
    return f"{key} is not a setting" + (
        f"; did you mean {near}?" if near else "; see `hansard config` for those that are"
    )


def wrong_addresses(settings: Settings) -> Iterator[tuple[str, str]]:
    """Addresses which keys and words should not be sent to, by setting, and what is wrong with each."""
    for key, setting in SETTINGS.items():
        url = value_at(settings, key)
        section, _, name = key.rpartition(".")
        if name not in {"base_url", "homeserver"} or not isinstance(url, str):
            continue
        permission = f"{section}.allow_http"
        if not is_address(url):
            yield key, f"{key} must be {setting.allowed}"
        elif url.lower().startswith("http:") and not is_loopback(url):
            told = f"{key} is http: others on the way could read keys and words. Use https"
            if permission not in SETTINGS:
                yield key, told
            elif not value_at(settings, permission):
                yield key, f"{told}, or set {permission} = true"


def wrong_people(settings: Settings) -> Iterator[tuple[str, str]]:
    """What does not fit together in what is said of people and rooms."""
    yield from said_twice(PEOPLE, settings.people)
    yield from said_twice("rooms", settings.rooms)
    if len([person for person in settings.people.values() if person.terminal]) > 1:
        yield PEOPLE, "the terminal can be only one person's: terminal = true stands with several"
    if "admin" in settings.people and any(each.terminal for name, each in settings.people.items() if name != "admin"):
        yield PEOPLE, "people.admin is the terminal's person: terminal = true cannot stand with another"
    matrix = settings.channels.matrix
    for name in matrix.allow:
        if name[0] not in "@*!" and name not in settings.people:
            yield "channels.matrix.allow", "channels.matrix.allow has a name of which there is no section [people.NAME]"
    key = "channels.telegram.allow"
    for name in settings.channels.telegram.allow:
        if not name.removeprefix("-").isdecimal() and name not in settings.people:
            yield key, f"{key} has a name of which there is no section [people.NAME]"
        elif name in settings.people and name.isdecimal():
            yield key, f"{key} has a number that is also the name of a section [people.NAME]: give that another name"


def wrong_rules(settings: Settings) -> Iterator[tuple[str, str]]:
    """Rules for a name that nobody has. It once could mean an account: then the rule would fit nobody in silence."""
    known = {"admin", *settings.people}
    for number, rule in enumerate(settings.tools.rules, 1):
        if rule.person not in known and not set(rule.person) & set("*?[@:"):
            what = f"tools.rules[{number}].person is no name of [people]. Write an account with its channel"
            yield "tools.rules", f"{what}, such as telegram:12345"


def wrong_zone(settings: Settings) -> Iterator[tuple[str, str]]:
    """Time zones that this machine does not know. Asking for one is slow: the default is not asked for."""
    for key in ("resets.time_zone", "limits.day_time_zone"):
        zone = str(value_at(settings, key))
        try:
            if zone != SETTINGS[key].default:
                zone_of(zone)
        except (KeyError, ValueError, OSError):  # an unknown zone is a KeyError
            yield key, f"{key} must be {SETTINGS[key].allowed}"


def said_twice(table: str, sections: Mapping[str, Person] | Mapping[str, RoomSettings]) -> Iterator[tuple[str, str]]:
    """Identities on a platform that stand in two sections of a table."""
    known: dict[tuple[str, str], str] = {}
    for name, section in sections.items():
        for identity in section.places():
            first = known.setdefault(identity, name)
            if first != name:
                yield f"{table}.{name}", f"{printable(identity[1])} is both {table}.{first} and {table}.{name}"


def wrong_servers(settings: Settings) -> Iterator[tuple[str, str]]:
    """Servers that cannot be reached as they are described, or should not be."""
    for name, server in settings.mcp.items():
        if (server.command is None) == (server.url is None):
            yield f"mcp.{name}", f"mcp.{name} must have either a command or a url"
        elif server.url is not None and not is_address(server.url):
            what = "must be an https address without a password in it, or http on this machine"
            yield f"mcp.{name}.url", f"mcp.{name}.url {what}"
        elif server.url is not None and not (
            server.allow_http or is_loopback(server.url) or server.url.lower().startswith("https:")
        ):
            what = "others on the way could read tokens and words"
            yield f"mcp.{name}.url", f"mcp.{name}.url is http: {what}. Use https, or set mcp.{name}.allow_http = true"


def missing_programs(config: Config, environment: Mapping[str, str]) -> Iterator[ConfigFinding]:
    """Yield the programs of servers that are not on this machine. Only a check asks: they may be installed later."""
    for name, server in config.settings.mcp.items():
        if not server.enabled or server.command is None:
            continue
        if shutil.which(server.command, path=environment.get("PATH", os.defpath)) is None:
            line = line_of(config.lines, ("mcp", name, "command"))
            what = f"mcp.{name}.command: there is no program {printable(server.command)} here that may be run"
            yield ConfigFinding(place(config.path, line) if line else str(config.source("mcp")), what)


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
