"""Starts operators by fork from a process that has imported everything: a start costs a tenth of a second, not two.

A forked operator is a process of its own, with its own memory and signals; only the imports were done before. Run as a
program; requests and answers are JSON lines on its standard input and output. Its children end with it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import os
import random
import signal
import sys
import traceback
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _become_operator(request: dict[str, Any]) -> NoReturn:
    """What the child does; never returns to the zygote's code."""
    code = 70
    try:
        _die_with_parent()
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        faulthandler.register(signal.SIGUSR1, all_threads=True)  # where does it hang? It says so into its log.
        os.environ.update(request.get("env") or {})
        random.seed()  # or all children would jitter alike
        from meshwright.cli import main

        code = int(main(request["argv"]) or 0)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def serve() -> None:
    """Forks one operator per request until its input ends."""
    _die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects the dead; who waits holds a pidfd
    import meshwright.cli
    import meshwright.kopf_app  # noqa: F401

    gc.freeze()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become_operator(request)
        print(json.dumps({"pid": pid}), flush=True)


if __name__ == "__main__":
    serve()
