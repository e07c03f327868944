"""`hansard models`: which model would answer and why, what else there is, and the way to the demo model."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from hansard.app.config import load_config
from hansard.app.wiring import with_keys
from hansard.cli.printing import stdout_json, takes_json
from hansard.cli.process import ended_by_signals, run
from hansard.models.demo_files import DemoFiles, demo_folder, find_demo, install_demo
from hansard.models.discovery import Discovered, FoundServer, discover, find_local, loopback_of

EXIT_FOUND, EXIT_NONE = 0, 1

VARIABLES = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY")

NONE_FOUND = """\
No model was found. Set OPENAI_API_KEY or ANTHROPIC_API_KEY, start Ollama or
LM Studio, or fetch the small demo model: hansard models install-demo"""


LARGER = "For a larger one: set OPENAI_API_KEY or ANTHROPIC_API_KEY, or start Ollama or LM Studio."


async def survey(home: Path, environment: Mapping[str, str]) -> tuple[Discovered | None, list[FoundServer]]:
    """Return the model that would answer, and what every server on this machine offers."""
    config = load_config(home, environment, {})
    found = asyncio.create_task(find_local(environment))
    if config.settings.model:
        chosen: Discovered | None = Discovered(config.settings.model, None, f"set in {config.source('model')}")
    else:
        chosen = await discover(with_keys(home, environment))
    return chosen, await found


def show_json(chosen: Discovered | None, found: list[FoundServer], demo: DemoFiles | None) -> None:
    servers = [{"title": one.server.title, "base_url": one.server.base_url, "models": one.models} for one in found]
    model = None if chosen is None else chosen._asdict()
    demo_model = None if demo is None else str(demo.model)
    stdout_json({"model": model, "servers": servers, "demo": demo_model})


def show_text(chosen: Discovered | None, found: list[FoundServer], demo: DemoFiles | None) -> None:
    """Print the model that would answer first, then everything that was looked at."""
    if chosen is None:
        click.echo(f"{NONE_FOUND}\n")
    else:
        place = f" at {chosen.base_url}" if chosen.base_url else ""
        click.echo(f"{chosen.name}{place}\n  would answer: {chosen.reason}\n")
        if chosen.name == "demo":
            click.echo(f"{LARGER}\n")
    given = [name for name in VARIABLES if os.environ.get(name)]
    click.echo(f"environment: {', '.join(given) or 'no keys'}")
    for one in found:
        click.echo(f"{one.server.title}: {describe(one)}")
    click.echo(f"demo: {'not installed (hansard models install-demo)' if demo is None else demo.model}")


def describe(one: FoundServer) -> str:
    if loopback_of(one.server.host) is None:
        return f"not asked, {one.server.host} is not this machine"
    if one.models is None:
        return f"no answer at {one.server.base_url}"
    return ", ".join(one.models) or "no models that chat"


def show(home: Path, *, as_json: bool) -> None:
    """Look and print. Exit code 0: there is a model. 1: there is none."""
    chosen, found = run(lambda: survey(home, os.environ))
    demo = find_demo(demo_folder(os.environ))
    (show_json if as_json else show_text)(chosen, found, demo)
    sys.exit(EXIT_NONE if chosen is None else EXIT_FOUND)


@click.group("models", invoke_without_command=True)
@takes_json
def command(options: dict[str, Any], *, as_json: bool) -> None:
    """Show which model would answer and why, and what else there is.

    A configured model comes first; then keys in the environment, Ollama and LM Studio on this machine, and the demo
    model. Exit code 0: there is a model. 1: there is none. 2: it could not run.
    """
    show(options["home"], as_json=as_json)


@command.command("list")
@takes_json
def list_models(options: dict[str, Any], *, as_json: bool) -> None:
    """Show which model would answer and why, the same as `hansard models`."""
    show(options["home"], as_json=as_json)


@command.command("install-demo")
@click.option("--if-needed", is_flag=True, help="Only when no model is configured or found.")
@click.pass_obj
def install(options: dict[str, Any], *, if_needed: bool) -> None:
    """Fetch a small real model (127 MB) that runs on this machine, without a key or an account.

    SmolLM2-135M-Instruct is for trying Hansard out: it knows little and uses no tools. It is kept in a cache that all
    homes share; HANSARD_DEMO_FOLDER says where instead. Nothing is installed into your Python environment.
    """
    if if_needed and run(lambda: survey(options["home"], os.environ))[0] is not None:
        return
    folder = demo_folder(os.environ)
    if files := find_demo(folder):
        click.echo(f"The demo model is there already: {files.model}")
        return
    with ended_by_signals():
        files = install_demo(folder, lambda line: click.echo(line, err=True))
    click.echo(f"The demo model is installed: {files.model}" + ("" if if_needed else "\nTalk to it: hansard -m demo"))
