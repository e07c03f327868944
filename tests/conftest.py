"""What every ring of tests shares: one seed a run, one async backend, a home to write in."""

from __future__ import annotations

import gc
import os
import random
import signal
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

from tests.costs import measure
from tests.counts import LONG, PROVE, times
from tests.schedule import UnitScheduling, rank_of

# Homes and settings that tests make are not open to a group, whatever the umask of whoever runs them.
os.umask(0o022)

# A shell that runs the tests in the background has them ignore Ctrl-C, and nohup a hang-up; so would each program that
# they interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

SLOW = [hypothesis.HealthCheck.too_slow]
"""A busy machine draws examples slowly. That is no fault of a test."""

# All print how to repeat a failure.
hypothesis.settings.register_profile(
    "hansard",
    max_examples=times(test=50, long=100, prove=2_000),
    print_blob=True,
    derandomize=False,
    deadline=None,
    suppress_health_check=SLOW,
)
hypothesis.settings.load_profile("hansard")

GARBAGE_THRESHOLDS = (20_000, 10, 10)
"""Objects made, and smaller collections, before a collection. Tests that make many objects take twice as long by the
interpreter's own thresholds, which were chosen for smaller programs."""

SEED_OPTION = "hypothesis_seed"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that `make test` gives: print what the tests cost (tests/costs.py)."""
    parser.addoption("--costs", action="store_true", help="print the slowest tests and each ring's processor seconds")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of this run before hypothesis reads it; workers of pytest-xdist are given the controller's."""
    if getattr(config.option, SEED_OPTION) is None:
        chosen = os.environ.get("HANSARD_SEED") or str(random.SystemRandom().randrange(2**32))
        setattr(config.option, SEED_OPTION, chosen)
        os.environ["HANSARD_SEED"] = chosen  # workers of pytest-xdist inherit it
    if config.getoption("costs"):
        measure(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected, and never again among what that made: it stays, and it is much."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> UnitScheduling:
    """Hand out whole units of work (tests/schedule.py), in the order in which tests were collected."""
    config.option.loadscopereorder = False
    return UnitScheduling(config, log)


def pytest_report_header(config: pytest.Config) -> str:
    """Print the seed, so that any run can be repeated."""
    return f"seed: {config.getoption(SEED_OPTION)} (repeat this run with HANSARD_SEED={config.getoption(SEED_OPTION)})"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """Print the seed once more beside the failures, where a person looks."""
    if exitstatus == pytest.ExitCode.TESTS_FAILED:
        terminalreporter.write_line(pytest_report_header(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put long tests first. In `make test`, skip all but some cases of each test marked `drawn(count, group)`.

    The run's seed draws them.
    """
    items.sort(key=lambda item: rank_of(item.nodeid))
    if LONG or PROVE:
        return
    groups: dict[tuple[int, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if (mark := item.get_closest_marker("drawn")) is not None:
            name = mark.args[1] if len(mark.args) > 1 else item.nodeid.partition("[")[0]
            groups[mark.args[0], name].append(item)
    for (count, name), cases in groups.items():
        draw = random.Random(f"{config.getoption(SEED_OPTION)} {name}")
        chosen = draw.sample(range(len(cases)), min(count, len(cases)))
        for index, item in enumerate(cases):
            if index not in chosen:
                item.add_marker(pytest.mark.skip(reason="not drawn by this run's seed: make test-long runs every case"))


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """The seed of this run; a test that draws by itself starts from it."""
    return int(pytestconfig.getoption(SEED_OPTION))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Hansard runs on asyncio, and so do its tests."""
    return "asyncio"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that does not exist yet, in a folder of this test's own."""
    return tmp_path / "home"
