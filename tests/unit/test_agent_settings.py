"""Settings of the agent: people, rooms, servers and rules, what is refused, and that the page about them is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hansard.app.config import load_config, read_config
from hansard.domain.permissions import Verdict
from hansard.domain.settings import Settings
from hansard.domain.settings_agent import AutoResume

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "agent.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def read(home: Path, text: str) -> tuple[Settings, list[str]]:
    """The settings of a file, and what is wrong with it."""
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text(text)
    config, findings = read_config(home, {}, {})
    return config.settings, [str(finding) for finding in findings]


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_examples_of_the_page_load(home: Path, example: str) -> None:
    """Each example is a configuration without findings that changes something."""
    settings, findings = read(home, example)
    assert findings == []
    assert settings != Settings()


def test_rules_keep_their_order(home: Path) -> None:
    """The table is read as it stands in the file; what is left out fits everything."""
    rules = read(home, "\n".join(EXAMPLES))[0].tools.rules
    assert [rule.do for rule in rules] == [Verdict.ALLOW, Verdict.ASK, Verdict.ALLOW, Verdict.ALLOW]
    assert [rule.room for rule in rules] == ["*", "*", "!kitchen:example.org", "*"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[[tools.rules]]\ntool = 'x'\n", "tools.rules must be"),
        ("[[tools.rules]]\ndo = 'perhaps'\n", "tools.rules must be"),
        ("[[tools.rules]]\ndo = 'allow'\nperson = ''\n", "tools.rules must be"),
        ("[[tools.rules]]\ndo = 'allow'\nwho = 'ann'\n", "tools.rules must be"),
        ("[mcp.a]\n", "mcp.a must have either a command or a url"),
        ("[mcp.a]\ncommand = 'x'\nurl = 'https://x.org'\n", "mcp.a must have either a command or a url"),
        ("[mcp.a]\nurl = 'http://x.org/mcp'\n", "mcp.a.url is http"),
        ("[mcp.a]\nurl = 'https://user:word@x.org/mcp'\n", "mcp.a.url must be an https address"),
        ("[mcp.'a b']\ncommand = 'x'\n", "mcp must be"),
        ("[mcp.a]\ncommand = 'x'\nenv = ['KEY=value']\n", "mcp must be"),
        ("[mcp.a]\ncommand = 'x'\ntoken = 'secret'\n", "mcp must be"),
        ("[rooms.a]\nmatrix = ['kitchen']\n", "rooms must be"),
        ("[rooms.a]\nmatrix = ['!k:x']\n[rooms.b]\nmatrix = ['!k:x']\n", "!k:x is both rooms.a and rooms.b"),
        ("[people.ann]\nmodel = 'gpt'\n", "people must be"),
        ("auto_resume = 'maybe'\n", "auto_resume must be one of off, ask, on"),
        ("titles = 'no'\n", "titles must be true or false"),
        ("[limits]\nperson_turns_day_max = 0\n", "limits.person_turns_day_max must be a whole number from 1"),
        ("[limits]\ndollars_day_max = -1\n", "limits.dollars_day_max must be a number above 0"),
        ("[limits]\nday_time_zone = 'Europe/Nowhere'\n", "limits.day_time_zone must be the name of a time zone"),
        ("[tools]\nask_seconds = -1\n", "tools.ask_seconds must be a number from 0"),
    ],
)
def test_what_is_wrong_is_named(home: Path, text: str, what: str) -> None:
    """Each finding names the setting and what is allowed, and repeats no value that may be a secret."""
    settings, findings = read(home, text)
    assert len(findings) == 1
    assert what in findings[0]
    assert not re.search(r"word@|=value|'secret'", findings[0])
    del settings


def test_http_on_this_machine_and_with_permission(home: Path) -> None:
    """Http is for this machine, or where somebody says so."""
    for text in ("url = 'http://127.0.0.1:8000/mcp'", "url = 'http://x.org/mcp'\nallow_http = true"):
        assert read(home, f"[mcp.a]\n{text}\n")[1] == []


def test_variables_set_what_they_can(home: Path) -> None:
    """Simple settings have their variables, like all others."""
    variables = {"HANSARD_AUTO_RESUME": "ask", "HANSARD_TITLES": "true", "HANSARD_TOOLS__ASK_SECONDS": "5"}
    settings = load_config(home, variables, {}).settings
    assert (settings.auto_resume, settings.titles, settings.tools.ask_seconds) == (AutoResume.ASK, True, 5)


def test_the_table_of_settings_is_generated() -> None:
    """docs/configuration.md has the schema as it is."""
    command = [sys.executable, str(ROOT / "scripts" / "configuration.py"), "--check"]
    assert subprocess.run(command, check=False, timeout=120).returncode == 0
