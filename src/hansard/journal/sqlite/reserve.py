"""A reserve on the disk: given back when the disk is full, so that running turns can still end (rule 17)."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from hansard.domain.limits import RESERVE_BYTES

if TYPE_CHECKING:
    from pathlib import Path


class Reserve:
    """A file of real blocks that nobody reads."""

    def __init__(self, home: Path) -> None:
        """Set the reserve aside where there is room for it."""
        self._path = str(home / "reserve")
        self._home = str(home)
        self.spent = False
        self.restore()

    def spend(self) -> None:
        """Give the blocks back: the disk is full, and what runs must be able to end."""
        self.spent = True
        with suppress(OSError):  # without a reserve there is nothing to give back, and what runs is tried again
            os.unlink(self._path)

    def has_room(self) -> bool:
        """Return whether the disk has room for more than the reserve. A home that cannot be reached has none."""
        try:
            space = os.statvfs(self._home)
        except OSError:
            return False
        return space.f_bavail * space.f_frsize >= 2 * RESERVE_BYTES

    def restore(self) -> bool:
        """Set the reserve aside again once there is room for more than it; return whether the disk has room."""
        if not self.has_room():
            return False
        try:
            self._clear_place()
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return False
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        self.spent = False
        return True

    def _clear_place(self) -> None:
        """Move away a folder, and remove a link, that lies in the place of the reserve."""
        with suppress(FileNotFoundError):
            mode = os.lstat(self._path).st_mode
            if stat.S_ISDIR(mode):
                os.rename(self._path, f"{self._path}.orphan-{secrets.token_hex(4)}")
            elif not stat.S_ISREG(mode):
                os.unlink(self._path)
