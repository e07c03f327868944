"""Settings of what the agent is and may do: models, personas, tools, servers, budgets, compaction, voice notes."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from hansard.domain.limits import MIB
from hansard.domain.permissions import ToolRule
from hansard.domain.settings.channels import PERSON_NAME, OtherPlaces, WebAddress, places_of

MODEL_FORMS: Final = ("openai:NAME", "openai-responses:NAME", "anthropic:NAME", "google:NAME", "scripted:FILE", "demo")
"""How a model can be named: the part before the colon says who answers."""

MODEL_PATTERN: Final = (
    r"\A(?:(?:openai|openai-responses|anthropic|google):[^\x00-\x20\x7f]+|scripted:[^\x00-\x1f\x7f]+|demo)\Z"
)
"""The forms above, without control characters, which have no business in a name that is shown."""

ModelName = Annotated[
    str, Meta(pattern=MODEL_PATTERN, max_length=500, extra={"allowed": f"one of {', '.join(MODEL_FORMS)}"})
]

ModelsAllowed = Annotated[
    tuple[Annotated[str, Meta(pattern=r"\A[^\x00-\x20\x7f]{1,500}\Z")], ...],
    Meta(
        max_length=100,
        description="Models that people may choose by `/model`, as patterns over provider:model. Not set: every model. "
        "A session whose model is no longer among them goes on with the configured one, and people are told.",
        extra={"allowed": 'a list of at most 100 patterns with *, such as ["anthropic:*", "openai:gpt-5-mini"]'},
    ),
]

TimeZone = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z0-9_+-]{1,40}(?:/[A-Za-z0-9_+-]{1,40}){0,2}\Z",
        extra={"allowed": "the name of a time zone, such as Europe/Berlin"},
    ),
]

DAY_TURNS_MAX: Final = 1_000_000
DAY_TOKENS_MAX: Final = 1_000_000_000_000
DAY_DOLLARS_MAX: Final = 1_000_000

HOUR_MAX: Final = 1_000_000
TERABYTE: Final = 1024 * 1024 * MIB


class DayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a day may take. Reached, people are told, and their messages are recorded all the same."""

    person_turns_day_max: (
        Annotated[
            int, Meta(ge=1, le=DAY_TURNS_MAX, description="Turns of one person in a day. Not set: as many as come.")
        ]
        | None
    ) = None
    person_tokens_day_max: (
        Annotated[
            int,
            Meta(ge=1, le=DAY_TOKENS_MAX, description="Tokens in and out for one person in a day. Not set: no limit."),
        ]
        | None
    ) = None
    person_dollars_day_max: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=DAY_DOLLARS_MAX,
                description="US dollars for one person in a day, where prices are known. Not set: no limit.",
            ),
        ]
        | None
    ) = None
    turns_day_max: (
        Annotated[int, Meta(ge=1, le=DAY_TURNS_MAX, description="Turns of everybody together in a day.")] | None
    ) = None
    tokens_day_max: (
        Annotated[int, Meta(ge=1, le=DAY_TOKENS_MAX, description="Tokens in and out for everybody together in a day.")]
        | None
    ) = None
    dollars_day_max: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=DAY_DOLLARS_MAX,
                description="US dollars for everybody together in a day, where prices are known.",
            ),
        ]
        | None
    ) = None
    day_time_zone: Annotated[TimeZone, Meta(description="On whose clock a day begins.")] = "UTC"


class HourLimits(DayLimits, frozen=True, kw_only=True):
    """What one person may bring in an hour. More is refused, and the person is told once in that hour."""

    person_files_hour_max: Annotated[
        int, Meta(ge=1, le=HOUR_MAX, description="Files that one person may send in an hour. Of more, names are kept.")
    ] = 300
    person_bytes_hour_max: Annotated[
        int,
        Meta(
            ge=1,
            le=TERABYTE,
            description="Bytes of files that one person may send in an hour. Of more, names are kept.",
        ),
    ] = 1024 * MIB
    person_sessions_hour_max: Annotated[
        int,
        Meta(
            ge=1,
            le=HOUR_MAX,
            description="Sessions that one person may begin in chats in an hour, by a first word in a room or thread, "
            "by `/new` or by `/fork`.",
        ),
    ] = 100


class AgentChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent is for one person, or in one room."""

    model: ModelName | None = None
    persona: Annotated[str, Meta(max_length=20_000)] = ""
    """Added to the instructions of the sessions that begin from now on."""


class RoomSettings(AgentChoice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One room."""

    matrix: Annotated[
        tuple[Annotated[str, Meta(pattern=r"\A![^\s]{1,250}\Z")], ...],
        Meta(extra={"allowed": 'a list of ids of rooms, such as ["!id:example.org"]'}),
    ] = ()
    telegram: Annotated[
        tuple[Annotated[int, Meta(lt=0)] | Annotated[str, Meta(pattern=r"\A-[1-9][0-9]{0,19}\Z")], ...],
        Meta(extra={"allowed": "a list of the numbers of groups, which are below zero"}),
    ] = ()
    other: OtherPlaces = msgspec.field(default_factory=dict)
    """By channel, on channels of `[channels.other]`."""

    def places(self) -> tuple[tuple[str, str], ...]:
        """Return where this room is and what it is called there: (channel, identity)."""
        return places_of(self.matrix, self.telegram, self.other)


SERVER_NAME: Final = r"[a-z0-9](?:[a-z0-9-]|_(?=[a-z0-9-])){0,19}"
"""Without `__` and without `_` at its end: so a tool's name, mcp__SERVER__TOOL, names one server only."""
VARIABLE: Final = r"\A[A-Za-z_][A-Za-z0-9_]{0,99}\Z"


class McpServer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server whose tools may be called: a program that is started here, or an address."""

    command: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    args: Annotated[tuple[Annotated[str, Meta(max_length=10_000)], ...], Meta(max_length=100)] = ()
    env: Annotated[
        tuple[Annotated[str, Meta(pattern=VARIABLE)], ...],
        Meta(max_length=100, extra={"allowed": "a list of names of variables; their values never stand here"}),
    ] = ()
    """Names of variables of Hansard's own environment that the program is given. Values never stand here."""
    url: Annotated[str, Meta(max_length=2000)] | None = None
    token_variable: (
        Annotated[str, Meta(pattern=VARIABLE, extra={"allowed": "the name of a variable, which holds the token"})]
        | None
    ) = None
    """The variable that holds the bearer token for the address."""
    allow_http: bool = False
    start_seconds_max: Annotated[float, Meta(gt=0, le=600)] = 20.0
    enabled: bool = True
    confined: bool = True
    """Whether Hansard's home and other processes are kept from the program, as far as the system can."""


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """Which tools may be run, for whom."""

    rules: Annotated[
        tuple[ToolRule, ...],
        Meta(
            max_length=1000,
            description="Who may have which tool run, and where: the first rule that fits decides. Without one, "
            "Hansard's own tools may be run, after a yes where they change the memory; those of `[mcp.NAME]` may not.",
            extra={
                "allowed": "sections [[tools.rules]], each with do = allow, ask or deny, patterns with * for "
                'tool, person, room and channel, and maybe untrusted = "ask" or reads_only = true'
            },
        ),
    ] = ()
    ask_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            description="How long a call with `ask` waits for a yes. After that it counts as a no; 0: nobody is asked.",
        ),
    ] = 300.0


class AutoResume(StrEnum):
    """What becomes of a turn that a crash ended."""

    OFF = "off"
    """It stays as it is; people are told."""
    ASK = "ask"
    """People are asked whether it is to go on."""
    ON = "on"
    """It goes on."""


