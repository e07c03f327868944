"""The tidy test: what the style asks of every file, held from the first day.

Each rule is first shown a file that breaks it, so that a rule which has stopped finding anything fails by itself.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath

import pytest

from tests.repository import tidy_rules
from tests.repository.repository import ROOT, text_files
from tests.repository.tidy_rules import Source

QUERIES = r"src/hansard/(journal|journal/sqlite|record|record/search|interop)/(?!schema)\w+\.sql"

Rule = Callable[[Source], Iterable[str]]


@pytest.fixture(scope="session")
def sources() -> list[Source]:
    """Every text file of the repository."""
    found = [Source(path=PurePosixPath(path), text=text) for path, text in text_files()]
    assert any(source.in_folder("src/hansard") for source in found), "no source file was found: the tidy test is blind"
    return found


def modules_of_src(sources: Iterable[Source]) -> list[Source]:
    """The modules of the package."""
    return [source for source in sources if source.in_folder("src") and source.path.suffix == ".py"]


def violations(rule: Rule, sources: Iterable[Source], pattern: str) -> list[str]:
    """What a rule finds in the files whose path matches a regular expression."""
    return [finding for source in sources if re.match(pattern, str(source.path)) for finding in rule(source)]


def findings_in(rule: Rule, text: str, path: str = "src/hansard/engine/example.py") -> list[str]:
    """What a rule finds in a sample."""
    return list(rule(Source(path=PurePosixPath(path), text=text)))


LONG_BODY = "    x = 0\n"

BREACHES = [
    pytest.param(tidy_rules.too_long, "#\n" * 501, id="module-501"),
    pytest.param(tidy_rules.too_long, "def f():\n" + LONG_BODY * 70, id="function-71"),
    pytest.param(tidy_rules.too_long, "async def f():\n" + LONG_BODY * 70, id="coroutine-71"),
    pytest.param(tidy_rules.too_long, "class C:\n" + "    def _f(self): ...\n" * 26, id="class-methods-26"),
    pytest.param(
        tidy_rules.too_long,
        "class C:\n" + "    @property\n    def f(self): ...\n" * 20 + "    async def g(self): ...\n" * 6,
        id="class-properties-26",
    ),
    pytest.param(
        tidy_rules.positional_structs, "class C(msgspec.Struct):\n    a: int\n    b: bool\n", id="struct-flag"
    ),
    pytest.param(
        tidy_rules.positional_structs,
        "class C(Struct, frozen=True):\n" + "".join(f"    {name}: int\n" for name in "abcd"),
        id="struct-fields-4",
    ),
    pytest.param(tidy_rules.bare_verbs, "class C:\n    def settle(self): ...", id="verb"),
    pytest.param(tidy_rules.bare_verbs, "async def _take(batch): ...", id="verb-private"),
    pytest.param(tidy_rules.hidden_imports, "def f():\n    from hansard.record import api", id="import-from"),
    pytest.param(tidy_rules.hidden_imports, "def f():\n    import hansard.record", id="import"),
    pytest.param(tidy_rules.hidden_imports, "def f():\n    from . import api", id="import-relative"),
    pytest.param(tidy_rules.hidden_imports, "importlib.import_module(name)", id="import-by-name"),
    pytest.param(tidy_rules.hidden_imports, "import_module('hansard.record')", id="import-by-constant"),
    pytest.param(tidy_rules.imported_tests, "from tests.a.test_b import c", id="test-from"),
    pytest.param(tidy_rules.imported_tests, "def f():\n    from tests.a import test_b", id="test-module"),
    pytest.param(tidy_rules.imported_tests, "import tests.a.test_b as b", id="test-import"),
    pytest.param(tidy_rules.broad_excepts, "try: f()\nexcept Exception: pass", id="except-exception"),
    pytest.param(tidy_rules.broad_excepts, "try: f()\nexcept (OSError, BaseException): pass", id="except-tuple"),
    pytest.param(tidy_rules.broad_excepts, "try: f()\nexcept: pass", id="except-bare"),
    pytest.param(tidy_rules.broad_excepts, "try: f()\nexcept* Exception: pass", id="except-group"),
    pytest.param(tidy_rules.broad_excepts, "with contextlib.suppress(Exception): f()", id="suppress"),
    pytest.param(tidy_rules.broad_excepts, "try: f()\nexcept Exception: pass  # boundary: my whim", id="no-boundary"),
    pytest.param(tidy_rules.patched_modules, "from unittest import mock", id="mock-from"),
    pytest.param(tidy_rules.patched_modules, "import unittest.mock", id="mock-import"),
    pytest.param(tidy_rules.patched_modules, "monkeypatch.setattr('hansard.a.b', 1)", id="patch-string"),
    pytest.param(
        tidy_rules.patched_modules, "import hansard.a\nmonkeypatch.setattr(hansard.a, 'b', 1)", id="patch-module"
    ),
    pytest.param(
        tidy_rules.patched_modules, "from hansard import a\nmonkeypatch.setattr(a.time, 'sleep', f)", id="patch-through"
    ),
    pytest.param(tidy_rules.patched_modules, "monkeypatch.setattr(record, 'append', f)", id="patch-object"),
    pytest.param(tidy_rules.patched_modules, "from hansard.a import B\nsetattr(B, 'c', 1)", id="patch-setattr"),
    pytest.param(tidy_rules.patched_modules, "from hansard import a\na.LIMIT = 1", id="patch-assignment"),
    pytest.param(tidy_rules.stray_sql, "run('SELECT 1')", id="sql"),
    pytest.param(tidy_rules.stray_sql, "run('''\n  insert into t values (1)''')", id="sql-lower"),
    pytest.param(tidy_rules.stray_sql, "run(f'DELETE FROM {table}')", id="sql-formatted"),
    pytest.param(tidy_rules.stray_sql, "run('COMMIT')", id="sql-commit"),
    pytest.param(tidy_rules.undescribed_queries, "SELECT 1\n", id="query-nameless"),
    pytest.param(tidy_rules.undescribed_queries, "-- name: a\nSELECT 1\n", id="query-undescribed"),
    pytest.param(tidy_rules.undescribed_queries, "-- name: a\n-- Why.\n", id="query-empty"),
    pytest.param(
        tidy_rules.undescribed_queries,
        "-- name: a\n-- Why.\nSELECT 1\n\n-- name: a\n-- Why.\nSELECT 2",
        id="query-twice",
    ),
    pytest.param(
        tidy_rules.large_protocols,
        "class P(Protocol):\n" + "".join(f"    def m{i}(self): ...\n" for i in range(6)),
        id="port",
    ),
    pytest.param(tidy_rules.foreign_addresses, "see https://pypi" + ".org/simple", id="registry"),
    pytest.param(tidy_rules.foreign_addresses, "--index-url" + " x", id="index"),
    pytest.param(tidy_rules.foreign_addresses, "home = '/" + "root/.cache'", id="machine-path"),
]

ALLOWED = [
    pytest.param(tidy_rules.too_long, "def f():\n" + LONG_BODY * 69, id="function-70"),
    pytest.param(
        tidy_rules.positional_structs, "class C(Struct, kw_only=True):\n    a: bool = False\n", id="struct-by-keyword"
    ),
    pytest.param(tidy_rules.bare_verbs, "def take_batch(batch): ...", id="verb-with-object"),
    pytest.param(tidy_rules.hidden_imports, "import hansard.record\ndef f():\n    import nio", id="late-third-party"),
    pytest.param(
        tidy_rules.broad_excepts,
        "try: f()\nexcept Exception: pass  # boundary: model call  # noqa: BLE001",
        id="boundary",
    ),
    pytest.param(tidy_rules.broad_excepts, "try: f()\nexcept OSError: pass", id="narrow-except"),
    pytest.param(tidy_rules.patched_modules, "import os\nmonkeypatch.setattr(os, 'fsync', f)", id="patch-foreign"),
    pytest.param(tidy_rules.patched_modules, "monkeypatch.setenv('HANSARD_HOME', 'x')", id="environment"),
    pytest.param(tidy_rules.stray_sql, "'''SELECT in a docstring.'''\nx = 'Select one from the list'", id="prose"),
    pytest.param(tidy_rules.foreign_addresses, "net/" + "work/x $HOME/" + "root/x", id="relative-path"),
]


@pytest.mark.parametrize(("rule", "sample"), BREACHES)
def test_each_rule_finds_a_breach(rule: Rule, sample: str) -> None:
    """A rule finds a file that breaks it."""
    assert findings_in(rule, sample)


@pytest.mark.parametrize(("rule", "sample"), ALLOWED)
def test_no_rule_cries_wolf(rule: Rule, sample: str) -> None:
    """A rule passes a file that comes close to breaking it and does not."""
    assert not findings_in(rule, sample)


def test_lock_files_are_found_by_name() -> None:
    """A lock file is a breach by its mere name."""
    assert findings_in(tidy_rules.foreign_addresses, "", path="uv" + ".lock")


def test_sizes(sources: list[Source]) -> None:
    """No module has more than 500 lines, no function more than 70, no class more than 25 methods."""
    assert violations(tidy_rules.too_long, sources, r".*\.py$") == []


def test_few_modules_are_short(sources: list[Source]) -> None:
    """At most 25 modules of src, the packages' own included, have under 60 lines."""
    samples = [Source(path=PurePosixPath(f"src/{lines}.py"), text="#\n" * lines) for lines in (59, 60)]
    assert tidy_rules.short_modules(samples) == ["src/59.py"]
    short = tidy_rules.short_modules(modules_of_src(sources))
    assert len(short) <= tidy_rules.SHORT_MODULES_MAX, short


