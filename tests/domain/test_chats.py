"""Chats and session keys: what is made can be read back as what it was, and nothing else can be made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain.chats import (
    SessionKey,
    key_in_chat,
    make_key,
    message_id_of,
    parse_key,
    person_owner,
    reply_id_of,
)
from hansard.domain.ids import check_entry_id
from hansard.errors import InvalidInput

SIGNS = st.text(st.sampled_from("ab:!$@.thread:person:"), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("matrix:room:!abc:example.org", SessionKey(channel="matrix", place="!abc:example.org")),
        ("matrix:room:!v12hash", SessionKey(channel="matrix", place="!v12hash")),
        (
            "matrix:room:!abc:h.org:8448:thread:$e:h.org",
            SessionKey(channel="matrix", place="!abc:h.org:8448", part="$e:h.org"),
        ),
        (
            "matrix:room:!abc:h.org:person:@ann:h.org:8448",
            SessionKey(channel="matrix", place="!abc:h.org", part="", person="@ann:h.org:8448"),
        ),
        (
            "matrix:room:!a:h:thread:$e:person:@ann:h",
            SessionKey(channel="matrix", place="!a:h", part="$e", person="@ann:h"),
        ),
        (
            "telegram:chat:-100123:topic:7:person:42",
            SessionKey(channel="telegram", place="-100123", part="7", person="42"),
        ),
    ],
)
def test_the_grammar(text: str, key: SessionKey) -> None:
    """Each form of the design is read as its parts, and its parts make it."""
    assert parse_key(text) == key
    assert make_key(key.channel, key.place, key.part, key.person) == text == str(key)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "matrix",
        "matrix:room:",
        "matrix:room:abc:example.org",
        "matrix:room:@ann:example.org",
        "matrix:chat:!abc:example.org",
        "matrix:room:!a b:example.org",
        "matrix:room:!a\n:example.org",
        "telegram:chat:ann",
        "irc:room:!abc",
        "irc:chat:a:b",
        "irc:chat:a:topic:b",
        "IRC:chat:a",
        "person:chat:a",
        "cli:chat:a",
    ],
)
@pytest.mark.loss("J8")
def test_what_is_no_chat_is_refused(text: str) -> None:
    """A person's name where a room belongs, an unknown channel, a space: nothing of it becomes an address."""
    with pytest.raises(InvalidInput):
        parse_key(text)


@given(SIGNS, st.just("") | SIGNS, st.just("") | SIGNS)
def test_whatever_is_made_says_what_it_was_made_of(place: str, part: str, person: str) -> None:
    """Ids that hold the words of the grammar are refused, or read back as themselves: never as something else."""
    given = (f"!{place}", f"${part}" if part else "", f"@{person}" if person else "")
    try:
        made = make_key("matrix", *given)
    except InvalidInput:
        return
    found = parse_key(made)
    assert (found.place, found.part, found.person) == given


def test_a_room_cannot_pass_for_a_thread_of_another() -> None:
    """A room whose id ends like a thread of another room would share its session: it is refused."""
    with pytest.raises(InvalidInput):
        make_key("matrix", "!a:h:thread:$e")
    with pytest.raises(InvalidInput):
        key_in_chat("matrix:room:!a:h", "@ann:h\n")
    with pytest.raises(InvalidInput, match=r"no session key|not a chat"):
        make_key("irc", "!a:h")
    with pytest.raises(InvalidInput, match="no name of a channel"):
        make_key("person", "a")


def test_channels_from_elsewhere() -> None:
    """A channel that Hansard does not know has chats, threads and people of its own, of ids without colons."""
    made = make_key("irc", "#tea", "42", "ann@example.org")
    assert made == "irc:chat:#tea:thread:42:person:ann@example.org"
    assert parse_key(made) == SessionKey(channel="irc", place="#tea", part="42", person="ann@example.org")
    assert (parse_key(made).chat, parse_key(made).room_owner) == ("irc:chat:#tea:thread:42", "room:irc:#tea")


def test_chats_and_owners() -> None:
    """A key knows its chat and its room; a person has a name once somebody gave one."""
    key = parse_key("matrix:room:!a:h:thread:$e:person:@ann:h")
    assert (key.chat, key.room_owner) == ("matrix:room:!a:h:thread:$e", "room:matrix:!a:h")
    assert key_in_chat(key.chat, "@ann:h") == str(key)
    assert person_owner("matrix", "@ann:h") == "person:matrix:@ann:h"
    assert person_owner("matrix", "@ann:h", "ann") == "person:ann"


def test_ids_of_messages() -> None:
    """One event of one account has one id, which the record takes; others have others."""
    ids = {
        message_id_of(*names)
        for names in (("matrix", "@a:h", "$1"), ("matrix", "@a:h", "$2"), ("matrix", "@b:h", "$1"))
    }
    ids |= {reply_id_of(id) for id in ids}
    assert len(ids) == 6
    assert {check_entry_id(id) for id in ids} == ids
    assert message_id_of("matrix", "@a:h", "$1") in ids
