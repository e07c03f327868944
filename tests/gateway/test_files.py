"""Files that the agent sends, on a real homeserver."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from nio.crypto.attachments import decrypt_attachment

from hansard.delivery.audit import audit_chat
from hansard.delivery.dispatch import Dispatcher
from hansard.domain.messages import File, Message, Text
from hansard.ports.channel import EventKind, LocalFile, Post
from hansard.record.api import Record
from tests.channels.matrix.people import Agent, Peer, channel_of, new_account, peer, room_of
from tests.channels.matrix.synapse import Synapse

pytestmark = pytest.mark.slow

WAIT_SECONDS_MAX = 120.0
PICTURE = bytes(range(256)) * 500


async def files_seen(person: Peer, room_id: str) -> list[tuple[str, bytes]]:
    """Return the files of a room as a member's client downloads them; keys are those of the events it decrypted."""
    found = []
    for event in await person.sees(room_id):
        content = event.source["content"]
        if content["msgtype"] in {"m.image", "m.file"}:
            url = content["file"]["url"] if "file" in content else content["url"]
            answer = await person.client.download(url)
            data = answer.body
            if "file" in content:
                data = decrypted(data, content["file"])
            found.append((content["body"], data))
    return found


def decrypted(data: bytes, keys: dict[str, object]) -> bytes:
    """Decrypt a file as a client does."""
    plain: bytes = decrypt_attachment(data, keys["key"]["k"], keys["hashes"]["sha256"], keys["iv"])  # type: ignore[index]
    return plain


@pytest.mark.loss("E4")
@pytest.mark.drawn(1)
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
async def test_files_of_an_answer(synapse: Synapse, home: Path, tmp_path: Path, *, encrypted: bool) -> None:
    """Words, then each file, byte for byte; sent again under its key nothing is shown twice; the audit is content."""
    account = new_account(synapse, "agent")
    channel = channel_of(account, synapse.url, home)
    async with peer(synapse, tmp_path) as person, Agent(channel) as agent, Record.open(home / "record") as record:
        await agent.ready()
        room_id = await person.open_room(account.user_id, encrypted=encrypted)
        chat = await agent.come()
        assert room_of(chat) == room_id
        await person.say(room_id, "show me")
        said = await agent.next()
        assert said.kind is EventKind.MESSAGE
        session = await record.create_session(source="matrix", owner="person:ann")
        await record.append(session.id, Message.user("show me", author=person.user_id, chat=chat, event_id=said.id))
        image = File(
            blob=await record.blobs.put(PICTURE), name="curve.png", media_type="image/png", size_bytes=len(PICTURE)
        )
        table = File(blob=await record.blobs.put(b"a,b"), name="table.csv", media_type="text/csv", size_bytes=3)
        await record.append(session.id, Message.assistant([Text("Two files."), image, table], chat=chat))
        errors: list[BaseException] = []
        dispatcher = Dispatcher(record, channel, timeline=channel, report=lambda _, error: errors.append(error))
        task = asyncio.create_task(dispatcher.run())
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await dispatcher.drained()
        deliveries = [each for each in await record.deliveries.list(session_id=session.id) if each.file]
        assert [each.state for each in deliveries] == ["sent", "sent"]
        local = LocalFile(data=PICTURE, name="curve.png", media_type="image/png")
        again = await channel.send(Post(key=deliveries[0].id, chat=chat, markdown="", files=(local,)))
        assert again == deliveries[0].receipt
        assert await files_seen(person, room_id) == [("curve.png", PICTURE), ("table.csv", b"a,b")]
        bodies = [event.source["content"]["body"] for event in await person.sees(room_id)]
        assert bodies == ["show me", "Two files.", "curve.png", "table.csv"]
        audit = await audit_chat(record, channel, "matrix", account.user_id, chat)
        assert audit.ok, audit.differences
        assert (audit.by_agent, errors) == (3, [])
        task.cancel()
        await asyncio.wait({task})
