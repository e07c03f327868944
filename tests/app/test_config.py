"""The configuration: who wins, what is refused and in which words, and that no secret is ever repeated."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.app.config import (
    ALIASES,
    SECRET_NAME,
    Config,
    SourceKind,
    load_config,
    read_config,
    value_at,
)
from hansard.app.home_files import FILE_BYTES_MAX
from hansard.app.keys import check_keys
from hansard.domain.settings import PREFIX, SECTIONS, SETTINGS, Busy, LeftSessions, Settings, TurnLimits
from hansard.errors import ConfigInvalid
from tests.app.config_files import findings_of, write

SAMPLES: dict[str, tuple[object, str]] = {
    "model": ("openai:gpt-5", "openai:gpt-5"),
    "picture_models": (["openai:a"], "openai:a"),
    "text_models": (["openai:b"], "openai:b"),
    "fallback_models": (["openai:a", "scripted:b c.toml"], "openai:a, scripted:b c.toml"),
    "models_allowed": (["openai:*", "demo"], "openai:*, demo"),
    "busy": ("queue", "queue"),
    "left_sessions": ("keep", "keep"),
    "system_prompt": ("null", "null"),
    "terminal.colour": ("never", "never"),
    **{
        key: (7, "7")
        for key in SETTINGS
        if key[:2] in {"li", "tr"} and key.endswith(("s_max", "g_max", "r_max", "l_seconds", "ute"))
    },
    "limits.tool_output_bytes_max": (2048, "2048"),
    "limits.attachment_wait_seconds": (7, "7"),
    "compaction.automatic": (False, "false"),
    "compaction.start_percent": (50, "50"),
    **{key: (5000, "5000") for key in SETTINGS if key.startswith("compaction.") and "tokens" in key},
    **{key: ("https://example.org/v1", "https://example.org/v1") for key in SETTINGS if key.endswith("base_url")},
    **{key: (True, "true") for key in (*SETTINGS,) if SETTINGS[key].default is False},
    **{
        key: (7, "7")
        for key in SETTINGS
        if key.startswith(("resets.", "pairing.", "gateway."))
        or key.endswith(("age_seconds_max", "attachment_bytes_max"))
    },
    "people": ({"ann": {"matrix": ["@ann:example.org"]}}, '{"ann": {"matrix": ["@ann:example.org"]}}'),
    "channels.matrix.homeserver": ("https://example.org", "https://example.org"),
    "channels.matrix.user_id": ("@hansard:example.org", "@hansard:example.org"),
    "channels.matrix.allow": (
        ["@ann:example.org", "*:example.org", "!room:example.org"],
        "@ann:example.org, *:example.org, !room:example.org",
    ),
    "channels.matrix.rooms": ("per_person", "per_person"),
    "channels.matrix.answer": ("everything", "everything"),
    "channels.telegram.base_url": ("https://example.org", "https://example.org"),
    "channels.telegram.allow": (["100001", "-1001"], "100001,-1001"),
    "channels.telegram.rooms": ("per_person", "per_person"),
    "channels.telegram.answer": ("everything", "everything"),
    "channels.other": ({"irc": {"allow": ["ann"]}}, '{"irc": {"allow": ["ann"]}}'),
    "resets.time_zone": ("Europe/Berlin", "Europe/Berlin"),
    "pairing.enabled": (False, "false"),
    **{key: (7, "7") for key in SETTINGS if key.endswith("_day_max") or key == "tools.ask_seconds"},
    "limits.day_time_zone": ("Asia/Tokyo", "Asia/Tokyo"),
    "auto_resume": ("on", "on"),
    "titles": (True, "true"),
    "transcription.model": ("openai:ear", "openai:ear"),
    "transcription.key_variable": ("EAR_KEY", "EAR_KEY"),
    "rooms": ({"work": {"matrix": ["!w:example.org"]}}, '{"work": {"matrix": ["!w:example.org"]}}'),
    "tools.rules": ([{"do": "ask", "tool": "memory"}], '[{"do": "ask", "tool": "memory"}]'),
    "mcp": ({"time": {"url": "https://example.org/mcp"}}, '{"time": {"url": "https://example.org/mcp"}}'),
}
"""For each setting a value that is not its default, as the file has it and as a variable has it."""


def as_toml(key: str, value: object) -> str:
    """A setting as a line of a file, its section above it."""
    section, _, name = key.rpartition(".")
    written = json.dumps(value).replace('": ', '" = ') if isinstance(value, dict | list) else json.dumps(value)
    return f"[{section}]\n{name} = {written}\n" if section else f"\n{name} = {written}\n"


def test_nothing_set(home: Path) -> None:
    """Without a home, a file or a variable, everything has its default, says so, and nothing is created."""
    config = load_config(home, {}, {})
    assert config.settings == Settings()
    assert {str(config.source(key)) for key in SETTINGS} == {"default"}
    assert not home.exists()


def test_defaults_are_those_of_the_engine() -> None:
    """What the engine is given when nobody set anything: a person's message interrupts, and turns are bounded."""
    settings = Settings()
    assert (settings.busy, settings.left_sessions, settings.model) == (Busy.INTERRUPT, LeftSessions.END, None)
    assert settings.limits == TurnLimits(steps_max=40, turn_seconds_max=900, turn_tokens_max=500_000, attempts_max=4)


