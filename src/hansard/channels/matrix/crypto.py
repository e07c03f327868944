"""End-to-end encryption by matrix-nio's Olm machine, with requests of our own.

nio's client marks a room's key as shared although sending it failed, and never again offers it; its machine does not.
So the machine is used, and every request whose failure matters is made and checked here.

Invariants: what one to-device message changes is one transaction of the crypto store. A message is encrypted only
with a key that was sent to every device of every member that may have it (see `pins`), as they are known now. What a
ratchet encrypted is sent only after the stamp of the store changed (`DeviceStamp`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

from hansard.channels import Json, list_of, object_of, text_of
from hansard.channels.matrix.keeping import DeviceStamp, Keeping, Login
from hansard.channels.matrix.machine import new_fallback_keys, new_machine, queue_key_request, read_event
from hansard.channels.matrix.pins import Device, Pins, Trust
from hansard.channels.matrix.reading import ENCRYPTED
from hansard.channels.matrix.wire import MatrixWire, path
from hansard.errors import ChannelDown, ChannelError, HansardError, PostRefused

logger = logging.getLogger(__name__)

SIGNED: Final = "signed_curve25519"
DEVICE_QUERY_USERS_MAX: Final = 200
"""Asked about in one request."""
OTHERS_MS_MAX: Final = "3000"
"""For so many milliseconds the homeserver may wait for the homeservers of others. Most answers it has at hand."""
SILENT_SECONDS: Final = 300.0
"""Before a homeserver that did not answer is asked again. Its people cannot read what is said meanwhile."""
ROOM_KEYS_MAX: Final = 2000
"""Rooms whose outbound keys are kept between posts, those that were made last."""
UNUSABLE: Final = (
    "{path} cannot be used ({error}). If it is damaged, or pickle-key beside it is another one, move it aside and set "
    "HANSARD_MATRIX_PASSWORD: Hansard then logs in as a new device."
)


def open_store(user_id: str, device_id: str, keeping: Keeping) -> Any:  # noqa: ANN401  # nio is untyped
    from nio.store import SqliteStore

    name = keeping.make_store(device_id)
    return SqliteStore(user_id, device_id, str(keeping.folder), keeping.pickle_key(), name)


def parcels_of(messages: Sequence[Any]) -> list[list[Any]]:
    """Return to-device messages by the requests that carry them: one a recipient, all of one type."""
    parcels: list[list[Any]] = []
    for message in messages:
        last = parcels[-1] if parcels else []
        if last and last[0].type == message.type and all(each.recipient != message.recipient for each in last):
            last.append(message)
        else:
            parcels.append([message])
    return parcels


def room_keys_in(user_id: str, device_id: str, keeping: Keeping) -> tuple[set[str], list[Any]]:
    """Return the encrypted rooms, and the keys to read them, of another device; none when they cannot be read."""
    try:
        store = open_store(user_id, device_id, keeping)
        with closing(store.database):
            return set(store.load_encrypted_rooms()), list(store.load_inbound_group_sessions())
    except Exception as error:  # noqa: BLE001  # boundary: channel call
        logger.warning("the room keys of the device %s cannot be read: %s", device_id, type(error).__name__)
        return set(), []


class Crypto:
    """One device's keys, and what it does with them."""

    def __init__(self, wire: MatrixWire, keeping: Keeping, login: Login) -> None:
        self._wire, self._keeping = wire, keeping
        self.user_id, self.device_id = login.user_id, login.device_id
        self.store_path = keeping.folder / keeping.make_store(login.device_id)
        try:
            self._store = open_store(login.user_id, login.device_id, keeping)
            self._stamp = DeviceStamp(self._store.database, keeping, login.device_id)
            if self._stamp.is_current:
                self._stamp.renew()
            self.pins = Pins(keeping, login.user_id)
            self._olm: Any = new_machine(self.user_id, self.device_id, self._store, self.pins)
            self.encrypted_rooms: set[str] = set(self._store.load_encrypted_rooms())
        except (OSError, HansardError):
            raise
        except Exception as error:  # boundary: channel call
            raise ChannelDown(UNUSABLE.format(path=self.store_path, error=type(error).__name__)) from error
        self.is_older = not self._stamp.is_current
        """Whether the keys are an older copy. Its ratchets were used since, and must not be used again."""
        self.is_stranger = self.is_older
        """Whether the keys are older, or not those that others know. Nothing is then published and encrypted."""
        self._shared_with: dict[str, frozenset[tuple[str, str]]] = {}
        self._withholding = Withholding(self.pins)
        self._room_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._query_lock = asyncio.Lock()
        self._is_closed = False
        self._changed_meanwhile: set[str] = set()
        self._wants_fallback = False
        self._ask_again_at: dict[str, float] = {}

    @property
    def identity_keys(self) -> dict[str, str]:
        """The public keys of the device: `ed25519` and `curve25519`."""
        keys: dict[str, str] = self._olm.account.identity_keys
        return keys

    def close(self) -> None:
        """Let go of the crypto store. Upkeep beside may come once more: another device is logged in by then."""
        self._is_closed = True
        self._store.database.close()

    def take_over(self, device_id: str) -> None:
        """Take the room keys of this account's device of before, so that what was said then stays readable."""
        if not self._keeping.has_store(device_id):
            return
        rooms, sessions = room_keys_in(self.user_id, device_id, self._keeping)
        with self._storing(), self._store.database.atomic():
            self._store.save_encrypted_rooms(rooms)
            for session in sessions:
                self._store.save_inbound_group_session(session)
        self.encrypted_rooms |= rooms
        self._olm = new_machine(self.user_id, self.device_id, self._store, self.pins)

    def sign(self, value: Json) -> str:
        return str(self._olm.sign_json(value))

    def remember_encrypted(self, room_id: str) -> None:
        """A room that was encrypted once stays so, whatever the homeserver says later."""
        if room_id not in self.encrypted_rooms:
            with self._storing():
                self._store.save_encrypted_rooms({room_id})
            self.encrypted_rooms.add(room_id)

    def decrypt(self, room_id: str, raw: Json) -> Json | None:
        """Return the event that was encrypted, or None when its key is missing. Changes nothing that is kept."""
        return read_event(self._olm, room_id, raw)

    def is_unverified(self, room_id: str, raw: Json) -> bool:
        """Whether an event came to an encrypted room in the clear, or not from a device of its sender."""
        if text_of(raw, "type") != ENCRYPTED:
            return room_id in self.encrypted_rooms
        sender_key, session_id = text_of(raw, "content", "sender_key"), text_of(raw, "content", "session_id")
        session: Any = self._olm.inbound_group_store.get(room_id, sender_key, session_id)
        return session is None or not self.pins.vouches(text_of(raw, "sender"), Device(session.ed25519, sender_key))

    def take_sync(self, body: Json) -> set[str]:
        """Take what a sync brought for this device, all of it or nothing; return the ids of the room keys that came."""
        came: set[str] = set()
        with self._storing(), self._store.database.atomic():
            for raw in list_of(body, "to_device", "events"):
                came |= self._take_one(raw)
        counts = object_of(body, "device_one_time_keys_count")
        if counts:
            self._olm.uploaded_key_count = counts.get(SIGNED, 0)
        unused = body.get("device_unused_fallback_key_types")
        self._wants_fallback = isinstance(unused, list) and SIGNED not in unused
        known = set(self._olm.tracked_users)
        changed = {user for user in list_of(body, "device_lists", "changed") if isinstance(user, str) and user in known}
        self._olm.add_changed_users(changed)
        self._changed_meanwhile |= changed
        return came

    def _take_one(self, raw: object) -> set[str]:
        from nio.events import ForwardedRoomKeyEvent, RoomKeyEvent, ToDeviceEvent
        from peewee import PeeweeException

        try:
            with self._store.database.atomic():
                taken: Any = self._olm.handle_to_device_event(ToDeviceEvent.parse_event(raw))
                self._olm.collect_key_requests()
        except PeeweeException:
            raise
        except Exception as error:  # noqa: BLE001  # boundary: channel call
            # Anybody may send anything to a device; one bad message must not stop those behind it.
            logger.warning("a to-device message could not be taken: %s", type(error).__name__)
            return set()
        return {taken.session_id} if isinstance(taken, RoomKeyEvent | ForwardedRoomKeyEvent) else set()

    @contextmanager
    def _storing(self) -> Iterator[None]:
        """While keys change. If the store cannot be written, what is in memory is again what is stored."""
        from peewee import PeeweeException

        try:
            yield
        except (PeeweeException, OSError) as error:
            self._olm = new_machine(self.user_id, self.device_id, self._store, self.pins)
            raise ChannelDown(f"the store of encryption keys cannot be written: {type(error).__name__}") from error

    def request_key(self, room_id: str, raw: Json) -> None:
        """Queue a request for a missing room key, to the device that wrote the event and to our own others."""
        if not self.is_stranger:
            queue_key_request(self._olm, room_id, raw)

    async def upkeep(self) -> None:
        """Do what is due: publish keys, learn about devices, mend broken sessions, send what is queued."""
        if self.is_stranger or self._is_closed:
            return
        with self._storing():
            if self._olm.should_upload_keys or self._wants_fallback:
                await self._publish()
            if self._olm.users_for_key_query:
                await self._query(set(self._olm.users_for_key_query))
            if self._olm.wedged_devices or self._olm.key_request_devices_no_session:
                await self._claim(self._olm.get_users_for_key_claiming())
            due = list(self._olm.outgoing_to_device_messages)
            if due:
                self._stamp.renew()
            for together in parcels_of(due):
                body = {
                    user: devices for message in together for user, devices in message.as_dict()["messages"].items()
                }
                await self._send_to_device(together[0].type, {"messages": body})
                for message in together:
                    self._olm._mark_to_device_message_as_sent(message)  # noqa: SLF001  # as nio's client does

    def publish_again(self) -> None:
        """The homeserver no longer knows this device's keys: the next upkeep publishes all of them."""
        self._olm.account.shared = False

    async def _publish(self) -> None:
        from nio.responses import KeysUploadResponse

        content: Json = self._olm.share_keys() if self._olm.should_upload_keys else {}
        if self._wants_fallback or "device_keys" in content:
            content["fallback_keys"] = new_fallback_keys(self._olm, SIGNED)
        # Kept before they are offered: a crash in between must not leave keys on the server that we do not have.
        self._olm.save_account()
        self._stamp.renew()
        try:
            answer = await self._wire.ask("POST", path("keys", "upload"), content, what="publishing the device's keys")
        except PostRefused:
            # Keys of these names are there already: the store is older than what it published. New ones get new names.
            self._olm.mark_keys_as_published()
            self._olm.save_account()
            raise
        counts = {"curve25519": 0, SIGNED: 0} | object_of(answer, "one_time_key_counts")
        self._olm.handle_response(KeysUploadResponse.from_dict({"one_time_key_counts": counts}))
        self._wants_fallback = False

    async def _query(self, users: set[str]) -> None:
        from nio.responses import ErrorResponse, KeysQueryResponse

        async with self._query_lock:
            wanted = sorted(users)
            for start in range(0, len(wanted), DEVICE_QUERY_USERS_MAX):
                asked = wanted[start : start + DEVICE_QUERY_USERS_MAX]
                body: Json = {"device_keys": {user: [] for user in asked}, "timeout": int(OTHERS_MS_MAX)}
                self._changed_meanwhile.clear()
                answer = await self._wire.ask(
                    "POST", path("keys", "query"), body, what="asking for devices", query={"timeout": OTHERS_MS_MAX}
                )
                response: Any = KeysQueryResponse.from_dict(answer)
                if isinstance(response, ErrorResponse):
                    raise ChannelDown("asking for devices: the homeserver's answer is not as it must be")
                silent = {user for user in asked if user.partition(":")[2] in object_of(answer, "failures")}
                self.pins.take_keys(set(asked) - silent, answer)
                self._olm.handle_response(response)
                now = time.monotonic()
                due = {user: at for user, at in self._ask_again_at.items() if at > now}
                self._ask_again_at = due | dict.fromkeys(silent, now + SILENT_SECONDS)
                self._olm.tracked_users.update(set(asked) - silent)
                self._olm.users_for_key_query.difference_update(asked)
                # Whose devices changed while this was being answered is asked about again.
                self._olm.users_for_key_query.update(self._changed_meanwhile)

    async def _claim(self, devices: dict[str, list[str]]) -> None:
        from nio.responses import ErrorResponse, KeysClaimResponse

        wanted = {user: dict.fromkeys(ids, SIGNED) for user, ids in devices.items()}
        answer = await self._wire.ask(
            "POST", path("keys", "claim"), {"one_time_keys": wanted}, what="asking for one-time keys"
        )
        response: Any = KeysClaimResponse.from_dict(answer)
        if isinstance(response, ErrorResponse):
            raise ChannelDown("asking for one-time keys: the homeserver's answer is not as it must be")
        self._olm.handle_response(response)

    async def _send_to_device(self, kind: str, body: Json) -> None:
        target = path("sendToDevice", kind, secrets.token_urlsafe(16))
        await self._wire.ask("PUT", target, body, what="sending to devices")

    async def encrypt(self, room_id: str, members: Collection[str], kind: str, content: Json) -> Json:
        """Return the content of an encrypted event that every device of every member can read."""
        from nio.exceptions import EncryptionError

        if self.is_stranger:
            raise PostRefused(
                f"the keys of the device {self.device_id} are lost or too old, so nothing can be encrypted"
            )
        async with self._room_locks[room_id]:
            with self._storing():
                await self._share(room_id, members)
            try:
                encrypted: Json = self._olm.group_encrypt(room_id, {"type": kind, "content": content})
            except EncryptionError as error:
                # The key was replaced in between; the next attempt shares the new one.
                raise ChannelDown(f"encrypting: {type(error).__name__}") from error
        if "m.relates_to" in content:
            # Relations stay readable: homeservers group threads and edits by them.
            encrypted["m.relates_to"] = content["m.relates_to"]
        return encrypted

    async def _share(self, room_id: str, members: Collection[str]) -> None:
        """See that the room's key is with every device that may have it, and that the others are told why not."""
        await self.learn_devices(members)
        known = [device for user in members for device in self._olm.other_devices(user)]
        allowed = frozenset((device.user_id, device.id) for device in known if self._olm.may_have_keys(device))
        await self._share_with(room_id, members, allowed)
        refused = [device for device in known if (device.user_id, device.id) not in allowed]
        await self._withholding.tell(room_id, self._olm, refused, self._send_to_device)

    async def _share_with(self, room_id: str, members: Collection[str], devices: frozenset[tuple[str, str]]) -> None:
        """See that the room's key is with these devices; make a new one when they are not those of before."""
        session = self._olm.outbound_group_sessions.get(room_id)
        if session and session.shared and not session.expired and self._shared_with.get(room_id) == devices:
            return
        self._olm.create_outbound_group_session(room_id)
        missing = self._olm.get_missing_sessions(list(members))
        if missing:
            await self._claim(missing)
        # All ratchets step before the stamp changes, and it changes before anything is sent.
        parcels = list(self._olm.share_group_session_parallel(room_id, list(members), ignore_unverified_devices=True))
        self._stamp.renew()
        for _, body in parcels:
            await self._send_to_device("m.room.encrypted", body)
        self._olm.outbound_group_sessions[room_id].shared = True
        self._shared_with.pop(room_id, None)
        self._shared_with[room_id] = devices
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Forget the keys of rooms in which nothing was said for longest: a new one is made when something is."""
        idle = [room_id for room_id in self._shared_with if not self._room_locks[room_id].locked()]
        for room_id in idle[: max(0, len(self._shared_with) - ROOM_KEYS_MAX)]:
            self._olm.outbound_group_sessions.pop(room_id, None)
            del self._shared_with[room_id]
            self._withholding.told.pop(room_id, None)
            del self._room_locks[room_id]

    async def learn_devices(self, users: Iterable[str]) -> None:
        """Ask for the devices of people of whom they are not known, or not any more."""
        now = time.monotonic()
        known = self._olm.tracked_users - self._olm.users_for_key_query
        unknown = {user for user in users if user not in known and self._ask_again_at.get(user, 0.0) <= now}
        if unknown and not self.is_stranger:
            with self._storing():
                await self._query(unknown)

    async def own_keys(self) -> Json:
        """What the homeserver tells everybody about this account."""
        body: Json = {"device_keys": {self.user_id: []}}
        return await self._wire.ask("POST", path("keys", "query"), body, what="asking for the account's own keys")

    def published_key(self, own_keys: Json) -> str:
        """The key that the homeserver tells others is this device's; empty when it knows none."""
        return text_of(own_keys, "device_keys", self.user_id, self.device_id, "keys", f"ed25519:{self.device_id}")


