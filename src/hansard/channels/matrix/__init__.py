"""Matrix: one account on one homeserver, behind `hansard.ports.channel`.

    wire            requests, and what each failure means
    account         logging in; `identity` and `secret_storage` sign the device and keep the keys restorable
    keeping         the files of the home's folder `matrix`
    crypto          keys of devices and rooms, by nio's `machine`; `rooms` knows who is where
    pins            the identities of people: which devices are theirs
    receiving       syncs to batches; `reading` turns one event into the port's
    contents        what an event of a person says, of whatever type it is
    channel         the port; `posting` makes contents, `media` moves files
    history         what was said while nobody listened, and the timeline

DESIGN.md of the folder above says why it is so.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hansard.channels.matrix.account import Account
from hansard.channels.matrix.channel import MatrixChannel
from hansard.channels.matrix.identity import Secrets
from hansard.channels.matrix.receiving import MatrixTiming

__all__ = ["MatrixChannel", "MatrixTiming", "open_matrix"]


def open_matrix(
    home: Path, environment: Mapping[str, str], *, homeserver: str, user_id: str, pace: MatrixTiming | None = None
) -> MatrixChannel:
    """Make the channel of an account such as `@bot:example.org`. The homeserver, which may be down, is asked later."""
    account = Account(
        home,
        homeserver=homeserver,
        user_id=user_id,
        token=environment.get("HANSARD_MATRIX_TOKEN", ""),
        given=Secrets(
            password=environment.get("HANSARD_MATRIX_PASSWORD", ""),
            recovery_key=environment.get("HANSARD_MATRIX_RECOVERY_KEY", ""),
            wants_new_identity=environment.get("HANSARD_MATRIX_NEW_IDENTITY", "").lower() in {"1", "yes", "true"},
        ),
    )
    return MatrixChannel(account, pace)
