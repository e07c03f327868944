"""Settings and keys as people meet them: `hansard config`, `keys.toml`, output without secrets, the page about it."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import click.testing
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.app.config import ALIASES, NOT_SETTINGS, load_config, value_at
from hansard.app.home_files import UNREADABLE_HINT
from hansard.app.keys import VARIABLES, ProviderKey, check_keys, find_key
from hansard.cli.config import command
from hansard.domain.settings import SETTINGS, Setting
from hansard.errors import ConfigInvalid
from tests.acceptance.shown.program import run_forked

EXIT_OK, EXIT_FINDINGS, EXIT_COULD_NOT_RUN = 0, 1, 2
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "run" / "configuration.md").read_text(encoding="utf-8")
SECRET = "sk-proj-0123456789abcdefghijklmnopqrstuvwxyz"  # noqa: S105 - nobody's key
OURS = ("HANSARD_", "OPENAI_", "ANTHROPIC_", "GOOGLE_")


def run(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `hansard config` in a process of its own, without settings of this machine."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    found = run_forked("--home", home, "config", *arguments, variables=inherited | environment)
    assert "Traceback" not in found.stderr + found.stdout
    return found


def invoke(home: Path, arguments: list[str], environment: dict[str, str]) -> click.testing.Result:
    """Run `hansard config` within this process, without settings of this machine."""
    cleared: dict[str, str | None] = {name: None for name in os.environ if name.startswith(OURS)}
    return click.testing.CliRunner(env=cleared | environment).invoke(command, arguments, obj={"home": home})


def write(home: Path, text: str, name: str = "config.toml", mode: int = 0o600) -> Path:
    """Put a file into a private home."""
    home.mkdir(exist_ok=True, mode=0o700)
    path = home / name
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def test_every_setting_is_shown_with_its_source(home: Path) -> None:
    """`hansard config` and `config show` print a line for each setting and key, in columns; keys only as set or not."""
    write(home, f"openai = '{SECRET}'", "keys.toml")
    write(home, 'system_prompt = """\nBe\\u001b brief\\u009b\\u202e.\n"""\nlimits.steps_max = 7\n')
    environment = {"HANSARD_BUSY": "queue", "ANTHROPIC_API_KEY": SECRET}
    shown = run(home, **environment)
    assert (shown.returncode, shown.stderr) == (EXIT_OK, "")
    assert run(home, "show", **environment).stdout == shown.stdout
    lines = shown.stdout.splitlines()
    assert [line.split()[0] for line in lines[: len(SETTINGS)]] == list(SETTINGS)
    assert len({len("".join(re.findall(r"^\S+ +", line))) for line in lines[: len(SETTINGS)]}) == 1
    folded = {re.sub(r" {2,}", " | ", line) for line in lines}
    assert folded >= {
        "model | not set | default",
        'busy | "queue" | environment HANSARD_BUSY',
        'system_prompt | "Be\\u001b brief\\u009b\\u202e.\\n" | config.toml line 1',
        "limits.steps_max | 7 | config.toml line 4",
        "limits.turn_seconds_max | 900 | default",
        "key of openai | set (keys.toml)",
        "key of anthropic | set (environment ANTHROPIC_API_KEY)",
        "key of google | not set",
    }
    assert SECRET[-8:] not in shown.stdout


@pytest.mark.parametrize("arguments", [("--json",), ("show", "--json"), ("--json", "show")])
def test_json(home: Path, arguments: tuple[str, ...]) -> None:
    """--json prints one object with every setting, its value and its source."""
    write(home, "fallback_models = ['demo']")
    told = json.loads(run(home, *arguments, OPENAI_API_KEY=SECRET).stdout)
    assert list(told["settings"]) == list(SETTINGS)
    assert told["path"] == str(home / "config.toml")
    assert told["settings"]["fallback_models"] == {"value": ["demo"], "source": "config.toml line 1"}
    assert told["settings"]["model"] == {"value": None, "source": "default"}
    assert told["keys"]["openai"] == "set (environment OPENAI_API_KEY)"
    assert told["keys"]["google"] == "not set"


def test_a_wrong_file_is_not_shown(home: Path) -> None:
    """With something wrong there is nothing to show: exit 2, everything that is wrong, and what to do."""
    write(home, "buzy = 1\nmodel = 1\n")
    found = run(home)
    assert (found.returncode, found.stdout) == (EXIT_COULD_NOT_RUN, "")
    assert found.stderr.startswith(f"hansard: {home}/config.toml, line 1: buzy is not a setting; did you mean busy?\n")
    assert "line 2: model must be" in found.stderr
    assert "hansard config check" in found.stderr


def test_check_of_nothing(home: Path) -> None:
    """Where there is nothing yet, all is well, and looking creates nothing."""
    found = run(home, "check")
    assert (found.returncode, found.stdout, found.stderr) == (EXIT_OK, "ok\n", "")
    assert json.loads(run(home, "check", "--json").stdout) == {"ok": True, "findings": []}
    assert run(home, "path").stdout == f"{home}/config.toml\n"
    assert not home.exists()


def test_check_reads_scripts(home: Path) -> None:
    """A scripted model whose file cannot be used is a finding, at its line or variable; one that can is none."""
    good = write(home, '[[answers]]\ntext = "Hello."\n', "good.toml")
    bad = write(home, "[[answers]]\nbody = 1\n", "bad.toml")
    write(home, f'busy = "queue"\nmodel = "scripted:{home}/gone.toml"\nfallback_models = ["scripted:{good}"]\n')
    gone = f"{home}/config.toml, line 2: model: the script {home}/gone.toml cannot be read: No such file or directory"
    assert invoke(home, ["check"], {}).output.splitlines() == [gone]
    found = invoke(home, ["check"], {"HANSARD_MODEL": f"scripted:{bad}"})
    assert found.output.startswith(f"environment variable HANSARD_MODEL: model: the script {bad} is not right: ")
    assert found.exit_code == EXIT_FINDINGS


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("nope", "Correct the command line: `hansard --help` lists its options."),
        ("scripted:gone.toml", "Correct that file, or name another model: with -m, or as `model` in config.toml."),
    ],
)
def test_what_the_command_line_gets_wrong(home: Path, model: str, hint: str) -> None:
    """The hint speaks of what has to be changed: `config check` knows nothing of it."""
    found = run_forked("--home", home, "-m", model, "-p", "hi", variables={"PATH": os.environ["PATH"]})
    assert found.returncode != EXIT_OK
    assert hint in found.stderr
    assert "config check" not in found.stderr


def test_check_reads_the_notices(home: Path) -> None:
    """notices.toml is checked, too. A channel that still chooses a language is told where the wording belongs."""
    path = write(home, 'late = "Too late: {when}"\nlatte = "no such notice"\n', "notices.toml")
    found = invoke(home, ["check"], {})
    assert found.exit_code == EXIT_FINDINGS
    assert found.stdout.splitlines() == [
        f"{path}, line 1: late names {{when}}; it may name nothing",
        f"{path}, line 2: there is no notice latte",
    ]
    write(home, '[channels.matrix]\nnotices = "de"\n')
    path.unlink()
    assert invoke(home, ["check"], {}).stdout == (
        f"{home / 'config.toml'}, line 2: channels.matrix.notices is no longer a setting; "
        "notices.toml in the home replaces the wording, on all channels\n"
    )


def test_check_lists_everything(home: Path) -> None:
    """`config check` lists all findings, of the home, the file, variables and keys, and ends with 1."""
    write(home, "busy = 1\nbuzy = 1\n")
    write(home, "", "keys.toml", mode=0o640)
    home.chmod(0o755)
    found = run(home, "check", HANSARD_MODLE="demo", GOOGLE_API_KEY="two words")
    assert (found.returncode, found.stderr) == (EXIT_FINDINGS, "")
    assert found.stdout.splitlines() == [
        f"{home}: others may read it (mode 0755); run: chmod 700 {home}",
        f"{home}/config.toml, line 1: busy must be one of interrupt, queue, steer, not 1",
        f"{home}/config.toml, line 2: buzy is not a setting; did you mean busy?",
        "environment variable HANSARD_MODLE: there is no such setting; did you mean HANSARD_MODEL?",
        "environment variable GOOGLE_API_KEY: a key is one word of printable ASCII characters, and this is not",
        f"{home}/keys.toml: others may read it (mode 0640); run: chmod 600 {home}/keys.toml",
    ]
    told = json.loads(run(home, "check", "--json").stdout)
    assert (told["ok"], len(told["findings"])) == (False, 4)
    assert told["findings"][1]["where"] == f"{home}/config.toml, line 1"


def test_a_home_that_is_none(tmp_path: Path) -> None:
    """A file in place of the home is a finding, not a crash."""
    (tmp_path / "home").write_text("x")
    found = run(tmp_path / "home", "check")
    assert found.returncode == EXIT_FINDINGS
    assert "it is not a folder" in found.stdout


@pytest.mark.parametrize("below", ["", "further/home"])
def test_a_home_that_may_not_be_entered(home: Path, below: str) -> None:
    """`config check` says so in one line, exit 1; the hint of other commands names no setting, for none is wrong."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("setpriv is missing: root may enter every folder")
    powers = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []
    variables = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    target = home / below

    def run_plain(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*powers, sys.executable, "-m", "hansard.cli.main", "--home", str(target), *arguments]
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=120)

    home.mkdir(0)
    try:
        checked = run_plain("config", "check")
        found = run_plain("config")
    finally:
        home.chmod(0o700)
    line = f"{target}: it cannot be read: Permission denied"
    assert (checked.returncode, checked.stdout, checked.stderr) == (EXIT_FINDINGS, f"{line}\n", "")
    assert (found.returncode, found.stderr) == (EXIT_COULD_NOT_RUN, f"hansard: {line}\n{UNREADABLE_HINT}\n")


