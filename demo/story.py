"""The demo from the first line to the last: a gang trains, loses a worker, goes on, and is judged."""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from demo import ground, telling, verdict
from demo.errors import DemoError
from demo.examples import Example
from demo.ground import Places
from demo.screen import Screen
from demo.script_log import Line, Started, Step, is_time_to_kill
from demo.verdict import Evaluation, Facts
from demo.watching import View, Watcher, Worker
from devcluster.cluster import Cluster
from meshwright_api.status import Phase, TrainingJobStatus

LOOK_SECONDS = 0.4
SILENCE_SECONDS = 600.0
"""After so long without any news something is wrong; a busy machine may take minutes to start PyTorch."""
VICTIM = 0
"""Index of the worker that is killed: rank 0, on whom the others depend most. It writes the checkpoints."""
_PR_SET_PDEATHSIG = 1


@dataclass
class Story:
    """One run of the demo, and what was seen in it."""

    cluster: Cluster
    places: Places
    screen: Screen
    example: Example
    status: TrainingJobStatus = field(default_factory=TrainingJobStatus)
    lines: list[Line] = field(default_factory=list)
    killed: Worker | None = None
    last_checkpoint: int | None = None
    evaluation: Evaluation | None = None
    undisturbed_sha256: str = ""

    def train(self) -> None:
        """Follows the job to its end, and kills a worker on the way.

        Raises:
            DemoError: nothing happens any more, or a program of the cluster has ended.
        """
        watcher, heard = Watcher(self.cluster, self.example.name), time.monotonic()
        while self.status.phase not in (Phase.SUCCEEDED, Phase.FAILED):
            if time.monotonic() - heard > SILENCE_SECONDS:
                raise DemoError(f"no news for {SILENCE_SECONDS:.0f} s; the operator's log: {self.places.operator_log}")
            with suppress(OSError):  # no answer in time, which on a busy machine happens
                view = watcher.look()
                if view.lines or view.status != self.status:
                    heard = time.monotonic()
                self._tell(view)
                if self.killed is None and is_time_to_kill(self.lines):
                    self._kill(view)
            ground.check_alive(self.cluster, self.places)
            time.sleep(LOOK_SECONDS)

    def evaluate(self) -> None:
        """Has another program judge the final checkpoint.

        Raises:
            DemoError: it could not.
        """
        self.screen.say("reading the final checkpoint, predicting text that was never trained on ...")
        self.evaluation = self._judged(self.places.checkpoints)

    def verify(self) -> None:
        """Trains the same job once more, undisturbed and without Kubernetes, for its final state's hash.

        Raises:
            DemoError: it failed.
        """
        self.screen.say("training the same job again, undisturbed and without Kubernetes, to compare the bits ...")
        folder = self.places.undisturbed
        shutil.rmtree(folder, ignore_errors=True)
        words = ["-m", "meshwright_trainer", "train", str(self.example.manifest), "--processes", "2"]
        _run([sys.executable, *words, "--set", f"checkpoint.path={folder}"])
        self.undisturbed_sha256 = self._judged(folder).sha256

    def _judged(self, folder: Path) -> Evaluation:
        found = json.loads(_run(self.example.judging(folder)))
        return Evaluation(**{name: found[name] for name in Evaluation.__dataclass_fields__ if name in found})

    @property
    def facts(self) -> Facts:
        """What was seen."""
        starts = [line.resumed_from_step for line in self.lines if isinstance(line, Started)]
        return Facts(
            phase=self.status.phase,
            attempts=self.status.attempt,
            incidents=self.status.incidents,
            killed_uid=self.killed.uid if self.killed else "",
            last_checkpoint_before_kill=self.last_checkpoint,
            resumed_from_step=starts[-1] if len(starts) > 1 else None,
            evaluation=self.evaluation,
            undisturbed_sha256=self.undisturbed_sha256,
        )

    def _tell(self, view: View) -> None:
        for text in telling.changes(self.status, view.status):
            self.screen.say(text)
        self.status = view.status
        for line in view.lines:
            self.lines.append(line)
            if isinstance(line, Step):
                self.screen.step(line)
            elif text := telling.said(line):
                self.screen.say(text)

    def _kill(self, view: View) -> None:
        """SIGKILL, as from a kernel that is out of memory; nobody tells the operator.

        The checkpoints are read when the process is gone: it is the one that writes them.
        """
        victim = next((one for one in view.workers if one.index == VICTIM and one.pid), None)
        if victim is None or victim.pid is None:
            return
        self.screen.say(f"kill -9 {victim.pid}: the process of pod {victim.name} on {victim.node}, uid {victim.uid}")
        process = os.pidfd_open(victim.pid)
        try:
            os.kill(victim.pid, signal.SIGKILL)
            select.select([process], [], [], 30)
        finally:
            os.close(process)
        self.killed = victim
        self.last_checkpoint = self.example.newest_checkpoint(self.places.checkpoints)
        self.screen.say(f"the last checkpoint on the disk is of step {self.last_checkpoint}")