RoomTable = Annotated[
    dict[Annotated[str, Meta(pattern=rf"\A{PERSON_NAME}\Z")], RoomSettings],
    Meta(
        max_length=1000,
        description="What the agent is in a room: `matrix` is a list of ids of rooms, `model` and `persona` are what "
        "the agent is there.",
        extra={"allowed": 'a section [rooms.NAME] for each room, with matrix = ["!id:server"], model and persona'},
    ),
]

ServerTable = Annotated[
    dict[Annotated[str, Meta(pattern=rf"\A{SERVER_NAME}\Z")], McpServer],
    Meta(
        max_length=50,
        description="Servers whose tools the model may be offered, by the Model Context Protocol. Their tools are "
        "called mcp__NAME__TOOL; none is run before `tools.rules` allows it.",
        extra={
            "allowed": "a section [mcp.NAME] for each server (no __ in NAME, no _ at its end), with command, args and "
            "env, or with url and token_variable; also allow_http, start_seconds_max, enabled, confined"
        },
    ),
]

ResumeSetting = Annotated[
    AutoResume,
    Meta(
        description="What becomes of a turn that was cut off when the program stopped. `off`: people are told. `ask`: "
        "they are asked whether it goes on. `on`: it goes on."
    ),
]

TitlesSetting = (
    Annotated[
        bool,
        Meta(
            description="Whether the model gives a session its title after the first exchange. Not set: every model "
            "does but the demo and scripted ones."
        ),
    ]
    | None
)


class CompactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When and how a session is compacted. The record keeps every word."""

    automatic: Annotated[
        bool, Meta(description="Whether it is done before the model's window is full. `/compact` does it at any time.")
    ] = True
    start_percent: Annotated[
        int, Meta(ge=10, le=95, description="How full the model's window is when it is done, after an answer.")
    ] = 75
    window_tokens: (
        Annotated[
            int,
            Meta(
                ge=1000,
                le=100_000_000,
                description="What the model reads and writes at once. Not set: what is known of the model.",
            ),
        ]
        | None
    ) = None
    tail_tokens: Annotated[
        int,
        Meta(ge=100, le=10_000_000, description="How much of the end is kept word for word, at most half the window."),
    ] = 20_000
    summary_tokens_max: Annotated[
        int, Meta(ge=100, le=100_000, description="How long a summary may be, at most an eighth of the window.")
    ] = 4_000


class Transcription(msgspec.Struct, frozen=True, kw_only=True):
    """Who writes voice notes down, and what that may take."""

    model: (
        Annotated[
            str,
            Meta(
                pattern=r"\Aopenai:[^\x00-\x20\x7f]+\Z",
                max_length=500,
                description="The model that writes voice notes down. Not set: they are kept, and only named to the "
                "model that answers.",
                extra={"allowed": "openai:NAME, such as openai:gpt-4o-mini-transcribe"},
            ),
        ]
        | None
    ) = None
    base_url: (
        Annotated[WebAddress, Meta(description="Where that model is reached. Not set: where `providers.openai` is.")]
        | None
    ) = None
    key_variable: (
        Annotated[
            str,
            Meta(
                pattern=VARIABLE,
                description="The variable that holds the key for `transcription.base_url`. The key of "
                "`providers.openai` is sent to that provider's own host only.",
                extra={"allowed": "the name of a variable"},
            ),
        ]
        | None
    ) = None
    allow_http: Annotated[
        bool, Meta(description="Whether http may leave this machine: others on the way can then hear what is said.")
    ] = False
    bytes_max: Annotated[
        int, Meta(ge=1, le=256 * MIB, description="The largest voice note that is written down; larger ones are named.")
    ] = 25 * MIB
    seconds_max: Annotated[
        float, Meta(gt=0, le=3600, description="How long writing one down may take: the answer waits for it.")
    ] = 120.0
    dollars_per_minute: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=1000,
                description="What a minute costs, for models that count minutes and not tokens. Not set: their cost "
                "is not counted.",
            ),
        ]
        | None
    ) = None
