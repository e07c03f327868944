"""Every setting, with its default, its bounds and its meaning: one nested value, which `config.toml` mirrors.

The engine is given `TurnLimits` and `Busy`; where a value came from is the business of `hansard.app.config`.
Each field's description is what the documentation says about it, and a test compares the two.
Bounds hold for what people write. Code that makes these values itself, a test for example, may go below them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec
from msgspec import Meta

from hansard.domain.limits import KIB, MIB
from hansard.domain.settings.agent import (
    MODEL_FORMS,
    AgentChoice,
    AutoResume,
    CompactionSettings,
    HourLimits,
    ModelName,
    ModelsAllowed,
    ResumeSetting,
    RoomTable,
    ServerTable,
    TimeZone,
    TitlesSetting,
    Tools,
    Transcription,
)
from hansard.domain.settings.channels import (
    DAY_SECONDS,
    MATRIX_PERSON,
    OTHER_ALLOWED,
    PERSON_NAME,
    Matrix,
    OtherChannel,
    OtherName,
    OtherPlaces,
    Telegram,
    WebAddress,
    places_of,
)

PREFIX: Final = "HANSARD_"
"""How the name of an environment variable starts that sets something here."""


class Busy(StrEnum):
    """What becomes of a running turn when a new message comes."""

    INTERRUPT = "interrupt"
    """It is interrupted, and the new message is answered."""
    QUEUE = "queue"
    """It goes on, and the new message is answered afterwards."""
    STEER = "steer"
    """It goes on, and the model is told the new message at its next step."""


class LeftSessions(StrEnum):
    """What becomes of a session that is left by resuming another."""

    END = "end"
    """It is ended; resuming it opens it again."""
    KEEP = "keep"
    """It stays open."""


class Colour(StrEnum):
    """When the terminal is written to in colour."""

    AUTO = "auto"
    """On a terminal, unless NO_COLOR is set."""
    ALWAYS = "always"
    """Into a pipe as well."""
    NEVER = "never"
    """Not at all."""


class TurnLimits(HourLimits, frozen=True, kw_only=True):
    """What one turn may use, a day, and an hour. A turn that reaches a limit ends, and says which."""

    steps_max: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="Requests to the model in one turn: a model that calls tools for ever is stopped.",
        ),
    ] = 40
    turn_seconds_max: Annotated[
        float, Meta(gt=0, le=DAY_SECONDS, description="How long one turn may take: nobody waits for it after that.")
    ] = 900.0
    turn_tokens_max: Annotated[
        int, Meta(ge=1, le=1_000_000_000, description="Tokens in and out in one turn: they bound what it can cost.")
    ] = 500_000
    output_tokens_max: (
        Annotated[
            int,
            Meta(ge=1, le=10_000_000, description="Tokens of one answer. Not set: what the provider gives a model."),
        ]
        | None
    ) = None
    tool_seconds_max: Annotated[
        float, Meta(gt=0, le=DAY_SECONDS, description="How long one tool call may take: a tool that hangs is given up.")
    ] = 120.0
    tool_output_bytes_max: Annotated[
        int,
        Meta(
            ge=KIB,
            le=MIB,
            description="What the model is shown of a tool's output: more would crowd out the rest. All is kept.",
        ),
    ] = 16 * KIB
    attempts_max: Annotated[
        int, Meta(ge=1, le=20, description="Tries of one request, as long as nothing of an answer has come.")
    ] = 4
    retry_seconds_max: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="The longest pause between two tries of a request.",
        ),
    ] = 30.0
    stall_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="How long a provider may be silent before its stream counts as broken.")
    ] = 90.0
    attachment_wait_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=600,
            description="How long an answer waits for files that are still being fetched. "
            "Then it goes on without them, and says which are missing.",
        ),
    ] = 30.0
    continuations_max: Annotated[
        int,
        Meta(
            ge=0,
            le=10,
            description="How often an answer that the provider cut is continued, in a new message that says so.",
        ),
    ] = 1
    turns_running_max: Annotated[
        int,
        Meta(ge=1, le=1000, description="Turns that run at once in one process. Others wait, and are begun in turn."),
    ] = 16
    person_turns_running_max: Annotated[
        int,
        Meta(ge=1, le=1000, description="Turns of one person that run at once in one process. Others of theirs wait."),
    ] = 2


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """Where a provider is reached."""

    base_url: (
        Annotated[WebAddress, Meta(description="Where the provider is reached. Not set: its own address.")] | None
    ) = None
    allow_http: Annotated[
        bool, Meta(description="Whether http may leave this machine: others on the way can then read keys and words.")
    ] = False


class Providers(msgspec.Struct, frozen=True, kw_only=True):
    """The providers that have an address."""

    openai: Provider = Provider()
    anthropic: Provider = Provider()


class TerminalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the terminal looks."""

    reasoning: Annotated[bool, Meta(description="Whether the model's reasoning is shown.")] = False
    colour: Annotated[
        Colour,
        Meta(description="`auto`: on a terminal, unless `NO_COLOR` is set. `always`: into a pipe as well. `never`."),
    ] = Colour.AUTO


