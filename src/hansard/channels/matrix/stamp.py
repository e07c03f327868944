"""Notices an older copy of a device's crypto store that was put back.

The store's database and a file beside it hold the same number. It grows at each start, and after each step of a
ratchet before what that step encrypted is sent. So a copy from before has a number that the file does not have. In the
database it is the `user_version`, which nio does not use and which changes in transactions, as a table does.

Invariants: the file lists every number that the database may have after a kill. It is read and written only under the
database's write lock, because two processes may use one store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hansard.channels.matrix.keeping import Keeping


class DeviceStamp:
    """The number of one device's store."""

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
