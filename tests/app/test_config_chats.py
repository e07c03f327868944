"""The settings of people and chats: what each may be, and what does not fit together."""

from __future__ import annotations

from pathlib import Path

import pytest

from hansard.app.config import load_config, read_config
from hansard.domain.people import terminal_owner
from hansard.domain.settings import SETTINGS, Person
from tests.app.config_files import findings_of, write

ZONE = SETTINGS["resets.time_zone"].allowed

MATRIX = "[channels.matrix]\nhomeserver = "


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[people.a]\nmatrix = ['@a:h']\n[people.b]\nmatrix = ['@a:h']", "@a:h is both people.a and people.b"),
        (
            "[people.a]\nterminal = true\n[people.b]\nterminal = true",
            "the terminal can be only one person's: terminal = true stands with several",
        ),
        (
            "[channels.matrix]\nallow = ['ann']",
            "channels.matrix.allow has a name of which there is no section [people.NAME]",
        ),
        ("[resets]\ntime_zone = 'Europe/Bonn'", f"resets.time_zone must be {ZONE}"),
        (f"{MATRIX}'http://example.org'", "channels.matrix.homeserver is http: "),
        (f"{MATRIX}'https://ann:secret@example.org'", "channels.matrix.homeserver must be an https address"),
    ],
)
def test_what_does_not_fit_together(home: Path, text: str, what: str) -> None:
    """Each value looks as it must: a name linked twice, two terminals, nobody's name, no zone, words in the open."""
    (finding,) = findings_of(home, text)
    assert finding.what.startswith(what)
    assert "secret" not in finding.what


@pytest.mark.parametrize("text", [f"{MATRIX}'http://127.0.0.1:8008'", f"{MATRIX}'http://h.org'\nallow_http = true"])
def test_a_homeserver_may_be_near(home: Path, text: str) -> None:
    """Plain http stays on this machine, or is asked for."""
    assert findings_of(home, text) == []


def test_people_by_a_variable(home: Path) -> None:
    """A variable gives people as JSON; what is no JSON, or no person, is refused."""
    config = load_config(home, {"HANSARD_PEOPLE": '{"ann": {"matrix": ["@ann:h"], "terminal": true}}'}, {})
    assert config.settings.people == {"ann": Person(matrix=("@ann:h",), terminal=True)}
    for text in ("ann", "{", '{"ann": 1}', '{"ann": {"matrix": ["ann"]}}', '{"Ann B": {}}'):
        (finding,) = read_config(home, {"HANSARD_PEOPLE": text}, {})[1]
        is_json = text.endswith("}")
        not_json = "" if is_json else "JSON, and this is not. In config.toml it is "
        assert finding.what == f"people must be {not_json}{SETTINGS['people'].allowed}"


def test_one_wrong_person_is_one_finding(home: Path) -> None:
    """Each is said at its own line, and the others are known all the same."""
    write(home, "[people.ann]\nmatrix = ['@ann:h']\n[people.bob]\nmatrix = 'x'\n[people.eve]\nterminal = 1\n")
    config, findings = read_config(home, {}, {})
    assert [finding.where.rpartition(" ")[2] for finding in findings] == ["4", "6"]
    assert config.settings.people == {"ann": Person(matrix=("@ann:h",))}


def test_whose_the_terminal_is() -> None:
    """The admin's, unless the settings say whose."""
    assert terminal_owner({"ann": Person()}) == "person:admin"
    assert terminal_owner({"ann": Person(), "bob": Person(terminal=True)}) == "person:bob"
