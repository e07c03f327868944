"""A changed rule is an entry: with a hash, the rules themselves, and the user whose process loaded them."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from typing import Any

from hansard.app.wiring import open_app
from hansard.domain.permissions import CallVerdict, ToolRule
from hansard.domain.settings import Person, Settings
from hansard.domain.settings.agent import Tools

ALLOWS = ToolRule(do=CallVerdict.ALLOW, tool="mcp__bank__pay", person="ann")
DENIES = ToolRule(do=CallVerdict.DENY, tool="*")


def bodies(home: Path, kind: str) -> list[dict[str, Any]]:
    """The bodies of a kind in the home journal, as its log has them."""
    lines = [json.loads(line) for line in (home / "home.jsonl").read_text().splitlines()]
    return [line["body"] for line in lines if line["kind"] == kind]


async def load(home: Path, *rules: ToolRule) -> None:
    """Start and leave, with these rules in the settings."""
    settings = Settings(tools=Tools(rules=rules), people={"ann": Person(matrix=("@ann:x.org",))})
    async with open_app(home, settings, {}, lambda _session_id, _error: None) as app:
        report = await app.record.verify()
        assert report.ok, report.findings


async def test_rules_are_recorded_when_they_change(home: Path) -> None:
    """Once for each change, the one back to none included; the same rules again write nothing."""
    await load(home)
    assert bodies(home, "rules.declared") == []
    for rules in ((ALLOWS,), (ALLOWS,), (DENIES, ALLOWS), (DENIES, ALLOWS), (), ()):
        await load(home, *rules)
    declared = bodies(home, "rules.declared")
    user = f"user:{pwd.getpwuid(os.geteuid()).pw_name}"
    assert [body.get("rules", []) for body in declared] == [
        ['do = "allow", tool = "mcp__bank__pay", person = "ann"'],
        ['do = "deny"', 'do = "allow", tool = "mcp__bank__pay", person = "ann"'],
        [],
    ]
    assert [body["by"] for body in declared] == [user] * 3
    assert len({body["digest"] for body in declared}) == 3
    assert bodies(home, "people.declared")[0]["by"] == user
