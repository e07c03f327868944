"""In which words each channel speaks: a shipped language, or a file of the home over one.

Reads: `notices.toml` of the home, or the file that a channel names. Writes nothing.
Invariants: a file is checked before anything of it is used, and whatever is wrong with it is named with its line.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from hansard.app.toml_file import Finding, key_lines, parse_toml, place, printable, read_file, short
from hansard.domain.notices import KEYS, LANGUAGES, Notices, language, what_is_wrong, with_templates
from hansard.errors import ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from hansard.domain.settings import Settings

FILE_NAME: Final = "notices.toml"
BASE: Final = "language"
"""The key of a file that says which language it changes."""

TAKEN: Final = frozenset({"config.toml", "keys.toml"})
"""Files of the home that say something else."""


class Voices(NamedTuple):
    """The notices of every channel."""

    default: Notices
    by_channel: Mapping[str, Notices]

    def of(self, channel: str) -> Notices:
        """Return in which words a channel speaks."""
        return self.by_channel.get(channel, self.default)

    def of_chat(self, chat: str) -> Notices:
        """Return in which words people in a chat are told something."""
        return self.of(chat.partition(":")[0])


def load_notices(home: Path, settings: Settings) -> Voices:
    """Return in which words each channel speaks, or raise ConfigInvalid with everything that is wrong."""
    voices, findings = read_notices(home, settings)
    if findings:
        raise ConfigInvalid("\n".join(map(str, findings)))
    return voices


def read_notices(home: Path, settings: Settings) -> tuple[Voices, list[Finding]]:
    """Return what can be read, and everything that is wrong; a file that is wrong is as if it were not there."""
    findings: list[Finding] = []
    known: dict[str, Notices] = {}

    def find(name: str, *, wanted: bool) -> Notices:
        if name not in known:
            found = read_one(home / name, wanted=wanted)
            if isinstance(found, list):
                findings.extend(found)
            known[name] = found if isinstance(found, Notices) else language("en")
        return known[name]

    default = find(FILE_NAME, wanted=False)
    by_channel: dict[str, Notices] = {}
    for channel, section in settings.channels.sections().items():
        name = section.notices
        if name in LANGUAGES:
            by_channel[channel] = language(name)
        elif name in TAKEN:
            findings.append(Finding(f"channels.{channel}.notices", f"{name} is not a file of notices"))
        elif name is not None:
            by_channel[channel] = find(name, wanted=name != FILE_NAME)
    return Voices(default, by_channel), findings


def read_one(path: Path, *, wanted: bool) -> Notices | list[Finding]:
    """Read one file, or say everything that is wrong with it. One that nobody named need not be there."""
    contents = read_file(path)
    if contents is None:
        return [Finding(place(path), "there is no such file")] if wanted else language("en")
    parsed = contents if isinstance(contents, Finding) else parse_toml(path, contents.data)
    if isinstance(parsed, Finding):
        return [parsed]
    lines = key_lines(parsed.text)
    base = parsed.document.get(BASE, "en")
    findings: list[Finding] = []
    if base not in LANGUAGES:
        findings.append(Finding(place(path, lines[BASE,]), f"{BASE} must be one of {', '.join(LANGUAGES)}"))
    templates: dict[str, str] = {}
    for key, template in parsed.document.items():
        if key == BASE:
            continue
        wrong = what_is_wrong(key, template) if key in KEYS else f"there is no notice {short(key)}"
        if wrong:
            findings.append(Finding(place(path, lines[key,]), printable(wrong)))
        else:
            templates[key] = str(template)
    return findings or with_templates(language(str(base)), templates)


def notices_by_chat(home: Path, settings: Settings) -> Callable[[str], Notices]:
    """Return in which words people in a chat are told something: read when there is something to tell, and once."""

    @cache
    def voices() -> Voices:
        return read_notices(home, settings)[0]

    return lambda chat: voices().of_chat(chat)
