"""A gateway that runs for long keeps no more than one that just began, apart from caches that have a bound."""

from __future__ import annotations

import asyncio
import gc
import types
from collections import Counter
from pathlib import Path

from hansard.journal.calls import Patience
from hansard.journal.files import LogFiles
from hansard.journal.sqlite.group import HeadCache
from hansard.record.conversation_cache import ConversationCache
from hansard.testing import Platform
from tests.gateway.stage import AGENT, ANN, Playing, make_settings, playing, write_script

CHATS = 3
WARM_ROUNDS, ROUNDS = 6, 40
BOUNDED = (ConversationCache, HeadCache, LogFiles)
"""Caches whose limits are in `hansard.domain.limits`, and which a short test does not reach."""
ELSEWHERE = (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType, types.CodeType, Platform)
"""What leads away from what the gateway keeps; and the server's side."""
TIMED = (asyncio.AbstractEventLoop, asyncio.TimerHandle, Patience)
"""What is let go of a while after it is done, by time."""


def kept(*roots: object) -> Counter[str]:
    """Count what can be reached from some objects, by its type."""
    seen = {id(root): root for root in roots}
    waiting = list(roots)
    while waiting:
        for found in gc.get_referents(waiting.pop()):
            if id(found) not in seen and not isinstance(found, (*ELSEWHERE, *TIMED, *BOUNDED)):
                seen[id(found)] = found
                waiting.append(found)
    return Counter(
        f"{type(each).__module__}.{type(each).__qualname__}" for each in seen.values() if gc.is_tracked(each)
    )


async def talk(play: Playing, chats: list[str], rounds: range) -> None:
    """Say something in every chat and have it answered, in a new session each time."""
    for number in rounds:
        for words in (f"question {number}", "/new"):
            for chat in chats:
                play.platform.say(chat, ANN, words)
            await play.settled()


async def test_messages_and_sessions_leave_nothing_behind_in_memory(home: Path, tmp_path: Path) -> None:
    """After many messages and sessions there are no more objects of any type than after a few."""
    platform = Platform()
    chats = [platform.create_room(ANN, AGENT) for _ in range(CHATS)]
    async with playing(home, make_settings(write_script(tmp_path / "script")), platform) as play:
        roots = (play.app, play.gateway)
        await talk(play, chats, range(WARM_ROUNDS))
        before = kept(*roots)
        await talk(play, chats, range(WARM_ROUNDS, WARM_ROUNDS + ROUNDS))
        grown = {name: count for name, count in (kept(*roots) - before).items() if count >= ROUNDS // 2}
        assert not grown
