"""The agent's device is one that careful clients talk to, and its identity can be restored."""

from __future__ import annotations

from pathlib import Path

from hansard.ports.channel import Post
from tests.channels.matrix.people import Account, Agent, Peer, channel_of, new_account, peer
from tests.channels.matrix.published import only_key, queried, signed_devices, verified
from tests.channels.matrix.synapse import Synapse


async def master_of(ann: Peer, bot: Account) -> str:
    """The agent's master key."""
    return only_key((await queried(ann, bot))["master_keys"][bot.user_id])


async def test_keys_query_proves_the_chain(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """The device is signed by the self-signing key, that by the master key, and the master key by the device."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Agent(channel_of(bot, synapse.url, home)) as agent:
        await agent.ready()
        assert agent.channel.trouble == ""
        keys = await queried(ann, bot)
        (device_id,) = keys["device_keys"][bot.user_id]
        assert await signed_devices(ann, bot) == {device_id}
        device_key = keys["device_keys"][bot.user_id][device_id]["keys"][f"ed25519:{device_id}"]
        assert verified(keys["master_keys"][bot.user_id], bot.user_id, device_id, device_key)


async def test_a_peer_that_trusts_only_signed_devices(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """A peer that shares keys only with cross-signed devices can talk with the agent, before and after a restart."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann:
        room_id = await ann.open_room(bot.user_id, encrypted=True)
        stranger = await unsigned_device(synapse, bot)
        cursor = ""
        for number in range(2):
            async with Agent(channel_of(bot, synapse.url, home), cursor) as agent:
                if not number:
                    chat = await agent.come()
                await ann.sync()
                signed = await signed_devices(ann, bot)
                assert stranger not in signed
                for device in ann.client.device_store.active_user_devices(bot.user_id):
                    trust = ann.client.verify_device if device.id in signed else ann.client.blacklist_device
                    trust(device)
                content = {"msgtype": "m.text", "body": f"in confidence {number}"}
                # Without ignore_unverified_devices nio raises if any device is neither trusted nor refused.
                await ann.client.room_send(room_id, "m.room.message", content)
                assert (await agent.next()).text == content["body"]
                await agent.channel.send(Post(key=f"u{number}", chat=chat, markdown="understood"))
                cursor = agent.cursor
        assert [event.body for event in await ann.sees(room_id)].count("understood") == 2


async def unsigned_device(synapse: Synapse, bot: Account) -> str:
    """Another device of the agent's account, which nobody has signed."""
    thief = Peer(synapse, bot, Path(synapse.folder) / "thief")
    await thief.start()
    device_id = str(thief.client.device_id)
    await thief.client.close()
    thief.client.store.database.close()
    return device_id


async def test_a_new_home_from_the_recovery_key(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """The recovery key restores the identity in a new home: the same master key, and the new device is signed."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann:
        async with Agent(channel_of(bot, synapse.url, home)) as agent:
            await agent.ready()
        master = await master_of(ann, bot)
        text = (home / "matrix" / "recovery-key").read_text().strip()
        given = {"HANSARD_MATRIX_PASSWORD": bot.password, "HANSARD_MATRIX_RECOVERY_KEY": text}
        async with Agent(channel_of(bot, synapse.url, tmp_path / "other", given)) as later:
            await later.ready()
            assert later.channel.trouble == ""
        assert await master_of(ann, bot) == master
        assert len(await signed_devices(ann, bot)) == 2


async def test_an_identity_is_never_replaced_unasked(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """Without the recovery key a new home says what to do and leaves the identity; asked to, it makes a new one."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann:
        async with Agent(channel_of(bot, synapse.url, home)) as agent:
            await agent.ready()
        master = await master_of(ann, bot)
        other = tmp_path / "other"
        async with Agent(channel_of(bot, synapse.url, other)) as later:
            await later.ready()
            assert "HANSARD_MATRIX_RECOVERY_KEY" in later.channel.trouble
        assert await master_of(ann, bot) == master
        wrong = {"HANSARD_MATRIX_PASSWORD": bot.password, "HANSARD_MATRIX_RECOVERY_KEY": "EsTx 1234"}
        async with Agent(channel_of(bot, synapse.url, other, wrong)) as later:
            await later.ready()
            assert "recovery key" in later.channel.trouble
        asked = {"HANSARD_MATRIX_PASSWORD": bot.password, "HANSARD_MATRIX_NEW_IDENTITY": "yes"}
        for _ in range(2):
            async with Agent(channel_of(bot, synapse.url, other, asked)) as later:
                await later.ready()
                assert later.channel.trouble == ""
            assert await master_of(ann, bot) != master
            replaced = await master_of(ann, bot)
        assert await master_of(ann, bot) == replaced
        async with Agent(channel_of(bot, synapse.url, home)) as agent:
            await agent.ready()
            assert "replaced elsewhere" in agent.channel.trouble


async def test_an_access_token_is_enough(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """With a token only, the agent's first identity is made and signed; replacing one asks for the password."""
    bot = new_account(synapse, "bot")
    user = {"type": "m.id.user", "user": bot.user_id}
    body = {"type": "m.login.password", "identifier": user, "password": bot.password}
    async with peer(synapse, tmp_path) as ann:
        login = await ann.raw("POST", "/_matrix/client/v3/login", body)
        token = {"HANSARD_MATRIX_TOKEN": login["access_token"]}
        async with Agent(channel_of(bot, synapse.url, home, token)) as agent:
            await agent.ready()
            assert agent.channel.trouble == ""
        assert await signed_devices(ann, bot) == {login["device_id"]}
        async with Agent(channel_of(bot, synapse.url, tmp_path / "other", token)) as later:
            await later.ready()
            assert "token of a new device" in later.channel.trouble
        login = await ann.raw("POST", "/_matrix/client/v3/login", body)
        asked = {"HANSARD_MATRIX_TOKEN": login["access_token"], "HANSARD_MATRIX_NEW_IDENTITY": "yes"}
        async with Agent(channel_of(bot, synapse.url, tmp_path / "third", asked)) as later:
            await later.ready()
            assert "HANSARD_MATRIX_PASSWORD once" in later.channel.trouble


async def test_secrets_are_private(synapse: Synapse, home: Path) -> None:
    """Every file of the folder is for its owner only."""
    bot = new_account(synapse, "bot")
    async with Agent(channel_of(bot, synapse.url, home)) as agent:
        await agent.ready()
        folder = home / "matrix"
        assert folder.stat().st_mode & 0o777 == 0o700
        modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert {"login.json", "cross-signing.json", "recovery-key", "pickle-key"} <= set(modes)
    assert set(modes.values()) == {0o600}
