"""The homeserver that the channel's tests use, too."""

from __future__ import annotations

from tests.channels.conftest import synapse

__all__ = ["synapse"]
