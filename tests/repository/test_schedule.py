"""One worker gets a whole unit of tests, the long units first (tests/schedule.py)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]

from tests.repository.repository import ROOT
from tests.schedule import UNITS, UnitScheduling, rank_of

COLLECTED = [
    "tests/engine/test_budgets.py::test_one",
    "tests/engine/test_budgets.py::test_two",
    "tests/domain/test_ids.py::test_one[a::b]",
    "tests/domain/test_ids.py::test_one[c]",
    "tests/models/test_demo.py::test_one",
    "tests/acceptance/shown/test_demo.py::test_one",
    "tests/models/test_answers.py::test_one",
    "tests/gateway/test_synapse_weather.py::test_one",
]


class Worker:
    """What the scheduler sees of a worker: it is told which tests to run."""

    shutting_down = False
    gateway = SimpleNamespace(id="a worker")

    def __init__(self) -> None:
        self.told: list[list[int]] = []

    def send_runtest_some(self, indexes: list[int]) -> None:
        """Remember what to run."""
        self.told.append(indexes)

    def shutdown(self) -> None:
        """Get no more."""
        self.shutting_down = True


@pytest.mark.parametrize("begin", [begin for begins in UNITS.values() for begin in begins])
def test_a_unit_has_files(begin: str) -> None:
    """Each beginning in the table is of a file that is there: one that was renamed has left its unit."""
    assert [*ROOT.glob(f"{begin}*")]


def test_a_worker_gets_a_whole_unit_and_the_long_ones_first() -> None:
    """Handed out are units, never parts of them, in the order of the table; the others come after them."""
    collected = sorted(COLLECTED, key=rank_of)
    config = SimpleNamespace(getvalue=lambda _name: ["popen"] * 2, option=SimpleNamespace(loadscopereorder=False))
    scheduling = UnitScheduling(config, Producer("test"))
    workers = [Worker(), Worker()]
    for worker in workers:
        scheduling.add_node(worker)
        scheduling.add_node_collection(worker, collected)
    scheduling.schedule()
    done: list[list[str]] = []
    while any(worker.told for worker in workers):
        for worker in workers:
            for indexes in [worker.told.pop(0)] if worker.told else []:
                done.append([collected[index] for index in indexes])
                for index in indexes:
                    scheduling.mark_test_complete(worker, index)
    assert done == [
        ["tests/gateway/test_synapse_weather.py::test_one"],
        ["tests/models/test_demo.py::test_one", "tests/acceptance/shown/test_demo.py::test_one"],
        ["tests/models/test_answers.py::test_one"],
        ["tests/engine/test_budgets.py::test_one", "tests/engine/test_budgets.py::test_two"],
        ["tests/domain/test_ids.py::test_one[a::b]", "tests/domain/test_ids.py::test_one[c]"],
    ]


def test_this_run_is_in_order(request: pytest.FixtureRequest) -> None:
    """The tests of this run were collected in the order of the table: workers are given units in that order."""
    ranks = [rank_of(item.nodeid) for item in request.session.items]
    assert ranks == sorted(ranks)