def test_a_key_of_the_environment_comes_first(home: Path) -> None:
    """The environment overrules keys.toml, which is then not even looked at; an empty variable is not set."""
    path = write(home, "openai = 'of-the-file'\nanthropic = ' spaced '\ngoogle = ''", "keys.toml")
    key = find_key("openai", home, {"OPENAI_API_KEY": " of-the-environment\n"})
    assert key is not None
    assert (key.reveal(), key.source) == ("of-the-environment", "environment OPENAI_API_KEY")
    key = find_key("openai", home, {"OPENAI_API_KEY": ""})
    assert key is not None
    assert (key.reveal(), key.source) == ("of-the-file", "keys.toml")
    spaced = find_key("anthropic", home, {})
    assert spaced is not None
    assert spaced.reveal() == "spaced"
    assert find_key("google", home, {}) is None
    assert find_key("demo", home, {"DEMO_API_KEY": "x"}) is None
    path.chmod(0o644)
    assert find_key("openai", home, {"OPENAI_API_KEY": "x"}) is not None
    with pytest.raises(ConfigInvalid):
        find_key("openai", home, {})


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o601, 0o604, 0o610, 0o620, 0o640, 0o644, 0o660, 0o666, 0o777])
def test_keys_that_others_may_read_are_refused(tmp_path: Path, mode: int) -> None:
    """A file of keys with any bit for others is refused, with the command that puts it right, ready to be pasted."""
    home = tmp_path / "a home"
    path = write(home, f"openai = '{SECRET}'", "keys.toml", mode)
    if mode & 0o077 == 0:
        assert find_key("openai", home, {}) is not None
        return
    with pytest.raises(ConfigInvalid) as caught:
        find_key("openai", home, {})
    assert str(caught.value) == f"{path}: others may read it (mode {mode:04o}); run: chmod 600 '{path}'"
    subprocess.run(str(caught.value).partition("run: ")[2], shell=True, check=True, timeout=120)  # noqa: S602
    assert find_key("openai", home, {}) is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_keys_of_somebody_else_are_refused(home: Path) -> None:
    """A file of keys that another user owns, and could change, is refused."""
    path = write(home, f"openai = '{SECRET}'", "keys.toml")
    os.chown(path, 12345, -1)
    with pytest.raises(ConfigInvalid, match="it belongs to another user; run: sudo chown 0 "):
        find_key("openai", home, {})


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("\nopenia = 'x'", "keys.toml, line 2: this is not a provider; those with keys are openai, anthropic, google"),
        ("openai = 5", 'keys.toml, line 1: a key is text: openai = "…"'),
        ("[openai]\nkey = 'x'", 'keys.toml, line 1: a key is text: openai = "…"'),
        ("openai = 'a b'", "keys.toml, line 1: a key is one word of printable ASCII characters, and this is not"),
        ("openai = 'clé'", "keys.toml, line 1: a key is one word of printable ASCII characters, and this is not"),
        ("openai = sk", "keys.toml, line 1: it is not TOML: Invalid value"),
    ],
)
def test_wrong_files_of_keys(home: Path, text: str, what: str) -> None:
    """What is wrong with a file of keys is said with its line, and without what stands there."""
    write(home, text, "keys.toml")
    with pytest.raises(ConfigInvalid) as caught:
        find_key("openai", home, {})
    assert str(caught.value) == f"{home}/{what}"


