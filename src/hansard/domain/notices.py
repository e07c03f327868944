"""The wording of notices: what Hansard itself tells people in chats.

A notice is put into words when it is recorded, so a change of wording changes nothing that was said before.
"""

from __future__ import annotations

import string
from typing import Final

import msgspec

from hansard.errors import ConfigInvalid

TEMPLATE_CHARACTERS_MAX: Final = 2000
"""What fits into one post everywhere, with room for what is put in."""


class Wording(msgspec.Struct, frozen=True, kw_only=True):
    """A template for every notice. The defaults are in English; `notices.toml` of the home may replace any of them.

    A word in braces is replaced. A replaced template may name the words that the English one names, and no others.
    No template may repeat what somebody said, or tell a stranger anything about others.
    """

    # A new session begins in a chat. {new} is its id. The last sentence follows when there was one before: {old}.
    session_new: str = "A new session: {new}."
    session_idle: str = "Nothing was said here for a while, so this is a new session: {new}."
    session_daily: str = "A new day, so this is a new session: {new}."
    session_others: str = "Other people are here than before, so this is a new session: {new}."
    session_parted: str = "What was said here before belongs to somebody else, so this is a new session: {new}."
    session_kept: str = "The one before is kept: /resume {old} goes on with it."
    reopened: str = "This session had ended; it is open again."

    # What was sent while the gateway was down, or cannot be read.
    late: str = (
        "What was sent here while I was away is recorded, but too old to be answered now. Say something, and I answer "
        "with all of it in mind."
    )
    cut: str = (
        "More was sent here while I was away than I could fetch. What is missing is on the platform, and not in my "
        "record."
    )
    unreadable: str = (
        "An encrypted message came that I cannot read yet. It is kept, and answered when its keys arrive; sending it "
        "again helps, too."
    )
    unverified: str = (
        "I recorded this and did nothing about it: it did not come, encrypted, from a device that you verified, so "
        "somebody else could have written it. Send it from a verified device. If your identity (cross-signing) is a "
        "new one, the admin has to confirm it first."
    )
    unanswerable: str = "That is recorded, and has no words that I could answer. Tell me in words what you mean."

    # A direct chat that becomes a room, and a room that is replaced.
    company: str = (
        "This is no longer a chat of two: {who} is here or invited. From now on I answer when I am named ({name}: …), "
        "mentioned or replied to."
    )
    opened: str = (
        "This is no longer a private chat: others can come in or read here without an invitation. From now on I "
        "answer when I am named ({name}: …), mentioned or replied to, and open nothing of yours here."
    )
    replaced_here: str = "This room replaces {room}, and the conversation goes on here."
    not_followed: str = "This room was replaced, and I cannot follow to the new one: {why}. Invite me there."

    recovered: str = (
        "Hansard was stopped in the middle of this. What was said is recorded. If the answer does not go on by "
        "itself, /retry asks again."
    )
    interrupted: str = (
        "This command was interrupted when Hansard was stopped: it may have been carried out, or not. /status shows "
        "how things are."
    )

    # Pairing. {code} is shown to a stranger, and counts for so many {minutes}. `declined` is a reason on one line.
    code: str = """\
I may not talk to you yet. Give this code to whoever runs me, who can approve it with:

    hansard pair approve {code}

It is yours alone, counts once, and for {minutes} minutes. What you wrote was not recorded."""
    declined: str = (
        "I may not talk to you yet. Give the code {code} to whoever runs me, who approves it with `hansard pair "
        "approve {code}`; then invite me again. It is yours alone, counts once, and for {minutes} minutes from when "
        "you first asked."
    )
    welcome: str = "You may talk to me now. /help lists what I can do."

    # One person in several chats. {who} is another account; the words of {where}, a platform, or of the terminal follow
    # in the next lines.
    code_entered: str = (
        "{who} entered your code: you are one person here and there from now on, with one history. If that was not "
        "you, say /unlink at once."
    )
    said_elsewhere: str = "You said on {where}:"
    said_at_terminal: str = "You said in the terminal:"
    said_files: str = "(files: {count})"

    # What was refused: a message, and files that came or were to be shown. {why} is one of the reasons below, or an
    # error's own words.
    message_refused: str = "Your message could not be recorded, so I did not take it: {why}."
    file_not_kept: str = "The file {name} was not kept: {why}. Its name is recorded."
    file_not_shown: str = "The file {name} could not be shown here: {why}. It is kept in the record."
    file_unnamed: str = "without a name"
    file_no_way: str = "this channel cannot fetch files"
    file_too_large: str = "it has more than {bytes} bytes"
    file_failed: str = "it could not be fetched"
    file_too_many: str = "too many files wait already"
    file_over: str = "you have sent as much as one person may in an hour"

    # What a person brought is as much as an hour allows. It is told once in that hour.
    over_files: str = (
        "You have sent as many files as one person may in an hour. Of more, only the names are recorded until it is "
        "over."
    )
    over_bytes: str = (
        "You have sent as many bytes of files as one person may in an hour. Of more, only the names are recorded "
        "until it is over."
    )
    over_sessions: str = (
        "You have begun as many sessions as one person may in an hour, so I did not take this message and begin no "
        "other session. Go on in one that you have, or come back later."
    )

    # Turns: the replies of /queue, /steer and /stop.
    queued: str = "Queued."
    steered: str = "The model is told at its next step."
    stopped: str = "Stopped."
    stopping: str = "The answer that runs, in {process}, was asked to stop."
    nothing_runs: str = "Nothing runs."

    def tell_file_not_kept(self, name: str, why: str) -> str:
        return self.file_not_kept.format(name=name or self.file_unnamed, why=why)


ENGLISH: Final = Wording()
KEYS: Final = Wording.__struct_fields__


def placeholders(template: str) -> frozenset[str]:
    """Return the words in braces of a template. ConfigInvalid when the braces hold anything but a plain word."""
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigInvalid("its braces do not fit: write {name} for what is put in, {{ and }} for braces") from error
    found = set()
    for _, name, form, conversion in pieces:
        if name is None:
            continue
        if not name.isidentifier() or form or conversion:
            raise ConfigInvalid("braces hold a plain word: {name}; write {{ and }} for braces")
        found.add(name)
    return frozenset(found)


def what_is_wrong(key: str, template: object) -> str:
    """Return why a template cannot stand at a key; empty when it can."""
    if not isinstance(template, str) or not template.strip():
        return f"{key} must be text"
    if len(template) > TEMPLATE_CHARACTERS_MAX:
        return f"{key} must have at most {TEMPLATE_CHARACTERS_MAX} characters"
    try:
        given = placeholders(template)
    except ConfigInvalid as error:
        return f"{key}: {error}"
    allowed = placeholders(getattr(ENGLISH, key))
    if not given - allowed:
        return ""
    may = "may name " + ", ".join(f"{{{name}}}" for name in sorted(allowed)) if allowed else "may name nothing"
    return f"{key} names {{{min(given - allowed)}}}; it {may}"
