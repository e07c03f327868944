"""Followed items become what to print. Knows no terminal: the screen, a second follower and one-shot output share it.

Reads: entries and chunks in the order of the record. Gives: pieces that are final and go to the scrollback, and the
live text below them, which is drawn again as it grows. Invariants: every piece ends in a newline; a piece is never
removed; all untrusted text went through `safe`; without colour there is not one escape sequence.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hansard.cli import load
from hansard.cli.terminal.blocks import Block, Pen, Splitter
from hansard.cli.terminal.render import Renderer
from hansard.cli.terminal.text import cut, safe, safe_line, wrap
from hansard.domain.messages import File, Part, Reasoning, Role, Status, Text, ToolCall, ToolResult, join_text
from hansard.domain.people import is_terminal_author
from hansard.domain.sessions import TurnState
from hansard.record.messages.entries import Chunk, Entry, MessageAdded, MessageOpened, MessageSealed

RENDER: Final = "hansard.cli.terminal.render"
"""Loaded by name when there is something to render: it brings rich's Markdown and highlighting with it."""

RESET: Final = "\x1b[0m"
DIM: Final = "\x1b[2m"
SAID: Final = "\x1b[1;36m"
MARKER: Final = "› "  # noqa: RUF001 - a quotation mark that is meant
DASH: Final = "⎯"
THINKING: Final = "thinking…"
INTERRUPTED: Final = f"{DASH} interrupted"
WIDTH_MIN: Final = 10


class Stream:
    """One message that is being written."""

    def __init__(self) -> None:
        self.pen = Pen()
        self.splitter = Splitter()
        self.thought = ""
        self.thinking = False
        self.characters = 0
        self.offset_bytes = 0
        self.whole = True

    def new_text(self, chunk: Chunk) -> str:
        """Return what a chunk adds to what was already seen: nothing is shown twice."""
        data = chunk.text.encode(errors="surrogatepass")
        skip = self.offset_bytes - chunk.offset
        self.whole = self.whole and skip >= 0
        self.offset_bytes = max(self.offset_bytes, chunk.offset + len(data))
        return chunk.text if skip <= 0 else data[skip:].decode(errors="replace")


