"""Settings of channels that Hansard does not bring along: `[channels.other.NAME]`."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from hansard.domain.chats import GRAMMARS, OTHER_NAME, OWN_NAMES
from hansard.domain.limits import MIB
from hansard.domain.settings_channels import DAY_SECONDS, Answers, RoomSharing

OTHER_ALLOWED: Final = (
    "a section [channels.other.NAME] for each channel of an installed package, with any of allow, observe, rooms, "
    "answer, answer_age_seconds_max and attachment_bytes_max, and what the channel itself wants to know, "
    "but no secret, in [channels.other.NAME.options]"
)

TAKEN: Final = "|".join(sorted({*GRAMMARS, *OWN_NAMES}))
OtherName = Annotated[str, Meta(pattern=rf"\A(?!(?:{TAKEN})\Z){OTHER_NAME}\Z")]
"""Of a channel of a package: none that is taken."""

OptionName = Annotated[str, Meta(pattern=r"\A(?!.*(?:key|token|secret|password)s?\Z)[a-z][a-z0-9_]{0,63}\Z")]
"""Of an option: none that sounds like a secret, which does not belong in the file."""


class OtherChannel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A channel of an installed package. What all channels have means the same here."""

    allow: Annotated[tuple[Annotated[str, Meta(pattern=r"\A\S{1,250}\Z")], ...], Meta(max_length=1000)] = ()
    """Names of [people], the platform's names of people, and ids of chats for all who are in one."""
    observe: bool = False
    rooms: RoomSharing = RoomSharing.SHARED
    answer: Answers = Answers.MENTIONS
    answer_age_seconds_max: Annotated[int, Meta(ge=1, le=366 * DAY_SECONDS)] = DAY_SECONDS
    attachment_bytes_max: Annotated[int, Meta(ge=0, le=256 * MIB)] = 20 * MIB
    options: dict[OptionName, str | int | float | bool] = {}
    """What the channel itself is told. Secrets are not among them: they stand in the environment or in files."""
