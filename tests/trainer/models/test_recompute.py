"""Full recomputation: the same bits, less kept, and nothing but keyed randomness in the way."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

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
