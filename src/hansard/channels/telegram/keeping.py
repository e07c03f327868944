"""The folder `telegram` of the home: the token, which groups have another id than before, which are being left.

Reads, writes: files of that folder, each whole or not at all.
Invariants: the folder is 0700 and its files 0600. The token is read, never written, and never part of an error.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from hansard.channels import FOLDER_MODE, OTHERS_BITS, write_whole
from hansard.errors import ConfigInvalid

T = TypeVar("T")

FOLDER: Final = "telegram"
TOKEN_FORM: Final = re.compile(r"\A(?P<account>[0-9]{1,20}):[A-Za-z0-9_-]{20,200}\Z")
"""As BotFather gives it: the bot's number, a colon, and the secret."""

MISSING: Final = (
    "There is no token for Telegram. Put the one that BotFather gave you into {path}, a file that only you may read "
    "(chmod 600), or into the variable HANSARD_TELEGRAM_TOKEN."
)
MALFORMED: Final = (
    "What stands in {where} is no token of a bot: BotFather's look like 123456789:AAE... with nothing around it."
)
READABLE: Final = "{path} may be read by others. Run: chmod 600 '{path}'"


class Token(msgspec.Struct, frozen=True):
    """The key to a bot's account. It says nothing of itself when it is printed."""

    secret: str
    account: str

    def __repr__(self) -> str:
        return f"Token({self.account})"


def read_token(home: Path, given: str) -> Token:
    path = home / FOLDER / "token"
    where, text = "HANSARD_TELEGRAM_TOKEN", given.strip()
    if not text:
        where = str(path)
        try:
            if stat.S_IMODE(path.stat().st_mode) & OTHERS_BITS:
                raise ConfigInvalid(READABLE.format(path=path))
            text = path.read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            raise ConfigInvalid(MISSING.format(path=path)) from None
        except OSError as error:
            raise ConfigInvalid(f"{path} cannot be read: {type(error).__name__}") from None
    found = TOKEN_FORM.match(text)
    if found is None:
        raise ConfigInvalid(MALFORMED.format(where=where))
    return Token(text, found["account"])


class Places:
    """Which id a chat has now. A group that becomes a supergroup gets another one, and is the same group to people.

    Everywhere else a chat is called by the first id that it had.
    """

    def __init__(self, home: Path) -> None:
        self._path = home / FOLDER / "migrated.json"
        self._first: dict[str, str] | None = None

    def first(self, chat_id: int) -> int:
        return int(self._known().get(str(chat_id), chat_id))

    def now(self, first_id: int) -> int:
        return next((int(new) for new, first in reversed(self._known().items()) if int(first) == first_id), first_id)

    def learn(self, old_id: int, new_id: int) -> None:
        """Note, durably, that a chat has another id from now on."""
        if self.first(new_id) == self.first(old_id) or old_id == new_id:
            return
        known = {**self._known(), str(new_id): str(self.first(old_id))}
        keep(self._path, known)
        self._first = known

    def _known(self) -> dict[str, str]:
        if self._first is None:
            self._first = read_kept(self._path, dict[str, str], {})
        return self._first


class Leaving:
    """Groups that are told why the agent leaves: noted before the words, so that no crash has them said twice."""

    def __init__(self, home: Path) -> None:
        self._path = home / FOLDER / "leaving.json"

    def begin(self, chat_id: int) -> bool:
        """Note, durably, that a group is told; return whether it was not before."""
        known = self._known()
        if chat_id in known:
            return False
        keep(self._path, [*known, chat_id])
        return True

    def end(self, chat_id: int) -> None:
        """The group is left, or was surely not told."""
        known = self._known()
        if chat_id in known:
            keep(self._path, [each for each in known if each != chat_id])

    def _known(self) -> list[int]:
        return read_kept(self._path, list[int], [])


def read_kept(path: Path, kind: type[T], missing: T) -> T:
    """Return what was written into a file; one that is damaged or cannot be read is named."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return missing
    except NotADirectoryError:
        raise ConfigInvalid(f"{path.parent} is no folder. Move it away.") from None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise ConfigInvalid(f"{path} is not what was written there; move it aside.") from None
    except OSError as error:
        raise ConfigInvalid(f"{path} cannot be read: {error.strerror}") from None


def keep(path: Path, value: object) -> None:
    path.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)  # never its home: that may have been moved
    write_whole(path, msgspec.json.encode(value))
