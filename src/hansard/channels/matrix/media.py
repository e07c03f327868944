"""Files: out to the homeserver and back, encrypted where the room is."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import msgspec

from hansard.channels import Json, text_of
from hansard.channels.matrix.wire import MatrixResponse, MatrixWire, asking_error_of
from hansard.errors import ChannelError, ChatGone, NotFound
from hansard.ports.channel import LocalFile, RemoteFile

ADDRESS: Final = re.compile(
    r"mxc://(?P<server>(?:[A-Za-z0-9][A-Za-z0-9.-]{0,254}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?)"
    r"/(?P<media>[A-Za-z0-9_-]{1,255})"
)
"""A file's address as the specification has it. Nothing else may become a part of a request's path."""


async def upload(wire: MatrixWire, file: LocalFile, *, is_encrypted: bool) -> Json:
    """Store a file; return what a message says about where it is, keys included."""
    if not is_encrypted:
        return {"url": await wire.upload(file.data, name=file.name, media_type=file.media_type)}
    from nio.crypto.attachments import encrypt_attachment

    data, keys = encrypt_attachment(file.data)
    # Neither name nor kind of an encrypted file is the homeserver's business.
    url = await wire.upload(data, name="", media_type="application/octet-stream")
    return {"file": {**keys, "url": url}}


async def fetch(wire: MatrixWire, file: RemoteFile, *, bytes_max: int) -> bytes:
    """Read a file, decrypt it, and see that it is the one which was sent."""
    try:
        reference: Json = msgspec.json.decode(file.reference, type=dict)
    except msgspec.DecodeError as unreadable:
        raise NotFound("That is no file of this homeserver.") from unreadable
    address = ADDRESS.fullmatch(text_of(reference, "url"))
    if address is None:
        raise NotFound("The file's address is not one of Matrix.")
    where = f"{quote(address['server'], safe='')}/{address['media']}"
    found = await wire.download(f"/_matrix/client/v1/media/download/{where}", bytes_max=bytes_max)
    unknown = {"", "M_UNRECOGNIZED"}
    if isinstance(found, MatrixResponse) and found.status == HTTPStatus.NOT_FOUND and found.code in unknown:
        # A homeserver from before media were for members only.
        found = await wire.download(f"/_matrix/media/v3/download/{where}", bytes_max=bytes_max)
    if isinstance(found, MatrixResponse):
        error = asking_error_of(found, "fetching a file")
        if isinstance(error, ChatGone):
            raise NotFound("The file is not on the homeserver any more, or not for this account.") from error
        raise error
    return decrypted(found, reference) if text_of(reference, "key") else found


def decrypted(data: bytes, reference: Json) -> bytes:
    from nio.crypto.attachments import decrypt_attachment
    from nio.exceptions import EncryptionError

    try:
        plain: bytes = decrypt_attachment(
            data, text_of(reference, "key"), text_of(reference, "sha256"), text_of(reference, "iv")
        )
    except (EncryptionError, ValueError) as error:
        raise ChannelError("The file is not the one that its sender encrypted.") from error
    return plain
