"""Models that sessions choose by name: opened once, and closed when others are chosen."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hansard.app.wiring import CHOSEN_MAX, Models
from hansard.domain.settings import Settings


async def test_the_last_chosen_models_stay_open(home: Path, tmp_path: Path) -> None:
    """Whoever chooses one model after another does not have all of them kept open; one in use is not closed early."""
    script = tmp_path / "script.toml"
    script.write_text('[[answers]]\ntext = "hello"\n')
    links = [tmp_path / f"{number}.toml" for number in range(CHOSEN_MAX + 3)]
    for link in links:
        link.symlink_to(script)
    models, over = Models(home, Settings(), {}), asyncio.Event()
    models.close_after(over.wait)
    opened = [await models.choose(f"scripted:{link}") for link in links]
    assert len(models._chosen) == CHOSEN_MAX  # noqa: SLF001 - what must not grow
    assert await models.choose(f"scripted:{links[-1]}") is opened[-1]
    assert len(models._retiring._waiting) == 3  # noqa: SLF001 - a turn may still use them
    over.set()
    async with asyncio.timeout(60):
        while models._retiring._waiting:  # noqa: ASYNC110, SLF001
            await asyncio.sleep(0.01)
    assert await models.choose(f"scripted:{links[0]}") is not opened[0]
    await models.close()
