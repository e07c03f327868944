"""The rules of the tidy test. Each one takes a file and yields what is wrong in it, as ``path:line: what``.

The rules read text and syntax trees and import nothing of the project, so that they work on a tree that does not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

MODULE_LINES_MAX = 500
SHORT_MODULE_LINES = 60
SHORT_MODULES_MAX = 25
FUNCTION_LINES_MAX = 70
CLASS_METHODS_MAX = 25
PROTOCOL_METHODS_MAX = 5
VALUE_FIELDS_MAX = 3

WHOLE_FOLDERS = frozenset({"crash", "security", "acceptance", "repository"})

BARE_VERBS = frozenset({"settle", "take", "look", "use", "hold"})

BOUNDARIES = frozenset({"model call", "tool call", "channel call", "writer batch", "process edge"})
BROAD_EXCEPTIONS = frozenset({"Exception", "BaseException", "ExceptionGroup", "BaseExceptionGroup"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file of the repository."""

    path: PurePosixPath
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text, filename=str(self.path))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the syntax tree; the rules go through them again and again."""
        return list(ast.walk(self.tree))

    @cached_property
    def lines(self) -> list[str]:
        """The lines, without their ends."""
        return self.text.splitlines()

    def at(self, line: int, what: str) -> str:
        """One finding, in the form that editors can follow."""
        return f"{self.path}:{line}: {what}"

    def in_folder(self, folder: str) -> bool:
        """Whether the file lies anywhere below a folder of the repository."""
        return self.path.is_relative_to(folder)


def too_long(source: Source) -> Iterator[str]:
    """Modules and functions over their limit of lines, and classes of src over their limit of methods."""
    if len(source.lines) > MODULE_LINES_MAX:
        yield source.at(1, f"module of {len(source.lines)} lines; the limit is {MODULE_LINES_MAX}")
    for node in source.nodes:
        if isinstance(node, ast.ClassDef) and source.in_folder("src"):
            count = sum(isinstance(item, Function) for item in node.body)
            limit, kind, unit = CLASS_METHODS_MAX, "class", "methods"
        elif isinstance(node, Function):
            # The parser always gives the end of a definition that it read from text.
            assert node.end_lineno is not None
            count, limit, kind, unit = node.end_lineno - node.lineno + 1, FUNCTION_LINES_MAX, "function", "lines"
        else:
            continue
        if count > limit:
            yield source.at(node.lineno, f"{kind} {node.name} of {count} {unit}; the limit is {limit}")


def short_modules(sources: Iterable[Source]) -> list[str]:
    """The modules of so few lines that they may belong into their importer."""
    return [str(source.path) for source in sources if len(source.lines) < SHORT_MODULE_LINES]


def repeated_classes(sources: Iterable[Source]) -> Iterator[str]:
    """Classes, nested ones included, whose name another class of these files has already."""
    first: dict[str, str] = {}
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                place = f"{source.path}:{node.lineno}"
                if first.setdefault(node.name, place) != place:
                    yield source.at(node.lineno, f"a second class {node.name}; the first is at {first[node.name]}")


def large_values(source: Source, base: str) -> list[ast.ClassDef]:
    """The values with more fields than a reader tells apart by their place, or with a flag."""
    found = []
    for node in source.nodes:
        if isinstance(node, ast.ClassDef) and base in {dotted(each).rpartition(".")[2] for each in node.bases}:
            types = [ast.unparse(each.annotation) for each in node.body if isinstance(each, ast.AnnAssign)]
            if len(types) > VALUE_FIELDS_MAX or "bool" in types:
                found.append(node)
    return found


def positional_values(sources: list[Source]) -> Iterator[str]:
    """Calls that fill a NamedTuple by place although it has many fields or a flag. `_make`, for a row, is none."""
    large = {node.name for source in sources for node in large_values(source, "NamedTuple")}
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.Call) and node.args and dotted(node.func).rpartition(".")[2] in large:
                yield source.at(node.lineno, f"{ast.unparse(node.func)}() is filled by place: name the fields")


def positional_structs(source: Source) -> Iterator[str]:
    """Structs with many fields or a flag that can be filled by place."""
    for node in large_values(source, "Struct"):
        if not any(each.arg == "kw_only" for each in node.keywords):
            yield source.at(node.lineno, f"{node.name} can be filled by place: kw_only=True")


def bare_verbs(source: Source) -> Iterator[str]:
    """Functions named by a verb that says nothing without its object."""
    for node in ast.walk(source.tree):
        if isinstance(node, Function) and node.name.strip("_") in BARE_VERBS:
            yield source.at(node.lineno, f"{node.name}() does not say what: move_delivery, take_batch, hold_event")


def hidden_imports(source: Source) -> Iterator[str]:
    """First-party imports inside functions, and modules of the project loaded by name."""
    loaders = ("src/hansard/cli", "src/hansard/app")
    may_load_by_name = any(map(source.in_folder, loaders)) or str(source.path).endswith("src/hansard/__init__.py")
    for function in (node for node in source.nodes if isinstance(node, Function)):
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom) and any(map(is_first_party, imported_modules(node))):
                yield source.at(node.lineno, f"first-party import inside {function.name}()")
    if not may_load_by_name:
        for call in loads_by_name(source):
            first = call.args[0] if call.args else None
            foreign = isinstance(first, ast.Constant) and not is_first_party(str(first.value))
            if not foreign:
                yield source.at(call.lineno, "loads a module by name; only cli/ and app/ may, from one table each")


def imported_tests(source: Source) -> Iterator[str]:
    """Imports out of a test module: what several files need stands in a helper beside them."""
    for node in source.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for module in imported_modules(node):
                if re.match(r"tests\.(\w+\.)*test_", module):
                    yield source.at(node.lineno, f"imports {module}; a helper is not a test module")


def strange_folders(paths: Iterable[PurePosixPath]) -> set[str]:
    """Folders of tests/ that mirror nothing of the package, and are none of the four for claims about the whole."""
    parts = [path.parts for path in paths]
    mirrored = {each[2].removesuffix(".py") for each in parts if each[:2] == ("src", "hansard")}
    return {each[1] for each in parts if each[0] == "tests" and len(each) > 2} - mirrored - WHOLE_FOLDERS


def loads_by_name(source: Source) -> list[ast.Call]:
    """The calls of import_module and __import__."""
    calls = (node for node in source.nodes if isinstance(node, ast.Call))
    return [call for call in calls if dotted(call.func).rpartition(".")[2] in {"import_module", "__import__"}]


def broad_excepts(source: Source) -> Iterator[str]:
    """Handlers that catch everything and keep it, unless their line names one of the five boundaries."""
    for node in source.nodes:
        if isinstance(node, ast.ExceptHandler):
            if isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None:
                continue
            caught = ["a bare except"] if node.type is None else broad_names(node.type)
        elif isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] == "suppress":
            caught = [name for argument in node.args for name in broad_names(argument)]
        else:
            continue
        if caught and not names_boundary(source.lines[node.lineno - 1]):
            yield source.at(node.lineno, f"{caught[0]} outside the five named boundaries")


def broad_names(expression: ast.expr) -> list[str]:
    """The names of catch-all exceptions in what a handler catches."""
    parts = expression.elts if isinstance(expression, ast.Tuple) else [expression]
    return [dotted(part) for part in parts if dotted(part).rpartition(".")[2] in BROAD_EXCEPTIONS]


def names_boundary(line: str) -> bool:
    """Whether a line carries the comment that makes it a boundary: ``# boundary: writer batch``."""
    found = re.search(r"#\s*boundary: ([a-z ]+?)\s*(?:[,.;:(#-]|$)", line)
    return found is not None and found[1] in BOUNDARIES


