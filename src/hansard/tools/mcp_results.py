"""What a server gave to a call, as our values: text, pictures, files."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

import msgspec

from hansard.ports.tool import Attachment, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Iterator

ADDRESS_CHARACTERS = 500


def output_of(result: Any) -> ToolOutput:  # noqa: ANN401 - the library's
    """Return a result: its texts in their order, and each picture, sound and file."""
    texts: list[str] = []
    files: list[Attachment] = []
    for block in result.content:
        for piece in pieces_of(block):
            if isinstance(piece, str):
                texts.append(piece)
            else:
                files.append(piece)
    if not texts and not files and result.structured_content is not None:
        texts.append(msgspec.json.encode(result.structured_content).decode())
    return ToolOutput(text="\n".join(texts), files=tuple(files), is_error=bool(result.is_error))


def pieces_of(block: Any) -> Iterator[str | Attachment]:  # noqa: ANN401
    """Give what one block holds. An address is told as text: nobody fetches it."""
    kind = str(getattr(block, "type", ""))
    if kind == "text":
        yield str(block.text)
    elif kind in {"image", "audio"}:
        yield attachment(block.data, f"{kind} of the result", block.mime_type)
    elif kind == "resource":
        resource = block.resource
        name = str(resource.uri)[:ADDRESS_CHARACTERS]
        if getattr(resource, "text", None) is not None:
            yield f"{name}:\n{resource.text}"
        else:
            yield attachment(resource.blob, name.rpartition("/")[2] or name, resource.mime_type)
    elif kind == "resource_link":
        yield f"(a link, not fetched: {str(block.uri)[:ADDRESS_CHARACTERS]})"
    else:
        yield f"(a part of the kind {kind[:40]!r}, which is not known here)"


def attachment(data: str, name: str, media_type: str | None) -> str | Attachment:
    """Return a file from its base64; text that says so when it is none."""
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return f"({name} could not be read: it is not base64)"
    return Attachment(data=decoded, name=name, media_type=media_type or "application/octet-stream")
