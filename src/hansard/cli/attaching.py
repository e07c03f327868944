"""Files that a person hands in at the command line: read here, kept as blobs, named in the message."""

from __future__ import annotations

import asyncio
import mimetypes
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hansard.domain.limits import MIB, NAME_CHARACTERS_MAX
from hansard.domain.messages import File, Part, Text
from hansard.domain.text import clean_text
from hansard.errors import FileUnreadable, InvalidInput, TooLarge

if TYPE_CHECKING:
    from hansard.record.api import Record

FILE_BYTES_MAX = 20 * MIB
"""The largest file that is handed in: what no model could take anyway."""

SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF-": "application/pdf",
}
"""How files begin that models look at; a name may say something else."""

OTHER = "application/octet-stream"

ARGUMENT = re.compile(r"""(?:(?P<mark>["'])(?P<quoted>.+?)(?P=mark)|(?P<plain>\S+))\s*(?P<words>.*)""", re.DOTALL)
"""A path, in quotes if it has blanks, and what is said with it."""


def media_type_of(name: str, data: bytes) -> str:
    """Return what a file is: by how it begins, else by its name."""
    found = next((kind for start, kind in SIGNATURES.items() if data.startswith(start)), "")
    if not found and data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        found = "image/webp"
    return found or mimetypes.guess_type(name)[0] or OTHER


def read_file(path: Path) -> bytes:
    """Return a file's bytes, or say why it cannot be handed in."""
    try:
        path = path.expanduser()
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "is no regular file" if path.exists() else "does not exist"
            message = f"{str(path)!r} {what}"
            raise FileUnreadable(message)
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (OSError, RuntimeError) as error:
        message = f"{str(path)!r} cannot be read: {getattr(error, 'strerror', error)}"
        raise FileUnreadable(message) from None
    if len(data) > FILE_BYTES_MAX:
        message = f"{str(path)!r} has more than {FILE_BYTES_MAX} bytes"
        raise TooLarge(message)
    return data


async def attach(record: Record, name: str) -> File:
    """Keep a file, and return it as a part of a message."""
    path = Path(name)
    data = await asyncio.to_thread(read_file, path)
    blob = await record.blobs.put(data)
    shown = clean_text(path.name)[:NAME_CHARACTERS_MAX]
    return File(blob=blob, name=shown, media_type=media_type_of(path.name, data), size_bytes=len(data))


async def message_parts(record: Record, argument: str) -> list[Part]:
    """Return what `/file PATH WORDS` says: the words, and the file. A path with blanks stands in quotes."""
    found = ARGUMENT.fullmatch(argument)
    if found is None:
        message = "say which file: /file PATH, and maybe some words after it"
        raise InvalidInput(message)
    name, words = found["quoted"] or found["plain"], found["words"]
    file = await attach(record, name)
    return [Text(words), file] if words else [file]