@pytest.mark.parametrize("key", SETTINGS)
def test_every_default_is_allowed(key: str) -> None:
    """A person may write each default down: it passes its own bounds."""
    setting = SETTINGS[key]
    assert msgspec.convert(msgspec.to_builtins(setting.default), setting.type) == setting.default


@pytest.mark.parametrize("key", SETTINGS)
def test_each_setting_from_each_source(home: Path, key: str) -> None:
    """Each setting can be set in the file, by its variable and by an option, each overruling the one before."""
    in_file, as_text = SAMPLES[key]
    wanted = msgspec.convert(in_file, SETTINGS[key].type)
    assert wanted != SETTINGS[key].default
    write(home, as_toml(key, in_file))
    variable = PREFIX + key.upper().replace(".", "__")
    cases: list[tuple[dict[str, str], dict[str, object], str]] = [
        ({}, {}, "config.toml line 2"),
        ({variable: ""}, {key: None}, "config.toml line 2"),
        ({variable: as_text}, {}, f"environment {variable}"),
        ({variable: as_text}, {key: in_file}, "command line"),
        ({}, {key: as_text}, "command line"),
    ]
    for environment, options, source in cases:
        config = load_config(home, environment, options)
        assert (value_at(config.settings, key), str(config.source(key))) == (wanted, source)
        assert all(config.source(other).kind is SourceKind.DEFAULT for other in SETTINGS if other != key)


def test_the_values_of_the_first_source_win(home: Path) -> None:
    """Option before environment before file before default, setting by setting."""
    write(home, 'model = "openai:file"\nbusy = "queue"\nleft_sessions = "keep"\n')
    config = load_config(home, {"HANSARD_MODEL": "openai:variable", "HANSARD_BUSY": "steer"}, {"model": "demo"})
    found = {key: (str(value_at(config.settings, key)), str(config.source(key))) for key in SETTINGS}
    assert found["model"] == ("demo", "command line")
    assert found["busy"] == ("steer", "environment HANSARD_BUSY")
    assert found["left_sessions"] == ("keep", "config.toml line 3")
    assert found["fallback_models"] == ("()", "default")


@pytest.mark.parametrize(("key", "alias"), ALIASES.items())
def test_variables_of_the_providers(home: Path, key: str, alias: str) -> None:
    """The provider's own variable overrules the file, and Hansard's own overrules that."""
    write(home, as_toml(key, "https://file.example"))
    environment = {alias: "https://alias.example"}
    config = load_config(home, environment, {})
    assert (value_at(config.settings, key), config.source(key).detail) == ("https://alias.example", alias)
    config = load_config(home, environment | {SETTINGS[key].variable: "https://own.example"}, {})
    assert value_at(config.settings, key) == "https://own.example"


