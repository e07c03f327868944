"""The wording of notices: what `notices.toml` may replace, and how the example in German does."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest

from hansard.app.home_files import load_wording, read_wording
from hansard.domain.arrivals import RouteChange
from hansard.domain.chats import Began
from hansard.domain.notices import ENGLISH, KEYS, placeholders, what_is_wrong
from hansard.errors import ConfigInvalid

DOCS = Path(__file__).parents[2] / "docs"
GERMAN = DOCS / "run" / "notices-de.toml"


def test_english_may_stand_in_a_file() -> None:
    """Every English template is one that `notices.toml` may hold."""
    assert [what_is_wrong(key, getattr(ENGLISH, key)) for key in KEYS] == [""] * len(KEYS)


def test_the_german_example_is_whole(home: Path) -> None:
    """It is a valid `notices.toml` that replaces every notice and leaves out nothing of what is put in."""
    templates = tomllib.loads(GERMAN.read_text(encoding="utf-8"))
    assert tuple(templates) == KEYS
    home.mkdir()
    shutil.copy(GERMAN, home / "notices.toml")
    german = load_wording(home)
    for key in KEYS:
        assert getattr(german, key) == templates[key] != getattr(ENGLISH, key)
        assert placeholders(templates[key]) == placeholders(getattr(ENGLISH, key)), key


def test_words_are_put_in(home: Path) -> None:
    """Ids, codes and minutes stand where the wording has them."""
    home.mkdir()
    shutil.copy(GERMAN, home / "notices.toml")
    words = load_wording(home)
    assert (
        RouteChange(Began.IDLE, "old-1", "new-1")
        .told(words)
        .endswith("neue Sitzung: new-1. Die vorige bleibt erhalten: Mit /resume old-1 geht es dort weiter.")
    )
    assert "hansard pair approve k3v9-qd7m" in words.code.format(code="k3v9-qd7m", minutes=60)
    assert "60 Minuten" in words.declined.format(code="k3v9-qd7m", minutes=60)


@pytest.mark.parametrize(
    ("key", "template", "wrong"),
    [
        ("late", "too old: {what}", "late names {what}; it may name nothing"),
        ("session_new", "{new} {old}", "session_new names {old}; it may name {new}"),
        ("session_new", "{new.__class__}", "braces hold a plain word"),
        ("session_new", "{new!r}", "braces hold a plain word"),
        ("session_new", "{new:>99999999}", "braces hold a plain word"),
        ("session_new", "{}", "braces hold a plain word"),
        ("session_new", "{new", "its braces do not fit"),
        ("late", "", "late must be text"),
        ("late", 5, "late must be text"),
        ("late", "x" * 2001, "at most 2000 characters"),
        ("late", "{{braces}} are fine", ""),
        ("session_new", "without the id", ""),
    ],
)
def test_templates_are_checked(key: str, template: object, wrong: str) -> None:
    """A template may leave out what could be put in, and may name nothing else."""
    found = what_is_wrong(key, template)
    assert wrong in found
    assert bool(found) == bool(wrong)


def test_a_file_replaces_what_it_has(home: Path) -> None:
    """Without a file the wording is English; with one, what the file leaves out stays English."""
    home.mkdir()
    assert load_wording(home) is ENGLISH
    (home / "notices.toml").write_text('late = "Too late."\n')
    words = load_wording(home)
    assert (words.late, words.cut) == ("Too late.", ENGLISH.cut)


def test_findings_name_the_line(home: Path) -> None:
    """Whatever is wrong in a file is listed, each with its place; nothing of such a file is used."""
    home.mkdir()
    path = home / "notices.toml"
    path.write_text('language = "de"\n\nlate = "{when}"\nlatte = "x"\ncut = "well"\n')
    words, findings = read_wording(home)
    assert [str(finding) for finding in findings] == [
        f"{path}, line 1: there is no notice language",
        f"{path}, line 3: late names {{when}}; it may name nothing",
        f"{path}, line 4: there is no notice latte",
    ]
    assert words is ENGLISH
    with pytest.raises(ConfigInvalid, match="line 3"):
        load_wording(home)


def test_the_documented_file_is_right(home: Path) -> None:
    """The example of docs/run/gateway.md can be put into a home as it stands."""
    page = (DOCS / "run" / "gateway.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(late = .*?)```", page, re.DOTALL)
    home.mkdir()
    (home / "notices.toml").write_text(block, encoding="utf-8")
    words = load_wording(home)
    assert words.session_new.format(new="x") == "A fresh start: x"
    assert words.cut == ENGLISH.cut