SECRETS = st.text(alphabet="abcdefghijkmnopqrstuvwxyzABCDEFGH0123456789_-", min_size=32, max_size=80).map("sk-".__add__)


@given(SECRETS)
def test_a_key_hides_itself(secret: str) -> None:
    """Whatever prints, formats, copies or encodes a key, only `reveal` gives it out; a short one not even in part."""
    key = ProviderKey(secret, "somewhere")
    assert key.reveal() == secret
    shown = [str(key), repr(key), f"{key}", f"{key!r:>99}", repr([key]), "%s %r" % (key, key)]  # noqa: UP031
    assert not any(secret in text for text in shown)
    assert (str(key), repr(key)) == ("set (somewhere)", f"ProviderKey(somewhere, …{secret[-4:]})")
    assert repr(ProviderKey(secret[:19], "somewhere")) == "ProviderKey(somewhere)"
    for leak in (pickle.dumps, copy.copy, copy.deepcopy, msgspec.json.encode, json.dumps, vars):
        with pytest.raises(TypeError) as caught:
            leak(key)
        assert secret not in str(caught.value)


PLACES = [
    "model = '@'",
    "model = @",
    "@ = 1",
    "['@'.x]\n['@'.x]",
    "[@]\n[@]",
    "x = { @ = 1, @ = 2 }",
    "limits.@ = 1",
    "openai_api_key = '@'",
    "[providers.openai]\napi_key = '@'",
    "[providers.openai]\nbase_url = 'https://@:x@example.org'",
    "[providers]\nopenai = '@'",
    "[keys]\nopenai = '@'",
    "TOKEN = '@",
    "busy = '@'",
    "fallback_models = ['demo', '@']",
    "limits.steps_max = '@'",
    "terminal.reasoning = '@'",
]
"""Where a person may put a key, here @, by mistake."""


