"""What other programs import stays where it is: the public names, the entry point of channels, the example channel.

The names are written out: one that leaves a package, or that comes to it, is a decision and changes this list.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from examples.folder_channel import FolderChannel
from hansard import Reasoning, Text
from hansard.app.channels import open_other
from hansard.domain.settings.channels import OtherChannel

PUBLIC = {
    "hansard": """
        Accepted Ambiguous Busy ChannelBusy ChannelDown ChannelError ChatGone Chunk ConfigInvalid Conversation Cursor
        Delivery DeliveryState Entry File FileUnreadable Finding GatewayRuns GatewaySilent HansardError Hit HomeMoved
        HomeUnsafe IdConflict Intake InvalidInput LeaseHeld LegsMixed LimitReached Link LogForked LogUnwritable
        Message ModelMissing NotFound Operation OutcomeUnknown OutputClosed Parent PastMissing PostRefused PostUnknown
        Reasoning Record RecordDamaged RecordMigrated RecordReadOnly RecordRefused RecordTooNew RecordUnavailable
        Reply Report Role Route Session SessionEnded SessionState StaleLease Status StatusUnusable Text TooLarge
        ToolCall ToolOutcome ToolResult Turn TurnInfo TurnState UnsafeFilesystem UnsupportedSQLite UsedAfterFork
        WrongState
    """,
    "hansard.testing": """
        CRASH_POINTS RECORDING_CAPABILITIES Counting CrashPoint Echo Failing FakeClock Fault FaultKind LargeOutput
        Platform RecordingChannel RecordingModel ScriptedModel Slow Wiring abandon_store count_steps tools_by_name
    """,
}


@pytest.mark.parametrize(("module", "name"), [(module, name) for module in PUBLIC for name in PUBLIC[module].split()])
def test_a_public_name_can_be_imported(module: str, name: str) -> None:
    """From the package itself, and what comes has that name."""
    value = getattr(importlib.import_module(module), name)
    assert getattr(value, "__name__", name) == name


@pytest.mark.parametrize("value", [Text, Reasoning])
def test_words_are_given_by_place(value: type[Text | Reasoning]) -> None:
    """Values that are words before all else need no name for them."""
    assert value("hm") == value(text="hm")


@pytest.mark.parametrize("module", PUBLIC)
def test_the_public_names_are_these(module: str) -> None:
    """A package offers the names of the list, and no others."""
    assert sorted(importlib.import_module(module).__all__) == sorted(PUBLIC[module].split())


def test_a_channel_is_found_by_its_entry_point(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that names the example in the group `hansard.channels` provides a channel."""
    information = tmp_path / "letters-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: letters\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[hansard.channels]\nfolder = examples.folder_channel:open_folder\n")
    monkeypatch.syspath_prepend(tmp_path)
    options = OtherChannel(options={"path": str(tmp_path / "letters")})
    assert isinstance(open_other(home, "folder", options, {}), FolderChannel)
