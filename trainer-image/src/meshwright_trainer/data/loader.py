"""From the global order to each rank's micro-batches.

Step s of a run with global batch G draws the next G sample ids after those of step s - 1. They are cut into global
micro-batches of consecutive ids; the rank with batch coordinate r of n gets micro-batches r, n + r, ... All this is a
function of the step's number, so a loader has no state to save, and another mesh or accumulation sees the same steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from meshwright_api.trainer_config import BatchConfig
from meshwright_trainer.batch import Batch, Window
from meshwright_trainer.data.dataset import Dataset, collate
from meshwright_trainer.data.errors import DataError
from meshwright_trainer.data.order import Order


@dataclass(frozen=True, slots=True)
class Consumed:
    """Where a run goes on."""

    step: int = 0
    """Steps that were done."""
    samples: int = 0
    """Samples that they drew. Not always step x global batch: that may have been changed on the way."""


@dataclass(frozen=True)
class Loader:
    """One rank's view of the data of a run."""

    datasets: Sequence[Dataset]
    """By number of the source."""
    order: Order
    """Which sample comes when."""
    batch: BatchConfig
    """Sizes of step and micro-batch."""
    batch_rank: int
    """Coordinate of this rank among those that get different samples (axes data x shard)."""
    batch_ranks: int
    """Number of such ranks."""
    origin: Consumed = Consumed()
    """Where this process began."""

    def __post_init__(self) -> None:
        if self.batch.global_ % (self.batch.micro * self.batch_ranks):
            raise DataError(
                f"spec.trainer.batch.global: {self.batch.global_} is no multiple of micro {self.batch.micro} x "
                f"{self.batch_ranks} ranks"
            )

    def samples(self, step: int) -> int:
        """Samples that the run has drawn when the step is done."""
        return self.origin.samples + (step - self.origin.step) * self.batch.global_

    def window(self, step: int) -> Window:
        """This rank's micro-batches of a step, counted from 1."""
        if step <= self.origin.step:
            raise DataError(f"step {step} lies before step {self.origin.step + 1}, with which this run went on")
        micro = self.batch.micro
        first = self.samples(step - 1)
        starts = range(first + self.batch_rank * micro, self.samples(step), self.batch_ranks * micro)
        return Window(step, tuple(self._micro_batch(range(start, start + micro)) for start in starts))

    def windows(self, first: int, last: int, workers: int = 0) -> Iterator[Window]:
        """The windows of steps `first` to `last`, made ahead by threads if `workers` > 0.

        Threads and not processes: the tokens lie in this process's memory and become tensors outside the interpreter's
        lock, while a process would need a copy, or a fork after the accelerator was opened. What was made ahead is no
        state: an interrupted run makes it again.
        """
        if workers == 0:
            yield from map(self.window, range(first, last + 1))
            return
        pool = ThreadPoolExecutor(workers, thread_name_prefix="loader")
        ahead: deque[Future[Window]] = deque()
        try:
            for step in range(first, last + 1):
                ahead.append(pool.submit(self.window, step))
                if len(ahead) > workers:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _micro_batch(self, sample_ids: range) -> Batch:
        places = [self.order[sample_id] for sample_id in sample_ids]
        return collate([self.datasets[place.source][place.index] for place in places], sample_ids)


def evaluation_batches(
    dataset: Dataset, micro: int, batches: int, batch_rank: int, batch_ranks: int
) -> tuple[Batch, ...]:
    """This rank's micro-batches of an evaluation: the same samples at each, spread evenly over the dataset.

    Every rank gets the same number of micro-batches; what is missing to that is filled up with samples of weight 0, so
    that sums over all ranks do not depend on how many there are.

    Args:
        dataset: what to judge on.
        micro: samples of a micro-batch.
        batches: micro-batches over all ranks at most; fewer if the dataset is smaller.
        batch_rank: coordinate of this rank.
        batch_ranks: number of ranks.
    """
    count = min(len(dataset), micro * batches)
    if count == 0:
        raise DataError("the data to evaluate on has no samples")
    chosen = [index * len(dataset) // count for index in range(count)]
    rounds = -(-count // (micro * batch_ranks))
    made = []
    for number in range(batch_rank, rounds * batch_ranks, batch_ranks):
        own = chosen[number * micro : (number + 1) * micro]
        fill = micro - len(own)
        samples = [dataset[index] for index in own] + [dataset[chosen[0]]] * fill
        made.append(collate(samples, own + [-1] * fill))
    return tuple(made)
