"""What is imported only when it is called: commands, and ways to talk. Most calls need one of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

COMMANDS: Final = {
    "audit": ("hansard.cli.audit", "Compare what a room shows with what the record holds."),
    "config": ("hansard.cli.config", "Show or check the settings, and where each comes from."),
    "deliveries": ("hansard.cli.deliveries", "List what was not shown in a chat; try it again, or drop it."),
    "explain": ("hansard.cli.explain", "Say why a turn's tools were run or not, or whether one would be."),
    "export": ("hansard.cli.export", "Write sessions out: jsonl, markdown, html, chat."),
    "gateway": ("hansard.cli.gateway", "Run the channels that are configured; tell how they do."),
    "import": ("hansard.cli.importing", "Take conversations from Hermes, or from an export, into the record."),
    "memory": ("hansard.cli.memory", "Show and change what the agent remembers."),
    "models": ("hansard.cli.models", "Show which model would answer; install the demo model."),
    "pair": ("hansard.cli.pair", "Show who may talk to the agent in chats; allow and bar people."),
    "people": ("hansard.cli.people", "Show who is one person in several chats; link and part them."),
    "permissions": ("hansard.cli.permissions", "Show what people allowed beyond one call; revoke it."),
    "search": ("hansard.cli.search", "Find what was said, in all sessions."),
    "sessions": ("hansard.cli.sessions", "List sessions; show, title, end, fork or undo one."),
    "verify": ("hansard.cli.verify", "Prove that database, logs and projections agree."),
}
"""Each command's module, and what help says of it without importing it."""

TALKS: Final = {
    "once": "hansard.cli.once",
    "chat": "hansard.cli.chat",
    "lines": "hansard.cli.lines",
}
"""What `hansard` does without a command: one question, a conversation in a terminal, or one through pipes."""

PARTS: Final = {
    "show": "hansard.cli.sessions_show",
    "table": "hansard.cli.sessions_table",
    "settings": "hansard.app.config",
    "secrecy": "hansard.app.secrecy",
}
"""Parts of commands that only some of their calls need."""


def load(module: str) -> Any:  # noqa: ANN401 - a module
    """Import a module of the tables."""
    return import_module(module)
