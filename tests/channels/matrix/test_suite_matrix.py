"""The Matrix channel keeps the contracts of the channel suite, on a real homeserver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hansard.channels.matrix import MatrixChannel
from hansard.ports.channel import Channel
from hansard.testing.channel_suite import Ability, Seen, run_channel_suite
from hansard.testing.platform import FaultKind
from tests.channels.matrix.people import Account, Peer, channel_of, new_account, peer, room_of
from tests.channels.matrix.proxy import Proxy
from tests.channels.matrix.synapse import Synapse

SENDING = b"PUT /_matrix/client/v3/rooms"


class MatrixStage:
    """Ann and Ben with their own clients, and a proxy between the agent and the homeserver."""

    abilities = frozenset(Ability)

    def __init__(self, synapse: Synapse, proxy: Proxy, home: Path, bot: Account, people: tuple[Peer, Peer]) -> None:
        """Everybody is there."""
        self._synapse, self._proxy, self._home, self._bot = synapse, proxy, home, bot
        self._ann, self._ben = people
        self._channel: MatrixChannel | None = None
        self.secrets = (bot.password,)

    async def open(self) -> Channel:
        """Open the channel, behind the proxy."""
        self._channel = channel_of(self._bot, self._proxy.url, self._home)
        return self._channel

    async def direct(self) -> str:
        """Invite the agent."""
        return await self._come(await self._ann.open_room(self._bot.user_id))

    async def room(self) -> str:
        """Invite the agent and Ben."""
        room_id = await self._ann.open_room(self._bot.user_id, self._ben.user_id, direct=False)
        await self._ben.client.join(room_id)
        return await self._come(room_id)

    async def _come(self, room_id: str) -> str:
        self._proxy.drop = self._proxy.lose_answer_to = b""
        assert self._channel is not None
        chat = f"matrix:room:{room_id}"
        await self._channel.answer(chat, accept=True)
        return chat

    async def say(self, chat: str, text: str, *, second: bool = False, to_agent: bool = False) -> str:
        """Let somebody speak, in the thread that the chat names."""
        content: dict[str, Any] = {"m.mentions": {"user_ids": [self._bot.user_id]}} if to_agent else {}
        root = chat.partition(":thread:")[2]
        if root:
            content["m.relates_to"] = {"rel_type": "m.thread", "event_id": root}
        return await (self._ben if second else self._ann).say(room_of(chat), text, **content)

    async def edit(self, chat: str, event_id: str, text: str) -> None:
        """Let Ann change her words."""
        new = {"msgtype": "m.text", "body": text}
        related = {"rel_type": "m.replace", "event_id": event_id}
        await self._ann.say(room_of(chat), f"* {text}", **{"m.new_content": new, "m.relates_to": related})

    async def delete(self, chat: str, event_id: str) -> None:
        """Let Ann take back her words."""
        await self._ann.client.room_redact(room_of(chat), event_id)

    async def seen(self, chat: str) -> list[Seen]:
        """Read the room as Ann's client does."""
        shown: dict[str, Seen] = {}
        root = chat.partition(":thread:")[2]
        for event in await self._ann.sees(room_of(chat)):
            content = event.source["content"]
            relation = content.get("m.relates_to", {})
            if relation.get("rel_type") == "m.replace":
                shown[relation["event_id"]] = await self._one(event.sender, content["m.new_content"])
            elif relation.get("event_id", "") == root:
                shown[event.event_id] = await self._one(event.sender, content)
        return list(shown.values())

    async def _one(self, sender: str, content: dict[str, Any]) -> Seen:
        file = None
        if "url" in content:
            file = (await self._ann.client.download(content["url"])).body
        return Seen(
            text=content["body"],
            is_agents=sender == self._bot.user_id,
            markup=content.get("formatted_body", ""),
            rings=bool(content.get("m.mentions", {"room": True})),
            file=file,
        )

    async def thread(self, chat: str) -> str:
        """Begin a thread."""
        return f"{chat}:thread:{await self._ann.say(room_of(chat), 'a subject')}"

    async def send_file(self, chat: str, name: str, data: bytes) -> None:
        """Let Ann send a file."""
        async with self._ann.client.client_session.post(
            f"{self._synapse.url}/_matrix/media/v3/upload",
            data=data,
            headers={"Authorization": f"Bearer {self._ann.client.access_token}"},
        ) as answer:
            address = (await answer.json())["content_uri"]
        content = {"msgtype": "m.file", "body": name, "url": address, "info": {"size": len(data)}}
        await self._ann.send(room_of(chat), content)

    async def choose(self, chat: str, receipt: str, choice: str, *, second: bool = False) -> None:
        """Let somebody react."""
        key = {"yes": "👍", "no": "👎"}[choice]
        related = {"rel_type": "m.annotation", "event_id": receipt, "key": key}
        person = self._ben if second else self._ann
        await person.send(room_of(chat), {"m.relates_to": related}, "m.reaction")

    async def remove(self, chat: str) -> None:
        """Let Ann send the agent away."""
        await self._ann.client.room_kick(room_of(chat), self._bot.user_id)

    async def fail(self, kind: FaultKind) -> None:
        """Break the connection at the next post, or let it be one too many."""
        # The HTTP client repeats an idempotent request by itself when a connection that it had kept is closed.
        self._proxy.breaks_left = 2
        if kind is FaultKind.CUT_BEFORE:
            self._proxy.drop = SENDING
        elif kind is FaultKind.CUT_AFTER:
            self._proxy.lose_answer_to = SENDING
        else:
            self._proxy.refuse_next = SENDING

    async def down(self) -> None:
        """Let nobody reach the homeserver through the proxy."""
        await self._proxy.close()

    async def up(self) -> None:
        """Let them reach it again."""
        await self._proxy.__aenter__()


@pytest.mark.loss("E4", "E5", "E6", "F8", "F15", "F18")
async def test_matrix_keeps_the_contracts(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """The Matrix channel keeps every contract of the suite; none is skipped."""
    bot = new_account(synapse, "bot")
    async with (
        peer(synapse, tmp_path) as ann,
        peer(synapse, tmp_path, "ben") as ben,
        Proxy(synapse.port) as proxy,
    ):
        results = await run_channel_suite(MatrixStage(synapse, proxy, home, bot, (ann, ben)))
    assert not "\n".join(f"{each.contract.name}: {each.reason}" for each in results if each.outcome != "kept")
