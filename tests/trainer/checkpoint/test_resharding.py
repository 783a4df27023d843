"""Any cut is read into any other; numpy's slicing says what has to come out."""

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from meshwright_trainer.checkpoint.boxes import Box
from meshwright_trainer.checkpoint.digest import digest, digest_tensors
from meshwright_trainer.checkpoint.errors import Mismatch
from meshwright_trainer.checkpoint.pieces import Piece
from meshwright_trainer.checkpoint.reader import Checkpoint
from tests.trainer.checkpoint.gang import Gang, assert_holds, cut, state

Cut = list[tuple[tuple[int, ...], tuple[int, ...]]]


@st.composite
def grids(draw: st.DrawFn, shape: tuple[int, ...]) -> Cut:
    """Boxes (offsets, sizes) of a random grid over a shape; some may be empty."""
    boxes: Cut = [((), ())]
    for size in shape:
        marks = sorted(draw(st.lists(st.integers(0, size), max_size=3)))
        edges = [0, *marks, size]
        boxes = [
            ((*offsets, low), (*sizes, high - low))
            for offsets, sizes in boxes
            for low, high in itertools.pairwise(edges)
        ]
    return boxes


def pieces_of(whole: Tensor, boxes: Cut, *, filled: bool) -> list[Piece]:
    pieces = []
    for offsets, sizes in boxes:
        part = whole[tuple(slice(o, o + s) for o, s in zip(offsets, sizes, strict=True))].clone()
        pieces.append(Piece(tuple(whole.shape), offsets, part if filled else torch.full_like(part, -1)))
    return pieces


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_t47_t49_random_grids_read_random_grids(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), max_size=3)))
    whole = torch.arange(int(np.prod(shape, dtype=int))).reshape(shape)
    written, asked = data.draw(grids(shape)), data.draw(grids(shape))
    with TemporaryDirectory() as folder:
        gang = Gang(Path(folder), len(written))
        for rank, piece in reversed(list(enumerate(pieces_of(whole, written, filled=True)))):
            gang.writers[rank].save(1, 1, {"model/w": piece}, {})
        gang.writers[0].wait()
        checkpoint = Checkpoint.open(folder)
        for piece, (offsets, sizes) in zip(pieces_of(whole, asked, filled=False), asked, strict=True):
            checkpoint.load_into({"model/w": piece})
            expected = whole.numpy()[tuple(slice(o, o + s) for o, s in zip(offsets, sizes, strict=True))]
            assert np.array_equal(piece.tensor.numpy(), expected)
        assert torch.equal(checkpoint.tensor("model/w"), whole)


@given(st.data())
def test_boxes_meet_where_their_elements_do(data: st.DataObject) -> None:
    shape = (5, 4)
    grid_a, grid_b = data.draw(grids(shape)), data.draw(grids(shape))
    a, b = data.draw(st.sampled_from(grid_a)), data.draw(st.sampled_from(grid_b))
    elements = np.arange(20).reshape(shape)

    def inside(offsets: tuple[int, ...], sizes: tuple[int, ...]) -> set[int]:
        return set(elements[tuple(slice(o, o + s) for o, s in zip(offsets, sizes, strict=True))].flatten().tolist())

    meeting = Box(*a).meet(Box(*b))
    assert (inside(meeting.offsets, meeting.sizes) if meeting else set()) == inside(*a) & inside(*b)


def test_a_state_goes_through_1_4_2_and_3_ranks_unchanged(tmp_path: Path) -> None:
    hashes = set()
    for number, ranks in enumerate((1, 4, 2, 3), start=1):
        gang = Gang(tmp_path, ranks)
        parts = cut(state(7) if number == 1 else {n: torch.zeros_like(t) for n, t in state(7).items()}, ranks)
        if number > 1:
            for rank in range(ranks):
                Checkpoint.open(gang.start.location).load_into(parts[rank])
        for rank in reversed(range(ranks)):
            gang.writers[rank].save(6 + number, 8 * (6 + number), parts[rank], {"updates": 7})
        gang.writers[0].wait()
        checkpoint = Checkpoint.open(str(tmp_path))
        assert checkpoint.manifest.world_size == ranks
        hashes.add(digest(checkpoint))
    whole = state(7)
    assert hashes == {digest_tensors(whole, whole.__getitem__)}


def test_the_digest_sees_names_types_shapes_and_values() -> None:
    def hashed(name: str, tensor: Tensor) -> str:
        return digest_tensors([name], {name: tensor}.__getitem__)

    base = torch.arange(4.0)
    variants = [base, base.reshape(2, 2), base.double(), base + 1, torch.tensor([-0.0, 1, 2, 3])]
    assert len({hashed("a", tensor) for tensor in variants} | {hashed("b", base)}) == 6
    assert hashed("a", base.reshape(2, 2).t()) == hashed("a", base.reshape(2, 2).t().contiguous())


def test_names_shapes_and_types_that_differ_are_all_listed(tmp_path: Path) -> None:
    Gang(tmp_path, 1).save(1)
    checkpoint = Checkpoint.open(str(tmp_path))
    (pieces,) = cut(state(1), 1)
    del pieces["optimizer/mask/weight"]
    pieces["optimizer/exp_avg_sq/weight"] = Piece((1,), (0,), torch.zeros(1))
    pieces["model/bias"] = Piece((3,), (0,), torch.zeros(3))
    pieces["model/weight"] = Piece((5, 4), (0, 0), torch.zeros(5, 4))
    with pytest.raises(Mismatch) as raised:
        checkpoint.load_into(pieces)
    message = str(raised.value)
    assert "not in the checkpoint: optimizer/exp_avg_sq/weight" in message
    assert "in the checkpoint, but not in this run: optimizer/mask/weight" in message
    assert "model/bias is BF16 there, F32 here" in message
    assert "model/weight has the shape (5, 3) there, (5, 4) here" in message
    assert all(float(piece.tensor.float().sum()) == 0 for n, piece in pieces.items() if n == "model/weight")


def test_a_rank_that_has_only_some_tensors_says_what_the_others_have(tmp_path: Path) -> None:
    Gang(tmp_path, 1).save(1)
    (pieces,) = cut({name: torch.zeros_like(tensor) for name, tensor in state(1).items()}, 1)
    own = {name: piece for name, piece in pieces.items() if name.startswith("model/")}
    Checkpoint.open(str(tmp_path)).load_into(own, names=pieces)
    assert torch.equal(own["model/weight"].tensor, state(1)["model/weight"])


def test_weights_alone_are_loaded_by_pattern_and_converted(tmp_path: Path) -> None:
    Gang(tmp_path, 2).save(4)
    checkpoint = Checkpoint.open(str(tmp_path))
    pieces = {
        "model/weight": Piece((5, 3), (0, 0), torch.zeros(5, 3, dtype=torch.float64)),
        "model/head": Piece((2,), (0,), torch.zeros(2)),
        "optimizer/exp_avg/weight": Piece((5, 3), (0, 0), torch.zeros(5, 3)),
    }
    assert checkpoint.load_weights(pieces, ["wei*"]) == ("weight",)
    assert torch.equal(pieces["model/weight"].tensor, state(4)["model/weight"].double())
    assert not pieces["optimizer/exp_avg/weight"].tensor.any()
    with pytest.raises(Mismatch, match=r"match no parameter: absent\*"):
        checkpoint.load_weights(pieces, ["weight", "absent*"])
    with pytest.raises(Mismatch, match=r"not in the checkpoint \(leave them out of .*init\.load\): head"):
        checkpoint.load_weights(pieces)
    assert_holds(checkpoint, 4)