@given(place=st.sampled_from(PLACES), secret=SECRETS, exposed=st.booleans())
def test_no_output_holds_a_secret(place: str, secret: str, *, exposed: bool) -> None:
    """A key in a wrong place of either file is refused, and neither check nor show nor an error repeats it."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for name in ("config.toml", "keys.toml"):
            write(home, place.replace("@", secret), name, 0o644 if exposed else 0o600)
        environment = {"OPENAI_API_KEY": secret, "GOOGLE_API_KEY": f"{secret} x"}
        for arguments in ([], ["--json"], ["check"], ["check", "--json"]):
            result = invoke(home, arguments, environment)
            assert result.exit_code != EXIT_OK
            assert secret not in result.output + str(result.exception)
        with pytest.raises(ConfigInvalid) as caught:
            find_key("anthropic", home, {})
        assert secret not in repr(caught.value)


@given(secret=SECRETS)
def test_the_right_places_are_not_shown_either(secret: str) -> None:
    """Keys in their right places, and keys in place of any other variable, occur in no output."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write(home, f"openai = '{secret}'", "keys.toml")
        wrong = {setting.variable: secret for key, setting in SETTINGS.items() if key != "system_prompt"}
        for environment, code in (({"ANTHROPIC_API_KEY": secret}, EXIT_OK), (wrong, EXIT_FINDINGS)):
            for arguments in ([], ["--json"], ["check"]):
                result = invoke(home, arguments, environment)
                assert result.exit_code == code
                assert secret not in result.output + str(result.exception)


