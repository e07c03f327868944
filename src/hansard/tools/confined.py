"""Start a program that cannot see certain paths, nor into other processes. Linux only; a program of its own.

    python -I -S confined.py HIDDEN … -- COMMAND ARGUMENT …

Two ways are tried, and one is enough:
1. Namespaces of its own. An empty folder lies over each hidden one, and processes outside belong to another user
   namespace. Not as root, and not where user namespaces are forbidden, as in most containers.
2. Landlock. Everything but the hidden paths may be used, and processes outside may not be looked into. Not on kernels
   before 5.13, or without Landlock.

By Landlock, names that are made later beside a hidden path, or beside a folder above it, cannot be used by the program.
Both ways forbid programs to gain rights (`sudo` and the like do not work). When neither works, the program is started
all the same, and a line on standard error says so. This file imports nothing of Hansard: it has to start quickly.
"""

import ctypes
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_SLAVE = 1, 2, 4, 8, 4096, 16384, 1 << 19
PR_SET_NO_NEW_PRIVS = 38

LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
"""Numbers of system calls, the same on every architecture that Hansard runs on."""
LANDLOCK_VERSION_FLAG, LANDLOCK_RULE_PATH_BENEATH = 1, 1

RIGHTS_OF_FILES = 0b0111
"""Execute, write, read."""
RIGHTS_BY_VERSION = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF}
"""All rights that a version of Landlock knows about files and folders; devices (version 5) are left as they are."""
RIGHT_TRUNCATE = 1 << 14

EXIT_NOT_STARTED = 127

NOT_CONFINED = "this system has neither user namespaces nor Landlock, so this program can read the home of Hansard"


class PathBeneath(ctypes.Structure):
    """`struct landlock_path_beneath_attr`."""

    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def main(arguments: Sequence[str]) -> None:
    end = arguments.index("--")
    hidden, command = [os.path.realpath(path) for path in arguments[:end]], list(arguments[end + 1 :])
    leave_hidden(hidden)
    if not any(attempt(hidden) for attempt in (hide_by_namespaces, hide_by_landlock)):
        print(NOT_CONFINED, file=sys.stderr, flush=True)  # noqa: T201 - it goes into Hansard's log
    try:
        os.execvp(command[0], command)  # noqa: S606 - that is what this program is for
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)  # noqa: T201
        sys.exit(EXIT_NOT_STARTED)


def leave_hidden(hidden: Sequence[str]) -> None:
    """Go elsewhere when the present folder is hidden: what lies under it would be reached from there."""
    here = os.getcwd()  # noqa: PTH109 - pathlib would take time to import
    if any(is_beneath(here, path) for path in hidden):
        os.chdir("/")


def is_beneath(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def call(function: Callable[..., int], *arguments: object) -> int:
    """Call a function of the C library, or of the kernel by its number. Raises OSError when it fails."""
    result = function(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def forbid_more_rights(library: ctypes.CDLL) -> None:
    """Let nothing that is started from here gain rights, as by a set-user-id bit."""
    call(library.prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def hide_by_namespaces(hidden: Sequence[str]) -> bool:
    """Lay an empty folder, or the null device, over each hidden path, in namespaces of this process's own."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        return False  # root keeps all rights within its namespaces, and could uncover what is hidden
    library = ctypes.CDLL(None, use_errno=True)
    try:
        call(library.unshare, CLONE_NEWUSER | CLONE_NEWNS)
        write_file("/proc/self/setgroups", "deny")
        write_file("/proc/self/uid_map", f"{user} {user} 1")
        write_file("/proc/self/gid_map", f"{group} {group} 1")
        call(library.mount, b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_SLAVE), None)
        for path in hidden:
            cover(library, path)
        forbid_more_rights(library)
    except OSError:
        return False
    return True


def write_file(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib would take time to import
        file.write(text)


def cover(library: ctypes.CDLL, path: str) -> None:
    if os.path.isdir(path):  # noqa: PTH112
        flags = ctypes.c_ulong(MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
        call(library.mount, b"tmpfs", os.fsencode(path), b"tmpfs", flags, b"mode=0500,size=4k")
    elif os.path.lexists(path):
        call(library.mount, b"/dev/null", os.fsencode(path), None, ctypes.c_ulong(MS_BIND), None)


def hide_by_landlock(hidden: Sequence[str]) -> bool:
    """Allow everything but the hidden paths."""
    library = ctypes.CDLL(None, use_errno=True)
    try:
        version = call(
            library.syscall, LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(LANDLOCK_VERSION_FLAG)
        )
        rights = RIGHTS_BY_VERSION[min(version, max(RIGHTS_BY_VERSION))]
        handled = ctypes.c_uint64(rights)
        size = ctypes.c_size_t(ctypes.sizeof(handled))
        rules = call(library.syscall, LANDLOCK_CREATE_RULESET, ctypes.byref(handled), size, ctypes.c_uint32(0))
        for path in paths_beside(hidden):
            allow(library, rules, path, rights)
        forbid_more_rights(library)
        call(library.syscall, LANDLOCK_RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint32(0))
        os.close(rules)
    except OSError:
        return False
    return True


def allow(library: ctypes.CDLL, rules: int, path: str, rights: int) -> None:
    """Allow everything at and beneath a path. What cannot be opened is left out: the program could not either."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISLNK(mode):
            return  # what it leads to has a rule of its own, unless it is hidden
        of_files = (RIGHTS_OF_FILES | RIGHT_TRUNCATE) & rights
        rule = PathBeneath(rights if stat.S_ISDIR(mode) else of_files, descriptor)
        arguments = (
            ctypes.c_int(rules),
            ctypes.c_int(LANDLOCK_RULE_PATH_BENEATH),
            ctypes.byref(rule),
            ctypes.c_uint32(0),
        )
        call(library.syscall, LANDLOCK_ADD_RULE, *arguments)
    finally:
        os.close(descriptor)


def paths_beside(hidden: Sequence[str], folder: str = "/") -> Iterator[str]:
    """Yield paths that together hold everything but the hidden ones and the folders above them."""
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return
    for name in names:
        path = f"{folder.rstrip('/')}/{name}"
        if path in hidden:
            continue
        if any(is_beneath(each, path) for each in hidden):
            yield from paths_beside(hidden, path)
        else:
            yield path


if __name__ == "__main__":
    main(sys.argv[1:])
