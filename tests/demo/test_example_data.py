"""The yardsticks and the text of the example: entropies by hand, no held-out text in training, batches by step."""

import math

import pytest
import torch
from data import (
    bigram_entropy,
    heldout_windows,
    is_heldout,
    load_corpus,
    sample_batch,
    split,
    unigram_entropy,
)


def text(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def test_unigram_entropy_is_the_closed_form() -> None:
    # 3 a, 1 b, add-one over 256 bytes: p(a) = 4/260, p(b) = 2/260, p(c) = 1/260.
    expected = -(math.log(4 / 260) + math.log(2 / 260) + math.log(1 / 260)) / 3
    assert unigram_entropy(text(b"aaab"), text(b"xabc")[None].long(), smoothing=1.0) == pytest.approx(expected)


def test_bigram_entropy_is_the_closed_form() -> None:
    # Pairs of "ababac": ab twice, ba twice, ac once. After a: b 3/259, c 2/259; after b: a 3/258; after c: all 1/256.
    predicted = [3 / 259, 3 / 258, 2 / 259, 1 / 256]
    expected = -sum(math.log(p) for p in predicted) / 4
    assert bigram_entropy(text(b"ababac"), text(b"abacb")[None].long(), smoothing=1.0) == pytest.approx(expected)


def test_without_smoothing_a_deterministic_text_has_no_bigram_entropy() -> None:
    windows = text(b"ababab")[None].long()
    assert bigram_entropy(text(b"abababab"), windows, smoothing=0.0) == pytest.approx(0.0)
    assert unigram_entropy(text(b"abababab"), windows, smoothing=0.0) == pytest.approx(math.log(2))


def test_documents_go_whole_into_one_part() -> None:
    documents = {f"module{number}.py": f"<{number}>".encode() for number in range(200)}
    corpus = split(documents)
    train, heldout = bytes(corpus.train.tolist()), bytes(corpus.heldout.tolist())
    assert {name for name, content in documents.items() if content in heldout} == set(filter(is_heldout, documents))
    assert all((content in train) != (content in heldout) for content in documents.values())
    assert 0 < len(heldout) < len(train) / 4


def test_this_machine_has_text_enough() -> None:
    corpus = load_corpus()
    assert len(corpus.train) > 2_000_000
    assert len(corpus.heldout) > 129 * 300
    assert heldout_windows(corpus.heldout, length=128, limit=300).shape == (300, 129)


def test_windows_do_not_overlap() -> None:
    windows = heldout_windows(torch.arange(100, dtype=torch.uint8), length=9, limit=4)
    assert windows[:, 0].tolist() == [0, 20, 50, 70]
    assert windows.flatten().unique().numel() == windows.numel()
    assert len(heldout_windows(torch.arange(100, dtype=torch.uint8), length=9, limit=99)) == 10


def test_ranks_share_the_batch_of_a_step_whatever_their_number() -> None:
    def batch(rank: int, world_size: int, step: int = 7) -> torch.Tensor:
        inputs, targets = sample_batch(
            torch.arange(256, dtype=torch.uint8).repeat(3),
            seed=1,
            step=step,
            sequences=6,
            length=5,
            rank=rank,
            world_size=world_size,
        )
        assert torch.equal(targets, (inputs + 1) % 256)
        return inputs

    whole = batch(0, 1)
    assert whole.shape == (6, 5)
    for world_size in (2, 3):
        assert all(torch.equal(batch(rank, world_size), whole[rank::world_size]) for rank in range(world_size))
    assert not torch.equal(whole, batch(0, 1, step=8))
