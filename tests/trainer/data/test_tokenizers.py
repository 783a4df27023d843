"""Text comes back byte for byte, and no text can pose as a special token."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as TokenizerFile
from tokenizers import models

from meshwright_api.trainer import Tokenizer as TokenizerSpec
from meshwright_trainer.data.errors import TokenizerError
from meshwright_trainer.data.tokenizer import BPE, Bytes, load_tokenizer, train_bpe

TEXTS = [b"the cat sat on the mat, the cat sat still\n" * 20, "Größe und Maß; 猫が座った\n".encode() * 20]


@pytest.fixture(scope="module")
def bpe() -> BPE:
    return BPE(train_bpe(TEXTS, 300))


@given(st.binary(max_size=200))
def test_every_byte_string_comes_back_from_bytes(content: bytes) -> None:
    assert Bytes().decode(Bytes().encode(content).tolist()) == content


@given(st.text(max_size=200))
def test_every_text_comes_back_from_bpe(bpe: BPE, text: str) -> None:
    ids = bpe.encode(text.encode()).tolist()
    assert bpe.decode(ids) == text.encode()
    assert all(token < bpe.vocabulary_size for token in ids)


def test_ids_that_are_not_text_are_apart_and_vanish_from_text(bpe: BPE) -> None:
    for tokenizer in (Bytes(), bpe):
        specials = [tokenizer.end_of_document, tokenizer.padding, tokenizer.mask]
        assert len(set(specials)) == 3
        assert all(isinstance(token, int) and token < tokenizer.vocabulary_size for token in specials)
        assert tokenizer.decode([*specials, *tokenizer.encode(b"hello").tolist()]) == b"hello"  # type: ignore[list-item]


def test_text_that_spells_a_special_token_stays_text(bpe: BPE) -> None:
    content = b"before <|endofdocument|> <|mask|> after"
    ids = bpe.encode(content).tolist()
    assert not {bpe.end_of_document, bpe.padding, bpe.mask} & set(ids)
    assert bpe.decode(ids) == content


def test_training_is_deterministic_learns_merges_and_keeps_to_its_size() -> None:
    file = train_bpe(TEXTS, 300)
    assert file == train_bpe(TEXTS, 300)
    tokenizer = BPE(file)
    assert tokenizer.vocabulary_size == 300
    assert len(tokenizer.encode(TEXTS[0])) < len(TEXTS[0]) / 2


def test_identity_follows_the_file() -> None:
    one, other = BPE(train_bpe(TEXTS, 300)), BPE(train_bpe(TEXTS, 290))
    assert one.identity == BPE(train_bpe(TEXTS, 300)).identity
    assert len({one.identity, other.identity, Bytes().identity}) == 3


def test_what_cannot_be_used_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="at least 259"):
        train_bpe(TEXTS, 258)
    with pytest.raises(TokenizerError, match="UTF-8"):
        BPE(train_bpe(TEXTS, 300)).encode(b"\xff\xfe")
    with pytest.raises(TokenizerError, match="no token for the end of a document"):
        BPE(TokenizerFile(models.BPE()).to_str().encode())
    with pytest.raises(TokenizerError, match=r"tokenizer\.name: .*'WordPiece'"):
        load_tokenizer(TokenizerSpec(name="WordPiece"))
    with pytest.raises(TokenizerError, match=r"tokenizer\.path: BPE needs"):
        load_tokenizer(TokenizerSpec(name="BPE"))
    with pytest.raises(TokenizerError, match=r"absent\.json cannot be read"):
        load_tokenizer(TokenizerSpec(path=str(tmp_path / "absent.json")))
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(TokenizerError, match=r"broken\.json is no tokenizer"):
        load_tokenizer(TokenizerSpec(path=str(tmp_path / "broken.json")))


def test_a_path_alone_means_bpe_and_nothing_means_bytes(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(train_bpe(TEXTS, 300))
    assert load_tokenizer(TokenizerSpec(path=f"file://{tmp_path}/t.json")).vocabulary_size == 300
    assert load_tokenizer(TokenizerSpec()).vocabulary_size == 259
