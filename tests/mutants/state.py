"""The faults that are put into what a run remembers: its data order and its checkpoints."""

from __future__ import annotations

from typing import Final

from tests.mutants.runner import Edit, Mutant

CHECKPOINT: Final = "meshwright_trainer/checkpoint"
DATA: Final = "meshwright_trainer/data"
SAVING: Final = "tests/trainer/checkpoint/test_saving.py"
LOADER: Final = "tests/trainer/data/test_loader.py"

STATE_MUTANTS: Final = (
    Mutant(
        "T47",
        "a checkpoint is read only where it was cut as it is now",
        (
            Edit(
                f"{CHECKPOINT}/reader.py",
                "common = box.meet(stored.box)",
                "common = box if box == stored.box else None",
            ),
        ),
        ("tests/trainer/checkpoint/test_resharding.py::test_a_state_goes_through_1_4_2_and_3_ranks_unchanged",),
    ),
    Mutant(
        "T51",
        "the newest checkpoint is loaded, whichever was named",
        (
            Edit(
                f"{CHECKPOINT}/reader.py",
                "return cls(open_storage(str(path.parent)), path.name)",
                "storage = open_storage(str(path.parent))",
            ),
        ),
        (f"{SAVING}::test_a_checkpoint_is_opened_by_path_url_or_folder",),
    ),
    Mutant(
        "T53",
        "the thread writes the tensors themselves, which training goes on changing",
        (
            Edit(
                f"{CHECKPOINT}/staging.py",
                "buffer.copy_(source, non_blocking=source.is_cuda)",
                "buffer = source",
            ),
        ),
        (f"{SAVING}::test_t53_t54_what_changes_after_save_returned_does_not_reach_the_checkpoint",),
    ),
    Mutant(
        "T57",
        "a checkpoint counts before its files are durable",
        (
            Edit(
                f"{CHECKPOINT}/writer.py",
                "        reports = collect(",
                '        self._storage.put(f"{folder}/{MANIFEST}", b"")\n        reports = collect(',
            ),
        ),
        (
            "tests/trainer/checkpoint/test_dying.py::"
            "test_t57_killed_at_every_write_the_newest_committed_checkpoint_loads",
        ),
    ),
    Mutant(
        "T59",
        "a rank whose part failed leaves the others waiting",
        (Edit(f"{CHECKPOINT}/writer.py", "write_failure(self._storage, folder, self._rank, error)", "pass"),),
        (f"{SAVING}::test_t59_a_rank_that_fails_is_named_and_the_next_save_is_not_held_up",),
    ),
    Mutant(
        "T65",
        "a resumed run draws its epoch from the beginning",
        (Edit(f"{DATA}/loader.py", "return self.origin.samples + ", "return "),),
        (f"{LOADER}::test_t65_t67_t69_a_resume_within_an_epoch_on_other_ranks_goes_on_as_if_nothing_was",),
    ),
    Mutant(
        "T66",
        "every rank draws what rank 0 draws",
        (Edit(f"{DATA}/loader.py", "first + self.batch_rank * micro", "first"),),
        (f"{LOADER}::test_t63_t66_each_epoch_is_seen_once_and_in_the_same_steps_by_every_layout",),
    ),
)
