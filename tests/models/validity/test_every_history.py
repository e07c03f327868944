"""Gate: every beginning of every journal is a request that each provider takes."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest

from hansard.domain.requests import AssistantSaid, ModelRules, Request, Said, UserSaid, family_of
from hansard.engine.requests import build_request
from hansard.record.conversation import Conversation
from hansard.record.messages.entries import Entry
from hansard.record.sessions import SessionFrozen
from tests.counts import times
from tests.engine.validator import problems as said_problems
from tests.models.validity.bodies import STYLES, TOOLS, Style, wrong_with
from tests.models.validity.inventor import invent

JOURNALS = times(test=100, long=250, prove=5000)


def rules_for(style: Style, chance: random.Random) -> ModelRules:
    """Return the rules of a model, at times with a window or with limits so small that much is left out."""
    rules = style.rules
    if chance.random() < 0.3:
        rules = msgspec.structs.replace(rules, window_tokens=chance.choice([200, 400, 2000]))
    if chance.random() < 0.3:
        rules = msgspec.structs.replace(rules, images_max=chance.choice([0, 1, 2]))
    if chance.random() < 0.1:
        rules = msgspec.structs.replace(rules, request_bytes_max=chance.choice([2000, 20_000]))
    return rules


def requests_of(entries: list[Entry], frozen: SessionFrozen, rules: ModelRules) -> list[tuple[int, Request]]:
    """Return the request of every beginning of a journal where it changes, with the length of that beginning."""
    conversation = Conversation()
    found = [(0, build_request(conversation, frozen, None, rules))]
    for entry in entries:
        conversation.add(entry)
        request = build_request(conversation, frozen, None, rules)
        if request != found[-1][1]:
            found.append((entry.seq, request))
    return found


@pytest.mark.loss("C1", "C2", "C3", "C5", "C6", "C7", "C9", "C11", "G11", "N2")
def test_every_beginning_of_every_journal_is_valid(seed: int) -> None:
    """Crashes, imports, forks, undo, edits, summaries, damage: each beginning of it all is valid for each provider."""
    seen: Counter[str] = Counter()
    for number in range(JOURNALS):
        entries = invent(random.Random(f"{seed}/{number}"))
        for style in STYLES.values():
            chance = random.Random(f"{seed}/{number}/{style.name}")
            rules = rules_for(style, chance)
            frozen = SessionFrozen(system="Be brief.", tools=TOOLS if chance.random() < 0.8 else ())
            for seq, request in requests_of(entries, frozen, rules):
                wrong = wrong_with(request, style, rules.family) + list(said_problems(request.messages))
                assert not wrong, (f"HANSARD_SEED={seed}", number, style.name, seq, wrong)
                seen.update(kinds_of(request.messages))
    assert all(seen[kind] > JOURNALS / 10 for kind in ("thought", "images", "calls", "signed calls")), seen


def kinds_of(messages: tuple[Said, ...]) -> set[str]:
    """What a request holds that is hard to get right: a journal without any of it proves nothing."""
    found = set()
    for said in messages:
        if isinstance(said, AssistantSaid):
            found |= {"thought"} if said.thought else set()
            found |= {"calls"} if said.calls else set()
            found |= {"signed calls"} if any(call.signature for call in said.calls) else set()
        elif isinstance(said, UserSaid) and said.images:
            found.add("images")
    return found


def test_families() -> None:
    """Builds of one model are one family; another model, or another provider's of the same name, is not."""
    assert family_of("anthropic:claude-sonnet-5-20261001") == family_of("anthropic:claude-sonnet-5")
    assert family_of("anthropic:claude-sonnet-5-latest") == family_of("anthropic:claude-sonnet-5")
    assert family_of("openai:gpt-5-2026-01-02") == family_of("openai:gpt-5")
    assert len({family_of(name) for name in ("openai:gpt-5", "openai:gpt-5-mini", "other:gpt-5", "openai:gpt-6")}) == 4