def patched_modules(source: Source) -> Iterator[str]:
    """Mocks, and patches whose target is not plainly foreign."""
    origins = imported_names(source)
    for node in source.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            if any(is_mock(module) for module in imported_modules(node)):
                yield source.at(node.lineno, "imports a mock library: write a fake (hansard.testing)")
        elif isinstance(node, ast.Call) and dotted(node.func) in {
            "monkeypatch.setattr",
            "monkeypatch.delattr",
            "setattr",
            "delattr",
        }:
            target = node.args[0] if node.args else None
            if target is not None and patches_ours(target, origins, monkeypatch="." in dotted(node.func)):
                yield source.at(node.lineno, "patches a module or an object of this project: write a fake")
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
            targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
            for target in targets:
                if isinstance(target, ast.Attribute) and is_first_party(origin_of(target, origins)):
                    yield source.at(node.lineno, f"assigns to {dotted(target)}: a patch of this project")


def patches_ours(target: ast.expr, origins: dict[str, str], *, monkeypatch: bool) -> bool:
    """Whether a patch hits this project. Monkeypatch may hit only what was imported from elsewhere, or named so."""
    if isinstance(target, ast.Constant):
        return is_first_party(str(target.value))
    origin = origin_of(target, origins)
    return is_first_party(origin) or (monkeypatch and not origin)


