"""What docs/agent.md shows works as it stands there."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from tests.agent.conftest import Run

PAGE = Path(__file__).parents[2] / "docs" / "agent.md"


def test_the_example_tells_its_progress(start: Callable[..., Run]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    run = start(sys.executable, "-I", "-S", "-c", example)
    assert run.wait() == 0, run.err
    assert run.last_words["step"] == 120
