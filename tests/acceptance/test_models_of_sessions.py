"""Which model answers: the one that was named for this run, the session's own, the configured one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hansard.app.wiring import open_app
from hansard.cli.talk import Talk, TalkStart
from hansard.domain.messages import Role
from hansard.domain.settings import Settings

WAIT_SECONDS_MAX = 120.0


def script(folder: Path, name: str) -> str:
    """A model that says its name."""
    path = folder / f"{name}.toml"
    path.write_text(f'[[answers]]\ntext = "I am {name}."\n')
    return f"scripted:{path}"


class Run:
    """One run of the program, in the session of the one before."""

    def __init__(self, talk: Talk) -> None:
        """Somebody is there to type."""
        self.talk = talk

    async def type(self, text: str) -> str:
        """Type something; return the last that was said by the model, or by Hansard to a command."""
        await self.talk.take_line(text)
        app, session_id = self.talk.app, self.talk.session_id
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await app.runner.settled(session_id)
        messages = await app.record.load_transcript(session_id)
        role = Role.NOTICE if text.startswith("/") else Role.ASSISTANT
        return [message.text for message in messages if message.role == role][-1]


@asynccontextmanager
async def running(home: Path, model: str, session_id: str = "", *, is_named: bool) -> AsyncIterator[Run]:
    """Run the program."""

    def report(_session_id: str, error: BaseException) -> None:
        pytest.fail(str(error))

    async with open_app(home, Settings(model=model), {}, report, is_named=is_named) as app:
        talk = Talk(app, lambda _: None)
        if session_id:
            await talk.enter(TalkStart(session_id, "0"))
        try:
            yield Run(talk)
        finally:
            await talk.close()


async def test_a_named_model_overrules_the_session_s(home: Path, tmp_path: Path) -> None:
    """`-m` counts for one run and comes before what the session has; `/model` in that run comes before it."""
    one, two, three = (script(tmp_path, name) for name in ("one", "two", "three"))
    async with running(home, one, is_named=False) as run:
        assert await run.type("hello") == "I am one."
        assert two in await run.type(f"/model {two}")
        assert await run.type("hello") == "I am two."
        session_id = run.talk.session_id
    async with running(home, three, session_id, is_named=True) as run:
        assert await run.type("hello") == "I am three."
        assert three in await run.type("/model")
        await run.type("/model nonsense")
        assert await run.type("hello") == "I am three."
        await run.type(f"/model {two}")
        assert two in await run.type("/model")
        assert await run.type("hello") == "I am two."
    async with running(home, one, session_id, is_named=False) as run:
        assert await run.type("hello") == "I am two."
        await run.type("/model default")
        assert await run.type("hello") == "I am one."
