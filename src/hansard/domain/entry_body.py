"""The base of what an entry says."""

from __future__ import annotations

import msgspec


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The base of every body."""
