"""What the tests of what was shown share."""

from __future__ import annotations

import pytest

from tests.shown.tally import Tally, tally_path


@pytest.fixture(scope="session")
def tally() -> Tally:
    """Where the counts of this run go."""
    return Tally(tally_path())