MODELS = "one of openai:NAME, openai-responses:NAME, anthropic:NAME, google:NAME, scripted:FILE, demo"
ACCOUNTS = 'a list of accounts, such as ["@ann:example.org"]'
ALLOW = SETTINGS["channels.matrix.allow"].allowed
ZONE = SETTINGS["resets.time_zone"].allowed
WRONG = [
    ('\nmodle = "demo"', 2, "modle is not a setting; did you mean model?"),
    ("[limts]\nsteps_max = 1", 1, "limts is not a setting; did you mean limits?"),
    ("[limits]\nstep_max = 1", 2, "limits.step_max is not a setting; did you mean limits.steps_max?"),
    ("steps_max = 1", 1, "steps_max is not a setting; did you mean limits.steps_max?"),
    ('[limits]\nbusy = "queue"', 2, "limits.busy is not a setting; busy is: write it above the first [section]"),
    ("zzz = 1", 1, "zzz is not a setting; see `hansard config` for those that are"),
    ('"limits.steps_max" = 1', 1, "limits.steps_max is not a setting; did you mean limits.steps_max?"),
    ('"a\\u001b[31m" = 1', 1, "a\\u001b[31m is not a setting; see `hansard config` for those that are"),
    ("\n[people.ann]\nmatrix = 'ann'", 3, f"people.ann.matrix must be {ACCOUNTS}"),
    ("\n[people.ann]\nmatrix = ['ann']", 3, f"people.ann.matrix must be {ACCOUNTS}"),
    ("\n[people.ann]\ntelegrm = '1'", 3, "people.ann.telegrm is not a setting; did you mean telegram?"),
    ("\n[people.ann]\nterminal = 'yes'", 3, "people.ann.terminal must be true or false"),
    ("people.ann = 3", 1, f"people must be {SETTINGS['people'].allowed}"),
    ("[people.'Ann B']\nterminal = true", 1, "people.Ann B: a NAME is of a-z, 0-9, _ and -"),
    ("people = 3", 1, f"people must be {SETTINGS['people'].allowed}, not 3"),
    ("[channels.irc]\nallow = []", 1, "channels.irc is not a setting; did you mean channels?"),
    ("[channels.matrix]\nallow = ['Ann']", 2, f"channels.matrix.allow must be {ALLOW}"),
    ("[resets]\ntime_zone = '../etc/passwd'", 2, f"resets.time_zone must be {ZONE}"),
    ("[resets]\ndaily_hour = 24", 2, "resets.daily_hour must be a whole number from 0 to 23, not 24"),
    ("limits = 3", 1, "limits is a section: write [limits], and its settings below that line"),
    ("[[limits]]\nsteps_max = 3", 1, "limits is a section: write [limits], and its settings below that line"),
    ('model = "gpt-5"', 1, f"model must be {MODELS}"),
    ('model = "openai:"', 1, f"model must be {MODELS}"),
    ('model = "demo\\n"', 1, f"model must be {MODELS}"),
    ("model = 5", 1, f"model must be {MODELS}, not 5"),
    ("[model]\nname = 'x'", 1, f"model must be {MODELS}"),
    ('fallback_models = "demo"', 1, f"fallback_models must be a list of at most 10 models, each {MODELS}"),
    ("fallback_models = [\n  'demo',\n  3]", 1, f"fallback_models must be a list of at most 10 models, each {MODELS}"),
    ('busy = "interupt"', 1, "busy must be one of interrupt, queue, steer; did you mean interrupt?"),
    ('busy = "now"', 1, "busy must be one of interrupt, queue, steer"),
    ("busy = ['queue']", 1, "busy must be one of interrupt, queue, steer, not a list"),
    ('left_sessions = "kept"', 1, "left_sessions must be one of end, keep; did you mean keep?"),
    ("system_prompt = 2026-01-01", 1, "system_prompt must be text of at most 100000 characters"),
    ("limits.steps_max = 0", 1, "limits.steps_max must be a whole number from 1 to 1000, not 0"),
    ("limits.steps_max = 1.5", 1, "limits.steps_max must be a whole number from 1 to 1000, not 1.5"),
    ("limits.steps_max = true", 1, "limits.steps_max must be a whole number from 1 to 1000, not true"),
    ('limits.steps_max = "5"', 1, "limits.steps_max must be a whole number from 1 to 1000"),
    (f"limits.steps_max = 0x{'f' * 6000}", 1, "limits.steps_max must be a whole number from 1 to 1000"),
    ("limits.turn_seconds_max = 0", 1, "limits.turn_seconds_max must be a number above 0 and at most 86400, not 0"),
    ("limits.stall_seconds = nan", 1, "limits.stall_seconds must be a number above 0 and at most 3600, not nan"),
    ("limits.retry_seconds_max = inf", 1, "limits.retry_seconds_max must be a number from 0 to 3600, not inf"),
    ("terminal = {\treasoning = 1 }", 1, "terminal.reasoning must be true or false, not 1"),
    ("terminal.colour = 'allways'", 1, "terminal.colour must be one of auto, always, never; did you mean always?"),
    ("# café\nbusy = 'queue", 2, "it is not TOML: "),
    ("busy = 'queue'\n\nbusy = 'queue'", 3, "it is not TOML: "),
    ("busy = [", 1, "it is not TOML: "),
    (b"# one\nbusy = 'caf\xe9'", 2, "it is not UTF-8"),
]
"""What a person may write by mistake, the line that is named, and what is said."""


