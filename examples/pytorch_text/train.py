"""A plain PyTorch training script: it knows `torch.distributed` and nothing of Kubernetes or Meshwright.

Each process learns who it is from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as `torchrun` and others set them.
By hand, on one machine:

    for rank in 0 1; do
        RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python train.py --checkpoints /tmp/text &
    done; wait

It goes on from the newest checkpoint that it finds. On CPUs, with the same number of processes, a run that was killed
and started again ends with the same bits as one that was not.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType

import checkpoints
import torch
import torch.distributed as dist
from data import VOCABULARY, load_corpus, sample_batch
from model import ByteTransformer, ModelConfig, next_byte_loss
from torch.nn.parallel import DistributedDataParallel

EXIT_TERMINATED = 128 + signal.SIGTERM
"""What a process that stops on SIGTERM reports; 0 would claim that the training is complete."""


def main() -> int:
    """Joins the other processes and trains. Returns the exit code."""
    options = parse_options()
    stop = StopRequest()
    dist.init_process_group("gloo", init_method="env://", timeout=timedelta(minutes=5))
    finished = Training(options, stop).run()
    dist.destroy_process_group()
    return 0 if finished else EXIT_TERMINATED


def parse_options() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", type=Path, required=True, help="folder that all processes share")
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--batch", type=int, default=32, help="sequences in one step, over all processes")
    parser.add_argument("--learning-rate", type=float, default=3e-3, help="peak, reached after the warmup")
    parser.add_argument("--warmup", type=int, default=20, help="steps")
    parser.add_argument("--log-every", type=int, default=5, help="steps")
    parser.add_argument("--checkpoint-every", type=int, default=20, help="steps")
    parser.add_argument("--keep", type=int, default=3, help="newest checkpoints to keep")
    parser.add_argument("--seed", type=int, default=1)
    for name in ("length", "layers", "heads", "channels"):
        parser.add_argument(f"--{name}", type=int, default=getattr(ModelConfig(), name))
    return parser.parse_args()


class Training:
    """One process's part of the training."""

    def __init__(self, options: argparse.Namespace, stop: StopRequest) -> None:
        self.options = options
        self.stop = stop
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(options.seed)  # the same on every rank, so that all start from the same weights
        self.config = ModelConfig(VOCABULARY, options.length, options.layers, options.heads, options.channels)
        self.model = ByteTransformer(self.config)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=options.learning_rate, betas=(0.9, 0.95), weight_decay=0.1
        )
        self.text = load_corpus().train

    def run(self) -> bool:
        """Trains the steps that are left. Returns whether the last of them was done."""
        done = self.resume()
        report(event="started", rank=self.rank, world_size=self.world_size, resumed_from_step=done)
        parallel = DistributedDataParallel(self.model)
        speed = Speedometer(done)
        stopping = False
        while done < self.options.steps and not stopping:
            done += 1
            loss, stopping = self.agree(self.train_step(parallel, done))
            last = stopping or done == self.options.steps
            if self.rank == 0 and (last or done % self.options.log_every == 0):
                tokens = self.options.batch * self.options.length
                report(step=done, steps=self.options.steps, loss=loss, tokens_per_second=speed.read(done, tokens))
            if self.rank == 0 and (last or done % self.options.checkpoint_every == 0):
                self.save(done)
        dist.barrier()  # nobody leaves before rank 0 has written the last checkpoint
        report(event="finished" if done == self.options.steps else "terminated", rank=self.rank, step=done)
        return bool(done == self.options.steps)

    def train_step(self, parallel: DistributedDataParallel, step: int) -> torch.Tensor:
        """One step of the optimizer. Returns this rank's loss before it."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.learning_rate * schedule(step, self.options.warmup, self.options.steps)
        inputs, targets = sample_batch(
            self.text,
            seed=self.options.seed,
            step=step,
            sequences=self.options.batch,
            length=self.options.length,
            rank=self.rank,
            world_size=self.world_size,
        )
        self.optimizer.zero_grad(set_to_none=True)
        loss = next_byte_loss(parallel, inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()

    def agree(self, loss: torch.Tensor) -> tuple[float, bool]:
        """Returns the mean loss of all ranks, and whether any of them was asked to stop.

        SIGTERM reaches the ranks at different moments. Were each to stop by itself, the others would wait for it in
        the next step; so all learn of it together, and stop after the same step.
        """
        facts = torch.stack([loss.double(), torch.tensor(float(self.stop.requested), dtype=torch.double)])
        dist.all_reduce(facts)
        return float(facts[0]) / self.world_size, bool(facts[1] > 0)

    def resume(self) -> int:
        """Loads the newest checkpoint, if there is one. Returns the step it was made after, else 0.

        Rank 0 chooses for all, so that no two ranks can see two different newest files.
        """
        newest = torch.tensor([max(checkpoints.steps_in(self.options.checkpoints), default=0)])
        dist.broadcast(newest, src=0)
        step = int(newest)
        if step > 0:
            state = checkpoints.load(self.options.checkpoints, step)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        return step

    def save(self, step: int) -> None:
        """Writes all that the next step depends on: data order and learning rate are functions of the step."""
        state = {
            "step": step,
            "config": asdict(self.config),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        checkpoints.save(self.options.checkpoints, step, state, keep=self.options.keep)
        report(event="checkpoint", step=step)


class StopRequest:
    """Remembers SIGTERM until the end of the step. A second one, or a hung step, is the sender's to force."""

    def __init__(self) -> None:
        self.requested = False
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True


@dataclass
class Speedometer:
    """Counts tokens per second between two readings."""

    step: int

    def __post_init__(self) -> None:
        self.since = time.monotonic()

    def read(self, step: int, tokens_per_step: int) -> float:
        """Returns tokens per second since the last reading."""
        now = time.monotonic()
        speed = (step - self.step) * tokens_per_step / (now - self.since)
        self.step, self.since = step, now
        return round(speed, 1)


def schedule(step: int, warmup: int, steps: int) -> float:
    """Share of the peak learning rate: a straight line up, then a straight line down to a tenth."""
    return min(1.0, step / warmup) * (1.0 - 0.9 * step / steps)


def report(**facts: object) -> None:
    """Prints one line of JSON, at once."""
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    sys.exit(main())
