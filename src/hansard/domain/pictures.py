"""What a picture's first bytes say of it: its kind and how many pixels it has. Nothing is decoded."""

from __future__ import annotations

import struct
from typing import NamedTuple

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8\xff"
GIFS = (b"GIF87a", b"GIF89a")

JPEG_SIZED = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""The segments of a JPEG that tell its size."""

JPEG_SEGMENTS_MAX = 1000
"""Before its size comes a picture has a dozen; more is nonsense."""


class PictureFacts(NamedTuple):
    """What a picture is. 0 pixels: not known."""

    media_type: str
    width: int = 0
    height: int = 0


def look_at(data: bytes) -> PictureFacts | None:
    """Return what a picture is by its own bytes; None when they are of no kind that is known here."""
    try:
        if data.startswith(PNG):
            return PictureFacts("image/png", *struct.unpack_from(">II", data, 16))
        if data.startswith(GIFS):
            return PictureFacts("image/gif", *struct.unpack_from("<HH", data, 6))
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return PictureFacts("image/webp", *webp_size(data))
        if data.startswith(JPEG):
            return PictureFacts("image/jpeg", *jpeg_size(data))
    except (struct.error, IndexError):
        # It is cut before its size; whoever decodes it will say so.
        return None
    return None


def webp_size(data: bytes) -> tuple[int, int]:
    """Return width and height of a WebP picture, in each of its three forms."""
    form = data[12:16]
    if form == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if form == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


def jpeg_size(data: bytes) -> tuple[int, int]:
    """Return width and height of a JPEG picture: they stand in one of its first segments."""
    place = 2
    for _ in range(JPEG_SEGMENTS_MAX):
        marker = data[place + 1]
        if marker in JPEG_SIZED:
            height, width = struct.unpack_from(">HH", data, place + 5)
            return width, height
        (length,) = struct.unpack_from(">H", data, place + 2)
        place += 1 if marker == data[place] else 2 + length
    return 0, 0