def test_projections_have_a_case_for_each_body(sources: list[Source]) -> None:
    """A projection by cases has one for each body that it is registered for."""
    sample = (
        "@C.projects(A, B, D)\ndef project(place, body):\n    match body:\n        case A() | B():\n            pass\n"
    )
    assert findings_in(tidy_rules.bodies_without_case, sample) == [
        "src/hansard/engine/example.py:2: project has no case for D"
    ]
    assert violations(tidy_rules.bodies_without_case, sources, r"src/.*\.py$") == []


def test_class_names_are_unique(sources: list[Source]) -> None:
    """A class name is defined once in src, the nested and the private ones and hansard.testing included."""
    twice = [Source(path=PurePosixPath(f"src/{name}.py"), text="class C:\n    class D: ...\n") for name in "ab"]
    assert list(tidy_rules.repeated_classes(twice)) == [
        "src/b.py:1: a second class C; the first is at src/a.py:1",
        "src/b.py:2: a second class D; the first is at src/a.py:2",
    ]
    assert list(tidy_rules.repeated_classes(modules_of_src(sources))) == []


def test_values_name_their_fields(sources: list[Source]) -> None:
    """A NamedTuple with more than three fields, or with a flag, is made of a row or by keyword."""
    flag = "class F(NamedTuple):\n    a: int\n    b: bool\n"
    four = "class R(NamedTuple):\n" + "".join(f"    {name}: int\n" for name in "abcd")
    used = "F(1, b=True)\nR(*row)\nR._make(row)\nR(a=1, b=2, c=3, d=4)\n"
    samples = [Source(path=PurePosixPath(f"src/{text[6]}.py"), text=text) for text in (flag, four)]
    samples.append(Source(path=PurePosixPath("src/u.py"), text=used))
    assert list(tidy_rules.positional_values(samples)) == [
        "src/u.py:1: F() is filled by place: name the fields",
        "src/u.py:2: R() is filled by place: name the fields",
    ]
    assert list(tidy_rules.positional_values(modules_of_src(sources))) == []


