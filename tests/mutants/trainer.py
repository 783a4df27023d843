"""The faults that are put into the trainer, each named for what other systems did wrong."""

from __future__ import annotations

from typing import Final

from tests.mutants.runner import Edit, Mutant

TRAINER: Final = "meshwright_trainer"
ENGINE: Final = f"{TRAINER}/engines/synchronous.py"
FSDP: Final = f"{TRAINER}/parallel/fsdp.py"
KEEPING: Final = f"{TRAINER}/keeping.py"
UPDATE_SHARDING: Final = f"{TRAINER}/parallel/update_sharding.py"
GUARDS: Final = "tests/trainer/parity/test_guards.py"
ENGINES: Final = "tests/trainer/engines"
RUNS: Final = "tests/trainer/running/test_runs.py"

TRAINER_MUTANTS: Final = (
    Mutant(
        "T04",
        "an all-reduce is left out: gradients are never summed over data",
        (Edit(f"{TRAINER}/parallel/data.py", "not last and self._counter is None", "self._counter is None"),),
        (f"{GUARDS}::test_gradients_are_summed_over_data_once",),
    ),
    Mutant(
        "T19",
        "a mean of means: each micro-batch is divided by its own weight",
        (
            Edit(
                ENGINE,
                "(loss.sum * scale).backward()",
                "(loss.sum / (float(self._objective.weight(micro.batch)) or 1.0) / len(prepared)).backward()",
            ),
        ),
        (f"{GUARDS}::test_every_target_counts_the_same_however_uneven_they_lie",),
    ),
    Mutant(
        "T20",
        "gradients are divided twice: by the weight and by the number of ranks",
        (Edit(f"{TRAINER}/parallel/data.py", "future.value()[0])", "future.value()[0] / group.size())"),),
        (f"{GUARDS}::test_gradients_are_summed_over_data_once",),
    ),
    Mutant(
        "T24",
        "fully sharded gradients keep torch's own division",
        (Edit(FSDP, "        unit.set_gradient_divide_factor(1.0)\n", ""),),
        (f"{GUARDS}::test_hybrid_full_sharding_sums_all_micro_batches_over_both_axes",),
    ),
    Mutant(
        "T22",
        "with sharded gradients only the last micro-batch's are kept",
        (
            Edit(
                FSDP,
                "        yield\n        if self._counter is not None:",
                "        self.clear()\n        yield\n        if self._counter is not None:",
            ),
        ),
        (f"{GUARDS}::test_full_sharding_keeps_the_gradients_of_all_micro_batches",),
    ),
    Mutant(
        "LOST",
        "a data rank's gradients get lost: sums stay within a replica",
        (Edit(UPDATE_SHARDING, "if data.size() > 1:", "if data.size() > 8:"),),
        (f"{GUARDS}::test_hybrid_update_sharding_sums_over_both_axes",),
    ),
    Mutant(
        "T12",
        "replicas are counted in the norm",
        (
            Edit(
                ENGINE,
                "group = self.mesh.shard if self._layout.split else None",
                "group = self.mesh.batch",
            ),
        ),
        (f"{GUARDS}::test_gradients_are_summed_over_data_once",),
    ),
    Mutant(
        "T13",
        "each rank clips by the norm of its own shards",
        (Edit(ENGINE, "group = self.mesh.shard if self._layout.split else None", "group = None"),),
        (f"{GUARDS}::test_clipping_sees_the_norm_of_all_shards_once",),
    ),
    Mutant(
        "T45",
        "a mask is used again: the key has no step",
        (Edit(ENGINE, "Key(self._config.seed, step,", "Key(self._config.seed, 1,"),),
        (f"{GUARDS}::test_every_step_has_masks_of_its_own_and_no_rank_has",),
    ),
    Mutant(
        "T46",
        "a mask depends on the rank",
        (Edit(ENGINE, "Key(self._config.seed, step,", "Key(self._config.seed + dist.get_rank(), step,"),),
        (f"{GUARDS}::test_every_step_has_masks_of_its_own_and_no_rank_has",),
    ),
    Mutant(
        "T60",
        "the count of updates, which the bias correction needs, is not restored",
        (Edit(ENGINE, 'self._applied = int(scalars["applied"])', "self._applied = 0"),),
        (f"{ENGINES}/test_synchronous.py::test_going_on_from_the_pieces_has_the_bits_of_never_having_stopped",),
    ),
    Mutant(
        "T75",
        "the learning rate moves on although the update was left out",
        (
            Edit(
                ENGINE,
                "            return norm, True\n",
                "            self._applied += 1\n            return norm, True\n",
            ),
        ),
        (f"{ENGINES}/test_synchronous.py::test_the_learning_rate_waits_while_updates_are_left_out",),
    ),
    Mutant(
        "T85",
        "a gradient that is not finite is applied",
        (Edit(ENGINE, "if weight == 0 or not math.isfinite(norm):", "if weight == 0:"),),
        (
            f"{ENGINES}/test_synchronous.py::"
            "test_a_gradient_that_is_infinite_on_one_rank_stops_the_update_on_all[2-1-0]",
        ),
    ),
    Mutant(
        "ZERO",
        "a step without targets divides by nothing",
        (
            Edit(
                ENGINE,
                "weight = self._total([self._objective.weight(p.batch) for p in prepared])\n"
                "        scale = 1.0 / weight if weight > 0 else 0.0",
                "weight = self._total([self._objective.weight(p.batch) for p in prepared])\n"
                "        scale = float(torch.tensor(1.0) / weight)",
            ),
        ),
        (f"{ENGINES}/test_synchronous.py::test_a_step_without_targets_changes_nothing[2-1-0]",),
    ),
    Mutant(
        "T02",
        "a tie is dropped when a model gets its memory",
        (Edit(f"{TRAINER}/parallel/materialise.py", "if name != original:", "if False and original:"),),
        (f"{ENGINES}/test_own_model.py::test_a_tied_model_trains_as_alone[2-1-0-True]",),
    ),
    Mutant(
        "T80",
        "norms and biases decay",
        (
            Edit(
                f"{TRAINER}/optim/optimizer.py",
                "plain = [matches(s.name, no_decay) for s in slices]",
                "plain = [matches(s.name, ()) for s in slices]",
            ),
        ),
        ("tests/trainer/optim/test_optimizer.py::test_norms_and_biases_do_not_decay",),
    ),
    Mutant(
        "TREE",
        "canonical order is that of the ranks, not of the tree",
        (
            Edit(
                f"{TRAINER}/collectives/canonical.py",
                "tree_sum(received.chunk(group.size()))",
                "received.view(group.size(), -1).cumsum(0)[-1]",
            ),
        ),
        (f"{ENGINES}/test_canonical.py::test_weights_and_optimizer_state_have_the_bits_of_one_process[4-1-0]",),
    ),
    Mutant(
        "T03",
        "gradients go over data before the last micro-batch's are there",
        (Edit(FSDP, "set_requires_all_reduce(last)", "set_requires_all_reduce(not last)"),),
        (f"{GUARDS}::test_hybrid_full_sharding_sums_all_micro_batches_over_both_axes",),
    ),
    Mutant(
        "T30",
        "one layout's norm is another's: in bfloat16 only the first micro-batch is kept",
        (Edit(UPDATE_SHARDING, "self._sums[parameter] += gradient", "pass"),),
        (f"{ENGINES}/test_synchronous.py::test_t30_all_ways_of_bfloat16_keep_32_bits_and_stay_near_them",),
    ),
    Mutant(
        "T35",
        "what a unit counts is counted again when it is recomputed",
        (Edit(f"{TRAINER}/recompute.py", "                context_fn=functools.partial(_both_runs, unit),\n", ""),),
        (
            "tests/trainer/models/test_recompute.py::"
            "test_t35_what_a_unit_counts_is_counted_once_and_the_second_run_begins_as_the_first",
        ),
    ),
    Mutant(
        "T61",
        "an optimizer begins with what a trial step left",
        (Edit(f"{TRAINER}/optim/foreign.py", "self._forget_trial(self._begun)", "pass"),),
        (f"{ENGINES}/test_synchronous.py::test_t61_an_optimizer_of_torch_by_factory_is_that_optimizer",),
    ),
    Mutant(
        "T61",
        "a count of steps that no checkpoint has is taken",
        (Edit(f"{TRAINER}/optim/beside.py", "if not _equal(before.get(name), after.get(name))", "if False"),),
        ("tests/trainer/optim/test_optimizer.py::test_t61_state_that_no_checkpoint_can_read_is_refused",),
    ),
    Mutant(
        "T68",
        "threads that read ahead begin at the first row",
        (Edit(f"{TRAINER}/data/loader.py", "submit(self.window, step)", "submit(self.window, step - first + 1)"),),
        ("tests/trainer/data/test_loader.py::test_reading_ahead_changes_nothing",),
    ),
    Mutant(
        "T73",
        "a checkpoint's batch.micro is taken in place of the job's",
        (
            Edit(
                KEEPING,
                "            engine.restore(scalars)\n",
                "            engine.restore(scalars)\n"
                "            kept = checkpoint.manifest.section['batch']\n"
                "            vars(self._launch.config.batch)['micro'] = kept['micro']\n",
            ),
        ),
        (f"{RUNS}::test_t73_a_resumed_run_goes_by_its_own_job_and_not_by_the_one_that_wrote_the_checkpoint",),
    ),
    Mutant(
        "T76",
        "it is not said that an update was left out",
        (Edit(ENGINE, "skipped=skipped,", "skipped=False,"),),
        (
            f"{ENGINES}/test_synchronous.py::"
            "test_a_gradient_that_is_infinite_on_one_rank_stops_the_update_on_all[2-1-0]",
        ),
    ),
    Mutant(
        "T84",
        "ranks that run different units mix their weights and gradients in silence",
        (Edit(FSDP, "self._lockstep.check()", "pass"),),
        (f"{ENGINES}/test_own_model.py::test_t84_ranks_that_run_different_units_are_refused_before_the_update",),
    ),
    Mutant(
        "T84",
        "a parameter that a rank left out is missing from its sum",
        (Edit(FSDP, "unit.set_reduce_scatter_unused_params(True, recurse=False)", "pass"),),
        (f"{ENGINES}/test_own_model.py::test_t84_ranks_that_use_different_parameters_train_as_alone",),
    ),
    Mutant(
        "T84",
        "a user's model with a plan is taken to use all of itself",
        (Edit(f"{TRAINER}/parallel/apply.py", " or config.model.factory is not None", ""),),
        (f"{ENGINES}/test_own_model.py::test_a_parameter_that_nothing_uses_stays[2-1-0-True]",),
    ),
    Mutant(
        "T88",
        "a run that goes on has forgotten which samples it drew",
        (Edit(KEEPING, "samples=self._start.samples,", "samples=0,"),),
        (f"{RUNS}::test_sigterm_means_a_checkpoint_and_going_on_changes_no_bit",),
    ),
    Mutant(
        "T90",
        "a mesh on GPUs is built over a process group for CPUs",
        (Edit(f"{TRAINER}/mesh.py", 'if f"{device.type}:{wanted}" not in have:', "if not have:"),),
        (f"{ENGINES}/test_mesh.py::test_t90_a_device_that_the_process_group_cannot_serve_is_refused",),
    ),
)
