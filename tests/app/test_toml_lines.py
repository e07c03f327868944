"""In which line of a file each key stands: against what tomllib reads."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from hansard.app.home_files import key_lines

STRINGS = [
    "'a # b'",
    '"a \\" # ]"',
    '"""\n# x = 1\n"" [y]\n"""',
    '"""a\\"""b"""""',
    "'''\n[z]\n'''''",
    "'\\'",
    '""',
    "1979-05-27 07:32:00",
    "-1_0.5e3",
    "true",
]
VALUES = st.recursive(
    st.sampled_from(STRINGS),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[ # [\n" + " ,\n".join(items) + "\n]")
        | st.lists(inner, max_size=3).map(
            lambda items: "{" + ", ".join(f"k{number}.'q.r' = {item}" for number, item in enumerate(items)) + "}"
        )
    ),
    max_leaves=6,
)
PARTS = st.sampled_from(["a", "b-1", '"q.r"', "'s # t'", '"\\u00e9\\t"', "3", '"="'])
NAMES = st.lists(PARTS, min_size=1, max_size=3).map(" . ".join)
STATEMENTS = st.one_of(
    st.tuples(NAMES, VALUES).map(" = ".join),
    NAMES.map("[ {} ]".format),
    NAMES.map("[[{}]]".format),
    st.sampled_from(["", "# [c] = 1", "\t# é"]),
)


def paths_in(value: object, prefix: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Every key of a document, with those that it lies in; positions in lists left out."""
    if isinstance(value, list):
        return {path for item in value for path in paths_in(item, prefix)}
    if not isinstance(value, dict):
        return set()
    return {path for name, item in value.items() for path in {(*prefix, name)} | paths_in(item, (*prefix, name))}


@given(st.lists(STATEMENTS, max_size=8))
def test_each_key_has_the_line_it_stands_in(statements: list[str]) -> None:
    """The lines cover exactly the keys that tomllib reads; each key ends up in the line where it first appears."""
    document = ""
    expected: dict[tuple[str, ...], int] = {}
    for statement in statements:
        try:
            known = paths_in(tomllib.loads(f"{document}{statement}\n"))
        except tomllib.TOMLDecodeError:
            continue
        line = document.count("\n") + 1
        document += f"{statement}\n"
        # Keys of inline tables may stand some lines below the start of their statement.
        last = document.count("\n")
        found = key_lines(document)
        assert set(found) == known
        assert {path: found[path] for path in expected} == expected
        assert all(line <= found[path] <= last for path in known - set(expected))
        expected = found
