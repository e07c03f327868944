"""Secrets on the homeserver that only the recovery key opens (m.secret_storage.v1.aes-hmac-sha2).

Pure: what is stored and read is given and returned as values. The forms are those of the specification, so that a
person can give the same recovery key to any client.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from functools import reduce
from operator import xor
from typing import Final

from hansard.channels import Json, text_of
from hansard.errors import InvalidInput

ALGORITHM: Final = "m.secret_storage.v1.aes-hmac-sha2"
KEY_BYTES: Final = 32
ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
"""Base58: without the signs that look like one another."""
PREFIX: Final = bytes([0x8B, 0x01])
GROUP_SIGNS: Final = 4
ZEROS: Final = bytes(KEY_BYTES)


def encode(data: bytes) -> str:
    """Base64 without padding, as Matrix writes keys."""
    return base64.b64encode(data).decode().rstrip("=")


def decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4))


def recovery_text(key: bytes) -> str:
    """The key as people know it: groups of four signs."""
    data = PREFIX + key
    number = int.from_bytes(data + bytes([reduce(xor, data)]), "big")
    signs = ""
    while number:
        number, rest = divmod(number, len(ALPHABET))
        signs = ALPHABET[rest] + signs
    return " ".join(signs[start : start + GROUP_SIGNS] for start in range(0, len(signs), GROUP_SIGNS))


def recovery_key(text: str) -> bytes:
    """Read the key from what a person copied; spaces do not matter, mistakes are found."""
    number = 0
    for sign in "".join(text.split()):
        place = ALPHABET.find(sign)
        if place < 0:
            raise InvalidInput("The recovery key has a sign in it that no recovery key has.")
        number = number * len(ALPHABET) + place
    size = len(PREFIX) + KEY_BYTES + 1
    if number.bit_length() > size * 8:
        raise InvalidInput("The recovery key is too long.")
    data = number.to_bytes(size, "big")
    if not data.startswith(PREFIX) or reduce(xor, data) != 0:
        raise InvalidInput("The recovery key is not complete, or has a mistake in it.")
    return data[len(PREFIX) : -1]


def derive(key: bytes, name: str) -> tuple[bytes, bytes]:
    """The keys for one secret: to encrypt, and to authenticate. HKDF with SHA-256 and a salt of zeros."""
    root = hmac.digest(ZEROS, key, hashlib.sha256)
    first = hmac.digest(root, name.encode() + b"\x01", hashlib.sha256)
    second = hmac.digest(root, first + name.encode() + b"\x02", hashlib.sha256)
    return first, second


def stream(key: bytes, iv: bytes, data: bytes) -> bytes:
    """AES-256 in counter mode: the same call encrypts and decrypts."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    context = Cipher(algorithms.AES(key), modes.CTR(iv)).encryptor()
    return context.update(data) + context.finalize()


def seal(key: bytes, name: str, secret: bytes, iv: bytes | None = None) -> Json:
    aes, mac = derive(key, name)
    start = bytearray(iv or secrets.token_bytes(16))
    # Bit 63 is left out of the counter: some libraries count in 64 bits, others in 128.
    start[8] &= 0x7F
    ciphertext = stream(aes, bytes(start), secret)
    return {
        "iv": encode(bytes(start)),
        "ciphertext": encode(ciphertext),
        "mac": encode(hmac.digest(mac, ciphertext, hashlib.sha256)),
    }


def unseal(key: bytes, name: str, sealed: Json) -> bytes | None:
    """Decrypt a secret; None when the key is not the right one."""
    aes, mac = derive(key, name)
    try:
        ciphertext, iv = decode(text_of(sealed, "ciphertext")), decode(text_of(sealed, "iv"))
        expected = decode(text_of(sealed, "mac"))
    except ValueError:
        return None
    if len(iv) != len(ZEROS) // 2 or not hmac.compare_digest(hmac.digest(mac, ciphertext, hashlib.sha256), expected):
        return None
    return stream(aes, iv, ciphertext)


def description(key: bytes) -> Json:
    """What the homeserver keeps about a key, by which a key can be recognised."""
    check = seal(key, "", ZEROS)
    return {"algorithm": ALGORITHM, "iv": check["iv"], "mac": check["mac"]}


def opens(key: bytes, described: Json) -> bool:
    if text_of(described, "algorithm") != ALGORITHM:
        return False
    if "iv" not in described or "mac" not in described:
        # Without a check value, only trying it on a secret can tell.
        return True
    check = seal(key, "", ZEROS, decode(text_of(described, "iv")))
    return hmac.compare_digest(decode(check["mac"]), decode(text_of(described, "mac")))