class Person(AgentChoice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One person, wherever they talk."""

    matrix: Annotated[
        tuple[Annotated[str, Meta(pattern=rf"\A{MATRIX_PERSON}\Z")], ...],
        Meta(extra={"allowed": 'a list of accounts, such as ["@ann:example.org"]'}),
    ] = ()
    telegram: Annotated[
        tuple[Annotated[int, Meta(gt=0)] | Annotated[str, Meta(pattern=r"\A[1-9][0-9]{0,19}\Z")], ...],
        Meta(extra={"allowed": "a list of the numbers of accounts, such as [12345]"}),
    ] = ()
    other: OtherPlaces = msgspec.field(default_factory=dict)
    """By channel, on channels of `[channels.other]`."""
    terminal: bool = False

    def places(self) -> tuple[tuple[str, str], ...]:
        """Return where this person is and what they are called there: (channel, identity)."""
        return places_of(self.matrix, self.telegram, self.other)


class Channels(msgspec.Struct, frozen=True, kw_only=True):
    """The platforms on which people reach the agent."""

    matrix: Matrix = Matrix()
    telegram: Telegram = Telegram()

    other: Annotated[
        dict[OtherName, OtherChannel],
        Meta(
            max_length=20,
            description="Channels of installed packages, each by its name; docs/build/channels.md tells about them.",
            extra={"allowed": OTHER_ALLOWED},
        ),
    ] = {}

    def sections(self) -> dict[str, Matrix | Telegram | OtherChannel]:
        return {**self.other, "matrix": self.matrix, "telegram": self.telegram}

    def section(self, channel: str) -> Matrix | Telegram | OtherChannel:
        """Return what is set for a channel; where nothing is, nobody may talk."""
        return self.sections().get(channel, OtherChannel())


class Resets(msgspec.Struct, frozen=True, kw_only=True):
    """When a chat begins a new session by itself."""

    idle_minutes: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=366 * 24 * 60,
                description="After so long without a word, a chat's next message begins a new session. Not set: never.",
            ),
        ]
        | None
    ) = None
    daily_hour: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=23,
                description="The first message after this hour begins a new session, each day. Not set: never.",
            ),
        ]
        | None
    ) = None
    time_zone: Annotated[TimeZone, Meta(description="Whose clock `daily_hour` is read on.")] = "UTC"


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """How strangers ask to be allowed: a code that they are shown, and that the admin approves."""

    enabled: Annotated[
        bool,
        Meta(description="Whether a person who is not allowed is shown a code for `hansard pair approve`."),
    ] = True
    code_minutes: Annotated[
        int, Meta(ge=1, le=7 * 24 * 60, description="How long a code can be approved. It counts once.")
    ] = 60
    tries_per_hour_max: Annotated[
        int, Meta(ge=1, le=1000, description="Wrong codes in an hour, after which none is approved until it is over.")
    ] = 10
    codes_per_hour_max: Annotated[int, Meta(ge=1, le=1000, description="Codes that are shown in an hour, in all.")] = 20
    source_codes_per_hour_max: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="Codes that people of one source are shown in an hour: of one Matrix server, or of one chat of "
            "a platform without servers.",
        ),
    ] = 5
    person_codes_per_day_max: Annotated[
        int, Meta(ge=1, le=100, description="Codes that one person is shown in a day.")
    ] = 3


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The process that runs the channels."""

    drain_seconds: Annotated[
        float,
        Meta(ge=0, le=600, description="How long running answers may go on when the gateway is told to stop."),
    ] = 30.0
    health_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="The port on this machine on which the gateway tells how it is. 0: any that is free.",
        ),
    ] = 0


