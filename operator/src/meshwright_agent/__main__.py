"""`agent.pyz run -- COMMAND...` and `python -m meshwright_agent install PATH`."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from meshwright_agent.errors import Misplaced
from meshwright_agent.plan import Place, Plan
from meshwright_agent.processes import launches
from meshwright_agent.progress import ProgressSocket
from meshwright_agent.supervisor import Outcome, Supervisor
from meshwright_agent.wire import Progress

if TYPE_CHECKING:
    from meshwright_agent.beats import Beats

UNUSABLE = 78
"""Exit code when the pod lacks what the agent needs to start anything (EX_CONFIG)."""


def main(argv: list[str]) -> int:
    """Runs one command of the agent; returns its exit code."""
    # By hand: what follows `--` is somebody else's, and versions of argparse differ in what they do to a second `--`.
    if argv[:2] == ["run", "--"] and len(argv) > 2:
        try:
            return run(argv[2:], os.environ)
        except Misplaced as error:
            say(str(error))
            return UNUSABLE
    if argv[:1] == ["install"] and len(argv) == 2:
        # Imported here and below, because each import delays the start of a pod that does without.
        from meshwright_agent.archive import install

        install(argv[1])
        return 0
    print(
        "usage: meshwright-agent run -- COMMAND [ARGUMENT ...]\n       meshwright-agent install PATH", file=sys.stderr
    )
    return 2


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs the pod's processes to their end; returns the pod's exit code.

    Raises:
        Misplaced: the launch plan or the pod's place in it cannot be read.
    """
    if "MESHWRIGHT_PLAN" not in environment:
        raise Misplaced("the variable MESHWRIGHT_PLAN is not set; the agent runs in pods that Meshwright makes")
    plan = Plan.load(environment["MESHWRIGHT_PLAN"])
    place = Place.of(plan, environment)
    progress = ProgressSocket()
    progress.bind()
    supervisor = Supervisor(launches(plan, place, command, environment, progress.path))
    beats = _beats(plan, place, environment, progress, supervisor)

    def started() -> None:
        progress.start()
        if beats is not None:
            beats.start()

    outcome = supervisor.run(started)
    progress.close()
    if beats is not None:
        beats.stop()
    say(**last_words(outcome, progress.latest(), progress.malformed))
    return outcome.exit_code


def _beats(
    plan: Plan, place: Place, environment: Mapping[str, str], progress: ProgressSocket, supervisor: Supervisor
) -> Beats | None:
    if plan.heartbeat is None:
        return None
    from meshwright_agent.beats import Beats
    from meshwright_agent.uplink import TOKEN_FILE, Uplink

    token_file = environment.get("MESHWRIGHT_TOKEN_FILE", TOKEN_FILE)
    uplink = Uplink(plan.heartbeat.url, plan.job_uid, token_file)
    return Beats(plan, plan.heartbeat, place, uplink, progress.latest, supervisor.overtake, say)


def last_words(outcome: Outcome, progress: Progress, malformed: int) -> dict[str, Any]:
    """The agent's last line: short, since it stands behind the traceback in the KiB that the incident keeps."""
    words: dict[str, Any] = {"message": _how(outcome), "exitCode": outcome.exit_code}
    failed = outcome.first_failure
    if failed is not None:
        words.update(rank=failed.launch.rank, localRank=failed.launch.local_rank)
        words.update({"signal": failed.signal} if failed.signal else {})
    if progress.step is not None:
        words["step"] = progress.step
    if progress.checkpoint is not None:
        words["checkpointStep"] = progress.checkpoint.step
    if malformed:
        words["malformedProgress"] = malformed
    return words


def _how(outcome: Outcome) -> str:
    if outcome.overtaken:
        return "a newer attempt of the job exists; this one has ended"
    failed = outcome.first_failure
    if failed is None:
        return "all processes have ended well"
    how = f"by {failed.signal}" if failed.signal else f"with exit code {failed.exit_code}"
    when = "told to stop, " if outcome.told_to_stop else ""
    return f"{when}rank {failed.launch.rank} (local rank {failed.launch.local_rank}) ended {how}"


def say(message: str, **facts: Any) -> None:
    """Writes one line to standard error, as JSON, in one write so that no process's output gets into it."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    line = json.dumps({"event": "agent", "time": now, "message": message, **facts}) + "\n"
    with contextlib.suppress(OSError):  # Nobody reads; that is no reason to fail.
        os.write(2, line.encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
