"""The parts of the work that bench/profiles.py tells apart: the one table to read, and to change when code moves.

Every stack belongs to exactly one part: to the first that has one of its frames `within`; or else to that of its
innermost frame which lies in any of the `places`; or else to the first that it lies `beneath`; or else to the rest.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the work. A place is a folder, a file, or `file.py:function`."""

    title: str
    within: tuple[str, ...] = ()
    """Everything that is done for a frame of these places."""
    places: tuple[str, ...] = ()
    """What is done there, and by whatever it calls that lies in no place."""
    beneath: tuple[str, ...] = ()
    """Everything with a frame of these that belongs nowhere else."""


ELSE = "everything else"
INDEX = Part(title="search index, in the background", within=("hansard/record/search/",))
KEEPER = Part(
    title="log fsyncs, checkpoints, hearing of other processes: in the background",
    within=("sqlite/keeper.py", "sqlite/watching.py"),
)
RECORD_PARTS = (
    INDEX,
    KEEPER,
    Part(
        title="telling followers",
        places=(
            *("follow.py:ring", "follow.py:ring_all", "follow.py:tell_listeners", "locks.py:ring"),
            "database.py:_note_wal",
        ),
    ),
    Part(title="followers read what is new", within=("journal/follow.py:follow_pages",), places=("journal/follow.py",)),
    Part(
        title="handing over between threads, sleeping, waking",
        places=(
            *("journal/queue.py", "journal/calls.py", "asyncio/selector_events.py", "selectors.py"),
            *("/threading.py", "concurrent/futures/", "base_events.py:call_soon_threadsafe"),
        ),
    ),
    Part(title="the write lock, taken and released", places=("journal/locks.py",)),
    Part(
        title="looking at files (stat), reading stamps of the WAL",
        places=(
            *("files.py:stat_file", "files.py:was_replaced", "files.py:is_there", "files.py:check"),
            *("database.py:same", "database.py:check_place", "reading.py:look_at", "reading.py:files_fit"),
            *("connection.py:look_at_files", "connection.py:file_size", "sqlite/stamps.py"),
        ),
    ),
    Part(title="SQLite: COMMIT with its fsync", places=("group.py:commit",)),
    Part(
        title="SQLite: statements",
        places=(
            *("group.py:row", "group.py:rows", "group.py:add", "group.py:create", "group.py:store_head"),
            *("group.py:extend", "group.py:end_stream", "database.py:begin", "database.py:known"),
            *("connection.py:fetch", "sqlite/reading.py"),
        ),
    ),
    Part(title="the log line, the part file", places=("journal/files.py", "group.py:_write_files")),
    Part(
        title="making, checking and encoding the message, hashing",
        places=(
            *("journal/entries.py", "concepts.py:encode_body", "group.py:_encode_lines", "domain/messages.py"),
            *("domain/text.py", "messages/entries.py", "messages/operations.py:offer"),
        ),
    ),
    Part(
        title="the writer's own steps and checks",
        places=("journal/", "hansard/record/messages/", "turns/operations.py", "record/sessions.py"),
    ),
    Part(
        title="the caller's loop and coroutines",
        places=("bench/workers/", "hansard/record/", "hansard/tasks.py"),
        beneath=("asyncio/",),
    ),
)
CHAT_PARTS = (
    INDEX,
    KEEPER,
    Part(title="record writes (the writer's thread)", within=("journal/writer.py", "journal/store.py:_write")),
    Part(title="record reads (threads)", within=("sqlite/reading.py", "concurrent/futures/thread.py:_worker")),
    Part(title="the record's calls in the event loop", places=("hansard/journal/", "hansard/record/")),
    Part(
        title="HTTP client (httpx, httpcore, h11, anyio)",
        places=("/httpx/", "/httpcore/", "/h11/", "/anyio/", "/sniffio/"),
    ),
    Part(title="Telegram's channel and its library", places=("channels/telegram/", "site-packages/telegram/")),
    Part(title="the Matrix-like channel of the tests", places=("hansard/testing/", "tests/")),
    Part(title="receiving and intake", places=("hansard/intake/", "hansard/gateway/")),
    Part(title="delivery", places=("hansard/delivery/",)),
    Part(title="model stub", places=("hansard/models/",)),
    Part(title="engine", places=("hansard/engine/",)),
    Part(
        title="the benchmark itself",
        places=(
            "gateway_scene.py:ask",
            "gateway_scene.py:read_line",
            "gateway_scene.py:sample_on",
            "gateway_scene.py:sample",
        ),
    ),
    Part(title="event loop itself", beneath=("asyncio/",)),
)


def lies_in(frame: str, place: str) -> bool:
    """Whether a frame, `path/file.py:function`, lies in a place."""
    return frame.endswith(place) if ".py:" in place else place in frame


def find_part(stack: list[str], parts: tuple[Part, ...]) -> str:
    """The part of a stack, which is given innermost first."""
    for part in parts:
        if any(lies_in(frame, place) for place in part.within for frame in stack):
            return part.title
    for frame in stack:
        for part in parts:
            if any(lies_in(frame, place) for place in part.places):
                return part.title
    for part in parts:
        if any(lies_in(frame, place) for place in part.beneath for frame in stack):
            return part.title
    return ELSE