def test_structs_are_filled_by_keyword(sources: list[Source]) -> None:
    """A Struct with more than three fields, or with a flag, is keyword-only."""
    assert violations(tidy_rules.positional_structs, sources, r"src/.*\.py$") == []


def test_verbs_have_objects(sources: list[Source]) -> None:
    """No function of src is named settle, take, look, use or hold alone."""
    assert violations(tidy_rules.bare_verbs, sources, r"src/.*\.py$") == []


def test_imports_are_at_the_top(sources: list[Source]) -> None:
    """No first-party import hides in a function, and only cli/ and app/ load modules by name."""
    assert violations(tidy_rules.hidden_imports, sources, r"src/.*\.py$") == []


def test_tests_mirror_the_package(sources: list[Source]) -> None:
    """Each folder of tests/ is named after a part of the package, or one of crash, security, acceptance, repository."""
    samples = ["src/hansard/tasks.py", "src/hansard/app/a.py", "tests/conftest.py"]
    samples += [f"tests/{folder}/test_a.py" for folder in ("tasks", "app", "crash", "gone")]
    assert tidy_rules.strange_folders(map(PurePosixPath, samples)) == {"gone"}
    assert tidy_rules.strange_folders(source.path for source in sources) == set()


def test_helpers_are_not_test_modules(sources: list[Source]) -> None:
    """No file imports anything from a test module."""
    assert violations(tidy_rules.imported_tests, sources, r".*\.py$") == []