WITHHELD_MAX: Final = 1000
"""Devices that are told why they do not get one key."""
REASONS: Final = {
    Trust.OPEN: "",
    Trust.PINNED: "This device is not verified by its owner, so it gets no keys. Verify it from another device.",
    Trust.CHANGED: "Your identity changed since this agent first saw it. Its admin has to confirm the new one.",
}


class Withholding:
    """Who was told so far, by room and key."""

    def __init__(self, pins: Pins) -> None:
        self._pins = pins
        self.told: dict[str, tuple[str, set[tuple[str, str]]]] = {}

    async def tell(
        self,
        room_id: str,
        machine: Any,  # noqa: ANN401  # nio is untyped
        refused: Iterable[Any],
        send: Callable[[str, Json], Awaitable[None]],
    ) -> None:
        """Tell devices of a room's present key, unless they were told before."""
        session_id = machine.outbound_group_sessions[room_id].id
        before_id, told = self.told.get(room_id, ("", set()))
        if before_id != session_id:
            told = set()
        self.told[room_id] = (session_id, told)
        withheld = {
            "algorithm": "m.megolm.v1.aes-sha2",
            "room_id": room_id,
            "session_id": session_id,
            "sender_key": machine.account.identity_keys["curve25519"],
            "code": "m.unverified",
        }
        messages: Json = {}
        for device in refused:
            if (device.user_id, device.id) not in told and len(told) < WITHHELD_MAX:
                told.add((device.user_id, device.id))
                reason = REASONS[self._pins.trust(device.user_id)]
                messages.setdefault(device.user_id, {})[device.id] = withheld | {"reason": reason}
        if not messages:
            return
        try:
            await send("m.room_key.withheld", {"messages": messages})
        except ChannelError as error:
            logger.warning("devices could not be told why they get no key: %s", error)
