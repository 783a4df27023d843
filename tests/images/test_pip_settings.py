"""How builds reach the package index. What a written configuration means is pip's own to say."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster.images.pip_settings import CERTIFICATES, configured, pip_settings


def understood(text: str, folder: Path) -> dict[str, str]:
    """What pip understands a configuration to say, with nothing else configured."""
    conf = folder / "pip.conf"
    conf.write_text(text)
    env = {"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": str(conf), "HOME": str(folder)}
    argv = [sys.executable, "-m", "pip", "config", "list", "--global"]
    # Only what stands in the file: the machine may have a configuration of its own.
    listed = subprocess.run([*argv[:-1], "--verbose"], capture_output=True, text=True, check=True, env=env).stdout
    done = subprocess.run(argv[:-1], capture_output=True, text=True, check=True, env=env).stdout
    assert str(conf) in done + listed
    pairs = (line.partition("=") for line in done.splitlines() if line.startswith("global."))
    return {key.removeprefix("global."): ast.literal_eval(value) for key, _, value in pairs}


def test_pip_understands_every_word(tmp_path: Path) -> None:
    said = {
        "global.index-url": "https://user:p%40ss@index.example/simple",
        "global.extra-index-url": "https://one.example/simple\nhttps://two.example/simple",
        "global.trusted-host": "index.example",
        "global.proxy": "http://proxy.example:3128",
        "global.cert": "/etc/ssl/ours.pem",
        ":env:.default-timeout": "180",
    }
    settings = pip_settings(said, {})
    heard = understood(settings.text, tmp_path)
    assert heard["index-url"] == said["global.index-url"]
    assert heard["extra-index-url"].split() == said["global.extra-index-url"].split()
    assert (heard["trusted-host"], heard["proxy"], heard["timeout"]) == ("index.example", said["global.proxy"], "180")
    assert heard["cert"] == CERTIFICATES
    assert settings.certificates == Path("/etc/ssl/ours.pem")


def test_the_nearest_word_wins() -> None:
    said = {":env:.index-url": "https://c", "global.index-url": "https://a", "install.index-url": "https://b"}
    assert "index-url = https://c\n" in pip_settings(said, {}).text
    del said[":env:.index-url"]
    assert "index-url = https://b\n" in pip_settings(said, {}).text


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("UV_DEFAULT_INDEX", "https://index.example/simple", "index-url = https://index.example/simple"),
        ("UV_INDEX_URL", "https://index.example/simple?a=b", "index-url = https://index.example/simple?a=b"),
        ("UV_INDEX", "ours=https://index.example/simple", "extra-index-url = https://index.example/simple"),
        ("UV_INSECURE_HOST", "index.example", "trusted-host = index.example"),
    ],
)
def test_uvs_variables_count_where_pip_is_told_nothing(variable: str, value: str, line: str) -> None:
    assert line in pip_settings({}, {variable: value}).text.splitlines()
    key = line.partition(" ")[0]
    assert f"{key} = theirs" in pip_settings({f"global.{key}": "theirs"}, {variable: value}).text.splitlines()


def test_certificates_of_the_machine() -> None:
    assert pip_settings({}, {}).certificates is None
    assert pip_settings({}, {}).text == "[global]\n"
    assert pip_settings({}, {"SSL_CERT_FILE": "/a.pem"}).certificates == Path("/a.pem")
    assert pip_settings({"global.cert": "/b.pem"}, {"SSL_CERT_FILE": "/a.pem"}).certificates == Path("/b.pem")


def test_local_folders_are_lent_if_they_are_there(tmp_path: Path) -> None:
    said = {":env:.find-links": f"{tmp_path} /not/there https://links.example file://{tmp_path}"}
    assert pip_settings(said, {}).folders == (tmp_path, tmp_path)


def test_what_this_machine_says_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://it's.example/simple")
    assert configured()[":env:.index-url"] == "https://it's.example/simple"