def is_mock(module: str) -> bool:
    """Whether a module is a library of mocks."""
    return module.startswith("unittest.mock") or module.partition(".")[0] in {"mock", "pytest_mock"}


def imported_names(source: Source) -> dict[str, str]:
    """For each name that an import of the file binds, the module it comes from."""
    origins: dict[str, str] = {}
    for node in source.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                origins[alias.asname or alias.name.partition(".")[0]] = alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                origins[alias.asname or alias.name] = f"hansard.{node.module}" if node.level else str(node.module)
    return origins


def origin_of(expression: ast.expr, origins: dict[str, str]) -> str:
    """The module that the first name of a dotted expression was imported from; empty when it was not imported."""
    return origins.get(dotted(expression).partition(".")[0], "")


SQL_KEYWORD = re.compile(
    r"""\s*(?:
        (?:SELECT|INSERT|UPDATE|DELETE|REPLACE|CREATE|DROP|ALTER|PRAGMA|ATTACH|DETACH|SAVEPOINT|RELEASE|WITH|EXPLAIN)\s
      | (?:BEGIN|COMMIT|ROLLBACK|VACUUM|REINDEX|ANALYZE)(?:\s|;|$)
      | select\s.+\sfrom\s | insert\s+into\s | update\s.+\sset\s | delete\s+from\s | replace\s+into\s
      | create\s+(?:table|index|unique|trigger|view|virtual|temp)\b | drop\s+(?:table|index|trigger|view)\b
      | pragma\s+\w+ | begin\s+(?:immediate|exclusive|deferred|transaction)\b
    )""",
    re.VERBOSE | re.DOTALL,
)


def stray_sql(source: Source) -> Iterator[str]:
    """Strings that are SQL."""
    prose = docstrings(source.tree)
    for node in source.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose:
            found = SQL_KEYWORD.match(node.value)
            if found:
                yield source.at(node.lineno, f"SQL in Python ({found[0].strip()} …); it belongs in a .sql file")


