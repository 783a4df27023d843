"""Where text comes from, and what is said when it cannot be read."""

import gzip
import json
from pathlib import Path

import pytest

from meshwright_api.trainer import DataFormat
from meshwright_trainer.data.documents import STANDARD_LIBRARY, Document, form_of, is_heldout, read_documents, split
from meshwright_trainer.data.errors import SourceError


def names(documents: tuple[Document, ...]) -> list[str]:
    return [document.name for document in documents]


def test_a_folder_is_read_in_the_order_of_names_wherever_it_lies(tmp_path: Path) -> None:
    for place in ("one", "two"):
        folder = tmp_path / place
        (folder / "b").mkdir(parents=True)
        for name in ("z.txt", "b/a.md", "a.py", "c.rst", "skipped.bin"):
            (folder / name).write_bytes(f"text of {name}".encode())
        (folder / "empty.txt").touch()
    first = read_documents(str(tmp_path / "one"), DataFormat.TEXT)
    assert names(first) == ["a.py", "b/a.md", "c.rst", "z.txt"]
    assert first == read_documents(f"file://{tmp_path}/two", DataFormat.TEXT)


def test_a_file_is_one_document_byte_for_byte(tmp_path: Path) -> None:
    (tmp_path / "any.log").write_bytes(b"\xff\x00no utf-8\r\n")
    assert read_documents(str(tmp_path / "any.log"), DataFormat.TEXT) == (Document("any.log", b"\xff\x00no utf-8\r\n"),)


def test_json_lines_plain_and_compressed_are_the_same_documents(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"text": text, "id": 1}) for text in ("eins", "zwei ü", "")) + "\n\n"
    (tmp_path / "d.jsonl").write_text(lines)
    with gzip.open(tmp_path / "e.jsonl.gz", "wt") as file:
        file.write(lines)
    documents = read_documents(str(tmp_path), DataFormat.JSON_LINES)
    assert names(documents) == ["d.jsonl:1", "d.jsonl:2", "e.jsonl.gz:1", "e.jsonl.gz:2"]
    assert [document.content.decode() for document in documents] == ["eins", "zwei ü"] * 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a"}\n{"text": \n', r"d\.jsonl:2: the line is not JSON"),
        ('{"text": "a"}\n\n{"txt": "b"}\n', r'd\.jsonl:3: .*\{"text": "\.\.\."\}'),
        ('["a"]', r"d\.jsonl:1: "),
        ('{"text": 3}', r"d\.jsonl:1: "),
        ("", "no text in it"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "d.jsonl").write_text(content)
    with pytest.raises(SourceError, match=message):
        read_documents(str(tmp_path / "d.jsonl"), DataFormat.JSON_LINES)


def test_a_truncated_archive_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(b'{"text": "abc"}\n' * 1000)
    (tmp_path / "d.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match=r"d\.jsonl\.gz cannot be read after line"):
        read_documents(str(tmp_path / "d.jsonl.gz"), DataFormat.JSON_LINES)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no file or folder .*absent"):
        read_documents(str(tmp_path / "absent"), DataFormat.TEXT)
    with pytest.raises(SourceError, match=r"no file that ends in \.txt"):
        read_documents(str(tmp_path), DataFormat.TEXT)
    with pytest.raises(SourceError, match="s3:// URL"):
        read_documents("s3://bucket/corpus", DataFormat.TEXT)
    with pytest.raises(SourceError, match=r"spec\.trainer\.data\.format: Images"):
        read_documents(str(tmp_path), DataFormat.IMAGES)


def test_the_standard_library_is_always_there() -> None:
    documents = read_documents(STANDARD_LIBRARY, DataFormat.TEXT)
    assert {"ast.py", "threading.py"} <= set(names(documents))
    assert names(documents) == sorted(names(documents))
    assert sum(len(document.content) for document in documents) > 1_000_000


def test_one_document_in_ten_is_held_out_whatever_the_others_are() -> None:
    documents = tuple(Document(f"{number}.txt", b"x") for number in range(2000))
    train, heldout = split(documents)
    assert 150 < len(heldout) < 250
    assert sorted(names(train + heldout)) == sorted(names(documents))
    assert {d.name for d in heldout} == {d.name for d in documents if is_heldout(d.name)}
    assert set(split(documents[:500])[1]) == set(heldout) & set(documents[:500])


def test_a_split_that_would_leave_nothing_trains_on_everything() -> None:
    held, kept = (next(f"{n}" for n in range(100) if is_heldout(f"{n}") is side) for side in (True, False))
    for name in (held, kept):
        assert split((Document(name, b"x"),)) == ((Document(name, b"x"),), ())


def test_the_form_follows_from_the_name() -> None:
    assert form_of("/data/x.jsonl.gz") is DataFormat.JSON_LINES
    assert form_of("/data/x") is DataFormat.TEXT
