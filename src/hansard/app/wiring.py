"""Everything put together, for as long as a process talks."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from hansard.app.declaring import declare_settings
from hansard.app.models import Models
from hansard.app.notices import notices_by_chat
from hansard.app.workshop import Workshop
from hansard.engine.recovery import queue_lost
from hansard.engine.runner import Runner
from hansard.engine.turns import ASKS_AGAIN
from hansard.record.api import Record
from hansard.record.store import Wiring

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from hansard.domain.settings import Settings
    from hansard.record.progress import Progress


class App(NamedTuple):
    """A process that talks."""

    record: Record
    settings: Settings
    models: Models
    runner: Runner
    workshop: Workshop


@asynccontextmanager
async def open_app(
    home: Path,
    settings: Settings,
    environment: Mapping[str, str],
    report: Callable[[str, BaseException], None],
    *,
    is_named: bool = False,
    asks_again: str = ASKS_AGAIN,
    progress: Callable[[Progress], None] | None = None,
) -> AsyncIterator[App]:
    """Open the record and get ready to run turns. Leaving interrupts what runs, in the record.

    `is_named`: the model was named for this run, and comes before a session's own. `asks_again`: what people are
    told who may want to ask again. `progress` hears how far a migration or a rebuild of the record is; without it,
    that is logged.
    """
    models = Models(home, settings, environment, is_named=is_named)
    wiring = Wiring(notices_of=notices_by_chat(home, settings))
    async with Record.open(home, wiring=wiring, progress=progress) as record:
        await declare_settings(record, settings)
        workshop = Workshop(
            home,
            record,
            models,
            settings,
            environment,
            asks_again=asks_again,
            tell=lambda trouble: report("", trouble),
        )
        agent = workshop.agent()
        await queue_lost(agent)
        runner = Runner(agent, report)
        models.close_after(runner.outlived)
        try:
            yield App(record, settings, models, runner, workshop)
        finally:
            try:
                await runner.close()
            finally:
                await workshop.close()
