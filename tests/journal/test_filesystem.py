"""A file system is judged by what it does: locks that exclude, and memory that processes share."""

from __future__ import annotations

from pathlib import Path

import pytest

from hansard import UnsafeFilesystem
from hansard.journal.sqlite.disk import check_behaviour, check_filesystem
from tests.record.helpers_process import Worker, WorkerError, need_strace

LACKS = {
    "flock:retval=0": "grants one lock twice",
    "fcntl:retval=0": "grants a lock of a part of a file twice",
    "pwrite64:retval=64": "does not show one process what another one wrote",
    "mmap:error=ENODEV": "has no memory that processes share",
}
"""What strace lets a system call on the probe file do, and what is said then."""


@pytest.mark.drawn(2)
@pytest.mark.parametrize("injected", LACKS)
def test_what_a_file_system_lacks_is_found_by_trying(home: Path, injected: str) -> None:
    """A call that pretends: the home is refused, whatever the file system is called, and opens elsewhere."""
    need_strace()
    with Worker(home):
        pass
    call = injected.partition(":")[0]
    probe = str(home / "locks" / "probe")
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", probe, "-e", f"trace={call}", "-e", f"inject={injected}"]
    told = pytest.raises(WorkerError, match=f"UnsafeFilesystem.*{LACKS[injected]}")
    with Worker(home, prefix=strace, opened=False) as worker, told:
        worker.ask("open")
    with Worker(home) as worker:
        assert worker.owner


def test_a_fit_file_system_passes_again_and_again(tmp_path: Path) -> None:
    """What an earlier probe left in the file does not matter."""
    for _ in range(20):
        check_behaviour(tmp_path / "probe")


@pytest.mark.parametrize("kind", ["virtiofs", "ocfs2", "beegfs", "grpcfuse", "fuse.grpcfuse", "nfs4"])
def test_file_systems_that_hosts_share_are_refused_by_name(kind: str) -> None:
    """One host cannot see by trying that another one has the home open, too."""
    mounts = f"22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 0:25 / /mnt/share rw - {kind} server:/export rw\n"
    with pytest.raises(UnsafeFilesystem, match=kind):
        check_filesystem(Path("/mnt/share/home"), mounts)
    check_filesystem(Path("/mnt/other"), mounts)


def test_a_plain_fuse_is_judged_by_what_it_does() -> None:
    """Its name says nothing about the program behind it."""
    check_filesystem(Path("/mnt/x"), "30 22 0:25 / /mnt/x rw - fuse something rw\n")
