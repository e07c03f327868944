"""Which worker of pytest-xdist runs which test: the tests of a file stay together, and the long ones start first.

pytest-xdist 3.8 loses its own marks for groups under pytest 9.2, and it knows nothing of how long tests take. A unit
of work is a file here, or a group of files that share what takes long to set up (a homeserver, a parsed repository, the
libraries of the providers), so that one worker sets it up once. A unit that starts late and takes long is the tail of a
run, in which the other workers have nothing to do: the units below are begun in this order, and the others after them.
"""

from __future__ import annotations

from functools import cache

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.counts import PROVE

UNITS: dict[str, tuple[str, ...]] = {
    "a homeserver for channels": (
        "tests/channels/matrix/test_suite_matrix.py",
        "tests/channels/matrix/test_company.py",
        "tests/channels/matrix/test_encryption.py",
        "tests/channels/matrix/test_identity.py",
        "tests/channels/matrix/test_login.py",
        "tests/channels/matrix/test_older_keys.py",
        "tests/channels/matrix/test_receive.py",
        "tests/channels/matrix/test_send.py",
        "tests/security/test_s07_unreadable_events.py",
        "tests/security/test_s13_direct_chats.py",
        "tests/security/test_s13_matrix_identity.py",
        "tests/security/test_flood_synapse.py",
    ),
    "kills at every step": ("tests/crash/test_kills.py",),
    "a homeserver that dies": ("tests/gateway/test_synapse_weather.py",),
    "a homeserver for gateways": (
        "tests/gateway/test_synapse",
        "tests/gateway/test_documented.py",
        "tests/gateway/test_files.py",
        "tests/gateway/test_hops.py",
        "tests/gateway/test_reload_real.py",
    ),
    "the demo model": (
        "tests/models/test_demo.py",
        "tests/acceptance/shown/test_demo.py",
        "tests/models/validity/test_real_server.py",
    ),
    "the providers' libraries": (
        "tests/models/",
        "tests/acceptance/test_prefix_stability.py",
        "tests/security/test_s17_redirects.py",
    ),
    "gateways on Telegram": (
        "tests/channels/telegram/test_asking.py",
        "tests/channels/telegram/test_documented.py",
        "tests/channels/telegram/test_gateway.py",
        "tests/channels/telegram/test_kills.py",
    ),
    "programs that ask providers": ("tests/acceptance/shown/",),
    "servers of tools": ("tests/tools/test_mcp.py",),
    "the search index": ("tests/record/search/test_index.py",),
    "writers beside searches": ("tests/record/search/test_writers.py",),
    "power cuts": ("tests/crash/test_power_cut.py",),
    "answers without an end": ("tests/security/test_s15", "tests/security/test_s18"),
    "the repository, parsed": (
        "tests/repository/test_citations.py",
        "tests/repository/test_glossary.py",
        "tests/repository/test_links.py",
        "tests/repository/test_tidy.py",
    ),
}
"""The beginnings of the paths of each unit's files. A file belongs to the first unit that fits."""

SPREAD = (
    ("tests/acceptance/shown/", "tests/crash/", "tests/journal/test_rebuild.py", "tests/security/test_flood.py")
    if PROVE
    else ()
)
"""Files of which each test is a unit of its own: with the counts of a proof they take long."""


@cache
def unit_of_file(path: str) -> str:
    """Return the unit of a file's tests: a named one, or the file."""
    return next((unit for unit, begins in UNITS.items() if path.startswith(begins)), path)


def unit_of(nodeid: str) -> str:
    """Return the unit of work that a test belongs to."""
    path = nodeid.partition("::")[0]
    return nodeid if path.startswith(SPREAD) else unit_of_file(path)


def rank_of(nodeid: str) -> int:
    """Return how early a test's unit begins: its place among the named ones, or after all of them."""
    return [*UNITS, unit_of(nodeid)].index(unit_of(nodeid))


class UnitScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives a worker a whole unit, in the order in which the tests were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
