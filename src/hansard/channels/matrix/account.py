"""Logging in, once, and again when the homeserver asks for it.

Invariants: each login is a new device, and no device ever changes its keys: clients remember both. Password and token
never enter a log or an error.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import string
import time
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from hansard.channels import text_of
from hansard.channels.matrix.crypto import Crypto
from hansard.channels.matrix.identity import Secrets, Signer
from hansard.channels.matrix.keeping import Keeping, Login
from hansard.channels.matrix.rooms import MatrixRooms
from hansard.channels.matrix.wire import MatrixWire, asking_error_of, path
from hansard.errors import ChannelDown, ChatGone, ConfigInvalid, InvalidInput, PostRefused

logger = logging.getLogger(__name__)

LOGGED_OUT: Final = (
    "The homeserver no longer takes the access token of {user}: its device was logged out or removed. "
    "Set HANSARD_MATRIX_PASSWORD, or a new token in HANSARD_MATRIX_TOKEN; Hansard goes on by itself then."
)
NOTHING_GIVEN: Final = (
    "There is no way to log {user} in. Set HANSARD_MATRIX_PASSWORD, or an access token in HANSARD_MATRIX_TOKEN."
)
REFUSED: Final = "The homeserver refuses the password of {user}. Correct HANSARD_MATRIX_PASSWORD."
KEYS_LOST: Final = (
    "The encryption keys of {user}'s device {device} are not in {folder}: nothing can be read or said in any encrypted "
    "room. Set HANSARD_MATRIX_PASSWORD and restart: Hansard then logs in as a new device. Or give an access token of a "
    "new device in HANSARD_MATRIX_TOKEN."
)
KEYS_OLD: Final = (
    "{path} is not the file that Hansard used last: an older copy of the encryption keys of {user}'s device {device} "
    "was put back. Keys that were used since must not be used again, so nothing is said in any encrypted room. Set "
    "HANSARD_MATRIX_PASSWORD and restart: Hansard then logs in as a new device. Or give an access token of a new "
    "device in HANSARD_MATRIX_TOKEN."
)
NEW_DEVICE: Final = (
    "The keys of the device %s are lost or an older copy. Logged in as the new device %s; the old one is logged out."
)
OTHER_USER: Final = "The access token is that of {found}, and the configuration names {user}. Correct one of them."


class MatrixLogin(NamedTuple):
    """What stands once the account is logged in."""

    crypto: Crypto
    rooms: MatrixRooms


class Account:
    """One account on one homeserver, from one home."""

    def __init__(self, home: Path, *, homeserver: str, user_id: str, token: str, given: Secrets) -> None:
        self.user_id = user_id
        self.wire = MatrixWire(homeserver)
        self.keeping = Keeping(home)
        self._token, self._given = token, given
        self._session: MatrixLogin | None = None
        self._crypto: Crypto | None = None
        self._since_seconds = 0.0
        self._lock = asyncio.Lock()
        self.trouble = ""
        """What a person has to do before this account works again; empty when nothing."""
        self.waits_for = ""
        """Why nothing is received just now; empty when it is."""

    async def ready(self) -> MatrixLogin:
        """Return what stands once the account is logged in; log in when it is not."""
        async with self._lock:
            if self._session is None or self.wire.is_token_refused:
                self._session = None
                try:
                    self._session = await self._logged_in()
                except OSError as error:
                    place = error.filename or self.keeping.folder
                    raise ChannelDown(f"{place} cannot be used: {error.strerror or type(error).__name__}") from error
            return self._session

    @property
    def note(self) -> str:
        """What the admin should know about people's identities; empty when nothing."""
        return self._crypto.pins.note if self._crypto is not None else ""

    @property
    def device_seconds(self) -> float:
        """For how long this device has been logged in. What was posted earlier has another device's transaction ids."""
        return max(0.0, time.time() - self._since_seconds)

    async def ensure_identity(self, session: MatrixLogin) -> None:
        """See that the device's keys are published, and that the account vouches for them."""
        if session.crypto.is_stranger:
            crypto = session.crypto
            text = KEYS_OLD if crypto.is_older else KEYS_LOST
            self.trouble = text.format(
                user=self.user_id, device=crypto.device_id, folder=self.keeping.folder, path=crypto.store_path
            )
        else:
            if not session.crypto.published_key(await session.crypto.own_keys()):
                session.crypto.publish_again()
            try:
                await session.crypto.upkeep()
            except PostRefused as error:
                logger.warning("the device's keys could not be published: %s", error)
            try:
                await Signer(self.wire, session.crypto, self.keeping, self._given).ensure()
                self.trouble = ""
            except (ConfigInvalid, InvalidInput) as error:
                self.trouble = str(error)
            except OSError as error:
                raise ChannelDown(f"{self.keeping.folder} cannot be written: {type(error).__name__}") from error
        if self.trouble:
            logger.error(self.trouble)

    async def display_name(self) -> str:
        """The name that people see; empty when there is none."""
        try:
            profile = await self.wire.ask("GET", path("profile", self.user_id, "displayname"))
        except ChatGone:
            return ""
        return text_of(profile, "displayname")

    async def close(self) -> None:
        """Let go of connections and files. The device stays logged in."""
        async with self._lock:
            self._session = None
            self._close_crypto()
        await self.wire.close()

    async def _logged_in(self) -> MatrixLogin:
        self.keeping.prepare()
        self._token = self._token or self.keeping.given("token")
        self._given = msgspec.structs.replace(
            self._given, password=self._given.password or self.keeping.given("password")
        )
        kept = self.keeping.login()
        login = await self._by_token(self._token) if self._token else None
        if login is None and kept is not None and kept.token and kept.token != self._token:
            login = await self._by_token(kept.token)
        if login is None:
            login = await self._by_password(kept)
        crypto = await self._open_crypto(login, kept)
        if crypto.is_stranger and self._given.password:
            lost = login
            login = await self._by_password(lost)
            crypto = await self._open_crypto(login, kept)
            await self._log_out(lost)
            logger.warning(NEW_DEVICE, lost.device_id, login.device_id)
        self._since_seconds = login.since_seconds
        self.wire.is_token_refused = False
        self.trouble = ""
        # A new value also for the same device: what was published may be gone with the old login.
        return MatrixLogin(crypto, MatrixRooms(self.wire, crypto))

    async def _open_crypto(self, login: Login, kept: Login | None) -> Crypto:
        """Open a device's keys, and see whether they are those by which others know the device."""
        if login != kept:
            self.keeping.keep_login(login)
        crypto = self._crypto
        if crypto is None or crypto.device_id != login.device_id:
            self._close_crypto()
            crypto = self._crypto = Crypto(self.wire, self.keeping, login)
        if login.previous:
            crypto.take_over(login.previous)
            self.keeping.keep_login(msgspec.structs.replace(login, previous=""))
        published = crypto.published_key(await crypto.own_keys())
        is_known = published in {"", crypto.identity_keys["ed25519"]}
        crypto.is_older = crypto.is_older and is_known  # keys of which nothing is left are lost
        crypto.is_stranger = crypto.is_older or not is_known
        return crypto

    def _close_crypto(self) -> None:
        crypto, self._crypto = self._crypto, None
        if crypto is not None:
            crypto.close()

    async def _log_out(self, lost: Login) -> None:
        """End a device whose keys are lost. A courtesy: nobody can read what people send to that device."""
        wire = MatrixWire(self.wire.homeserver)
        wire.token = lost.token
        try:
            await wire.try_ask("POST", path("logout"), {}, what="logging the old device out")
        except ChannelDown as error:
            logger.warning("the device %s stays logged in: %s", lost.device_id, error)
        finally:
            await wire.close()

    async def _by_token(self, token: str) -> Login | None:
        """Who a token belongs to; None when it is no longer good."""
        self.wire.token = token
        what = "logging in"
        answer = await self.wire.try_ask("GET", path("account", "whoami"), what=what)
        if answer.is_token_refused:
            self.wire.token = ""
            return None
        if not answer.is_good:
            raise asking_error_of(answer, what)
        found, device_id = text_of(answer.body, "user_id"), text_of(answer.body, "device_id")
        if found != self.user_id or not device_id:
            self._stop(OTHER_USER.format(found=found, user=self.user_id))
        kept = self.keeping.login()
        if kept is not None and (kept.user_id, kept.device_id) == (found, device_id):
            return msgspec.structs.replace(kept, token=token)
        return Login(user_id=found, device_id=device_id, token=token)

    async def _by_password(self, before: Login | None) -> Login:
        kept = before
        if not self._given.password:
            self._stop((LOGGED_OUT if kept or self._token else NOTHING_GIVEN).format(user=self.user_id))
        if kept is None or kept.user_id != self.user_id or kept.token:
            # Each login is a new device: clients that saw a device removed never send keys to that name again.
            # Kept before it is used: a crash in between must not leave a device behind.
            previous = kept.device_id if kept is not None and kept.user_id == self.user_id else ""
            device_id = "HANSARD" + "".join(secrets.choice(string.ascii_uppercase) for _ in range(10))
            kept = Login(user_id=self.user_id, device_id=device_id, previous=previous)
            self.keeping.keep_login(kept)
        body = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": self.user_id},
            "password": self._given.password,
            "device_id": kept.device_id,
            "initial_device_display_name": "Hansard",
        }
        what = "logging in"
        self.wire.token = ""
        answer = await self.wire.try_ask("POST", path("login"), body, what=what)
        if answer.status == HTTPStatus.FORBIDDEN:
            if before is not None:
                self.keeping.keep_login(before)  # its token may still be good
            self._stop(REFUSED.format(user=self.user_id))
        if not answer.is_good:
            raise asking_error_of(answer, what)
        self.wire.token = text_of(answer.body, "access_token")
        return Login(
            user_id=text_of(answer.body, "user_id"),
            device_id=text_of(answer.body, "device_id"),
            token=self.wire.token,
            since_seconds=time.time(),
            previous=kept.previous,
        )

    def _stop(self, text: str) -> None:
        self.trouble = text
        raise ChannelDown(text)
