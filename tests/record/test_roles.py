"""Roles and statuses of messages: their names do as well, and nothing else is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hansard import InvalidInput, Message, Record, Role, Status
from tests.record.helpers_facts import SESSION, assert_clean, new_session


def message(id: str, **given: Any) -> Message:  # noqa: ANN401 - also what the types forbid
    """Return a message with words in it."""
    return Message(**{"id": id, "role": Role.USER, "parts": Message.user("words").parts} | given)


async def test_names_do_as_well(home: Path) -> None:
    """A role and a status that are plain text are recorded as those that they name."""
    async with Record.open(home) as record:
        await new_session(record)
        await record.append(SESSION, message("a", role="assistant", status="interrupted"))
        await record.append(SESSION, message("a", role=Role.ASSISTANT, status=Status.INTERRUPTED))
        (found,) = await record.load_transcript(SESSION)
        assert found.role is Role.ASSISTANT
        assert found.status is Status.INTERRUPTED
        await assert_clean(record)


@pytest.mark.parametrize(
    "given", [{"role": "robot"}, {"role": 1}, {"role": None}, {"status": "odd"}, {"status": "open"}]
)
async def test_anything_else_is_refused(home: Path, given: dict[str, object]) -> None:
    """What is no role, or no status of a whole message, is wrong input and leaves nothing behind."""
    async with Record.open(home) as record:
        await new_session(record)
        with pytest.raises(InvalidInput):
            await record.append(SESSION, message("a", **given))
        assert await record.load_transcript(SESSION) == []