def run(places: Places, screen: Screen, example: Example, *, keep: bool, verify: bool) -> int:
    """The whole demo. Returns the exit code; prints the facts as the last line."""
    with stage(places, screen, example, keep=keep) as story:
        story.train()
        if story.status.phase is Phase.SUCCEEDED:
            story.evaluate()
            if verify:
                story.verify()
        closing(story)
    broken = verdict.problems(story.facts)
    for problem in broken:
        screen.plain(f"NOT AS CLAIMED: {problem}")
    screen.plain(verdict.last_line(story.facts))
    return 1 if broken else 0


@contextmanager
def stage(places: Places, screen: Screen, example: Example, *, keep: bool) -> Iterator[Story]:
    """Builds the ground, and takes it down whatever happens, unless it is to be kept."""
    screen.say("starting etcd, kube-apiserver, controller-manager, scheduler and two nodes on this machine ...")
    cluster = ground.start_cluster(places)
    kept = False
    try:
        version = cluster.request("GET", "/version")["gitVersion"]
        screen.say(f"Kubernetes {version} is up, {cluster.server}; installing the chart: CRD, policies, RBAC ...")
        kubeconfig = ground.install(cluster)
        metrics = ground.start_operator(cluster, places, kubeconfig)
        screen.say(f"the operator runs with its service account's rights; kubectl apply -f {shown(example)}")
        ground.submit(cluster, places, example)
        yield Story(cluster, places, screen, example)
        if keep:
            cluster.detach()
            kept = True
            screen.plain(how_to_use(cluster, places, example, metrics))
    finally:
        if not kept:
            screen.say("taking everything down ...")
            cluster.stop()


def closing(story: Story) -> None:
    """Shows how the job ended, what the model learned, and where to look next."""
    screen, found = story.screen, story.evaluation
    screen.plain("\n$ kubectl get tj -o wide\n" + story.cluster.kubectl("get", "tj", "-o", "wide").stdout.strip())
    if found:
        screen.plain("\nOn text that was never trained on (nats per byte; less is better):")
        screen.plain(f"  bytes by frequency (unigram)   {found.unigram_entropy:.3f}")
        screen.plain(f"  pairs by frequency (bigram)    {found.bigram_entropy:.3f}")
        screen.plain(f"  the model after {found.step} steps      {found.heldout_loss:.3f}")
        screen.plain("\nIt writes:\n" + "\n".join(f"  | {line}" for line in found.sample.splitlines()[:12]))
    screen.plain(
        f"\nWhere to look next: {shown(story.example)}, what you have just seen;"
        f"\ndocs/trainer.md, how to train a model of your own;"
        f"\ndocs/robustness.md, which faults it survives; {story.places.operator_log}, what the operator did;"
        f"\n`make demo KEEP=1`, the same, left up for you.\n"
    )


def how_to_use(cluster: Cluster, places: Places, example: Example, metrics: str) -> str:
    """What a person can do with a demo that was kept."""
    return (
        f"It stays up. To use it:\n"
        f"  export KUBECONFIG={cluster.kubeconfig}\n"
        f"  alias kubectl={cluster.kubectl_path}\n"
        f"  kubectl get tj,pods -o wide;  kubectl describe tj;  kubectl explain tj.spec;  curl {metrics}\n"
        f"  kubectl delete tj {example.name}; kubectl apply -f {example.manifest}\n"
        f"      # the same job again finds its checkpoint and is done\n"
        f"To take it down:\n  {ground.command(places, 'down')}\n"
    )


def shown(example: Example) -> str:
    """Path of the example as people write it."""
    return f"examples/{example.manifest.name}"


def _run(argv: list[str]) -> str:
    """What a program prints.

    Raises:
        DemoError: it failed.
    """
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # threads for so small a model only wait for each other
        preexec_fn=_die_with_parent,
    )
    if done.returncode:
        raise DemoError(f"{' '.join(argv[1:4])} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
