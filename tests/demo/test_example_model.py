"""The example's model and its judge: no look ahead, the right loss, the same sample for the same seed."""

import math
from collections.abc import Iterator

import pytest
import torch
from evaluate import heldout_loss
from model import ByteTransformer, ModelConfig

CONFIG = ModelConfig(length=16, layers=2, heads=2, channels=16)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads for so small a model only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def model() -> ByteTransformer:
    torch.manual_seed(3)
    made = ByteTransformer(CONFIG)
    with torch.no_grad():  # as if trained: at the start the layers add nothing, and nothing could leak
        for weight in made.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return made


def test_a_byte_is_predicted_from_those_before_it_only(model: ByteTransformer) -> None:
    first = torch.randint(0, 256, (1, 16))
    second = first.clone()
    second[0, 10:] = (second[0, 10:] + 1) % 256
    before, after = model(first), model(second)
    assert torch.equal(before[0, :10], after[0, :10])
    assert not torch.allclose(before[0, 10:], after[0, 10:])


def test_position_matters(model: ByteTransformer) -> None:
    tokens = torch.tensor([[1, 2, 3, 9]])
    assert not torch.allclose(model(tokens)[0, -1], model(tokens[:, [1, 0, 2, 3]])[0, -1], atol=1e-4)


def test_a_model_that_knows_nothing_has_the_loss_of_chance() -> None:
    model = ByteTransformer(CONFIG)
    torch.nn.init.zeros_(model.head.weight)
    windows = torch.randint(0, 256, (61, 17))
    assert heldout_loss(model, windows) == pytest.approx(math.log(256), abs=1e-5)


def test_heldout_loss_is_the_mean_over_all_windows(model: ByteTransformer) -> None:
    windows = torch.randint(0, 256, (61, 17))
    with torch.no_grad():
        surprise = -model(windows[:, :-1]).log_softmax(dim=-1).gather(2, windows[:, 1:, None])
    assert heldout_loss(model, windows) == pytest.approx(float(surprise.mean()), abs=1e-5)


def test_a_seed_gives_one_text(model: ByteTransformer) -> None:
    def sample(seed: int) -> bytes:
        return model.sample(b"def ", count=40, temperature=1.0, seed=seed)

    assert len(sample(1)) == 40
    assert sample(1) == sample(1) != sample(2)
