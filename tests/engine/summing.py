"""A model that talks at length and sums up when it is told to, and talks that become too long."""

from __future__ import annotations

from hansard.domain.requests import Request
from hansard.domain.settings.agent import CompactionSettings
from hansard.engine.summaries import INSTRUCTIONS
from tests.engine.stage import Answer, PlayedModel, Stage

WINDOW = 2_000
SETTINGS = CompactionSettings(window_tokens=WINDOW, tail_tokens=400, summary_tokens_max=300)
MANUAL = CompactionSettings(automatic=False, window_tokens=WINDOW, tail_tokens=400, summary_tokens_max=300)
SUMMARY = (
    "The people want the lighthouse of Ravensund repaired. The estimate is 4,200 crowns; the keeper, Ingeborg, asked "
    "for new lamps and oil. The council has not decided yet, and the harbour office waits for the figures by Friday."
)
TOPIC = "The lighthouse of Ravensund needs repair, says Ingeborg the keeper; the council wants an estimate for lamps. "


def is_summary(request: Request) -> bool:
    """Whether a summary is asked for."""
    return request.system == INSTRUCTIONS


class Summing(PlayedModel):
    """Answers at length, and sums up as it is told to: `summaries` in turn, the last one again."""

    def __init__(self, *summaries: Answer, words: str = TOPIC * 3) -> None:
        """Nothing was asked yet."""
        super().__init__([words])
        self.summaries = list(summaries) or [[SUMMARY]]
        self.asked: list[Request] = []
        self.told: list[Request] = []
        self._words = words

    async def stream(self, request: Request):  # type: ignore[no-untyped-def]  # noqa: ANN201
        """Answer, or sum up."""
        if is_summary(request):
            self.asked.append(request)
            chosen = self.summaries[min(len(self.asked), len(self.summaries)) - 1]
            self._answers = (chosen,)
        else:
            self.told.append(request)
            self._answers = ([self._words],)
        async for event in super().stream(request):
            yield event


async def talk(on: Stage, turns: int, start: int = 0) -> None:
    """Have so many exchanges, each with a word of its own."""
    for number in range(start, start + turns):
        await on.ask(f"marker-{number} {TOPIC}")


async def last_request(on: Stage, model: Summing) -> str:
    """Say one more thing, and return all that the model is told then."""
    await on.ask("and now?")
    return str(model.told[-1].messages)