class View:
    """What one person sees of one session, as text."""

    def __init__(self, *, width: int, colour: bool, reasoning: bool = False) -> None:
        """`reasoning` shows a model's thinking, dimmed, instead of a word for it."""
        self._width = max(WIDTH_MIN, width)
        self._colour = colour
        self._reasoning = reasoning
        self._streams: dict[str, Stream] = {}
        self._renderer: Renderer | None = None
        self._session_id = ""
        self._printed = False
        self._last_was_line = False
        self._live: str | None = ""

    def feed(self, item: Entry | Chunk) -> list[str]:
        """Take the next item; return the pieces that are final now. Kinds that a person need not see give none."""
        self._live = None
        if isinstance(item, Chunk):
            return self._streamed(item)
        left = self._enter(item.session_id)
        match item.body:
            case MessageAdded() as added:
                return [*left, *self._added(added)]
            case MessageOpened():
                self._streams[item.id] = self._new_stream()
                return left
            case MessageSealed() as sealed:
                return [*left, *self._sealed(sealed)]
        return [*left, *self._lines(f"{DASH} {text}" for text in happened(item))]

    @property
    def live(self) -> str:
        """The text of what is not finished, below everything that was printed; empty if there is none."""
        if self._live is None:
            self._live = "\n".join(line for stream in self._streams.values() for line in self._live_lines(stream))
        return self._live

    def resize(self, width: int) -> None:
        """Draw for another width from now on. What was printed stays as it was."""
        if max(WIDTH_MIN, width) != self._width:
            self._width = max(WIDTH_MIN, width)
            self._renderer = None
            self._live = None

    def flush(self) -> list[str]:
        """Return what is live as final, as it is: nobody draws any longer. More may still be fed."""
        self._live = None
        pieces: list[str] = []
        for stream in self._streams.values():
            pieces += self._think_flush(stream)
            pieces += self._write(stream, stream.splitter.flush())
        return pieces

    def note(self, text: str) -> list[str]:
        return self._print(wrap(safe(text), self._width), DIM, line=True)

    def _enter(self, session_id: str) -> list[str]:
        """Follow another session: what was still being written in the one before is printed, and is live no longer."""
        before, self._session_id = self._session_id, session_id
        if before in ("", session_id):
            return []
        pieces = self.flush()
        self._streams.clear()
        return pieces

    # What is being written.

    def _streamed(self, chunk: Chunk) -> list[str]:
        stream = self._streams.get(chunk.message_id)
        if stream is None:
            stream = self._streams[chunk.message_id] = self._new_stream()
            stream.whole = chunk.offset == 0
            stream.offset_bytes = chunk.offset
        text = stream.new_text(chunk)
        if chunk.part == "text":
            stream.characters += len(text)
            return self._say(stream, text)
        return self._think(stream, text) if chunk.part == "reasoning" else []

    def _sealed(self, body: MessageSealed) -> list[str]:
        """Finish a message. What its chunks did not bring is taken from the seal."""
        stream = self._streams.get(body.message_id)
        if stream is None:
            stream = self._streams[body.message_id] = self._new_stream()
        pieces: list[str] = []
        if stream.whole:
            if self._reasoning and not stream.offset_bytes:
                pieces += self._think(stream, "".join(part.text for part in body.parts if isinstance(part, Reasoning)))
            pieces += self._say(stream, join_text(body.parts)[stream.characters :])
        pieces += self._think_flush(stream)
        pieces += self._write(stream, stream.splitter.finish())
        del self._streams[body.message_id]
        return [*pieces, *self._lines(call_lines(body))]

    def _say(self, stream: Stream, text: str) -> list[str]:
        if not text:
            return []
        thought = self._think_flush(stream)
        return [*thought, *self._write(stream, stream.splitter.feed(safe(text)))]

    def _think(self, stream: Stream, text: str) -> list[str]:
        """Thinking is one live word, or dimmed lines that are printed as they are finished."""
        stream.thinking = True
        if not self._reasoning:
            return []
        finished, newline, stream.thought = (stream.thought + safe(text)).rpartition("\n")
        return self._print(wrap(finished, self._width), DIM, line=True) if newline else []

    def _think_flush(self, stream: Stream) -> list[str]:
        thought, stream.thought, stream.thinking = stream.thought, "", False
        return self._print(wrap(thought, self._width), DIM, line=True) if thought else []

    def _write(self, stream: Stream, blocks: list[Block]) -> list[str]:
        lines = stream.pen.write(self._drawn(), blocks) if blocks else []
        if not lines:
            return []
        self._printed, self._last_was_line = True, False
        self._lift(stream)
        return ["\n".join([*lines, ""])]

    def _live_lines(self, stream: Stream) -> list[str]:
        blocks = stream.splitter.preview()
        lines = stream.pen.preview(self._drawn(), blocks) if blocks else []
        if stream.thinking:
            thought = wrap(stream.thought, self._width) if stream.thought else []
            thought = thought if self._reasoning else [THINKING]
            gap = [""] if self._printed and not self._last_was_line else []
            lines += [*gap, *(self._paint(line, DIM) for line in thought)]
        return lines

    def _new_stream(self) -> Stream:
        """Begin a message. Its first block stands apart from whatever was printed before."""
        stream = Stream()
        if self._printed:
            stream.pen.lift()
        return stream

    def _lift(self, writing: Stream | None = None) -> None:
        """Something was printed: what other streams write next stands apart from it."""
        for stream in self._streams.values():
            if stream is not writing:
                stream.pen.lift()

    def _drawn(self) -> Renderer:
        if self._renderer is None:
            self._renderer = load(RENDER).Renderer(width=self._width, colour=self._colour)
        return self._renderer

    # What comes whole.

    def _added(self, body: MessageAdded) -> list[str]:
        if body.role == Role.USER:
            return self._said(body.parts, body.author, "")
        if body.role == Role.NOTICE:
            if body.author:
                return self._said(body.parts, "", DIM)
            return self._print(wrap(safe(join_text(body.parts)), self._width), DIM)
        if body.role == Role.TOOL:
            return self._lines(result_lines(body.parts))
        if body.role == Role.ASSISTANT:
            stream = self._new_stream()
            pieces = self._say(stream, join_text(body.parts))
            pieces += self._write(stream, stream.splitter.finish())
            return [*pieces, *self._lines(call_lines(body))]
        return []

    def _said(self, parts: Iterable[Part], author: str, style: str) -> list[str]:
        """What a person wrote: as it is, behind a marker."""
        text = "".join(part.text for part in parts if isinstance(part, Text))
        files = [part for part in parts if isinstance(part, File)]
        told = (f"[file: {file.name or file.blob[:12]}, {file.size_bytes} bytes]" for file in files)
        whole = "\n".join(filter(None, (text, *told)))
        name = f"{safe_line(author)}: " if author and not is_terminal_author(author) else ""
        lines = wrap(name + safe(whole).rstrip("\n"), self._width - len(MARKER))
        first, *others = [self._paint(line, style) for line in lines]
        marker = self._paint(MARKER.rstrip(), style or SAID)
        indent = " " * len(MARKER)
        return self._print([f"{marker} {first}".rstrip(), *(indent + line if line else "" for line in others)], "")

    def _lines(self, texts: Iterable[str]) -> list[str]:
        """Dimmed lines, each cut to the width; such lines stand close together."""
        return [piece for text in texts for piece in self._print([cut(safe_line(text), self._width)], DIM, line=True)]

    def _print(self, lines: list[str], style: str, *, line: bool = False) -> list[str]:
        gap = [""] if self._printed and not (line and self._last_was_line) else []
        self._printed, self._last_was_line = True, line
        self._lift()
        return ["\n".join([*gap, *(self._paint(text, style) for text in lines), ""])]

    def _paint(self, text: str, style: str) -> str:
        return f"{style}{text}{RESET}" if style and text and self._colour else text


