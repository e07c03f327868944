"""Settings of the agent: people, rooms, servers and rules, what is refused, and that the page about them is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hansard.app.config import load_config, read_config
from hansard.domain.permissions import CallVerdict
from hansard.domain.settings import Settings
from hansard.domain.settings.agent import AutoResume

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "use" / "agent.md").read_text(encoding="utf-8")
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
    allow, ask = CallVerdict.ALLOW, CallVerdict.ASK
    assert [rule.do for rule in rules] == [allow, ask, allow, allow, allow, allow]
    assert [rule.room for rule in rules] == ["*", "*", "!kitchen:example.org", "*", "*", "*"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[[tools.rules]]\ntool = 'x'\n", "line 1: tools.rules[1] must have do = allow, ask or deny"),
        ("[[tools.rules]]\ndo = 'perhaps'\n", "line 2: tools.rules[1].do must be allow, ask or deny"),
        ("[[tools.rules]]\ndo = 'allow'\nperson = ''\n", "line 3: tools.rules[1].person must be a text of length >= 1"),
        ("[[tools.rules]]\ndo = 'allow'\nwho = 'ann'\n", "line 3: tools.rules[1].who is not a setting; there are do,"),
        (
            "[[tools.rules]]\ndo = 'ask'\n\n[[ tools . rules ]]\ndo = 'ask'\ntol = 'x'\n[limits]\nsteps_max = 3\n",
            "line 6: tools.rules[2].tol is not a setting; did you mean tool?",
        ),
        ("tools.rules = [{ do = 'ask' }, { do = 3 }]", "line 1: tools.rules[2].do must be allow, ask or deny"),
        ("[tools]\nrules = 'x'", "line 2: tools.rules must be sections [[tools.rules]]"),
        (
            "[mcp.b]\ncommand = 'x'\n[mcp.a]\ncomand = 'x'\n",
            "line 4: mcp.a.comand is not a setting; did you mean command?",
        ),
        ("[mcp.a]\ncommand = 'x'\nargs = 'y'\n", "line 3: mcp.a.args must be a list"),
        ("[mcp.a]\ncommand = 'x'\nstart_seconds_max = 0\n", "line 3: mcp.a.start_seconds_max must be a number > 0.0"),
        ("[mcp.a]\ncommand = 5\n", "line 2: mcp.a.command must be a text"),
        ("[mcp.a]\n", "mcp.a must have either a command or a url"),
        ("[mcp.a]\ncommand = 'x'\nurl = 'https://x.org'\n", "mcp.a must have either a command or a url"),
        ("[mcp.b]\ncommand = 'x'\n[mcp.a]\nurl = 'http://x.org/mcp'\n", "line 4: mcp.a.url is http"),
        ("[mcp.a]\nurl = 'https://user:word@x.org/mcp'\n", "mcp.a.url must be an https address"),
        ("[mcp.'a b']\ncommand = 'x'\n", "line 1: mcp.a b: a NAME is of a-z"),
        ("[mcp.a]\ncommand = 'x'\nenv = ['KEY=value']\n", "line 3: mcp.a.env must be a list of names of variables"),
        ("[mcp.a]\ncommand = 'x'\ntoken = 'secret'\n", "line 3: mcp.a.token is not a setting"),
        ("[rooms.a]\nmatrix = ['kitchen']\n", "line 2: rooms.a.matrix must be a list of ids of rooms"),
        ("[rooms.a]\nmatrix = ['!k:x']\n[rooms.b]\nmatrix = ['!k:x']\n", "!k:x is both rooms.a and rooms.b"),
        ("[people.ann]\nmodel = 'gpt'\n", "line 2: people.ann.model must be one of openai:NAME"),
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
    """docs/run/configuration.md has the schema as it is."""
    command = [sys.executable, str(ROOT / "scripts" / "configuration.py"), "--check"]
    assert subprocess.run(command, check=False, timeout=120).returncode == 0
