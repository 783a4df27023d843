"""Packing against a loop that knows only documents, one token at a time."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright_trainer.data.documents import Document
from meshwright_trainer.data.errors import TokenizerError
from meshwright_trainer.data.packing import pack
from meshwright_trainer.data.tokenizer import BPE, Bytes, train_bpe

END, PADDING = Bytes().end_of_document, Bytes().padding


def naive(contents: Sequence[bytes], length: int) -> list[dict[str, list[int]]]:
    """Every sample as lists; nothing in it is shared with the packing that is tested."""
    rows = []
    for number, content in enumerate(contents):
        inputs = [END, *content]
        rows += [(token, target, number) for token, target in zip(inputs, [*content, END], strict=True)]
    samples = []
    for begin in range(0, len(rows), length):
        sample: dict[str, list[int]] = {
            key: [] for key in ("tokens", "labels", "weights", "position_id", "document_id")
        }
        for place in range(length):
            inside = begin + place < len(rows)
            token, target, number = rows[begin + place] if inside else (PADDING, PADDING, -1)
            first = rows[begin][2]
            before = [row[2] for row in rows[begin : begin + place]]
            sample["tokens"].append(token)
            sample["labels"].append(target)
            sample["weights"].append(int(inside))
            sample["position_id"].append(before.count(number) if inside else 0)
            sample["document_id"].append(number - first if inside else -1)
        samples.append(sample)
    return samples


@settings(deadline=None, max_examples=50)
@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=8), st.integers(1, 17))
def test_samples_equal_the_naive_loop(contents: list[bytes], length: int) -> None:
    packed = pack([Document(str(i), content) for i, content in enumerate(contents)], Bytes(), length)
    assert [{k: v.tolist() for k, v in packed[i].items()} for i in range(len(packed))] == naive(contents, length)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=8), st.integers(1, 17))
def test_every_byte_is_predicted_once_and_no_label_comes_from_another_document(
    contents: list[bytes], length: int
) -> None:
    packed = pack([Document(str(i), content) for i, content in enumerate(contents)], Bytes(), length)
    samples = [packed[i] for i in range(len(packed))]
    labels = torch.cat([s["labels"][s["weights"] > 0] for s in samples]).tolist()
    assert Bytes().decode(labels) == b"".join(contents)
    assert labels.count(END) == len(contents)
    for sample in samples:
        crosses = (sample["document_id"][1:] != sample["document_id"][:-1]).nonzero().flatten()
        assert all(sample["labels"][at] in (END, PADDING) for at in crosses)


def test_types_are_those_of_a_micro_batch() -> None:
    sample = pack([Document("a", b"abc")], Bytes(), 8)[0]
    assert {name: tensor.dtype for name, tensor in sample.items()} == {
        "tokens": torch.int64,
        "labels": torch.int64,
        "weights": torch.float32,
        "position_id": torch.int64,
        "document_id": torch.int64,
    }


def test_the_fingerprint_tells_texts_boundaries_and_lengths_apart() -> None:
    def fingerprint(*contents: bytes, length: int = 4) -> str:
        return pack([Document("", content) for content in contents], Bytes(), length).fingerprint

    assert fingerprint(b"abcd") == fingerprint(b"abcd")
    assert (
        len({fingerprint(b"abcd"), fingerprint(b"ab", b"cd"), fingerprint(b"abce"), fingerprint(b"abcd", length=5)})
        == 4
    )


def test_a_document_that_cannot_be_encoded_is_named() -> None:
    with pytest.raises(TokenizerError, match=r"document bad\.txt: .*UTF-8"):
        pack([Document("bad.txt", b"\xff")], BPE(train_bpe([b"abc"], 259)), 8)


def test_a_sample_beyond_the_end_is_no_sample() -> None:
    packed = pack([Document("a", b"abc")], Bytes(), 2)
    assert len(packed) == 2
    with pytest.raises(IndexError, match="no sample 2 of 2"):
        packed[2]


def test_ids_above_two_bytes_survive() -> None:
    class Wide(Bytes):
        vocabulary_size = 1 << 20

        def encode(self, content: bytes) -> np.ndarray:
            return super().encode(content) + np.uint32(1 << 18)

    sample = pack([Document("a", b"\x01")], Wide(), 2)[0]
    assert sample["labels"].tolist() == [(1 << 18) + 1, END]
