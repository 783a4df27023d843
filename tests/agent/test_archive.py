"""The agent as one file: what it needs, what it costs, and what it says when it cannot work."""

from __future__ import annotations

import ast
import os
import stat
import subprocess
import sys
from pathlib import Path

import meshwright_agent
from meshwright_agent.archive import archive, install

SOURCES = sorted(Path(meshwright_agent.__path__[0]).glob("*.py"))


def test_equal_sources_give_equal_bytes() -> None:
    assert archive() == archive()


def test_anybody_may_read_and_run_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "agent.pyz"
    old = os.umask(0o077)
    try:
        install(str(path))
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert [p.name for p in path.parent.iterdir()] == ["agent.pyz"]
    assert path.stat().st_size < 64 * 1024


def test_it_needs_nothing_but_the_standard_library(pyz: Path) -> None:
    """Every module, under -I -S: no site-packages, no PYTHONPATH, no current folder."""
    names = [f"meshwright_agent.{source.stem}" for source in SOURCES if source.stem != "__init__"]
    script = f"import sys; sys.path.insert(0, {str(pyz)!r}); [__import__(name) for name in {names!r}]"
    script += "; print([m for m in sys.modules if m.split('.')[0] in ('torch', 'pydantic', 'aiohttp', 'meshwright')])"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_python_3_9_can_read_it() -> None:
    for source in SOURCES:
        ast.parse(source.read_text(), source.name, feature_version=(3, 9))


def test_annotations_are_never_evaluated() -> None:
    """`int | None` is no expression before Python 3.10."""
    for source in SOURCES:
        if source.stem != "__init__":
            assert "from __future__ import annotations" in source.read_text(), source.name


def test_usage(pyz: Path) -> None:
    for arguments in ([], ["run"], ["run", "--"], ["run", "true"], ["install"]):
        done = subprocess.run([sys.executable, pyz, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "run -- COMMAND" in done.stderr


def test_outside_a_pod_it_says_what_is_missing(pyz: Path) -> None:
    done = subprocess.run(
        [sys.executable, pyz, "run", "--", "true"], capture_output=True, text=True, check=False, env={}
    )
    assert done.returncode == 78
    assert "MESHWRIGHT_PLAN" in done.stderr
