"""The record's schema: every concept, in the order in which their projections run, and the migrations."""

from __future__ import annotations

from importlib import resources

from hansard.journal.concepts import Schema
from hansard.journal.transaction import HOME
from hansard.record.access import ACCESS
from hansard.record.budgets import BUDGETS, QUOTAS
from hansard.record.conversation import COMPACTION
from hansard.record.deliveries import DELIVERIES
from hansard.record.fetches import FETCHES
from hansard.record.intake.events import INTAKE
from hansard.record.invitations import INVITATIONS
from hansard.record.memory import MEMORY
from hansard.record.messages.entries import MESSAGES
from hansard.record.people import PACE, PEOPLE
from hansard.record.permissions import PERMISSIONS
from hansard.record.questions import QUESTIONS
from hansard.record.routes import ROUTES
from hansard.record.search.index import SEARCHES
from hansard.record.sessions import SESSIONS
from hansard.record.turns.entries import TURNS

CONCEPTS = (
    HOME,
    MESSAGES,
    PACE,
    PEOPLE,
    ACCESS,
    SESSIONS,
    COMPACTION,
    ROUTES,
    TURNS,
    BUDGETS,
    QUESTIONS,
    PERMISSIONS,
    INTAKE,
    INVITATIONS,
    FETCHES,
    QUOTAS,
    DELIVERIES,
    MEMORY,
    SEARCHES,
)


def load_migrations() -> tuple[str, ...]:
    """Return the migrations in order; the one at index n leads from version n to n + 1."""
    folder = resources.files(__package__).joinpath("migrations")
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".sql"))
    return tuple(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


SCHEMA = Schema(
    CONCEPTS,
    load_migrations(),
    noun="session",
    own_words="Until then `hansard sessions show {id}` and `hansard export {id}` give the fork's own words.",
)
