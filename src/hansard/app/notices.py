"""The wording of notices: English, with what `notices.toml` of the home replaces.

Reads: `notices.toml`. Writes nothing.
Invariants: the file is checked before anything of it is used, and whatever is wrong with it is named with its line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from hansard.app.toml_file import ConfigFinding, key_lines, parse_toml, place, printable, read_file, short
from hansard.domain.notices import ENGLISH, KEYS, Wording, what_is_wrong
from hansard.errors import ConfigInvalid

if TYPE_CHECKING:
    from pathlib import Path

FILE_NAME: Final = "notices.toml"


def load_wording(home: Path) -> Wording:
    """Return the wording of a home, or raise ConfigInvalid with everything that is wrong."""
    words, findings = read_wording(home)
    if findings:
        raise ConfigInvalid("\n".join(map(str, findings)))
    return words


def read_wording(home: Path) -> tuple[Wording, list[ConfigFinding]]:
    """Return the wording of a home, and everything that is wrong. If anything is wrong, the wording is English."""
    path = home / FILE_NAME
    contents = read_file(path)
    if contents is None:
        return ENGLISH, []
    parsed = contents if isinstance(contents, ConfigFinding) else parse_toml(path, contents.data)
    if isinstance(parsed, ConfigFinding):
        return ENGLISH, [parsed]
    lines = key_lines(parsed.text)
    findings = []
    for key, template in parsed.document.items():
        wrong = what_is_wrong(key, template) if key in KEYS else f"there is no notice {short(key)}"
        if wrong:
            findings.append(ConfigFinding(place(path, lines[key,]), printable(wrong)))
    return (ENGLISH, findings) if findings else (msgspec.convert(parsed.document, Wording), [])
