"""The program between node and container, run directly: file systems, outputs, ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devcluster.node.isolation import choose
from devcluster.node.keeper import KEEPER
from devcluster.node.sandbox.launch import NONE, ROOT, USER
from devcluster.node.settings import IsolationChoice
from devcluster.node.testing import eventually

NAMESPACES = [ROOT, USER] if os.geteuid() == 0 else [USER]


@dataclass
class Run:
    """One container, from its order to its end."""

    keeper: subprocess.Popen[str]
    log: Path

    def tell(self, letters: str) -> None:
        assert self.keeper.stdin
        self.keeper.stdin.write(letters)
        self.keeper.stdin.flush()

    def says(self) -> Any:
        assert self.keeper.stdout
        return json.loads(self.keeper.stdout.readline())

    def output(self) -> list[str]:
        """The lines of its log without time, stream and tag."""
        return [line.split(" ", 3)[3] for line in self.log.read_text().splitlines()]


Launch = Callable[..., Run]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    runs: list[Run] = []

    def start(isolation: str, *argv: str, mounts: dict[str, Path] | None = None, working_dir: str = "/") -> Run:
        folder = tmp_path / f"container-{len(runs)}"
        (folder / "root").mkdir(parents=True)
        order = {
            "isolation": isolation, "argv": argv, "env": {"PATH": os.environ["PATH"]}, "working_dir": working_dir,
            "hostname": "box", "root": str(folder / "root"), "log": str(folder / "log"),
            "mounts": [{"source": str(path), "target": at.rstrip("!"), "read_only": at.endswith("!")}
                       for at, path in (mounts or {}).items()],
        }  # fmt: skip
        keeper = subprocess.Popen(KEEPER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        run = Run(keeper, folder / "log")
        runs.append(run)
        run.tell(json.dumps(order) + "\n")
        return run

    yield start
    for run in runs:
        run.keeper.kill()
        run.keeper.communicate()


def _folder(path: Path, **files: str) -> Path:
    path.mkdir()
    for name, text in files.items():
        (path / name).write_text(text)
    return path


@pytest.mark.parametrize("isolation", NAMESPACES)
def test_mounts_appear_at_paths_that_do_not_exist_and_change_nothing(
    launch: Launch, tmp_path: Path, isolation: str
) -> None:
    one, two = _folder(tmp_path / "one", a="1"), _folder(tmp_path / "two", b="2")
    host = _folder(tmp_path / "host", kept="k")
    (host / "link").symlink_to("below/there")
    (host / "below").mkdir()
    (host / "exists").mkdir()
    mounts = {
        f"{host}/exists": two,  # must survive that entries are made beside it
        "/etc/devcluster-x/one": one,
        "/etc/devcluster-y": two,
        "/devcluster-top": one,
        "/devcluster-top/inner": two,
        f"{host}/new": two,
        f"{host}/link/far": one,
        f"{host}/file": one / "a",
        "/devcluster-frozen!": two,
    }
    paths = [
        "/etc/devcluster-x/one/a", "/etc/devcluster-y/b", "/devcluster-top/a", "/devcluster-top/inner/b",
        f"{host}/kept", f"{host}/new/b", f"{host}/below/there/far/a", f"{host}/file", "/devcluster-frozen/b",
        f"{host}/exists/b",
    ]  # fmt: skip
    script = 'for p in "$@"; do cat $p; echo; done; test -e /etc/passwd && echo host; touch /devcluster-frozen/x'
    run = launch(isolation, "sh", "-c", script, "sh", *paths, mounts=mounts, working_dir="/devcluster-work")
    assert "started" in run.says()
    assert run.says() == {"ended": 1}, "touch is refused"
    assert run.output()[:11] == ["1", "2", "1", "2", "k", "2", "1", "1", "2", "2", "host"]
    assert "Read-only file system" in run.output()[-1]
    assert sorted(entry.name for entry in host.iterdir()) == ["below", "exists", "kept", "link"]
    assert list((host / "below").iterdir()) == list((host / "exists").iterdir()) == []
    assert (one / "inner").is_dir(), "a mount point inside a volume is made in the volume"
    assert not [name for name in (*os.listdir("/"), *os.listdir("/etc")) if name.startswith("devcluster-")]
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()


@pytest.mark.parametrize("isolation", NAMESPACES)
def test_a_container_is_number_one_with_a_name_few_rights_and_memory_of_its_own(launch: Launch, isolation: str) -> None:
    script = "echo $$; hostname; id -u; ls /proc | grep -c '^[0-9]*$'; mount -t tmpfs x /mnt 2>/dev/null || echo no"
    script += "; df --output=size /dev/shm | tail -1; ls /dev/null /dev/urandom"
    run = launch(isolation, "sh", "-c", script)
    assert "started" in run.says()
    run.says()
    out = [line.strip() for line in run.output()]
    assert out[:3] == ["1", "box", "0"]
    assert int(out[3]) < 6, "other processes do not show"
    assert out[4:] == ["no", "65536", "/dev/null", "/dev/urandom"]


@pytest.mark.parametrize("isolation", [*NAMESPACES, NONE])
def test_output_is_complete_and_signals_are_as_new(launch: Launch, isolation: str) -> None:
    code = "import signal, sys\nfor i in range(20000): print('line', i)\nprint('err', file=sys.stderr)\n"
    code += "print(signal.getsignal(15) == signal.SIG_DFL, signal.getsignal(1) == signal.SIG_DFL)\nsys.exit(9)"
    run = launch(isolation, "python3", "-c", code)
    assert run.says()["started"] > 1
    assert run.says() == {"ended": 9}
    out = run.output()
    assert [line for line in out if line.startswith("line")] == [f"line {number}" for number in range(20000)]
    assert "err" in out
    assert "True True" in out


@pytest.mark.parametrize("isolation", [*NAMESPACES, NONE])
@pytest.mark.parametrize("letters", ["T", "K", "eof"])
def test_ends(launch: Launch, isolation: str, letters: str) -> None:
    script = "trap 'echo polite; exit 5' TERM; echo up; while true; do sleep 0.02; done"
    run = launch(isolation, "sh", "-c", script)
    pid = run.says()["started"]
    eventually(lambda: run.log.exists() and "up" in run.output(), "it is up")
    if letters == "eof":
        assert run.keeper.stdin
        run.keeper.stdin.close()
        run.keeper.stdin = None
    else:
        run.tell(letters)
    assert run.says() == {"ended": 5 if letters == "T" else 137}
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("isolation", [*NAMESPACES, NONE])
def test_a_runaway_child_ends_with_its_container(launch: Launch, tmp_path: Path, isolation: str) -> None:
    beat = tmp_path / "beat"
    runaway = f"(setsid sh -c 'while true; do echo x >> {beat}; sleep 0.02; done' &)"
    run = launch(isolation, "sh", "-c", f"{runaway}; while [ ! -s {beat} ]; do sleep 0.02; done; exit 3")
    assert "started" in run.says()
    assert run.says() == {"ended": 3}
    size = beat.stat().st_size
    with pytest.raises(AssertionError, match="it goes on"):
        eventually(lambda: beat.stat().st_size > size, "it goes on", 0.5)


@pytest.mark.parametrize("isolation", [*NAMESPACES, NONE])
def test_a_killed_keeper_takes_its_container_along(launch: Launch, isolation: str) -> None:
    run = launch(isolation, "sleep", "1000")
    pid = run.says()["started"]
    run.keeper.send_signal(signal.SIGKILL)
    run.keeper.wait()
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the container is gone")


@pytest.mark.parametrize("isolation", [*NAMESPACES, NONE])
def test_what_cannot_start_says_why(launch: Launch, tmp_path: Path, isolation: str) -> None:
    script = tmp_path / "script"
    script.write_text("")
    assert launch(isolation, "/no/such").says() == {"error": 'exec: "/no/such": no such file or directory'}
    assert launch(isolation, "nowhere-at-all").says() == {
        "error": 'exec: "nowhere-at-all": executable file not found in $PATH'
    }
    assert launch(isolation, str(script)).says() == {"error": f'exec: "{script}": permission denied'}


@pytest.mark.parametrize("isolation", NAMESPACES)
def test_a_folder_is_not_mounted_over_a_file(launch: Launch, tmp_path: Path, isolation: str) -> None:
    run = launch(isolation, "true", mounts={"/etc/passwd": _folder(tmp_path / "folder")})
    assert "/etc/passwd is a file on this machine and a folder in the volume" in run.says()["error"]


def test_isolation_is_found_out_by_trying(tmp_path: Path) -> None:
    assert choose(IsolationChoice.NONE, tmp_path) == NONE
    assert choose(IsolationChoice.AUTO, tmp_path) in (ROOT, USER, NONE)
    assert choose(IsolationChoice.USER_NAMESPACES, tmp_path) == USER
    assert list(tmp_path.iterdir()) == []
