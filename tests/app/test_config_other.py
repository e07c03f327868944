"""Settings of channels that come from installed packages: what may stand there, and for whom it counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from hansard.app.config import load_config, read_config
from hansard.domain.access import Standing
from hansard.domain.people import People
from hansard.domain.settings import Channels, Settings
from hansard.domain.settings.channels import Matrix, OtherChannel, RoomSharing

FULL = """
[channels.other.irc]
allow = ["ann", "#tea"]
rooms = "per_person"

[channels.other.irc.options]
server = "irc.example.org"
port = 6697
tls = true
"""


def written(home: Path, text: str) -> Path:
    """Return a home with these settings."""
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(text)
    return home


def test_a_section_is_read(home: Path) -> None:
    """What all channels have is checked as for them; options are the channel's own; the rest has its default."""
    other = load_config(written(home, FULL), {}, {}).settings.channels.other
    options: dict[str, str | int | float | bool] = {"server": "irc.example.org", "port": 6697, "tls": True}
    expected = OtherChannel(allow=("ann", "#tea"), rooms=RoomSharing.PER_PERSON, options=options)
    assert other == {"irc": expected}


@pytest.mark.parametrize(
    "text",
    [
        '[channels.other.matrix]\nallow = ["a"]',
        '[channels.other.telegram]\nallow = ["a"]',
        '[channels.other.person]\nallow = ["a"]',
        '[channels.other.IRC]\nallow = ["a"]',
        '[channels.other."a:b"]\nallow = ["a"]',
        '[channels.other.irc]\nroms = "shared"',
        '[channels.other.irc]\nrooms = "everywhere"',
        '[channels.other.irc]\nallow = ["two words"]',
        '[channels.other.irc.options]\ntoken = "shh"',
        '[channels.other.irc.options]\nsasl_password = "shh"',
        '[channels.other.irc.options]\nservers = ["a"]',
        "[channels]\nother = 5",
    ],
)
def test_what_is_wrong_is_found(home: Path, text: str) -> None:
    """A name that is taken, a setting that is none, a secret: found at its line, and no value is repeated."""
    config, findings = read_config(written(home, text), {}, {})
    (finding,) = findings
    assert "channels.other must be a section [channels.other.NAME]" in str(finding)
    assert "shh" not in str(finding)
    assert config.settings.channels.other == {}


def test_each_channel_has_its_own_list() -> None:
    """Who may talk on one channel may not for that reason on another; where nothing is set, nobody may."""
    irc = OtherChannel(allow=("ann", "#tea"))
    settings = Settings(channels=Channels(matrix=Matrix(allow=("@ann:h",)), other={"irc": irc}))
    assert settings.channels.section("irc") == irc
    assert settings.channels.section("mail") == OtherChannel()
    assert set(settings.channels.sections()) == {"matrix", "telegram", "irc"}
    assert People(settings, "irc").standing("ann", "irc:chat:ann") is Standing.LISTED
    assert People(settings, "irc").standing("bob", "irc:chat:#tea") is Standing.ROOM
    assert People(settings, "irc").standing("@ann:h", "irc:chat:x") is Standing.UNLISTED
    assert People(settings, "mail").standing("ann", "mail:chat:ann") is Standing.UNLISTED
    assert People(settings, "matrix").standing("ann", "matrix:room:!a:h") is Standing.UNLISTED
