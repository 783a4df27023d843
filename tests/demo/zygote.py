"""Starts the training script many times while torch is imported once: each start is a fork of this process.

Run as a program. It reads one JSON document per line: `{"start": {"arguments", "env", "stdout", "stderr"}}` is answered
by `{"pid"}`, and `{"wait": PID, "seconds"}` by `{"code"}`, as subprocess would give it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from typing import NoReturn

PR_SET_PDEATHSIG = 1


def main() -> None:
    import torch._dynamo
    import torch.distributed  # noqa: F401

    for line in sys.stdin:
        order = json.loads(line)
        answer = (
            {"pid": start(**order["start"])} if "start" in order else {"code": wait(order["wait"], order["seconds"])}
        )
        print(json.dumps(answer), flush=True)


def start(arguments: list[str], env: dict[str, str], stdout: str, stderr: str) -> int:
    pid = os.fork()
    if pid == 0:
        become_script(arguments, env, stdout, stderr)
    return pid


def become_script(arguments: list[str], env: dict[str, str], stdout: str, stderr: str) -> NoReturn:
    code = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.dup2(os.open(stdout, os.O_WRONLY), 1)
        os.dup2(os.open(stderr, os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
        os.environ.update(env)
        sys.argv = ["train.py", *arguments]
        import train

        code = train.main()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(pid: int, seconds: float) -> int:
    deadline = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


if __name__ == "__main__":
    main()
