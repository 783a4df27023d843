"""Documents to samples of equal length.

Each document is preceded by the end-of-document token, all are laid end to end, and the whole is cut every T tokens.
So a label is simply the next token of the stream: the last token of a document predicts that it ends, the end token
predicts how the next one begins, and every token of the text is predicted exactly once, from its own document alone.

Shapes: T positions; N tokens of the stream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from meshwright_trainer.data.documents import Document
from meshwright_trainer.data.errors import TokenizerError
from meshwright_trainer.data.tokenizer import Tokenizer


class PackedText:
    """Samples of one source's text. The token ids stay in memory, 2 bytes each up to 65,536 ids, else 4."""

    def __init__(
        self,
        stream_N: npt.NDArray[np.unsignedinteger],
        starts: npt.NDArray[np.int64],
        sequence_length: int,
        padding: int,
    ) -> None:
        """Takes tokens as `pack` lays them.

        Args:
            stream_N: documents, each preceded by the end-of-document token, and one such token more at the end.
            starts: where in the stream each document's leading end-of-document token is, ascending.
            sequence_length: T.
            padding: id that fills up the last sample.
        """
        self._stream_N = stream_N
        self._starts = starts
        self._length = sequence_length
        self._padding = padding

    @property
    def tokens(self) -> int:
        """Tokens that are predicted in one epoch."""
        return len(self._stream_N) - 1

    @property
    def fingerprint(self) -> str:
        """Hash of tokens, document boundaries and sample length."""
        hashed = hashlib.sha256(f"{self._length} {self._stream_N.dtype.str} ".encode())
        hashed.update(np.ascontiguousarray(self._starts).data)
        hashed.update(np.ascontiguousarray(self._stream_N).data)
        return hashed.hexdigest()

    def __len__(self) -> int:
        return -(-self.tokens // self._length)

    def __getitem__(self, index: int) -> Mapping[str, Tensor]:
        """Sample `index`: tokens, labels, weights, position_id and document_id, each (T,).

        A position counts from where its document begins in this sample, not in the text: learned positions end at T,
        and a sample sees nothing of what came before it.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"there is no sample {index} of {len(self)}")
        begin = index * self._length
        end = min(begin + self._length, self.tokens)
        at = np.arange(begin, end)
        document = np.searchsorted(self._starts, at, side="right") - 1
        document_id_T = self._filled(document - document[0], -1)
        return {
            "tokens": self._filled(self._stream_N[begin:end], self._padding),
            "labels": self._filled(self._stream_N[begin + 1 : end + 1], self._padding),
            "weights": (document_id_T >= 0).float(),
            "position_id": self._filled(at - np.maximum(self._starts[document], begin), 0),
            "document_id": document_id_T,
        }

    def _filled(self, values: npt.NDArray[Any], filler: int) -> Tensor:
        """As int64, filled up to T."""
        filled_T = torch.full((self._length,), filler, dtype=torch.int64)
        filled_T[: len(values)] = torch.from_numpy(values.astype(np.int64))
        return filled_T


def pack(documents: Iterable[Document], tokenizer: Tokenizer, sequence_length: int) -> PackedText:
    """Tokenises documents and lays them end to end.

    Raises:
        TokenizerError: a document cannot be encoded; the message names it.
    """
    dtype = np.uint16 if tokenizer.vocabulary_size <= 1 << 16 else np.uint32
    end: npt.NDArray[Any] = np.array([tokenizer.end_of_document], dtype=dtype)
    parts: list[npt.NDArray[Any]] = []
    starts = [0]
    for document in documents:
        try:
            ids = tokenizer.encode(document.content).astype(dtype)
        except TokenizerError as error:
            raise TokenizerError(f"document {document.name}: {error}") from error
        parts += [end, ids]
        starts.append(starts[-1] + 1 + len(ids))
    return PackedText(
        np.concatenate([*parts, end]), np.array(starts[:-1], dtype=np.int64), sequence_length, tokenizer.padding
    )