@pytest.mark.parametrize(("text", "line", "what"), WRONG)
def test_what_is_wrong_is_named(home: Path, text: str | bytes, line: int, what: str) -> None:
    """An error names the file, the line, the key and what is allowed, and the value is as if it were not given."""
    (finding,) = findings_of(home, text)
    assert finding.where == f"{home}/config.toml, line {line}"
    assert finding.what == what if not what.endswith(": ") else finding.what.startswith(what)
    assert read_config(home, {}, {})[0].settings == Settings()
    with pytest.raises(ConfigInvalid) as caught:
        load_config(home, {}, {})
    assert str(caught.value) == str(finding)


DEEP = [f"busy = {'[' * 5000}", f"limits.steps_max = {'9' * 5000}", f"a = {'[' * 5000}{']' * 5000}"]


@pytest.mark.parametrize("text", DEEP, ids=["open", "digits", "closed"])
def test_what_no_parser_takes(home: Path, text: str) -> None:
    """Numbers of thousands of digits and lists in lists are refused as what they are."""
    (finding,) = findings_of(home, text)
    assert finding.what == "it is not TOML: a number is too long, or lists are nested too deeply"


def test_everything_wrong_is_told_at_once(home: Path) -> None:
    """One error holds all findings, a line each: of the file, of variables and of options."""
    write(home, "[limits]\nsteps_max = 0\nattempts_max = 99\n")
    with pytest.raises(ConfigInvalid) as caught:
        load_config(home, {"HANSARD_BUSY": "never"}, {"model": "x", "modell": "demo"})
    assert [line.partition(": ")[0] for line in str(caught.value).splitlines()] == [
        f"{home}/config.toml, line 2",
        f"{home}/config.toml, line 3",
        "environment variable HANSARD_BUSY",
        "command line",
        "command line",
    ]


def test_a_wrong_value_is_told_although_it_is_overruled(home: Path) -> None:
    """A mistake in the file does not hide behind a variable that is right."""
    assert len(findings_of(home, "busy = 'never'", HANSARD_BUSY="queue")) == 1


VARIABLES_WRONG = {
    "HANSARD_MODLE": "there is no such setting; did you mean HANSARD_MODEL?",
    "HANSARD_BUZY": "there is no such setting; did you mean HANSARD_BUSY?",
    "HANSARD_LIMITS__STEP_MAX": "there is no such setting; did you mean HANSARD_LIMITS__STEPS_MAX?",
    "HANSARD_TERMINAL__ZZZZZZ": "there is no such setting",
    "HANSARD_BUSY": "busy must be one of interrupt, queue, steer",
    "HANSARD_TERMINAL__REASONING": "terminal.reasoning must be true or false",
    "HANSARD_LIMITS__STEPS_MAX": "limits.steps_max must be a whole number from 1 to 1000",
    "HANSARD_SYSTEM_PROMPT": "system_prompt must be text of at most 100000 characters",
}


