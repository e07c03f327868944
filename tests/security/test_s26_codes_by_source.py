"""S26: strangers of one server, or of one chat, do not use up everybody's pairing codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hansard.domain.access import stranger_source
from hansard.domain.settings import Pairing
from tests.intake.town import settings_of, town

PAIRING = Pairing()


@pytest.mark.parametrize(
    ("place", "source"),
    [
        (("matrix", "@eve:elsewhere.net", "matrix:room:!a:example.org"), "matrix elsewhere.net"),
        (("matrix", "@eve:elsewhere.net:8448", ""), "matrix elsewhere.net:8448"),
        (("telegram", "12345", "telegram:chat:-100"), "telegram telegram:chat:-100"),
        (("telegram", "12345", ""), "telegram 12345"),
    ],
)
def test_where_somebody_comes_from(place: tuple[str, str, str], source: str) -> None:
    """The server of a name that has one; otherwise the chat."""
    assert stranger_source(*place) == source


async def test_twenty_strangers_of_one_server(home: Path) -> None:
    """Five of them are shown a code; a stranger of another server still is; an hour later the next of them is."""
    async with town(home, settings_of()) as here:
        for number in range(20):
            await here.say("hello", f"@s{number}:elsewhere.net", f"matrix:room:!s{number}:elsewhere.net")
        asked = here.at_home("access.asked")
        assert len(asked) == PAIRING.source_codes_per_hour_max
        await here.say("hello", "@zoe:third.example", "matrix:room:!zoe:third.example")
        assert here.at_home("access.asked")[-1]["identity"] == "@zoe:third.example"
        here.clock.advance(3601)
        await here.say("hello", "@late:elsewhere.net", "matrix:room:!late:elsewhere.net")
        assert here.at_home("access.asked")[-1]["identity"] == "@late:elsewhere.net"
        await here.check()


async def test_all_together_stay_bounded(home: Path) -> None:
    """However many servers there are, an hour has so many codes."""
    async with town(home, settings_of()) as here:
        for number in range(PAIRING.codes_per_hour_max + 3):
            await here.say("hello", f"@s:server{number}.net", f"matrix:room:!s{number}:elsewhere.net")
        assert len(here.at_home("access.asked")) == PAIRING.codes_per_hour_max
        await here.check()
