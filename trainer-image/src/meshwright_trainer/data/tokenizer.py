"""Text to token ids and back: bytes, or byte-level BPE from a file.

Three ids are not text: the end of a document (also what every document begins with), padding, and the mask that
masked-token objectives put in place of a token. No text, whatever it says, is encoded as one of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as TokenizerFile
from tokenizers import decoders, models, pre_tokenizers, trainers

from meshwright_api.trainer import Tokenizer as TokenizerSpec
from meshwright_trainer.data.errors import TokenizerError

Ids = npt.NDArray[np.uint32]
"""Token ids, one dim."""

END_OF_DOCUMENT: Final = "<|endofdocument|>"
PADDING: Final = "<|padding|>"
MASK: Final = "<|mask|>"

_NAMES_OF_END: Final = (END_OF_DOCUMENT, "<|endoftext|>", "</s>", "[SEP]")
_NAMES_OF_PADDING: Final = (PADDING, "<|pad|>", "<pad>", "[PAD]")
_NAMES_OF_MASK: Final = (MASK, "<mask>", "[MASK]")


class Tokenizer(Protocol):
    """How text becomes tokens."""

    @property
    def vocabulary_size(self) -> int:
        """Ids are below it, those that are not text too."""
        ...

    @property
    def end_of_document(self) -> int:
        """Id that stands before and after every document."""
        ...

    @property
    def padding(self) -> int:
        """Id that fills up; its weight is 0."""
        ...

    @property
    def mask(self) -> int | None:
        """Id that hides a token; None where the tokenizer's file has none."""
        ...

    @property
    def identity(self) -> str:
        """Equal for tokenizers that encode equally; part of the checkpoint's fingerprint."""
        ...

    @property
    def file(self) -> bytes | None:
        """Content of the file that it was read from, to be kept with checkpoints; None if there is none."""
        ...

    def encode(self, content: bytes) -> Ids:
        """Ids of a text.

        Raises:
            TokenizerError: the tokenizer wants UTF-8, and this is none.
        """
        ...

    def decode(self, ids: Sequence[int]) -> bytes:
        """The text; ids that are not text are left out."""
        ...


class Bytes:
    """A token is a byte: nothing to train, nothing that cannot be encoded."""

    vocabulary_size = 259
    end_of_document: Final = 256
    padding: Final = 257
    mask: Final = 258
    identity: Final = "bytes-256+end+padding+mask"
    file: Final = None

    def encode(self, content: bytes) -> Ids:
        """Ids of a text, one per byte."""
        return np.frombuffer(content, dtype=np.uint8).astype(np.uint32)

    def decode(self, ids: Sequence[int]) -> bytes:
        """The text; ids that are not text are left out."""
        return bytes(token for token in ids if token < 256)


class BPE:
    """Byte-level BPE, or any other tokenizer in a file of the `tokenizers` library (`tokenizer.json`)."""

    def __init__(self, file: bytes, *, name: str = "tokenizer.json") -> None:
        """Reads the content of a tokenizer's file.

        Raises:
            TokenizerError: it is no such file, or has no token for the end of a document.
        """
        try:
            self._tokenizer: TokenizerFile = TokenizerFile.from_buffer(file)
        except Exception as error:  # the library raises nothing narrower
            raise TokenizerError(f"{name} is no tokenizer of the `tokenizers` library: {error}") from error
        # A text that spells out the name of a special token is text like any other.
        self._tokenizer.encode_special_tokens = True
        self.file = file
        self.identity = hashlib.sha256(file).hexdigest()
        end = self._find(_NAMES_OF_END)
        if end is None:
            raise TokenizerError(f"{name} has no token for the end of a document: one of {', '.join(_NAMES_OF_END)}")
        self.end_of_document = end
        # Ids may have holes, so the largest counts and not their number.
        self.vocabulary_size = max(self._tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        padding = self._find(_NAMES_OF_PADDING)
        self.padding = end if padding is None else padding
        self.mask = self._find(_NAMES_OF_MASK)

    def encode(self, content: bytes) -> Ids:
        """Ids of a text.

        Raises:
            TokenizerError: the text is not UTF-8.
        """
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise TokenizerError(f"BPE wants UTF-8, and this is none ({error}); use the tokenizer Bytes") from error
        return np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.uint32)

    def decode(self, ids: Sequence[int]) -> bytes:
        """The text; ids that are not text are left out."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True).encode()

    def _find(self, names: tuple[str, ...]) -> int | None:
        ids = (self._tokenizer.token_to_id(name) for name in names)
        return next((token for token in ids if token is not None), None)


def train_bpe(contents: Iterable[bytes], vocabulary_size: int) -> bytes:
    """Trains byte-level BPE on texts (Sennrich et al. 2016; over bytes as in GPT-2, so that every text round-trips).

    Args:
        contents: texts; what is no UTF-8 in them is left out of the training.
        vocabulary_size: ids at most, the 256 bytes and the three special tokens among them.

    Returns:
        The content of a file for `data.tokenizer.path`.

    Raises:
        TokenizerError: the vocabulary has no room for the bytes.
    """
    specials = [END_OF_DOCUMENT, PADDING, MASK]
    smallest = 256 + len(specials)
    if vocabulary_size < smallest:
        raise TokenizerError(f"a byte-level vocabulary has at least {smallest} ids, not {vocabulary_size}")
    tokenizer = TokenizerFile(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((content.decode(errors="ignore") for content in contents), trainer)
    return tokenizer.to_str(pretty=True).encode()


def load_tokenizer(spec: TokenizerSpec) -> Tokenizer:
    """The tokenizer of `spec.trainer.data.tokenizer`.

    Raises:
        TokenizerError: the name is unknown, or the file is missing or no tokenizer.
    """
    name = spec.name or ("BPE" if spec.path else "Bytes")
    if name == "Bytes" and spec.path is not None:
        raise TokenizerError(f"spec.trainer.data.tokenizer.path: Bytes reads no file; use BPE with {spec.path}")
    if name == "Bytes":
        return Bytes()
    if name != "BPE":
        raise TokenizerError(f"spec.trainer.data.tokenizer.name: there is no tokenizer {name!r}; use Bytes or BPE")
    if spec.path is None:
        raise TokenizerError("spec.trainer.data.tokenizer.path: BPE needs the file of a trained tokenizer")
    try:
        file = Path(spec.path.removeprefix("file://")).read_bytes()
    except OSError as error:
        raise TokenizerError(
            f"spec.trainer.data.tokenizer.path: {spec.path} cannot be read: {error.strerror or error}"
        ) from error
    return BPE(file, name=spec.path)
