"""Signatures of a made-up provider: they tell which family made them and of which words, so that a change is seen."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator

from hansard.domain.requests import family_of


def sign(model: str, text: str) -> str:
    """Return the signature of a model under what it thought."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return base64.b64encode(f"{family_of(model)}|{digest}".encode()).decode()


def signature_problem(signature: str, family: str, text: str | None) -> Iterator[str]:
    """Yield what a provider finds wrong with a signature; without a text only whose it is."""
    if not signature:
        yield "a signature is missing"
        return
    try:
        made_by, _, digest = base64.b64decode(signature, validate=True).decode().rpartition("|")
    except ValueError:
        yield f"the signature {signature!r} is none"
        return
    if made_by != family:
        yield f"a signature of {made_by} was sent to {family}"
    if text is not None and digest != hashlib.sha256(text.encode()).hexdigest()[:16]:
        yield "signed words were changed"