def docstrings(tree: ast.Module) -> set[ast.AST]:
    """The strings that stand alone as statements: docstrings of modules, classes, functions and attributes."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def undescribed_queries(source: Source) -> Iterator[str]:
    """Queries of a .sql file without a name, with a name taken already, or without a description."""
    names: set[str] = set()
    for number, block in blocks(source.lines):
        name = re.fullmatch(r"-- name: ([a-z][a-z0-9_]*)", block[0])
        if name is None and not names and any(line.startswith("CREATE ") for line in block):
            continue  # the tables stand above the first query
        if name is None:
            yield source.at(number, "a query starts with '-- name: x', after an empty line")
            continue
        if name[1] in names:
            yield source.at(number, f"the name {name[1]} is taken")
        names.add(name[1])
        if len(block) < 2 or not re.match(r"-- \S", block[1]):
            yield source.at(number, f"{name[1]} has no description in the line below its name")
        if all(line.startswith("--") for line in block):
            yield source.at(number, f"{name[1]} has no query")


def blocks(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """The parts of a query file, each from one name up to the next, with the number of its first line."""
    start, block = 1, list[str]()
    for number, line in enumerate(lines, 1):
        if line.startswith("-- name:") and block:
            yield start, block
            block = []
        if line.strip():
            start = start if block else number
            block.append(line.rstrip())
    if block:
        yield start, block


def large_protocols(source: Source) -> Iterator[str]:
    """Protocols that ask for more than a port should."""
    for node in source.nodes:
        if isinstance(node, ast.ClassDef) and any(dotted(base).rpartition(".")[2] == "Protocol" for base in node.bases):
            count = sum(isinstance(item, Function) for item in node.body)
            if count > PROTOCOL_METHODS_MAX:
                yield source.at(node.lineno, f"{node.name} has {count} methods; the limit is {PROTOCOL_METHODS_MAX}")


# Written in pieces, so that this file does not name what it forbids.
REGISTRIES = "|".join(
    re.escape(".".join(parts))
    for parts in [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("deb", "debian", "org"),
        ("archive", "ubuntu", "com"),
    ]
)
FORBIDDEN_TEXT = re.compile(
    rf"(?P<registry>{REGISTRIES})|(?P<index>--(?:extra-)?index-url[ =]\S)"
    r"|(?<![\w.$})-])(?P<path>/(?:work|root)/[\w.])"
)
FORBIDDEN_FILES = re.compile(r"uv\.lock|pylock(\..+)?\.toml")


def foreign_addresses(source: Source) -> Iterator[str]:
    """Lock files with addresses, names of package registries, and paths of one machine."""
    if FORBIDDEN_FILES.fullmatch(source.path.name):
        yield source.at(1, "a lock file with registry addresses; requirements/*.txt pin instead")
    for number, line in enumerate(source.lines, 1):
        found = FORBIDDEN_TEXT.search(line)
        if found:
            yield source.at(number, f"names a {found.lastgroup}: {found[0]}")


def is_first_party(module: str) -> bool:
    """Whether a module is of this project. Relative imports arrive here as hansard's own."""
    return module.partition(".")[0] == "hansard"


def imported_modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The full names that an import statement brings in."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    module = f"hansard.{node.module or ''}" if node.level else str(node.module)
    return [f"{module}.{alias.name}" for alias in node.names]


def dotted(expression: ast.expr) -> str:
    """The dotted name of an expression, its subscripts and calls left out; empty for anything else."""
    if isinstance(expression, ast.Name):
        return expression.id
    if isinstance(expression, ast.Attribute):
        return f"{dotted(expression.value)}.{expression.attr}"
    if isinstance(expression, ast.Subscript):
        return dotted(expression.value)
    if isinstance(expression, ast.Call):
        return dotted(expression.func)
    return ""


def bodies_without_case(source: Source) -> Iterator[str]:
    """A projection by cases has one for each body that it is registered for: another would change no table."""
    for function in source.nodes:
        if not isinstance(function, ast.FunctionDef):
            continue
        matches = [node for node in function.body if isinstance(node, ast.Match)]
        for decorator in function.decorator_list if matches else ():
            if not isinstance(decorator, ast.Call) or not ast.unparse(decorator.func).endswith(".projects"):
                continue
            patterns = [each for case in matches[0].cases for each in ast.walk(case.pattern)]
            cases = {ast.unparse(each.cls) for each in patterns if isinstance(each, ast.MatchClass)}
            for body in decorator.args:
                if ast.unparse(body) not in cases:
                    yield f"{source.path}:{function.lineno}: {function.name} has no case for {ast.unparse(body)}"
