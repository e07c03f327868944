"""How each channel that is configured is opened: Hansard's own, and those of installed packages.

The channels of other packages are found by their entry points, in the group `hansard.channels`. A package's own
metadata names the function, so that whoever writes the configuration cannot have any code run but that of packages
which somebody installed here.
"""

from __future__ import annotations

from functools import partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

from hansard.channels.matrix import open_matrix
from hansard.channels.telegram import open_telegram
from hansard.domain.chats import is_channel
from hansard.errors import ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from hansard.domain.settings import Settings
    from hansard.domain.settings.channels import OtherChannel
    from hansard.ports.channel import Channel

    Opens = Callable[[Path, Mapping[str, str | int | float | bool], Mapping[str, str]], Channel]
    """What an entry point of the group names: it makes the channel of a home, its options and the environment.

    Nothing is asked of the platform yet, which may be down.
    """

GROUP: Final = "hansard.channels"


def open_other(home: Path, name: str, other: OtherChannel, environment: Mapping[str, str]) -> Channel:
    found = entry_points(group=GROUP, name=name)
    if not found:
        known = ", ".join(sorted(each.name for each in entry_points(group=GROUP))) or "none"
        message = f"channels.other.{name}: no installed package has a channel of that name (there is {known})"
        raise ConfigInvalid(message)
    if len(found) > 1:
        raise ConfigInvalid(f"channels.other.{name}: {len(found)} installed packages have a channel of that name")
    (entry,) = found
    try:
        opens: Opens = entry.load()
    except (ImportError, AttributeError) as error:
        message = f"channels.other.{name}: {entry.value} cannot be loaded ({type(error).__name__}: {error})"
        raise ConfigInvalid(message) from error
    channel = opens(home, other.options, environment)
    if channel.name != name or not is_channel(name):
        raise ConfigInvalid(f"channels.other.{name}: the package's channel calls itself {channel.name[:80]!r}")
    return channel


def channel_openers(home: Path, settings: Settings, environment: Mapping[str, str]) -> dict[str, Callable[[], Channel]]:
    """Return how each channel is opened that is configured, by its name."""
    openers: dict[str, Callable[[], Channel]] = {}
    matrix = settings.channels.matrix
    if matrix.homeserver is not None and matrix.user_id is not None:
        openers["matrix"] = partial(
            open_matrix, home, environment, homeserver=matrix.homeserver, user_id=matrix.user_id
        )
    if settings.channels.telegram.enabled:
        openers["telegram"] = partial(open_telegram, home, environment, base_url=settings.channels.telegram.base_url)
    for name, other in settings.channels.other.items():
        openers[name] = partial(open_other, home, name, other, environment)
    if not openers:
        either = "channels.matrix.homeserver and channels.matrix.user_id, channels.telegram.enabled, or channels.other"
        hint = "Write it into config.toml: `hansard config path` prints where that is."
        raise ConfigInvalid(f"no channel is configured: set {either}", hint)
    return openers
