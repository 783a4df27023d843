"""What `make` decides before it does anything: what is missing, whether the disk holds it, what it shows meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import display
import needs
import pytest
from jobs import Job
from needs import GB, Place, Todo

BOOTSTRAP = Path(needs.__file__).parent
READY = {"stamp": "a", "wanted": "a", "venv_works": True, "kubernetes_there": True}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, Todo(venv=False, packages=False, kubernetes=False)),
        ({"wanted": "b"}, Todo(venv=False, packages=True, kubernetes=False)),
        ({"stamp": ""}, Todo(venv=False, packages=True, kubernetes=False)),
        ({"venv_works": False}, Todo(venv=True, packages=True, kubernetes=False)),
        ({"kubernetes_there": False}, Todo(venv=False, packages=False, kubernetes=True)),
    ],
)
def test_only_what_is_missing_is_made(change: dict[str, object], expected: Todo) -> None:
    todo = needs.decide(**{**READY, **change})  # type: ignore[arg-type]
    assert todo == expected
    assert todo.nothing == (not change)


def test_the_digest_changes_with_content_name_and_python(tmp_path: Path) -> None:
    file = tmp_path / "constraints.txt"
    file.write_text("torch==2.15.0\n")
    before = needs.digest([file], "3.11")
    assert before == needs.digest([file], "3.11") != needs.digest([file], "3.12")
    file.write_text("torch==2.15.1\n")
    assert needs.digest([file], "3.11") != before


def test_folders_on_one_disk_share_its_room() -> None:
    packages, programs = Place(Path("/p"), 6.0, 1, 8 * GB), Place(Path("/q"), 5.0, 1, 8 * GB)
    assert needs.shortage([packages]) == "" == needs.shortage([programs])
    assert needs.shortage([packages, programs]).startswith("about 11.0 GB are needed at /p and /q")


def test_folders_on_two_disks_do_not_share() -> None:
    assert needs.shortage([Place(Path("/p"), 6.0, 1, 8 * GB), Place(Path("/q"), 5.0, 2, 8 * GB)]) == ""
    assert "8.0 GB are free" in needs.shortage([Place(Path("/p"), 6.0, 1, 9 * GB), Place(Path("/q"), 9.0, 2, 8 * GB)])


def test_nothing_to_make_needs_no_room(tmp_path: Path) -> None:
    todo = Todo(venv=False, packages=True, kubernetes=False)
    assert needs.places(todo, tmp_path, tmp_path, tmp_path) == []


def test_a_python_without_ensurepip_is_named_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "ensurepip" else object())
    with pytest.raises(needs.SetupError, match=r"no module ensurepip.*python3-venv"):
        needs.check_machine(Todo(venv=True, packages=True, kubernetes=False), [])


def test_another_system_than_linux_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(needs.SetupError, match="this is darwin"):
        needs.check_machine(Todo(venv=False, packages=True, kubernetes=False), [])


def test_an_old_python_is_told_so_before_newer_syntax_is_read() -> None:
    lie = "import sys, runpy; sys.version_info = (3, 9, 1); runpy.run_path(sys.argv[1], run_name='__main__')"
    told = subprocess.run([sys.executable, "-c", lie, str(BOOTSTRAP)], capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert told.stderr.startswith("Meshwright needs Python 3.11 or newer")


def run_to_the_end(job: Job) -> Job:
    job.start()
    while job.running():
        pass
    return job


def test_a_job_shows_the_progress_it_reports(tmp_path: Path) -> None:
    job = Job("build", [sys.executable, "-c", ""], tmp_path / "log")
    job._take({"step": "compile", "done": 30, "total": 120})
    assert (job.text, job.share) == ("compile 30/120", 0.25)
    job.seconds = 75.0
    assert display.line(job) == f"  build            [{'######':<24}]  25% 1:15  compile 30/120"
    assert display.brief(job) == "build: 25% compile 30/120 (1:15)"
    job._take({"step": "toolchain", "done": 0, "total": 0})
    assert job.share is None


def test_what_is_linked_from_a_cache_counts_as_done(tmp_path: Path) -> None:
    job = Job("packages", [sys.executable, "-c", ""], tmp_path / "log", expected_bytes=1000)
    for line in ("Resolved 88 packages in 4.32s", "Prepared 3 packages in 8.03s", "Installed 87 packages in 5.53s"):
        job._hear(line)
    assert (job.text, job.share) == ("compiling bytecode", 0.9)


def test_a_job_that_ends_well_is_done(tmp_path: Path) -> None:
    job = run_to_the_end(Job("build", [sys.executable, "-c", "print('{}')"], tmp_path / "logs" / "log"))
    assert (job.text, job.share) == ("done", 1.0)
    assert (tmp_path / "logs" / "log").read_text() == "{}\n"


def test_a_job_that_fails_says_why(tmp_path: Path) -> None:
    program = "import sys; print('no space left', file=sys.stderr); sys.exit(3)"
    with pytest.raises(needs.SetupError, match=r"build failed \(3\).*\n.*no space left"):
        run_to_the_end(Job("build", [sys.executable, "-c", program], tmp_path / "log"))
