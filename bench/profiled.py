"""Run a script as it is, and note between two signals where its processor time and its writer's wall time go.

    python bench/profiled.py FOLDER SCRIPT [ARGUMENT]...

A process of its own, started by bench/profiles.py. SIGUSR1 begins, SIGUSR1 again ends, and so does the script's end.
FOLDER then holds `processor` and `writer`, stacks as faulthandler writes them, and `window`: what the time was.
faulthandler writes in the thread that a signal interrupts, and does not need the interpreter's lock for it. So neither
who holds that lock nor who merely waits for a processor changes what is seen.
"""

import ctypes
import faulthandler
import json
import runpy
import signal
import sys
import threading
import time
from pathlib import Path

PROCESSOR_SECONDS = 0.001
"""Less than a tick of the kernel: each tick that finds the process at work takes a stack (each 4 ms, or 1 to 10)."""

WALL_NANOSECONDS = 4_370_000
"""Between two stacks of the writer's thread: no multiple of anything that a benchmark does at even intervals."""

WRITER = "hansard-writer"
SIGEV_THREAD_ID = 4


class SignalEvent(ctypes.Structure):
    """The kernel's `struct sigevent` for a signal to one thread."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("rest", ctypes.c_byte * 44),
    )


class Recording:
    """The stacks between two signals."""

    def __init__(self, folder: Path) -> None:
        """Let faulthandler answer two signals; nothing sends them yet."""
        self._folder = folder
        self._library = ctypes.CDLL(None, use_errno=True)
        self._timers: list[ctypes.c_void_p] = []
        self._began = (0.0, 0.0)
        self._files = [(folder / name).open("wb") for name in ("processor", "writer")]
        for number, file in zip((signal.SIGPROF, signal.SIGUSR2), self._files, strict=True):
            faulthandler.register(number, file=file, all_threads=False)
        signal.signal(signal.SIGUSR1, lambda _number, _frame: self.end() if self._began[0] else self.begin())

    def begin(self) -> None:
        """Have the process interrupted as it uses its processor, and its writer's thread as time goes by."""
        self._began = (time.monotonic(), time.process_time())
        signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS, PROCESSOR_SECONDS)
        for thread in threading.enumerate():
            if thread.name == WRITER:
                self._interrupt(thread.native_id or 0)

    def end(self) -> None:
        """Stop, and say what the time was; nothing when it did not begin, or has ended."""
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        if not self._began[0] or (self._folder / "window").exists():
            return
        signal.setitimer(signal.ITIMER_PROF, 0)
        while self._timers:
            self._library.timer_delete(self._timers.pop())
        seconds, processor_seconds = time.monotonic() - self._began[0], time.process_time() - self._began[1]
        told = json.dumps({"seconds": seconds, "processor_seconds": processor_seconds})
        (self._folder / "window").write_text(told)

    def _interrupt(self, thread: int) -> None:
        event = SignalEvent(signal=signal.SIGUSR2, notify=SIGEV_THREAD_ID, thread=thread)
        timer = ctypes.c_void_p()
        if self._library.timer_create(time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)):
            raise OSError(ctypes.get_errno(), "timer_create")
        interval = (ctypes.c_long * 4)(0, WALL_NANOSECONDS, 0, WALL_NANOSECONDS)
        self._library.timer_settime(timer, 0, interval, None)
        self._timers.append(timer)


def main() -> None:
    """Be the script."""
    folder, script, *arguments = sys.argv[1:]
    recording = Recording(Path(folder))
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        recording.end()


if __name__ == "__main__":
    main()
