"""Tensors to a file in the safetensors format, hashed while they are written.

The `safetensors` library writes from one buffer and knows no hash; here bytes go from where they lie to the file, once.
Format: length of the header (8 bytes, little-endian), header (JSON: type, shape and place of each tensor), then the
tensors end to end. https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Final

import torch
from torch import Tensor

from meshwright_trainer.checkpoint.manifest import File
from meshwright_trainer.checkpoint.storage import Storage

DTYPES: Final[Mapping[torch.dtype, str]] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Names of the types in the format."""

_CHUNK: Final = 16 << 20


def write_tensors(storage: Storage, name: str, tensors: Mapping[str, Tensor]) -> File:
    """Writes contiguous CPU tensors; durable when it returns.

    Returns:
        Length and SHA-256 of the file.
    """
    # Wide types first: then every tensor begins at a multiple of its element's size.
    ordered = dict(sorted(tensors.items(), key=lambda entry: (-entry[1].element_size(), entry[0])))
    hashed = hashlib.sha256()
    length = 0

    def chunks() -> Iterator[memoryview]:
        nonlocal length
        for chunk in _chunks(ordered):
            hashed.update(chunk)
            length += len(chunk)
            yield chunk

    storage.write(name, chunks())
    return File(length, hashed.hexdigest())


def _chunks(tensors: Mapping[str, Tensor]) -> Iterator[memoryview]:
    yield memoryview(_header(tensors))
    for tensor in tensors.values():
        content = tensor.reshape(-1).view(torch.uint8).numpy().data
        for begin in range(0, len(content), _CHUNK):
            yield content[begin : begin + _CHUNK]


def _header(tensors: Mapping[str, Tensor]) -> bytes:
    entries = {}
    begin = 0
    for key, tensor in tensors.items():
        end = begin + tensor.numel() * tensor.element_size()
        entries[key] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        begin = end
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header