@pytest.mark.parametrize(("variable", "what"), VARIABLES_WRONG.items())
def test_wrong_variables(home: Path, variable: str, what: str) -> None:
    """A variable that is misspelt or has a wrong value is an error that names it; text must be UTF-8."""
    (finding,) = read_config(home, {variable: "\udcff"}, {})[1]
    assert finding == (f"environment variable {variable}", what)


def test_a_table_in_a_variable_is_json(home: Path) -> None:
    """What is no JSON is told as such; JSON that says something else as what is allowed."""
    allowed = SETTINGS["people"].allowed
    told = f"people must be JSON, and this is not. In config.toml it is {allowed}"
    for value, what in {"{": told, "[]": f"people must be {allowed}"}.items():
        (finding,) = read_config(home, {"HANSARD_PEOPLE": value}, {})[1]
        assert finding == ("environment variable HANSARD_PEOPLE", what)


@pytest.mark.parametrize(
    "variable", ["HANSARD_HOME", "HANSARD_DEMO_FOLDER", "HANSARD_SEED", "HANSARD_LONG", "HANSARD_PROVE", "BUSY"]
)
def test_other_variables(home: Path, variable: str) -> None:
    """Variables that are not settings, and not nearly, are left alone."""
    assert read_config(home, {variable: "x"}, {})[1] == []


ADDRESSES = {
    "https://api.example.org/v1": "",
    "HTTPS://api.example.org": "",
    "http://127.0.0.1:8000/v1": "",
    "http://127.1.2.3": "",
    "http://[::1]:1": "",
    "http://localhost:11434/v1": "",
    "http://a.localhost/": "",
    "http://192.168.1.4/v1": "http",
    "http://127.0.0.1.example.org/": "http",
    "http://localhost.example.org/": "http",
    "http://[::2]/": "http",
    "http://127.0.0.1@example.org/": "must be",
    "https://me:password@example.org/": "must be",
    "https://example.org/?key=1": "must be",
    "https://example.org/#x": "must be",
    "http://127.0.0.1\\@example.org": "must be",
    "https://exa mple.org/": "must be",
    "https://example.org:port/": "must be",
    "https://[::1": "must be",
    "https://": "must be",
    "ftp://example.org": "must be",
    "example.org": "must be",
    "file:///etc/passwd": "must be",
}


@pytest.mark.parametrize(("url", "what"), ADDRESSES.items())
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_addresses(home: Path, provider: str, url: str, what: str) -> None:
    """Keys go by https, or to this machine; http elsewhere only where that was allowed; never with a password in it."""
    section = f"[providers.{provider}]\nbase_url = {json.dumps(url)}\n"
    findings = findings_of(home, section)
    assert [finding.where for finding in findings] == ([f"{home}/config.toml, line 2"] if what else [])
    assert all(f"providers.{provider}.base_url" in finding.what and what in finding.what for finding in findings)
    allowed = findings_of(home, section + "allow_http = true\n")
    assert bool(allowed) == (what == "must be")


def test_the_message_about_http(home: Path) -> None:
    """The error about http says why, and the way out, wherever the address was set."""
    (finding,) = read_config(home, {"OPENAI_BASE_URL": "http://llm.example/v1"}, {})[1]
    assert str(finding) == (
        "environment variable OPENAI_BASE_URL: providers.openai.base_url is http: others on the way could read keys "
        "and words. Use https, or set providers.openai.allow_http = true"
    )


def test_a_file_that_is_linked_and_readable(tmp_path: Path, home: Path) -> None:
    """config.toml may be a link to a file that everybody may read: there is no secret in it."""
    target = write(tmp_path / "dotfiles", "busy = 'steer'", mode=0o644)
    home.mkdir()
    (home / "config.toml").symlink_to(target)
    assert load_config(home, {}, {}).settings.busy is Busy.STEER


