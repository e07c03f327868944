"""What a picture's first bytes say: kind and size, for each form; nonsense and cut ones do no harm."""

from __future__ import annotations

import random
import struct

import pytest

from hansard.domain.requests import GIFS, JPEG, PNG, PictureFacts, look_at

EXIF = b"\xff\xe1" + struct.pack(">H", 10) + b"Exif\0\0II"
SIZED = b"\xff\xc2" + struct.pack(">HBHH", 17, 8, 600, 800)


def webp(form: bytes, rest: bytes) -> bytes:
    """A WebP picture of a form."""
    return b"RIFF\0\0\0\0WEBP" + form + b"\0\0\0\0" + rest


SAMPLES = [
    (PNG + b"\0\0\0\rIHDR" + struct.pack(">II", 8001, 7), PictureFacts("image/png", 8001, 7)),
    (GIFS[0] + struct.pack("<HH", 320, 200), PictureFacts("image/gif", 320, 200)),
    (GIFS[1] + struct.pack("<HH", 1, 65535), PictureFacts("image/gif", 1, 65535)),
    (b"\xff\xd8" + EXIF + SIZED, PictureFacts("image/jpeg", 800, 600)),
    (b"\xff\xd8" + EXIF + b"\xff\xff" + SIZED, PictureFacts("image/jpeg", 800, 600)),
    (webp(b"VP8X", b"\0\0\0\0\xaf\x04\0\x83\x03\0"), PictureFacts("image/webp", 1200, 900)),
    (webp(b"VP8L", b"\x2f" + struct.pack("<I", (39) | (29 << 14))), PictureFacts("image/webp", 40, 30)),
    (webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 176, 144)), PictureFacts("image/webp", 176, 144)),
]


@pytest.mark.parametrize(("data", "look"), SAMPLES)
def test_each_form(data: bytes, look: PictureFacts) -> None:
    """Kind and size stand in the first bytes, whatever follows."""
    assert look_at(data) == look
    assert look_at(data + b"more" * 100) == look


def test_nonsense_does_no_harm(seed: int) -> None:
    """Cut or garbled anywhere, it is of an unknown kind or size; nothing is raised, and nothing takes long."""
    chance = random.Random(seed)
    for data, look in SAMPLES:
        for end in range(len(data)):
            found = look_at(data[:end])
            assert found is None or found.media_type == look.media_type
        for _ in range(50):
            garbled = bytearray(data + bytes(30))
            garbled[chance.randrange(len(garbled))] = chance.randrange(256)
            look_at(bytes(garbled))
    assert look_at(JPEG + b"\xff" * 5000) == PictureFacts("image/jpeg")
    assert look_at(b"") is None
    assert look_at(b"<svg/>") is None
