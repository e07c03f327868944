"""What the tests of what was shown share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.shown.nursery import close_nursery
from tests.tally import Tally


@pytest.fixture(scope="session")
def tally() -> Tally:
    """Where the counts of this run go."""
    return Tally("shown")


@pytest.fixture(scope="session", autouse=True)
def nursery_closed() -> Iterator[None]:
    """Leave no nursery running."""
    yield
    close_nursery()
