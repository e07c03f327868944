"""The crash ring's checks can fail: each is shown a record that is sound and evidence that it does not bear out."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

import msgspec
import pytest

from hansard import Record, TurnState
from tests.crash import script
from tests.crash.checks import check_picture, check_record
from tests.crash.evidence import Evidence
from tests.crash.rounds import Kill, run_round

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.checks import Picture
    from tests.crash.processes import Line

Seen = tuple["Picture", Evidence]


@pytest.fixture(scope="module")
async def seen(tmp_path_factory: pytest.TempPathFactory, seed: int) -> Seen:
    """A round without a violation."""
    home: Path = tmp_path_factory.mktemp("seen") / "home"
    result = await run_round(home, seed, [Kill(lines=120)], survivor=True)
    async with Record.open(home) as record:
        picture, violations = await check_record(record, result.evidence)
    assert violations == []
    return picture, result.evidence


def first(evidence: Evidence, what: str) -> Line:
    """Return the first acknowledgement of a kind; each kind must have come up."""
    return evidence.of(what)[0]


LIES: dict[str, dict[str, object]] = {
    "append": {"id": "never-said"},
    "accept": {"cursor": "1000000"},
    "sealed": {"id": "never-opened"},
    "opened": {"id": "never-opened"},
    "started": {"fence": 1},
    "ended": {"turn": "never-started"},
    "title": {"title": "never given"},
    "fork": {"at": 1},
    "route": {"generation": 1000},
    "delivery": {"id": "never-posted"},
    "session": {"session": "never-created"},
}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("what", LIES)
async def test_an_acknowledgement_that_is_not_borne_out_is_found(seen: Seen, what: str) -> None:
    """Each kind of acknowledgement, changed to something that never happened, is a violation."""
    picture, evidence = seen
    assert list(check_picture(picture, evidence)) == []
    lie = Evidence(
        seed=evidence.seed,
        acknowledged=[*evidence.acknowledged, first(evidence, what) | LIES[what]],
        shown=evidence.shown,
        killed_owners=evidence.killed_owners,
    )
    assert list(check_picture(picture, lie)) != []


@pytest.mark.parametrize("change", ["gap", "repeat", "other text", "other entry", "other byte"])
async def test_something_shown_that_is_not_recorded_is_found(seen: Seen, change: str) -> None:
    """A follower that had shown a gap, a repeat, other words or another entry is a violation."""
    picture, evidence = seen
    shown = deepcopy(evidence.shown)
    lines = shown[script.SESSIONS[0]]
    entry = next(place for place, line in enumerate(lines) if line.get("kind") == "message.added")
    chunk = next(place for place, line in enumerate(lines) if "offset" in line)
    if change == "gap":
        del lines[entry]
    elif change == "repeat":
        lines.insert(entry, lines[entry])
    elif change == "other text":
        lines[entry]["text"] += "."
    elif change == "other entry":
        lines[entry]["id"] = "another"
    else:
        lines[chunk]["text"] = "X" + lines[chunk]["text"][1:]
    lie = Evidence(
        seed=evidence.seed, acknowledged=evidence.acknowledged, shown=shown, killed_owners=evidence.killed_owners
    )
    assert list(check_picture(picture, lie)) != []


async def test_a_turn_lost_by_someone_alive_is_found(seen: Seen) -> None:
    """A lost turn whose owner was not killed, and a turn that still runs, are violations."""
    picture, evidence = seen
    session = script.SESSIONS[0]
    turn = picture.turns[session][0]
    lost = msgspec.structs.replace(turn, id="another", state=TurnState.LOST, owner="alive")
    running = msgspec.structs.replace(turn, id="another", state=TurnState.RUNNING)
    for wrong, words in ((lost, "never killed"), (running, "running")):
        doubtful = picture._replace(turns={**picture.turns, session: [*picture.turns[session], wrong]})
        assert any(words in violation for violation in check_picture(doubtful, evidence))


async def test_a_record_that_lost_something_is_found(seen: Seen) -> None:
    """A record without its last entry, or with a message twice, is a violation."""
    picture, evidence = seen
    session = script.SESSIONS[0]
    shorter = picture._replace(entries={**picture.entries, session: picture.entries[session][:-1]})
    assert list(check_picture(shorter, evidence)) != []
    transcript = picture.transcripts[session]
    doubled = picture._replace(transcripts={**picture.transcripts, session: [*transcript, transcript[0]]})
    assert list(check_picture(doubled, evidence)) != []
