"""Full recomputation: the same bits, less kept, and nothing but keyed randomness in the way."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from meshwright_api.trainer import Model as ModelSpec
from meshwright_trainer.batch import Batch
from meshwright_trainer.models.initialise import initialised
from meshwright_trainer.models.registry import build_model
from meshwright_trainer.random import Key
from meshwright_trainer.recompute import apply_recompute

LENGTH = 24


def a_module(family: str, dropout: float) -> nn.Module:
    spec = ModelSpec(name=family, preset="tiny", dropout=dropout, attention_dropout=dropout)
    model = build_model(spec, vocabulary_size=70, sequence_length=LENGTH)
    return initialised(model, seed=1).train()


def a_batch() -> Batch:
    tokens = torch.arange(3 * LENGTH).reshape(3, LENGTH) % 70
    document_id = (torch.arange(LENGTH) // 10).expand(3, LENGTH)
    place = torch.arange(LENGTH).expand(3, LENGTH)
    return Batch(tokens, tokens, torch.ones(3, LENGTH), torch.arange(3), place % 10, document_id)


def run(module: nn.Module, step: int = 1) -> tuple[Tensor, dict[str, Tensor]]:
    """Output and gradients; global generators are at other places each time, as they would be in a real run."""
    batch = a_batch()
    torch.rand(7)
    out = module(batch, Key(3, step, batch.sample_id, torch.arange(LENGTH)))
    torch.rand(5)
    module.zero_grad()
    out.square().sum().backward()
    return out.detach(), {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def kept_bytes(module: nn.Module) -> int:
    """Bytes of the activations that autograd holds after the forward pass."""
    held: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, nn.Parameter):
            held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    batch = a_batch()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = module(batch, Key(3, 1, batch.sample_id, torch.arange(LENGTH)))
    del out
    return sum(held.values())


@pytest.mark.parametrize("family", ["gpt3", "bert"])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_output_and_gradients_have_the_same_bits(family: str, dropout: float) -> None:
    plain = a_module(family, dropout)
    recomputed = copy.deepcopy(plain)
    assert apply_recompute(recomputed) == ("blocks.0", "blocks.1", "blocks.2", "blocks.3")
    (out, gradients), (out2, gradients2) = run(plain), run(recomputed)
    assert torch.equal(out, out2)
    assert gradients.keys() == gradients2.keys() == {name for name, _ in plain.named_parameters()}
    assert all(torch.equal(gradients[name], gradients2[name]) for name in gradients)
    if dropout:
        assert not torch.equal(out, run(plain, step=2)[0]), "another step has another mask"


def test_units_keep_their_inputs_only() -> None:
    plain = a_module("gpt3", 0.1)
    recomputed = copy.deepcopy(plain)
    apply_recompute(recomputed)
    assert kept_bytes(recomputed) < kept_bytes(plain) / 4


def test_names_stay_and_doing_it_twice_changes_nothing() -> None:
    module = a_module("gpt3", 0.0)
    names = [name for name, _ in module.named_parameters()]
    apply_recompute(module)
    once = module.get_submodule("blocks.0").forward
    apply_recompute(module)
    assert module.get_submodule("blocks.0").forward is once
    assert [name for name, _ in module.named_parameters()] == names == list(module.state_dict())


def test_a_module_without_a_plan_recomputes_its_children() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 4)

        def forward(self, x: Tensor, key: Any = None) -> Tensor:
            out: Tensor = self.second(self.first(x).tanh())
            return out

    module = Plain()
    x = torch.ones(2, 4)
    module(x).sum().backward()
    before = [p.grad.clone() for p in module.parameters() if p.grad is not None]
    assert apply_recompute(module) == ("first", "second")
    module.zero_grad()
    module(x).sum().backward()
    assert all(torch.equal(a, p.grad) for a, p in zip(before, module.parameters(), strict=True) if p.grad is not None)


class Counting(nn.Module):
    """A unit that scales by a running average, which it moves; in place, or by putting a new tensor there."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.linear, self.in_place = nn.Linear(4, 4), in_place
        self.register_buffer("average", torch.ones(4))
        self.register_buffer("seen", None)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        out = (x * self.average.clone()).tanh()
        now = x.detach().square().mean(0)
        if self.in_place:
            self.average.mul_(0.5).add_(now, alpha=0.5)
        else:
            self.average = 0.5 * self.average + 0.5 * now
        self.seen = now if self.seen is None else self.seen + now
        return out * self.seen


class Stack(nn.Module):
    """Units one after the other."""

    def __init__(self, *units: nn.Module) -> None:
        super().__init__()
        self.units = nn.ModuleList(units)

    def forward(self, x: Tensor) -> Tensor:
        for unit in self.units:
            x = unit(x)
        return x


class Clones(TorchDispatchMode):
    """Counts copies of tensors while it is entered."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten.clone.default
        return func(*args, **(kwargs or {}))


def stacks() -> dict[str, nn.Module]:
    torch.manual_seed(2)
    return {
        "BatchNorm": Stack(
            *(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=m), nn.Tanh()) for m in (0.1, None))
        ),
        "in place": Stack(Counting(True), Counting(True)),
        "anew": Stack(Counting(False), Counting(False)),
    }


@pytest.mark.parametrize("kind", ["BatchNorm", "in place", "anew"])
@pytest.mark.parametrize("backwards", [1, 2])
def test_t35_what_a_unit_counts_is_counted_once_and_the_second_run_begins_as_the_first(
    kind: str, backwards: int
) -> None:
    """Three steps of plain autograd are the oracle; with two backward passes each unit runs a third time."""
    plain = stacks()[kind].train()
    recomputed = copy.deepcopy(plain)
    begun = {name: buffer.clone() for name, buffer in plain.named_buffers()}
    assert apply_recompute(recomputed) == ("units.0", "units.1")
    for step in range(3):
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(step))
        outs = [module(x) for module in (plain, recomputed)]
        for out in outs:
            for last in range(backwards):
                out.square().sum().backward(retain_graph=last < backwards - 1)
        assert torch.equal(*outs)
        for (name, p), (_, q) in zip(plain.named_parameters(), recomputed.named_parameters(), strict=True):
            assert p.grad is not None
            assert q.grad is not None
            assert torch.equal(p.grad, q.grad), name
        buffers, others = dict(plain.named_buffers()), dict(recomputed.named_buffers())
        assert buffers.keys() == others.keys()
        assert all(torch.equal(buffers[name], others[name]) for name in buffers)
    assert not any(torch.equal(buffers[name], begun[name]) for name in begun)


def test_t35_buffers_that_are_derived_values_are_not_copied_nor_are_any_in_an_evaluation() -> None:
    seen: dict[str, list[int]] = {"kept": [], "derived": []}

    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("kept", torch.ones(4))
            self.register_buffer("derived", torch.ones(4), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            for name, places in seen.items():
                places.append(self.get_buffer(name).data_ptr())
            return (self.linear(x) * self.kept * self.derived).tanh()

    module = Stack(Looks())
    apply_recompute(module)
    module(torch.ones(2, 4)).sum().backward()
    assert len(set(seen["derived"])) == 1
    assert len(seen["derived"]) == len(seen["kept"]) == len(set(seen["kept"])) == 2
    assert module.units[0].kept.data_ptr() == seen["kept"][0], "the module's own is there again"
    with Clones() as training:
        module(torch.ones(2, 4))
    with Clones() as evaluation, torch.no_grad():
        module(torch.ones(2, 4))
    assert (training.count, evaluation.count) == (1, 0)
