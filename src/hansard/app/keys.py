"""Keys of providers: from the environment, or from `keys.toml` in the home, which nobody else may read.

Reads: environment variables, `keys.toml`. Writes nothing.
Invariants: a key leaves this module only inside a `ProviderKey`, which shows itself nowhere; no text of an error
repeats anything that stands in `keys.toml`, names included, for a key may have been written where a name belongs.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

from hansard.app.home_files import ConfigFinding, key_lines, place, printable, read_toml, refusal_of
from hansard.errors import ConfigInvalid

FILE_NAME: Final = "keys.toml"

VARIABLES: Final = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "google": "GOOGLE_API_KEY",
}
"""For each provider that wants a key, the variable that its own library reads."""

TAIL_CHARACTERS: Final = 4
CHARACTERS_MIN_FOR_TAIL: Final = 20
"""The last signs tell two long keys apart; of a short one they would be a good part."""

OTHERS_BITS: Final = 0o077


class ProviderKey:
    """A secret that shows where it comes from, and not what it is."""

    __slots__ = ("_secret", "source")

    def __init__(self, secret: str, source: str) -> None:
        self._secret = secret
        self.source = source

    def reveal(self) -> str:
        """The secret, for the one call that needs it."""
        return self._secret

    def __str__(self) -> str:
        return f"set ({self.source})"

    def __repr__(self) -> str:
        tail = f", …{self._secret[-TAIL_CHARACTERS:]}" if len(self._secret) >= CHARACTERS_MIN_FOR_TAIL else ""
        return f"ProviderKey({self.source}{tail})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is neither copied nor stored")


def find_key(provider: str, home: Path, environment: Mapping[str, str]) -> ProviderKey | None:
    """Return a provider's key; None when there is none, or the provider wants none.

    The environment comes first, and then the file is not looked at. Raises ConfigInvalid for a key, or a file of keys,
    that cannot be used.
    """
    variable = VARIABLES.get(provider)
    if variable is None:
        return None
    secret = environment.get(variable, "").strip()
    if secret:
        if not is_sendable(secret):
            raise ConfigInvalid(f"environment variable {variable}: {UNSENDABLE}")
        return ProviderKey(secret, f"environment {variable}")
    keys, findings = read_keys(home)
    if findings:
        raise refusal_of(findings)
    return keys.get(provider)


def check_keys(home: Path, environment: Mapping[str, str]) -> list[ConfigFinding]:
    unsendable = [
        ConfigFinding(f"environment variable {variable}", UNSENDABLE)
        for variable in VARIABLES.values()
        if not is_sendable(environment.get(variable, "").strip())
    ]
    return unsendable + read_keys(home)[1]


UNSENDABLE: Final = "a key is one word of printable ASCII characters, and this is not"


def is_sendable(secret: str) -> bool:
    """Whether a key can be sent in a header. What cannot would come back in some library's error, in full."""
    return secret.isascii() and secret.isprintable() and " " not in secret


def read_keys(home: Path) -> tuple[dict[str, ProviderKey], list[ConfigFinding]]:
    """Return the keys of the file, by provider, and everything that is wrong with it. No file, no keys."""
    path = home / FILE_NAME
    parsed = read_toml(path, lambda look: exposure(path, look))
    if parsed is None:
        return {}, []
    if isinstance(parsed, ConfigFinding):
        return {}, [parsed]
    keys: dict[str, ProviderKey] = {}
    findings: list[ConfigFinding] = []
    lines = key_lines(parsed.text)
    for name, secret in parsed.document.items():
        where = place(path, lines[(name,)])
        if name not in VARIABLES:
            findings.append(ConfigFinding(where, f"this is not a provider; those with keys are {', '.join(VARIABLES)}"))
        elif not isinstance(secret, str):
            findings.append(ConfigFinding(where, f'a key is text: {name} = "…"'))
        elif not is_sendable(secret.strip()):
            findings.append(ConfigFinding(where, UNSENDABLE))
        elif secret.strip():
            keys[name] = ProviderKey(secret.strip(), FILE_NAME)
    return keys, findings


def exposure(path: Path, look: os.stat_result, mode: int = 0o600) -> str:
    """Why a path is not private, and the command that makes it so; empty when it is."""
    quoted = printable(shlex.quote(str(path)))
    if look.st_uid != os.geteuid():
        return f"it belongs to another user; run: sudo chown {os.geteuid()} {quoted}"
    if stat.S_IMODE(look.st_mode) & OTHERS_BITS:
        return f"others may read it (mode {stat.S_IMODE(look.st_mode):04o}); run: chmod {mode:o} {quoted}"
    return ""
