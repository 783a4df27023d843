"""Sources of text: files, folders, JSON lines, and the text that comes with every Python.

A document has a name that does not depend on where its source lies: a folder can be moved, and the same documents are
held out. Contents are bytes, so that what is no UTF-8 can be trained on too.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import json
import sysconfig
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshwright_api.trainer import DataFormat
from meshwright_trainer.data.errors import SourceError

STANDARD_LIBRARY: Final = "builtin:stdlib"
"""Source that needs no download: documentation topics and top-level modules of Python's standard library."""

HELDOUT_PERCENT: Final = 10
"""Share of the documents (not of the bytes) that is never trained on."""

TEXT_SUFFIXES: Final = (".txt", ".md", ".rst", ".py")
"""Files of a folder that count as text."""

JSON_LINES_SUFFIXES: Final = (".jsonl", ".jsonl.gz")
"""Files of a folder that count as JSON lines."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text that is never mixed with its neighbours."""

    name: str
    """Unique in its source; decides whether the document is held out."""
    content: bytes
    """UTF-8 as a rule, but not necessarily."""


def read_documents(source: str, form: DataFormat) -> tuple[Document, ...]:
    """Reads every document of a source that is not empty, in an order that depends on names alone.

    Args:
        source: `builtin:stdlib`, a path, or a `file://` URL; a file or a folder.
        form: Text or JSONLines.

    Raises:
        SourceError: the source is missing or empty, or is not in this form.
    """
    if source == STANDARD_LIBRARY:
        found = _standard_library()
    elif form is DataFormat.TEXT:
        found = _from_files(source, TEXT_SUFFIXES, _text_file)
    elif form is DataFormat.JSON_LINES:
        found = _from_files(source, JSON_LINES_SUFFIXES, _json_lines_file)
    else:
        raise SourceError(
            f"spec.trainer.data.format: {form.value} cannot be read as text; use Text or JSONLines, or data.factory"
        )
    documents = tuple(document for document in found if document.content)
    if not documents:
        raise SourceError(f"the source {source} has no text in it")
    return documents


def form_of(source: str) -> DataFormat:
    """The form that names speak for: JSONLines for `*.jsonl`, `*.jsonl.gz` and folders of such files; else Text."""
    if source.endswith(JSON_LINES_SUFFIXES):
        return DataFormat.JSON_LINES
    path = None if source == STANDARD_LIBRARY else _local_path(source)
    if path is None or not path.is_dir():
        return DataFormat.TEXT
    names = [file.name for file in path.rglob("*")]
    lines_only = not any(name.endswith(TEXT_SUFFIXES) for name in names)
    return (
        DataFormat.JSON_LINES if lines_only and any(n.endswith(JSON_LINES_SUFFIXES) for n in names) else DataFormat.TEXT
    )


def is_heldout(name: str) -> bool:
    """Whether the document of this name is kept from training: one in ten, decided by the name alone."""
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:4], "big") % 100 < (
        HELDOUT_PERCENT
    )


def split(documents: Iterable[Document]) -> tuple[tuple[Document, ...], tuple[Document, ...]]:
    """Puts each document wholly into the training or into the held-out part.

    Where that would leave one part empty (a source of a single file), all documents are trained on.

    Returns:
        Training documents and held-out documents; the latter may be empty.
    """
    documents = tuple(documents)
    train = tuple(document for document in documents if not is_heldout(document.name))
    if not train or len(train) == len(documents):
        return documents, ()
    return train, tuple(document for document in documents if is_heldout(document.name))


def _from_files(
    source: str, suffixes: tuple[str, ...], read: Callable[[str, Path], Iterator[Document]]
) -> Iterator[Document]:
    path = _local_path(source)
    if path.is_file():
        yield from read(path.name, path)
        return
    if not path.is_dir():
        raise SourceError(f"there is no file or folder {path}; is the volume with the data mounted?")
    names = sorted(
        file.relative_to(path).as_posix() for file in path.rglob("*") if file.name.endswith(suffixes) and file.is_file()
    )
    if not names:
        raise SourceError(f"the folder {path} has no file that ends in {', '.join(suffixes)}")
    for name in names:
        yield from read(name, path / name)


def _local_path(source: str) -> Path:
    scheme, separator, rest = source.partition("://")
    if not separator:
        return Path(source)
    if scheme != "file":
        raise SourceError(f"the source {source} is a {scheme}:// URL; mount the data and give its path")
    return Path(rest)


def _text_file(name: str, path: Path) -> Iterator[Document]:
    try:
        yield Document(name, path.read_bytes())
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error


def _json_lines_file(name: str, path: Path) -> Iterator[Document]:
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield Document(f"{name}:{number}", _text_of(line, f"{path}:{number}"))
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{path} cannot be read after line {number}: {error}") from error


def _text_of(line: bytes, where: str) -> bytes:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{where}: the line is not JSON: {error}") from error
    text = entry.get("text") if isinstance(entry, dict) else None
    if not isinstance(text, str):
        raise SourceError(f'{where}: the line is not of the form {{"text": "..."}}')
    return text.encode("utf-8", "surrogatepass")


def _standard_library() -> Iterator[Document]:
    folder = Path(sysconfig.get_paths()["stdlib"])
    modules = {path.name: path for path in folder.glob("*.py")}
    if not modules:
        raise SourceError(f"no Python source in {folder}: this Python came without its standard library's text")
    topics = {f"topic {name}": text for name, text in _documentation_topics().items()}
    for name in sorted([*modules, *topics]):
        yield Document(name, modules[name].read_bytes() if name in modules else topics[name].encode())


def _documentation_topics() -> dict[str, str]:
    """Some distributions of Python leave the topics out; then the source alone is the text."""
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ModuleNotFoundError:
        return {}
    return topics
