"""What people in chats are told by Hansard itself: the same keys and words in braces in every language."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from hansard.app.notices import load_notices, read_notices
from hansard.domain.arrivals import Moved
from hansard.domain.notices import KEYS, LANGUAGES, language, placeholders, what_is_wrong
from hansard.domain.resets import Began
from hansard.domain.settings import Channels, Settings
from hansard.domain.settings_matrix import Matrix
from hansard.errors import ConfigInvalid
from hansard.intake.notices import words_of
from hansard.intake.speak import REOPENED

FOLDER = resources.files("hansard.domain").joinpath("languages")


def settings_with(notices: str | None) -> Settings:
    """Settings in which Matrix speaks in these words."""
    return Settings(channels=Channels(matrix=Matrix(notices=notices)))


def test_every_shipped_file_is_a_language() -> None:
    """No file is shipped that cannot be chosen, and none can be chosen that is not shipped."""
    assert {f"{name}.toml" for name in LANGUAGES} == {item.name for item in FOLDER.iterdir()}


@pytest.mark.parametrize("name", LANGUAGES)
def test_languages_have_the_same_keys_and_words_in_braces(name: str) -> None:
    """A translation leaves out no notice and none of what is put in."""
    templates = tomllib.loads(FOLDER.joinpath(f"{name}.toml").read_text(encoding="utf-8"))
    assert tuple(templates) == KEYS
    for key, template in templates.items():
        assert placeholders(template) == placeholders(getattr(language("en"), key)), key
        assert what_is_wrong(key, template) == ""


def test_languages_differ() -> None:
    """German is not English under another name."""
    english, german = language("en"), language("de")
    assert [key for key in KEYS if getattr(english, key) == getattr(german, key)] == []


def test_the_terminal_says_the_same_in_english() -> None:
    """What both say is said in the same words."""
    assert language("en").reopened == REOPENED


def test_words_are_put_in() -> None:
    """Ids, codes and minutes stand where the language has them."""
    words = words_of(language("de"))
    assert words.moved(Moved(Began.IDLE, "old-1", "new-1")).endswith(
        "neue Sitzung: new-1. Die vorige bleibt erhalten: Mit /resume old-1 geht es dort weiter."
    )
    assert "hansard pair approve k3v9-qd7m" in words.code("k3v9-qd7m", 60)
    assert "60 Minuten" in words.declined("k3v9-qd7m", 60)


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


def test_a_channel_speaks_as_it_is_told(home: Path) -> None:
    """A shipped language, a file of the home over one, or `notices.toml` when nothing is said."""
    home.mkdir()
    assert load_notices(home, settings_with(None)).of("matrix") is language("en")
    assert load_notices(home, settings_with("de")).of("matrix") is language("de")
    (home / "notices.toml").write_text('late = "Too late."\n')
    voices = load_notices(home, settings_with(None))
    assert (voices.of("matrix").late, voices.of("matrix").cut) == ("Too late.", language("en").cut)
    (home / "german.toml").write_text('language = "de"\nlate = "Zu spät."\n')
    voices = load_notices(home, settings_with("german.toml"))
    assert (voices.of("matrix").late, voices.of("matrix").cut) == ("Zu spät.", language("de").cut)
    assert voices.of("telegram").late == "Too late."
    assert voices.of_chat("matrix:room:!a:b") is voices.of("matrix")


def test_findings_name_the_line(home: Path) -> None:
    """Whatever is wrong in a file is listed, each with its place; nothing of such a file is used."""
    home.mkdir()
    path = home / "german.toml"
    path.write_text('language = "fr"\n\nlate = "{when}"\nlatte = "x"\ncut = "well"\n')
    voices, findings = read_notices(home, settings_with("german.toml"))
    assert [str(finding) for finding in findings] == [
        f"{path}, line 1: language must be one of en, de",
        f"{path}, line 3: late names {{when}}; it may name nothing",
        f"{path}, line 4: there is no notice latte",
    ]
    assert voices.of("matrix") is language("en")
    with pytest.raises(ConfigInvalid, match="line 3"):
        load_notices(home, settings_with("german.toml"))


@pytest.mark.parametrize(("name", "what"), [("missing.toml", "there is no such file"), ("keys.toml", "is not a file")])
def test_a_file_that_cannot_be_meant_is_refused(home: Path, name: str, what: str) -> None:
    """A channel that names a file which is not there, or is another one of the home, is not left in English."""
    home.mkdir()
    with pytest.raises(ConfigInvalid, match=what):
        load_notices(home, settings_with(name))


def test_the_documented_file_is_right(home: Path) -> None:
    """The example of docs/gateway.md can be put into a home as it stands."""
    page = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(language = .*?)```", page, re.DOTALL)
    home.mkdir()
    (home / "notices.toml").write_text(block, encoding="utf-8")
    voices = load_notices(home, settings_with(None))
    assert voices.of("matrix").session_new.format(new="x") == "Neu begonnen: x"
    assert voices.of("matrix").cut == language("de").cut
