"""The folder `matrix` of the home: token, device, keys. Nobody else may read any of it.

Reads, writes: files of that folder, each whole or not at all.
Invariants: the folder is 0700 and its files 0600. A secret is on the disk before anything on a server depends on it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hansard.channels import FILE_MODE, FOLDER_MODE, OTHERS_BITS, write_whole
from hansard.errors import ConfigInvalid

T = TypeVar("T")


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """Who this home is on the homeserver. A device stays while it is logged in: resends are recognised by it."""

    user_id: str
    device_id: str
    token: str = ""
    since_seconds: float = 0.0
    """When this device logged in: earlier posts were another device's. 0: not known, so long ago."""
    previous: str = ""
    """The device before it, while the room keys of that one have not been taken over yet."""


class CrossSigningSeeds(msgspec.Struct, frozen=True, kw_only=True):
    """The private halves of the account's identity, in base64 without padding."""

    master: str
    self_signing: str
    user_signing: str


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A person's identity: the master key that counts, and the one that the homeserver told last; empty: none."""

    master: str
    since_seconds: float
    seen: str
    seen_seconds: float

    @property
    def is_changed(self) -> bool:
        """Whether the homeserver tells of another identity than the one that counts."""
        return self.seen != self.master


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """The admin says that a person's changed identity is theirs; an empty master key: that they have none any more."""

    user_id: str
    master: str


class Keeping:
    """The folder of one account."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "matrix"

    def prepare(self) -> None:
        """Make the folder, or see that nobody else may look into it. Only then is anything in it read."""
        try:
            self.folder.mkdir(mode=FOLDER_MODE, exist_ok=True)  # never its home: that may have been moved
        except FileExistsError:
            raise ConfigInvalid(f"{self.folder} is no folder. Move it away.") from None
        if stat.S_IMODE(self.folder.stat().st_mode) & OTHERS_BITS:
            raise ConfigInvalid(f"{self.folder} may be read by others. Run: chmod -R go-rwx '{self.folder}'")

    def login(self) -> Login | None:
        return self._read("login.json", Login)

    def keep_login(self, login: Login) -> None:
        write_whole(self.folder / "login.json", msgspec.json.encode(login))

    def seeds(self) -> CrossSigningSeeds | None:
        return self._read("cross-signing.json", CrossSigningSeeds)

    def keep_seeds(self, seeds: CrossSigningSeeds) -> None:
        write_whole(self.folder / "cross-signing.json", msgspec.json.encode(seeds))

    def recovery_key(self) -> str:
        """The recovery key as people know it; empty when there is none."""
        return self.given("recovery-key")

    def given(self, name: str) -> str:
        """What a person put into a file of the folder, such as `password`; empty when there is none."""
        return (self._read_bytes(name) or b"").decode(errors="replace").strip()

    def keep_recovery_key(self, text: str) -> None:
        write_whole(self.folder / "recovery-key", f"{text}\n".encode())

    def pickle_key(self) -> str:
        """The key that the crypto store is encrypted with; made when there is none."""
        if self._read_bytes("pickle-key") is None:
            write_whole(self.folder / "pickle-key", secrets.token_urlsafe(32).encode())
        return self.given("pickle-key")

    def pins(self) -> dict[str, Pin]:
        """The identities of people, by user. The gateway alone writes them."""
        return self._read("identities.json", dict[str, Pin]) or {}

    def keep_pins(self, pins: dict[str, Pin]) -> None:
        write_whole(self.folder / "identities.json", msgspec.json.encode(pins))

    def confirmation(self, user_id: str) -> Confirmation | None:
        return self._read(confirmation_name(user_id), Confirmation)

    def keep_confirmation(self, confirmation: Confirmation) -> None:
        """Keep what the admin confirms. A file for each person: the gateway reads it when it matters."""
        write_whole(self.folder / confirmation_name(confirmation.user_id), msgspec.json.encode(confirmation))

    def has_store(self, device_id: str) -> bool:
        """Whether a device's keys are here. A device without its keys is a stranger to everybody it wrote to."""
        return (self.folder / store_name(device_id)).exists()

    def stamps(self, device_id: str) -> tuple[int, ...]:
        """The stamps that a device's crypto store may have; none when it never had one."""
        return self._read(stamp_name(device_id), tuple[int, ...]) or ()

    def keep_stamps(self, device_id: str, stamps: Sequence[int]) -> None:
        write_whole(self.folder / stamp_name(device_id), msgspec.json.encode(stamps))

    def make_store(self, device_id: str) -> str:
        """The name of a device's crypto store, which is there and private once this returns."""
        name = store_name(device_id)
        os.close(os.open(self.folder / name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE))
        return name

    def _read_bytes(self, name: str) -> bytes | None:
        """Return a file's content; None when there is none. One that cannot be read is named."""
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigInvalid(f"{self.folder / name} cannot be read: {error.strerror}") from None

    def _read(self, name: str, kind: type[T]) -> T | None:
        data = self._read_bytes(name)
        try:
            return None if data is None else msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # The text of the error could repeat a secret.
            raise ConfigInvalid(f"{self.folder / name} is not what was written there; move it aside.") from None


def store_name(device_id: str) -> str:
    return f"crypto-{safe_name(device_id)}.db"


def stamp_name(device_id: str) -> str:
    """The name of the file that tells whether a device's keys are an older copy."""
    return f"stamp-{safe_name(device_id)}.json"


def safe_name(device_id: str) -> str:
    return "".join(sign if sign.isalnum() else "_" for sign in device_id)


def confirmation_name(user_id: str) -> str:
    return f"confirmed-{hashlib.sha256(user_id.encode()).hexdigest()[:32]}.json"


class DeviceStamp:
    """The number of one device's crypto store, by which an older copy that was put back is noticed.

    The store's database and a file beside it hold the same number. It grows at each start, and after each step of a
    ratchet before what that step encrypted is sent. In the database it is the `user_version`, which nio does not use
    and which changes in transactions, as a table does. The file lists every number that the database may have after a
    kill. It is read and written only under the database's write lock, because two processes may use one store.
    """

    def __init__(self, database: Any, keeping: Keeping, device_id: str) -> None:  # noqa: ANN401  # nio is untyped
        self._database, self._keeping, self._device_id = database, keeping, device_id
        with database.atomic("IMMEDIATE"):
            self.is_current = database.user_version in (keeping.stamps(device_id) or (0,))
            """Whether this is the store that was used last. One of before there were stamps is taken as it is."""

    def renew(self) -> None:
        """Change the number. Every copy that was made until now is noticed from now on."""
        database = self._database
        with database.atomic("IMMEDIATE"):
            old: int = database.user_version
            self._keeping.keep_stamps(self._device_id, (old, old + 1))
            database.user_version = old + 1
        with database.atomic("IMMEDIATE"):
            self._keeping.keep_stamps(self._device_id, (database.user_version,))
