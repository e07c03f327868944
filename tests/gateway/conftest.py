"""The homeserver that the channel's tests use, too."""

from __future__ import annotations

from tests.channels.matrix.conftest import synapse

__all__ = ["synapse"]