SeeingModels = Annotated[
    tuple[ModelName, ...],
    Meta(max_length=50, extra={"allowed": f"a list of at most 50 models, each one of {', '.join(MODEL_FORMS)}"}),
]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings. A section of `config.toml` is a struct in here, a key is a field."""

    model: (
        Annotated[
            ModelName, Meta(description="The model to talk to. Not set: the first that is found on this machine.")
        ]
        | None
    ) = None
    fallback_models: Annotated[
        tuple[ModelName, ...],
        Meta(
            max_length=10,
            description="Asked in this order when `model` does not answer.",
            extra={"allowed": f"a list of at most 10 models, each one of {', '.join(MODEL_FORMS)}"},
        ),
    ] = ()
    picture_models: Annotated[
        SeeingModels,
        Meta(description="Models that are shown pictures. Those that are in neither list are judged by their names."),
    ] = ()
    text_models: Annotated[
        SeeingModels, Meta(description="Models that are shown no pictures, whatever their names suggest.")
    ] = ()
    models_allowed: ModelsAllowed = ()
    busy: Annotated[
        Busy,
        Meta(
            description="What a new message does to a running turn. `interrupt`: ends it. `queue`: waits. "
            "`steer`: is told to the model at its next step."
        ),
    ] = Busy.INTERRUPT
    left_sessions: Annotated[
        LeftSessions,
        Meta(description="What becomes of a session when another is resumed. `end`: it ends. `keep`: it stays open."),
    ] = LeftSessions.END
    system_prompt: Annotated[
        str,
        Meta(
            max_length=100_000,
            description="Added to Hansard's own instructions to the model, in sessions that start from now on.",
            extra={"allowed": "text of at most 100000 characters"},
        ),
    ] = ""
    limits: TurnLimits = TurnLimits()
    compaction: CompactionSettings = CompactionSettings()
    providers: Providers = Providers()
    terminal: TerminalSettings = TerminalSettings()
    people: Annotated[
        dict[Annotated[str, Meta(pattern=rf"\A{PERSON_NAME}\Z")], Person],
        Meta(
            max_length=1000,
            description="Who a person is on each platform, so that they have one history everywhere: "
            "`matrix` is a list of Matrix names, `telegram` of Telegram's numbers of a person, "
            "`terminal = true` says that the terminal here is theirs; `model` and `persona` are what the agent is for "
            "them.",
            extra={
                "allowed": 'a section [people.NAME] for each person, with matrix = ["@name:server"], '
                "telegram = [12345], terminal = true or false, model and persona"
            },
        ),
    ] = {}
    channels: Channels = Channels()
    resets: Resets = Resets()
    pairing: Pairing = Pairing()
    gateway: GatewaySettings = GatewaySettings()
    rooms: RoomTable = {}
    tools: Tools = Tools()
    mcp: ServerTable = {}
    auto_resume: ResumeSetting = AutoResume.OFF
    titles: TitlesSetting = None
    transcription: Transcription = Transcription()


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One key of the schema."""

    key: str
    type: Any
    default: object
    variable: str
    """The environment variable that sets it."""

    @property
    def meaning(self) -> str:
        """What it does, for the documentation."""
        return [meta.description for meta in metas(self.type) if meta.description][-1]

    @property
    def is_list(self) -> bool:
        """Whether it holds several values, which a variable gives with commas between them."""
        return get_origin(bare_type(self.type)) is tuple

    @property
    def is_table(self) -> bool:
        """Whether it holds sections, one or many, which a variable gives as JSON."""
        kind = bare_type(self.type)
        return get_origin(kind) is dict or (self.is_list and is_section(get_args(kind)[0]))

    @property
    def allowed(self) -> str:
        """What may be written, to follow "must be"."""
        found = list(metas(self.type))
        texts = [meta.extra["allowed"] for meta in found if meta.extra]
        if texts:
            return str(texts[-1])
        kind = bare_type(self.type)
        if kind is bool:
            return "true or false"
        if issubclass(kind, StrEnum):
            return f"one of {', '.join(kind)}"
        bounds = found[-1]
        noun = "a whole number" if kind is int else "a number"
        least = f"above {bounds.gt:g} and at most" if bounds.gt is not None else f"from {bounds.ge} to"
        return f"{noun} {least} {bounds.le}"


def metas(annotation: object) -> Iterator[msgspec.Meta]:
    """The constraints and descriptions in a type, those of the whole after those of its parts."""
    for argument in get_args(annotation):
        if isinstance(argument, msgspec.Meta):
            yield argument
        else:
            yield from metas(argument)


def bare_type(annotation: Any) -> Any:  # noqa: ANN401 - an annotation may be anything
    """A type without its constraints and without None."""
    while get_args(annotation) and get_origin(annotation) not in {tuple, dict}:
        annotation = get_args(annotation)[0]
    return annotation


def is_section(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)


def settings_of(schema: type[msgspec.Struct], prefix: str = "") -> Iterator[Setting]:
    for field in msgspec.structs.fields(schema):
        if is_section(field.type):
            yield from settings_of(field.type, f"{prefix}{field.name}.")
        else:
            key = prefix + field.name
            yield Setting(
                key=key,
                type=field.type,
                default={} if field.default is msgspec.NODEFAULT else field.default,
                variable=PREFIX + key.upper().replace(".", "__"),
            )


SETTINGS: Final = {setting.key: setting for setting in settings_of(Settings)}
SECTIONS: Final = frozenset(key[:dot] for key in SETTINGS for dot in range(len(key)) if key[dot] == ".")