def test_windows_line_ends_and_a_mark(home: Path) -> None:
    """A file from another system is read, and its lines are counted alike."""
    write(home, "\ufeff# one\r\n\r\nbusy = 'queue'\r\n")
    assert str(load_config(home, {}, {}).source("busy")) == "config.toml line 3"


def make_huge(path: Path) -> None:
    """A file that is too large."""
    path.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    path.chmod(0o600)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (Path.mkdir, "it is not a regular file"),
        (os.mkfifo, "it is not a regular file"),
        (lambda path: path.symlink_to(path), f"it cannot be read: {os.strerror(errno.ELOOP)}"),
        (lambda path: path.symlink_to("nothing"), "it is a link that leads nowhere"),
        (make_huge, "it has more than 1,048,576 bytes"),
    ],
    ids=["folder", "pipe", "loop", "dangling", "huge"],
)
@pytest.mark.parametrize("name", ["config.toml", "keys.toml"])
def test_what_is_no_file(home: Path, make: Callable[[Path], None], what: str, name: str) -> None:
    """Whatever stands in place of a file is said, at once: reading a pipe does not wait."""
    home.mkdir(mode=0o700)
    make(home / name)
    findings = read_config(home, {}, {})[1] + check_keys(home, {})
    assert findings == [(f"{home / name}", what)]


def test_a_file_in_place_of_the_home(tmp_path: Path) -> None:
    """A home that is a file has no settings, and that is said."""
    home = tmp_path / "home"
    home.write_text("x")
    (finding,) = read_config(home, {}, {})[1]
    assert finding == (str(home), f"it cannot be read: {os.strerror(errno.ENOTDIR)}")


NUMBERS = ["1", "-1", "0.5", "9" * 30]
SIGNS = ["=", "=", "\n", "\n", "[", "]", "{", "}", ",", ".", "'", '"', '"""', "#", "true", "\\", "é", "\x00", " "]
SCRAPS = st.sampled_from(
    [
        *SETTINGS,
        *sorted(SECTIONS),
        "'queue'",
        "'demo'",
        "'https://a'",
        "'http://a'",
        "1979-05-27",
        "nan",
        *NUMBERS,
        *SIGNS,
    ]
)


@given(st.binary(max_size=60) | st.lists(SCRAPS, max_size=25).map(lambda scraps: "".join(scraps).encode()))
def test_any_bytes_are_a_config_or_an_error(data: bytes) -> None:
    """Whatever stands in config.toml, the outcome is a Config or ConfigInvalid, which names the file."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), data)
        try:
            assert isinstance(load_config(Path(folder), {}, {}), Config)
        except ConfigInvalid as error:
            assert f"{folder}/config.toml" in str(error)  # noqa: PT017 - either outcome is right


ANYTHING = st.text(alphabet=st.characters(blacklist_categories=[]), max_size=12)


@given(
    st.dictionaries(
        st.sampled_from([setting.variable for setting in SETTINGS.values()]) | ANYTHING.map(PREFIX.__add__), ANYTHING
    ),
    st.dictionaries(st.sampled_from(list(SETTINGS)), ANYTHING | st.integers() | st.floats() | st.booleans()),
)
def test_any_variables_and_options_are_a_config_or_an_error(
    environment: dict[str, str], options: dict[str, object]
) -> None:
    """Whatever the environment and the command line hold, text that is not UTF-8 included, only ConfigInvalid comes."""
    try:
        assert isinstance(load_config(Path("nowhere"), environment, options), Config)
    except ConfigInvalid as error:
        assert str(error).encode()  # noqa: PT017 - either outcome is right; it can be printed


@pytest.mark.parametrize(
    "line", ["openai_key", "providers.openai.api_key", "API_TOKEN", "limits.secret", "password", "apikeys", "tokens"]
)
def test_secrets_have_another_place(home: Path, line: str) -> None:
    """A secret in config.toml is refused, with where it belongs; no setting has such a name."""
    (finding,) = findings_of(home, f"{line} = 'x'")
    assert "looks like a secret, and config.toml is no place for one: set OPENAI_API_KEY" in finding.what
    assert "keys.toml" in finding.what
    assert [key for key in SETTINGS if SECRET_NAME.search(key)] == []
