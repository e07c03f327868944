"""Write the table of settings in docs/run/configuration.md from the schema; with --check, say whether it is true."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec

from hansard.domain.settings import SETTINGS, Setting

TARGET = Path(__file__).parents[1] / "docs" / "run" / "configuration.md"
BEFORE, AFTER = "| setting | default | allowed | meaning |\n|---|---|---|---|\n", "\n\n"


def row(setting: Setting) -> str:
    """One setting."""
    default = setting.default
    number = f"{default:g}" if isinstance(default, float) else json.dumps(msgspec.to_builtins(default))
    written = "not set" if default is None else f"`{number}`"
    return f"| `{setting.key}` | {written} | {setting.allowed} | {setting.meaning} |"


def main() -> int:
    """Write the page, or compare it."""
    page = TARGET.read_text(encoding="utf-8")
    head, found, rest = page.partition(BEFORE)
    _, _, tail = rest.partition(AFTER)
    assert found
    assert tail
    whole = head + BEFORE + "\n".join(row(setting) for setting in SETTINGS.values()) + AFTER + tail
    if "--check" in sys.argv[1:]:
        return int(whole != page)
    TARGET.write_text(whole, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
