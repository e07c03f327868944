"""One homeserver for all tests of a worker; each test has users and rooms of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.channels.matrix.synapse import Synapse, shared_server


@pytest.fixture(scope="session")
def synapse() -> Iterator[Synapse]:
    """A running homeserver without rate limits. It is the same one for every folder that has this fixture."""
    server = shared_server()
    if server is None:
        pytest.skip("Synapse cannot be installed here (scripts/synapse.py)")
    yield server
    server.close()