def call_lines(body: MessageAdded | MessageSealed) -> list[str]:
    """Return what stands below an answer: the tools that it called, and that it was interrupted."""
    calls = [f"→ {part.name} {part.arguments}" for part in body.parts if isinstance(part, ToolCall)]
    return [*calls, INTERRUPTED] if body.status == Status.INTERRUPTED else calls


def result_lines(parts: Iterable[Part]) -> list[str]:
    lines = []
    for part in parts:
        if isinstance(part, ToolResult):
            first = next((line for line in part.text.split("\n") if line.strip()), "")
            outcome = part.outcome.replace("_", " ")
            lines.append(f"← {outcome}: {first}" if first else f"← {outcome}")
    return lines


def happened(entry: Entry) -> list[str]:
    """Return what an entry says of the session. Of turns that ended, only a lost one has to be told here."""
    body = entry.body
    reason = getattr(body, "reason", "")
    reason = f": {reason}" if reason else ""
    count = len(getattr(body, "message_ids", ()))
    messages = f"{count} message{'' if count == 1 else 's'}"
    if entry.kind == "turn.ended" and getattr(body, "state", "") != TurnState.LOST:
        return []
    told = {
        "messages.undone": f"{messages} undone",
        "messages.restored": f"{messages} restored",
        "turn.ended": f"this turn was lost{reason}",
        "session.ended": f"session ended{reason}",
        "session.reopened": "session reopened",
        "session.titled": f"title: {getattr(body, 'title', '')}",
    }.get(entry.kind)
    return [] if told is None else [told]
