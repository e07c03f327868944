"""What the settings say of people and their rights, as facts of the record: who loaded it is recorded with it."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hansard.domain.settings import Settings
    from hansard.record.api import Record


def loading_user() -> str:
    """Return the user of this machine as whom the process runs."""
    try:
        return f"user:{pwd.getpwuid(os.geteuid()).pw_name}"
    except KeyError:
        return f"user:{os.geteuid()}"


async def declare_settings(record: Record, settings: Settings) -> None:
    """Record who is one person, and which rules hold for tools, where that is news."""
    by = loading_user()
    await record.people.declare(settings.people, by=by)
    await record.access.declare_rules(settings.tools.rules, by=by)