def test_loading_needs_nothing_slow() -> None:
    """Reading the settings brings in msgspec and the standard library alone, so that every command can afford it."""
    program = (
        "import sys; before = set(sys.modules); import hansard.app.config, hansard.app.keys;"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    # typing_extensions is msgspec's, where it is installed.
    assert set(found.stdout.split()) - {"typing_extensions"} == {"hansard", "msgspec"}


def row(setting: Setting) -> str:
    """A setting as the table of the page has it."""
    default = f"{setting.default:g}" if isinstance(setting.default, float) else json.dumps(setting.default)
    written = "not set" if setting.default is None else f"`{default}`"
    return f"| `{setting.key}` | {written} | {setting.allowed} | {setting.meaning} |"


def test_the_page_has_every_setting() -> None:
    """The table of docs/run/configuration.md is the schema: each setting, its default, what is allowed, its meaning."""
    table = PAGE.partition("## Settings")[2].partition("## Environment")[0]
    assert re.findall(r"^\| `.*$", table, re.MULTILINE) == [row(setting) for setting in SETTINGS.values()]


def test_the_page_has_every_variable() -> None:
    """The page names the variables of keys and addresses, and those that are no settings; what it names exists."""
    known = (
        {setting.variable for setting in SETTINGS.values()} | NOT_SETTINGS | {*ALIASES.values(), *VARIABLES.values()}
    )
    named = set(re.findall(r"\b[A-Z]+_[A-Z_]+[A-Z]\b", PAGE)) - {"NO_COLOR"}
    assert {*ALIASES.values(), *VARIABLES.values(), *NOT_SETTINGS} <= named <= known
    for provider, variable in VARIABLES.items():
        assert f"| `{provider}` | `{variable}` |" in PAGE


def test_the_examples_of_the_page_load(home: Path) -> None:
    """The example is a configuration without findings, each of its lines counts, and keys.toml is what it must be."""
    config_example, keys_example = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    write(home, config_example)
    config = load_config(home, {}, {})
    assert len(config.sources) == len(re.findall(r"^\w+ = ", config_example, re.MULTILINE))
    assert all(value_at(config.settings, key) != SETTINGS[key].default for key in config.sources)
    write(home, keys_example.replace("…", "1"), "keys.toml")
    assert check_keys(home, {}) == []
    assert set(tomllib.loads(keys_example)) <= set(VARIABLES)


def test_a_check_misses_programs_that_are_not_here(home: Path, tmp_path: Path) -> None:
    """A program that is not on the PATH, or may not be run, is a finding with its line, if its server is used."""
    (tmp_path / "plain").write_text("")
    write(
        home,
        "[mcp.shell]\ncommand = 'sh'\n[mcp.gone]\nargs = ['x']\ncommand = 'no-such-program'\n"
        f"[mcp.plain]\ncommand = '{tmp_path}/plain'\n[mcp.off]\ncommand = 'no-such-program'\nenabled = false\n",
    )
    found = run(home, "check", PATH=os.environ["PATH"])
    assert found.returncode == EXIT_FINDINGS
    assert found.stdout.splitlines() == [
        f"{home}/config.toml, line 5: mcp.gone.command: there is no program no-such-program here that may be run",
        f"{home}/config.toml, line 7: mcp.plain.command: there is no program {tmp_path}/plain here that may be run",
    ]
    assert run(home, PATH=os.environ["PATH"]).returncode == EXIT_OK
