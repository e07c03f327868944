"""An actor: a process that opens homes as another user, can do an accident in the middle of an opening, and probes.

`python -m tests.crash.accidents.worker`; it is told what to do line by line, like `tests.record.helpers_worker`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import apsw

import hansard
from hansard import File, HansardError, Message, Record, Text
from hansard.domain.ids import HOME_JOURNAL
from hansard.journal.store import Wiring
from hansard.record.search.index import search_index
from tests.crash.accidents.deeds import HIT, NOBODY, OPEN, OTHER, SPARE, do_accident
from tests.record.helpers_worker import Servant, serve_lines

BLOB = b"the bytes of an attachment"
PATIENCE_SECONDS = 60.0


def become(user: int) -> None:
    """Go on as another user; a process of root's can always come back."""
    if os.getuid() == 0:
        os.seteuid(0)
        os.seteuid(user)


class Actor(Servant):
    """One process of a cell."""

    def __init__(self) -> None:
        """Nothing is open."""
        super().__init__(Path(), PATIENCE_SECONDS, None)

    async def do_source(self, _order: dict[str, Any]) -> str:
        """Return the folder from which this process imported Hansard."""
        return str(Path(hansard.__file__).parent.parent)

    async def do_open(self, order: dict[str, Any]) -> str:
        """Open a home as nobody; with `accident`, that happens when the recovery reaches its first journal."""
        become(NOBODY)
        left = [order["accident"]] if "accident" in order else []

        def reach(step: str) -> None:
            if left and step == "reconciling":
                stock, home, row, accident = left.pop()
                become(0)
                do_accident(Path(stock), Path(home), row, accident)
                become(NOBODY)

        self.wiring = Wiring(reach=reach)
        self.patience_seconds = order.get("patience", PATIENCE_SECONDS)
        return await super().do_open(order)

    async def do_close(self, order: dict[str, Any]) -> None:
        """Leave the turn and the home, and be root again."""
        try:
            await self.reply_stack.aclose()
            await self.turn_stack.aclose()
        finally:
            self.reply = self.turn = None
            self.reply_stack, self.turn_stack = AsyncExitStack(), AsyncExitStack()
            try:
                await super().do_close(order)
            finally:
                self.opened = AsyncExitStack()
                become(0)

    async def do_attach(self, order: dict[str, Any]) -> int:
        """Append a message with an attachment."""
        digest = await self.here.blobs.put(BLOB)
        message = Message.user([Text(text="see"), File(blob=digest, size_bytes=len(BLOB))], id=order["id"])
        return (await self.here.append(HIT, message)).seq

    async def do_route(self, order: dict[str, Any]) -> None:
        """Write to the home's own journal."""
        await self.here.routes.move(order["key"], HIT)

    async def do_index(self, _order: dict[str, Any]) -> None:
        """Index everything."""
        while (await asyncio.to_thread(search_index(self.here.store).step)).more:
            pass

    async def do_checkpoint(self, order: dict[str, Any]) -> None:
        """Copy the WAL of a home that is closed into its database, and empty it."""
        connection = apsw.Connection(str(Path(order["home"]) / "state.db"))
        connection.set_busy_timeout(60_000)
        ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        assert not busy, "somebody reads: the WAL was not emptied"
        connection.close()

    async def do_write_all(self, order: dict[str, Any]) -> dict[str, Any]:
        """Write to every journal, one call after the other; tell what was acknowledged and what was refused."""
        name = order["name"]
        reply = {"reply": await self.attempt(self.end_reply)} if self.reply is not None else {}
        return reply | {
            "home": await self.attempt(lambda: self.here.routes.move(f"key-{name}", OTHER)),
            "hit": await self.attempt(lambda: self.here.append(HIT, Message.user("more", id=f"hit-{name}"))),
            "other": await self.attempt(lambda: self.here.append(OTHER, Message.user("more", id=f"other-{name}"))),
            "blob": await self.attempt(lambda: self.here.blobs.put(f"blob {name}".encode())),
        }

    async def end_reply(self) -> None:
        """Go on with the reply that is open here, and seal it."""
        assert self.reply is not None
        await self.reply.write("on")
        await self.reply_stack.aclose()
        self.reply = None
        await self.turn_stack.aclose()

    async def do_read_all(self, order: dict[str, Any]) -> dict[str, Any]:
        """Read everything back: `keys` are routes, `blobs` names of attachments that were acknowledged."""
        return {
            HIT: await self.attempt(lambda: self.ids(HIT)),
            OTHER: await self.attempt(lambda: self.ids(OTHER)),
            OPEN: await self.attempt(lambda: self.ids(OPEN)),
            SPARE: await self.attempt(lambda: self.ids(SPARE)),
            HOME_JOURNAL: await self.attempt(lambda: self.lost_keys(order["keys"])),
            "texts": await self.attempt(self.open_texts),
            "blob": await self.attempt(lambda: self.read_blobs(order["blobs"])),
            "search": await self.attempt(self.find),
            "verify": await self.attempt(lambda: self.do_verify({})),
        }

    async def do_is_indexed(self, _order: dict[str, Any]) -> bool:
        """Index everything; return whether searches then use the index, and it finds every message."""
        await self.do_index({})
        index = search_index(self.here.store)
        return index.read(lambda snapshot: snapshot is not None) and not index.finds_drift()

    async def ids(self, session_id: str) -> list[str]:
        """Return the ids of a transcript."""
        return [message.id for message in await self.here.load_transcript(session_id)]

    async def open_texts(self) -> list[list[str]]:
        """Return what was said in the session whose message was open, as [id, text]."""
        return [[message.id, message.text] for message in await self.here.load_transcript(OPEN)]

    async def lost_keys(self, keys: list[str]) -> list[str]:
        """Return those keys that lead to no session."""
        return [key for key in keys if await self.here.routes.read(key) is None]

    async def read_blobs(self, names: list[str]) -> bool:
        """Return whether the attachments are what they were."""
        for name in names:
            data = f"blob {name}".encode()
            if await self.here.blobs.read(hashlib.sha256(data).hexdigest()) != data:
                return False
        for message in await self.here.load_transcript(HIT):
            for part in message.parts:
                if isinstance(part, File):
                    return await self.here.blobs.read(part.blob) == BLOB
        return False

    async def find(self) -> list[str]:
        """Return the ids of messages that a search finds."""
        return [hit.message.id for hit in await self.here.search("needle", limit=50)]

    async def attempt(self, call: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401
        """Return what a call gives, or its error."""
        try:
            result = await call()
        except HansardError as error:
            return {"error": type(error).__name__, "message": f"{error}\n{error.hint}"}
        return result if isinstance(result, (bool, list)) else True


async def warm_up() -> None:
    """Use everything once as the user who started this: another one may not be able to read Python's own modules."""
    with tempfile.TemporaryDirectory() as name:
        actor = Actor()
        async with Record.open(Path(name) / "home") as actor.record:
            await actor.record.create_session(id=HIT, source="test")
            await actor.do_attach({"id": "warm"})
            async with actor.record.turn(HIT) as turn, turn.reply(id="reply") as reply:
                await reply.write("warm")
            await actor.attempt(lambda: actor.ids("none"))
            await actor.do_read_all({"keys": [], "blobs": []})
            await actor.do_is_indexed({})


async def main() -> None:
    """Serve."""
    await warm_up()
    await serve_lines(Actor())


if __name__ == "__main__":
    asyncio.run(main())
