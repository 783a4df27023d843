"""Starts a pod's processes, passes signals on, and ends when they have ended.

The one thread waits for signals with all of them blocked, so nothing happens between looking and waiting. That works
for PID 1 too, to which the kernel delivers no signal that is neither handled nor blocked.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from meshwright_agent import kernel
from meshwright_agent.processes import Launch

FENCED = 76
"""Exit code of what belongs to an older attempt of its job; never counted as a failure."""
GRACE_SECONDS = 10.0
"""From SIGTERM to SIGKILL for the peers of a process that failed: they can do nothing without it."""
OVERTAKEN_SECONDS = 30.0
"""The same for processes of an overtaken attempt, which may be writing a checkpoint."""

_STOPS = frozenset({signal.SIGTERM, signal.SIGINT})
_PASSED_ON = frozenset({signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2})
_WAITED_FOR = frozenset({signal.SIGCHLD, *_STOPS, *_PASSED_ON})
_RESTORED = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""Python ignores them, and a program that is started must not."""


@dataclass(frozen=True)
class Ended:
    """How one process ended."""

    launch: Launch
    exit_code: int
    """As a shell says it: 128 and the signal's number, if a signal ended it."""
    signal: str = ""
    """Name of that signal."""

    @classmethod
    def of(cls, launch: Launch, returned: int) -> Ended:
        """From what `os.waitstatus_to_exitcode` says."""
        if returned >= 0:
            return cls(launch, returned)
        try:
            name = signal.Signals(-returned).name
        except ValueError:
            name = f"signal {-returned}"
        return cls(launch, 128 - returned, name)


@dataclass(frozen=True)
class Outcome:
    """How the pod's processes ended, all together."""

    exit_code: int
    first_failure: Ended | None = None
    """The process that failed first; None if none did."""
    told_to_stop: bool = False
    """Whether the pod was told to stop before all had ended."""
    overtaken: bool = False
    """Whether they were ended because a newer attempt of the job exists."""


class Supervisor:
    """Runs processes until all have ended. For one use, in the main thread."""

    def __init__(
        self,
        launches: Sequence[Launch],
        grace_seconds: float = GRACE_SECONDS,
        overtaken_seconds: float = OVERTAKEN_SECONDS,
    ) -> None:
        self._launches = launches
        self._grace, self._overtaken_grace = grace_seconds, overtaken_seconds
        self._running: dict[int, Launch] = {}
        self._outcome = Outcome(0)
        self._overtaking = False
        self._stopping = False
        self._kill_at: float | None = None
        self._mask: set[signal.Signals] = set()

    def run(self, started: Callable[[], None] = lambda: None) -> Outcome:
        """Starts the processes and returns when they, and whatever they left behind, have ended.

        Args:
            started: Called when all are started; only then may threads be.
        """
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._mask = {signal.Signals(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)}
        kernel.adopt_orphans()
        for launch in self._launches:
            self._running[self._start(launch)] = launch
        started()
        while self._running:
            self._wait()
            self._keep_deadline(self._running)
        self._clear_up()
        return self._outcome

    def overtake(self) -> None:
        """A newer attempt of the job exists: ends the processes. Called from any thread."""
        self._overtaking = True
        os.kill(os.getpid(), signal.SIGCHLD)  # Only wakes the main thread.

    def _start(self, launch: Launch) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:  # From here on in the child, which must never return.
            os.setpgid(0, 0)
            kernel.die_with_parent(parent)
            for number in _RESTORED:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            os.execvpe(launch.command[0], list(launch.command), dict(launch.environment))
        except OSError as error:
            text = f"meshwright-agent: cannot run {launch.command[0]!r}: {error.strerror}\n"
            os.write(2, text.encode(errors="replace"))
            os._exit(126 if isinstance(error, PermissionError) else 127)
        finally:
            os._exit(126)

    def _wait(self) -> None:
        """Waits for one signal, or until the deadline, and acts on it."""
        if self._kill_at is None:
            self._heed(signal.sigwaitinfo(_WAITED_FOR).si_signo)
        else:
            info = signal.sigtimedwait(_WAITED_FOR, max(0.0, self._kill_at - time.monotonic()))
            if info is not None:
                self._heed(info.si_signo)
        self._reap()
        if self._overtaking and self._running and not self._stopping:
            self._outcome = replace(self._outcome, exit_code=FENCED, overtaken=True)
            self._stop(self._overtaken_grace)

    def _heed(self, number: int) -> None:
        if number in _STOPS and not self._stopping:
            self._outcome = replace(self._outcome, told_to_stop=True)
            self._stop(None, number)
        elif number in _PASSED_ON:
            self._signal(number)

    def _signal(self, number: int) -> None:
        # To the process and not to its group, as the kubelet does: a data loader that is told to end takes the
        # checkpoint with it that its trainer is about to write.
        for pid in self._running:
            _kill(pid, number)

    def _stop(self, grace: float | None, number: int = signal.SIGTERM) -> None:
        """Tells the processes to end, once: a second SIGTERM would kill a trainer that heeds the first.

        Args:
            grace: Seconds until they are killed; None leaves that to the kubelet, which has told the pod to stop.
            number: The signal.
        """
        if self._stopping:
            return
        self._stopping = True
        self._signal(number)
        self._kill_at = None if grace is None else time.monotonic() + grace

    def _reap(self) -> None:
        """Takes note of every child that ended, adopted ones too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            launch = self._running.pop(pid, None)
            if launch is not None:
                self._note(Ended.of(launch, os.waitstatus_to_exitcode(status)))

    def _note(self, ended: Ended) -> None:
        if ended.exit_code == 0 or self._outcome.exit_code:
            return
        self._outcome = replace(self._outcome, exit_code=ended.exit_code, first_failure=ended)
        # Its peers would wait for it in a collective until their own time-outs.
        self._stop(self._grace)

    def _keep_deadline(self, pids: Iterable[int]) -> None:
        if self._kill_at is None or time.monotonic() < self._kill_at:
            return
        self._kill_at = None
        for pid in pids:
            _kill(-pid, signal.SIGKILL)  # With its group, if it leads one.
            _kill(pid, signal.SIGKILL)

    def _clear_up(self) -> None:
        """Ends what the processes left behind, so that nothing holds a port or a file when the next attempt starts.

        A shell that died of SIGTERM leaves the trainer that it started; when the pod was told to stop, that one may
        take as long for its checkpoint as the kubelet allows.
        """
        deadline = None if self._outcome.told_to_stop else time.monotonic() + self._grace
        for pid in kernel.children():
            _kill(pid, signal.SIGTERM)
        while left := kernel.children():
            if deadline is not None and time.monotonic() >= deadline:
                for pid in left:
                    _kill(pid, signal.SIGKILL)  # What it leaves in turn is found by the next look.
            signal.sigtimedwait({signal.SIGCHLD}, 0.05)
            self._reap()


def _kill(pid: int, number: int) -> None:
    # It may just have ended, or have taken another user's rights.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
