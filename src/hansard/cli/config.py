"""`hansard config`: every setting and where it comes from, and what is wrong."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from hansard.app.config import Config, load_config, missing_programs, read_config, value_at
from hansard.app.home_files import UNREADABLE, ConfigFinding, find_unsafe, place, printable, read_wording
from hansard.app.keys import FILE_NAME as KEYS_NAME
from hansard.app.keys import VARIABLES, check_keys, exposure, find_key
from hansard.cli.existing import has_record, reading
from hansard.cli.printing import stdout_json, takes_json
from hansard.cli.process import run
from hansard.cli.terminal.text import safe, safe_line
from hansard.domain.people import terminal_owner
from hansard.domain.policy import policy_of
from hansard.domain.settings import SETTINGS
from hansard.engine.context import system_prompt
from hansard.errors import ConfigInvalid, NotFound
from hansard.models.scripted import ScriptedModel
from hansard.record.sessions import SessionFrozen

EXIT_OK, EXIT_FINDINGS = 0, 1
VALUE_CHARACTERS_MAX = 60
HOME_MODE = 0o700
SCRIPTED = "scripted:"


@click.group("config", invoke_without_command=True)
@takes_json
def command(options: dict[str, Any], *, as_json: bool) -> None:
    """Show every setting and where it comes from.

    Settings are read from config.toml in the home, from environment variables and from options; keys from the
    environment or from keys.toml.
    """
    show_settings(options["home"], as_json=as_json)


@command.command("show")
@takes_json
def show(options: dict[str, Any], *, as_json: bool) -> None:
    """Show every setting and where it comes from, the same as `hansard config`."""
    show_settings(options["home"], as_json=as_json)


@command.command("check")
@takes_json
def check(options: dict[str, Any], *, as_json: bool) -> None:
    """Check the settings, the keys and who may read them.

    Exit code 0: all is well. 1: there are findings, and all of them are listed.
    """
    home = options["home"]
    config, findings = read_config(home, os.environ, {})
    words = read_wording(home)[1]
    programs = missing_programs(config, os.environ)
    findings += wrong_scripts(config)
    findings = [*check_home(home), *findings, *programs, *words, *check_keys(home, os.environ)]
    findings = list(dict.fromkeys(findings))  # a folder that is closed is so for each of its files
    if as_json:
        fields = [{"where": finding.where, "what": finding.what} for finding in findings]
        stdout_json({"ok": not findings, "findings": fields})
    else:
        click.echo("\n".join(map(str, findings)) or "ok")
    sys.exit(EXIT_FINDINGS if findings else EXIT_OK)


@command.command("path")
@click.pass_obj
def path(options: dict[str, Path]) -> None:
    """Print where config.toml is, or would be."""
    click.echo(os.fsencode(options["home"] / "config.toml"))


@command.command(
    "prompt",
    epilog="\b\nExamples:\n"
    "  hansard config prompt                 what a session that begins now is told\n"
    "  hansard config prompt 20261115-2012   what that one was told",
)
@click.argument("session", required=False)
@takes_json
def prompt(options: dict[str, Any], session: str | None, *, as_json: bool) -> None:
    """Show what the model is told in SESSION, as it was fixed when that began; alone, in a new one at the terminal."""
    frozen = run(lambda: read_prompt(options["home"], session))
    if as_json:
        tools = [{"name": tool.name, "description": tool.description} for tool in frozen.tools]
        stdout_json({"system": frozen.system, "tools": tools})
        return
    click.echo(safe(frozen.system))
    names = ", ".join(safe_line(tool.name) for tool in frozen.tools)
    click.echo(f"\nTools: {names or 'none'}" if session else "\nTools: fixed when the session begins")


async def read_prompt(home: Path, name: str | None) -> SessionFrozen:
    """Return what a session was told, or what one that begins now would be."""
    settings = load_config(home, os.environ, {}).settings
    owner = terminal_owner(settings.people)
    persona = policy_of(settings).choice(owner).persona
    if name is None and not has_record(home):
        return SessionFrozen(system=system_prompt(settings.system_prompt, persona, []))
    async with reading(home) as record:
        if name is None:
            notes = await record.memory.list(owner)
            return SessionFrozen(system=system_prompt(settings.system_prompt, persona, notes))
        session = await record.resolve(name)
        frozen = (await record.conversation(session.id)).frozen
    if frozen is None:
        message = f"session {session.id} has not asked a model yet, so nothing is fixed in it"
        raise NotFound(message, "Ask something in it, or leave out the session to see what a new one would be told.")
    return frozen


def wrong_scripts(config: Config) -> Iterator[ConfigFinding]:
    """Yield which scripted models cannot answer. Only a check reads their files before they are asked."""
    for key in ("model", "fallback_models"):
        given = value_at(config.settings, key)
        for name in given if isinstance(given, tuple) else (given,):
            if not isinstance(name, str) or not name.startswith(SCRIPTED):
                continue
            try:
                ScriptedModel(name.removeprefix(SCRIPTED))
            except ConfigInvalid as error:
                yield ConfigFinding(config.source(key).where(config.path), f"{key}: {printable(str(error))}")


def show_settings(home: Path, *, as_json: bool) -> None:
    config = load_config(home, os.environ, {})
    keys = {provider: describe_key(provider, home) for provider in VARIABLES}
    if as_json:
        values = {
            key: {"value": msgspec.to_builtins(value_at(config.settings, key)), "source": str(config.source(key))}
            for key in SETTINGS
        }
        stdout_json({"path": printable(str(config.path)), "settings": values, "keys": keys})
        return
    rows = [(key, written(value_at(config.settings, key)), str(config.source(key))) for key in SETTINGS]
    key_width, value_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    for key, value, source in rows:
        click.echo(f"{key:{key_width}}  {value:{value_width}}  {source}")
    for provider, state in keys.items():
        click.echo(f"{'key of ' + provider:{key_width}}  {state}")


def describe_key(provider: str, home: Path) -> str:
    """Whether there is a key, and where; nothing of the key itself."""
    try:
        return str(find_key(provider, home, os.environ) or "not set")
    except ConfigInvalid:
        return "cannot be used: run `hansard config check`"


def written(value: object) -> str:
    """A value on one line, as config.toml would have it."""
    if value is None:
        return "not set"
    if isinstance(value, float):
        return f"{value:g}"
    text = printable(json.dumps(msgspec.to_builtins(value), ensure_ascii=False))
    return text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[: VALUE_CHARACTERS_MAX - 1]}…"


def check_home(home: Path) -> list[ConfigFinding]:
    """What is wrong with the home itself. One that is not there yet is made, private, when it is needed."""
    try:
        look = home.stat()
        if not stat.S_ISDIR(look.st_mode):
            return [ConfigFinding(place(home), "it is not a folder")]
        keys = look_at(home / KEYS_NAME)
    except FileNotFoundError:
        return [ConfigFinding(place(each.path), each.what) for each in find_unsafe(home)]
    except OSError as error:
        return [ConfigFinding(place(home), f"{UNREADABLE}{error.strerror}")]
    exposed = exposure(home, look, HOME_MODE)
    found = [ConfigFinding(place(home), exposed)] if exposed else []
    told = {home} if exposed else set()
    if keys is not None and exposure(home / KEYS_NAME, keys):
        told.add(home / KEYS_NAME)
    return found + [ConfigFinding(place(each.path), each.what) for each in find_unsafe(home) if each.path not in told]


def look_at(path: Path) -> os.stat_result | None:
    """Return what a path leads to; None when nothing is there."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None