@pytest.mark.parametrize("folder", ["src/hansard/cli", "src/hansard/app"])
def test_one_table_loads_by_name(sources: list[Source], folder: str) -> None:
    """In cli/ and in app/, at most one place loads modules by name: the table."""
    places = [
        source.at(call.lineno, "loads by name")
        for source in sources
        if source.in_folder(folder) and source.path.suffix == ".py"
        for call in tidy_rules.loads_by_name(source)
    ]
    assert len(places) <= 1, places


def test_broad_excepts_are_boundaries(sources: list[Source]) -> None:
    """Everything is caught only where a line names one of the five boundaries."""
    assert violations(tidy_rules.broad_excepts, sources, r"src/.*\.py$") == []


def test_nothing_of_ours_is_patched(sources: list[Source]) -> None:
    """Tests use fakes: no mock library, and no patch of this project's modules or objects."""
    assert violations(tidy_rules.patched_modules, sources, r"tests/.*\.py$") == []


def test_sql_lives_in_sql_files(sources: list[Source]) -> None:
    """No string in Python is SQL, the SQLite backend's own folder aside."""
    assert violations(tidy_rules.stray_sql, sources, r"src/(?!hansard/journal/sqlite/).*\.py$") == []


def test_queries_are_named_and_described(sources: list[Source]) -> None:
    """Each query has a name of its own and says what it is for."""
    assert sum(re.fullmatch(QUERIES, str(source.path)) is not None for source in sources) > 10
    assert violations(tidy_rules.undescribed_queries, sources, QUERIES) == []


def test_ports_are_small(sources: list[Source]) -> None:
    """No port has more than five methods."""
    assert violations(tidy_rules.large_protocols, sources, r"src/hansard/ports/.*\.py$") == []


def test_no_address_of_a_registry_or_a_machine(sources: list[Source]) -> None:
    """The repository installs anywhere: it names no package registry, no index and no path of one machine."""
    assert violations(tidy_rules.foreign_addresses, sources, r".*") == []


def error_classes() -> list[type]:
    """Every class that errors.py defines."""
    errors = importlib.import_module("hansard.errors")
    return [value for value in vars(errors).values() if inspect.isclass(value) and value.__module__ == errors.__name__]


def test_errors_say_what_to_do() -> None:
    """Each error says whether to retry, and gives a hint of its own that a person can act on."""
    classes = error_classes()
    assert classes
    for error in classes:
        assert isinstance(getattr(error, "retryable", None), bool), f"{error.__name__} does not say whether to retry"
        assert isinstance(vars(error).get("hint"), str), f"{error.__name__} has no hint of its own"
        assert vars(error)["hint"].strip(), f"{error.__name__} has an empty hint"


def test_errors_are_one_drawn_tree() -> None:
    """The errors have one base, and the docstring draws each class exactly once, below its parent."""
    classes = error_classes()
    base = classes[0]
    drawing = importlib.import_module("hansard.errors").__doc__ or ""
    root = re.search(rf"^( *){base.__name__}$", drawing, re.MULTILINE)
    assert root, f"no line of the docstring of errors.py is {base.__name__} alone"
    drawn = re.findall(rf"^{root[1]}((?:[│ ]   )*(?:[├└]── )|)([A-Z]\w+)(?:$|  )", drawing, re.MULTILINE)
    depths = {name: len(indent) // 4 for indent, name in drawn}
    assert sorted(name for _, name in drawn) == sorted(error.__name__ for error in classes)
    for error in classes:
        assert issubclass(error, base), f"{error.__name__} is not a {base.__name__}"
        depth = sum(issubclass(ancestor, base) for ancestor in error.__mro__) - 1
        assert depths[error.__name__] == depth, f"{error.__name__} is drawn at the wrong depth"


def test_errors_are_in_the_reference() -> None:
    """docs/build/reference.md mentions every error."""
    reference = (ROOT / "docs" / "build" / "reference.md").read_text(encoding="utf-8")
    missing = [error.__name__ for error in error_classes() if not re.search(rf"\b{error.__name__}\b", reference)]
    assert missing == []
