"""`meshwright replay FILE`: a bug report becomes a test."""

from __future__ import annotations

import sys
from typing import TextIO

from pydantic import ValidationError

from meshwright.lifecycle.codec import decision_to_json, observation_from_json
from meshwright.lifecycle.decide import decide


def replay(file: str, out: TextIO, err: TextIO) -> int:
    """Decides every observation in `file` again, and prints one decision per line.

    Returns:
        0, or 1 if a line is no observation or cannot be decided; the others are decided all the same.
    """
    try:
        lines = (sys.stdin.read() if file == "-" else _read(file)).splitlines()
    except OSError as error:
        print(f"meshwright replay: {error}", file=err)
        return 1
    failed = False
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            print(decision_to_json(decide(observation_from_json(line))), file=out)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            print(f"{file}:{number}: no observation: {where}: {first['msg']}", file=err)
            failed = True
    return int(failed)


def _read(file: str) -> str:
    with open(file, encoding="utf-8") as stream:
        return stream.read()
