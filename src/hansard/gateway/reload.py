"""Taking up a changed configuration while a gateway runs: what is read, what it changes, and what it cannot.

Reads: `config.toml`, `notices.toml`, environment variables, as a start does. Writes nothing.
Invariants: settings are one frozen value, which is swapped as a whole once all of it was found right; what is wrong
changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from hansard.app.config import load_config, value_at
from hansard.app.home_files import check_modes, load_wording
from hansard.app.keys import check_keys
from hansard.domain.notices import Wording
from hansard.domain.settings import SETTINGS
from hansard.errors import ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from hansard.domain.settings import Settings
    from hansard.ports.channel import Channel

IN_PLACE: Final = frozenset({"allow", "observe", "rooms", "answer", "answer_age_seconds_max", "attachment_bytes_max"})
"""Settings of a channel that are taken up while it is open. With any other, it is opened again."""

TOKEN_FILE: Final = "token"  # noqa: S105  # the name of a file
"""In the folder of a channel, where people put it."""

FIXED: Final = ("gateway.health_port",)
"""Settings that count from the next start on."""


class LoadedConfig(NamedTuple):
    """What a gateway goes by: one value, never changed, only replaced."""

    settings: Settings
    words: Wording
    tokens: Mapping[str, object] = {}
    """By channel, which file holds its token: a new one opens the channel again."""


class ConfigReload(NamedTuple):
    """Where a gateway finds its configuration anew, and how it opens a channel by it."""

    read: Callable[[], LoadedConfig]
    """ConfigInvalid when anything is wrong with it."""
    openers: Callable[[Settings], Mapping[str, Callable[[], Channel]]]
    """The channels that are configured, by name."""


class ConfigChanges(NamedTuple):
    """What is different in a new configuration."""

    keys: tuple[str, ...]
    """Settings that are taken up."""
    fixed: tuple[str, ...]
    """Settings that are not, until the next start."""


def load_gateway_config(home: Path, environment: Mapping[str, str], options: Mapping[str, object]) -> LoadedConfig:
    """Return what is configured now, or raise ConfigInvalid with everything that is wrong."""
    check_modes(home)
    settings = load_config(home, environment, options).settings
    tokens = {name: look_at(home / name / TOKEN_FILE) for name in settings.channels.sections()}
    return LoadedConfig(settings, load_wording(home), tokens)


def read_again(home: Path, environment: Mapping[str, str], options: Mapping[str, object]) -> LoadedConfig:
    """Return what is configured now, or raise ConfigInvalid, also for keys: what runs must not be left without them."""
    if findings := check_keys(home, environment):
        raise ConfigInvalid("\n".join(map(str, findings)))
    return load_gateway_config(home, environment, options)


def look_at(path: Path) -> tuple[int, ...]:
    """Return what tells a file from the one that was there before; of one that is not there, nothing."""
    try:
        seen = path.stat()
    except OSError:
        return ()
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns


def changes_between(old: LoadedConfig, new: LoadedConfig) -> ConfigChanges:
    """Return what is different, by the names of settings; never their values, which may be private."""
    keys = [key for key in SETTINGS if value_at(old.settings, key) != value_at(new.settings, key)]
    if old.words != new.words:
        keys.append("notices")
    fixed = tuple(key for key in keys if key in FIXED)
    return ConfigChanges(tuple(key for key in keys if key not in fixed), fixed)


def connection_of(loaded: LoadedConfig, channel: str) -> tuple[object, ...]:
    """Return what a channel is opened by: when that is the same again, the channel stays open."""
    section = loaded.settings.channels.section(channel)
    given = [(name, getattr(section, name)) for name in section.__struct_fields__ if name not in IN_PLACE]
    return (*given, loaded.tokens.get(channel))
