"""People: what they are called, how an admin names them, what the settings make one, and what is quoted of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hansard.app.config import read_config
from hansard.domain.notices import ENGLISH, Wording
from hansard.domain.people import QUOTED_CHARACTERS_MAX, People, called, named, owners_of, quoted, read_identity
from hansard.domain.settings import Person
from hansard.errors import InvalidInput


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        ("person:matrix:@ann:example.org", "@ann:example.org on Matrix"),
        ("person:telegram:42", "42 on Telegram"),
        ("person:admin", "the terminal"),
        ("person:ann", "ann"),
        ("person:folder:ann", "folder:ann"),
    ],
)
def test_what_an_owner_is_called(owner: str, expected: str) -> None:
    """As people know the account, and where it is."""
    assert called(owner) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@ann:example.org", ("matrix", "@ann:example.org")),
        ("@ann:[::1]:8448", ("matrix", "@ann:[::1]:8448")),
        ("12345", ("telegram", "12345")),
        ("telegram:12345", ("telegram", "12345")),
        ("matrix:@ann:example.org", ("matrix", "@ann:example.org")),
        ("folder:ann", ("folder", "ann")),
    ],
)
def test_how_an_admin_names_somebody(text: str, expected: tuple[str, str]) -> None:
    """By what the platform calls them, with the platform where that is not plain."""
    assert read_identity(text) == expected


NOT_NAMES = (
    "",
    "ann",
    "@ann",
    "@ann:",
    "@:example.org",
    "matrix:@ann",
    "matrix:@ann:",
    ":x",
    "x:",
    "a b:c",
    "١٢٣",
    "x:\u202ey",
    "a-b:c",
)
NOT_ACCOUNTS = ("person:admin", "room:x", "cli:x", "telegram:ann", "telegram:-100500", "matrix:ann", "folder:a:b")
"""What channels call nobody: words that mean something else, and ids that a channel does not have."""


@pytest.mark.parametrize("text", [*NOT_NAMES, *NOT_ACCOUNTS])
def test_what_names_nobody(text: str) -> None:
    """Anything else is refused, with what a name looks like."""
    with pytest.raises(InvalidInput, match="@name:server"):
        read_identity(text)


def test_whom_the_settings_make_one() -> None:
    """A name is one with all its accounts, numbers as they are written or as text, and maybe with the terminal."""
    ann = Person(matrix=("@ann:h",), telegram=(42, "43"), other={"folder": ("ann",)}, terminal=True)
    owners = (
        "person:ann",
        "person:matrix:@ann:h",
        "person:telegram:42",
        "person:telegram:43",
        "person:folder:ann",
        "person:admin",
    )
    assert owners_of("ann", ann) == owners
    assert named({"bob": Person(), "ann": ann}) == {"ann": owners, "bob": ("person:bob",)}
    assert owners_of("admin", Person(terminal=True)) == ("person:admin",)
    apart = named({"admin": Person(matrix=("@a:h",)), "bob": Person(terminal=True)})
    assert apart == {"admin": ("person:admin", "person:matrix:@a:h"), "bob": ("person:bob",)}


def test_telegram_in_the_file(home: Path) -> None:
    """Numbers stand as numbers or as text; a person who is two is found; a username is no account."""
    home.mkdir(exist_ok=True)
    file = home / "config.toml"
    file.write_text('[people.ann]\ntelegram = [42, "43"]\n[channels.telegram]\nallow = ["ann"]\n')
    config, findings = read_config(home, {}, {})
    assert findings == []
    people = People(config.settings, "telegram")
    assert people.owner("43", "telegram:chat:43", is_direct=True) == "person:ann"
    assert people.standing("42", "telegram:chat:42") == "listed"
    assert people.standing("44", "telegram:chat:44") == "unlisted"
    assert People(config.settings, "matrix").name("42") == ""
    file.write_text("[people.ann]\ntelegram = [42]\n[people.bob]\ntelegram = ['42']\n")
    assert "42 is both people.ann and people.bob" in repr(read_config(home, {}, {})[1])
    file.write_text("[people.admin]\nmatrix = ['@a:h']\n[people.bob]\nterminal = true\n")
    assert "people.admin is the terminal's person" in repr(read_config(home, {}, {})[1])
    for wrong in ("['ann']", "[-5]", "[0]", "['042']", "42"):
        file.write_text(f"[people.ann]\ntelegram = {wrong}\n")
        assert len(read_config(home, {}, {})[1]) == 1, wrong


def test_the_example_of_the_documentation(home: Path) -> None:
    """What docs/run/gateway.md says about [people] makes the three places one person's."""
    page = (Path(__file__).parents[2] / "docs" / "run" / "gateway.md").read_text(encoding="utf-8")
    (example,) = [each for each in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[people." in each]
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(example)
    config, findings = read_config(home, {}, {})
    assert findings == []
    owners = ("person:ann", "person:matrix:@ann:example.org", "person:telegram:12345678", "person:admin")
    assert named(config.settings.people) == {"ann": owners}


def test_what_is_quoted() -> None:
    """The words, line by line, with where they were said; files are counted; a long text is its beginning."""
    german = Wording(said_elsewhere="Auf {where} hast du gesagt:", said_files="(Dateien: {count})")
    assert quoted(ENGLISH, "telegram:chat:42", "one\n\ntwo") == "You said on Telegram:\n> one\n> \n> two"
    assert quoted(ENGLISH, "", "", 2) == "You said in the terminal:\n> (files: 2)"
    assert quoted(german, "matrix:room:!r:h", "see", 1) == "Auf Matrix hast du gesagt:\n> see\n> (Dateien: 1)"
    assert quoted(ENGLISH, "folder:chat:x", "see") == "You said on folder:\n> see"
    long = quoted(ENGLISH, "", "word " * 1000)
    assert len(long) < QUOTED_CHARACTERS_MAX + 50
    assert long.endswith("…")
