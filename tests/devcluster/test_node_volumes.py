"""Volumes as data, and as files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from devcluster.node.errors import NotYet
from devcluster.node.fields import Site
from devcluster.node.model import parse_pod
from devcluster.node.projection import File, configs_of, files, tokens_of
from devcluster.node.volume_model import HostPathVolume, ProjectedVolume, TokenSource, UnsupportedVolume, parse_volume
from devcluster.node.volumes import host_path, overwrite, publish, sub_path

SITE = Site("127.20.0.1", "127.0.0.1", {"memory": "1Gi"})
POD = parse_pod(
    {
        "metadata": {"uid": "u", "name": "p", "namespace": "ns", "labels": {"a": "1"}},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "2Mi"}}}]},
    }
)


def _projected(**source: Any) -> ProjectedVolume:
    volume = parse_volume({"name": "v", **source})
    assert isinstance(volume, ProjectedVolume)
    return volume


def test_every_key_becomes_a_file_unless_items_choose() -> None:
    configs = {("configmap", "c"): {"a": b"1", "b": b"2"}}
    every = files(POD, SITE, _projected(configMap={"name": "c", "defaultMode": 0o600}), configs, {})
    assert every == {"a": File(b"1", 0o600), "b": File(b"2", 0o600)}
    items = [{"key": "b", "path": "x/y", "mode": 0o400}]
    assert files(POD, SITE, _projected(configMap={"name": "c", "items": items}), configs, {}) == {
        "x/y": File(b"2", 0o400)
    }


def test_what_is_missing_is_an_error_unless_it_is_optional() -> None:
    absent: dict[tuple[str, str], Any] = {("secret", "s"): None}
    with pytest.raises(NotYet, match='secret "s" not found'):
        files(POD, SITE, _projected(secret={"secretName": "s"}), absent, {})
    assert files(POD, SITE, _projected(secret={"secretName": "s", "optional": True}), absent, {}) == {}
    items = [{"key": "k", "path": "k"}]
    with pytest.raises(NotYet, match="non-existent secret key: k"):
        files(POD, SITE, _projected(secret={"secretName": "s", "items": items}), {("secret", "s"): {}}, {})


def test_sources_are_laid_over_each_other() -> None:
    token = {"serviceAccountToken": {"path": "token", "audience": "a"}}
    memory = {
        "path": "memory",
        "resourceFieldRef": {"containerName": "main", "resource": "limits.memory", "divisor": "1Ki"},
    }
    sources = [{"configMap": {"name": "c"}}, {"downwardAPI": {"items": [memory]}}, token, {"secret": {"name": "s"}}]
    volume = _projected(projected={"sources": sources})
    assert configs_of(volume) == {("configmap", "c"), ("secret", "s")}
    assert tokens_of(volume) == (TokenSource("token", "a", 3600),)
    configs = {("configmap", "c"): {"x": b"first", "y": b"1"}, ("secret", "s"): {"x": b"last"}}
    got = files(POD, SITE, volume, configs, {TokenSource("token", "a", 3600): "jwt"})
    assert {path: file.content for path, file in got.items()} == {
        "x": b"last", "y": b"1", "memory": b"2048", "token": b"jwt",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("document", "kind"),
    [({"csi": {}}, "csi"), ({"projected": {"sources": [{"clusterTrustBundle": {}}]}}, "projected clusterTrustBundle")],
)
def test_other_kinds_are_known_by_name(document: dict[str, Any], kind: str) -> None:
    assert parse_volume({"name": "v", **document}) == UnsupportedVolume(kind)


def _content(folder: Path) -> dict[str, str]:
    names = (path for path in folder.rglob("*") if path.is_file() and ".." not in str(path.relative_to(folder)))
    return {str(path.relative_to(folder)): path.read_text() for path in names}


def test_publishing_again_replaces_all_files_in_one_step(tmp_path: Path) -> None:
    publish(tmp_path, {"a": File(b"1", 0o644), "deep/b": File(b"2", 0o600), "gone": File(b"3", 0o644)})
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "deep" / "b").stat().st_mode & 0o777 == 0o600
    before = os.readlink(tmp_path / "..data")
    publish(tmp_path, {"a": File(b"1", 0o644), "deep/b": File(b"2", 0o600), "gone": File(b"3", 0o644)})
    assert os.readlink(tmp_path / "..data") == before, "nothing has changed"
    publish(tmp_path, {"a": File(b"new", 0o644), "deep/c": File(b"4", 0o644)})
    assert os.readlink(tmp_path / "..data") != before
    assert sorted(entry.name for entry in tmp_path.iterdir() if not entry.name.startswith("..")) == ["a", "deep"]
    assert (tmp_path / "a").read_text() == "new"
    assert [entry.name for entry in (tmp_path / "deep").iterdir()] == ["c"]
    assert not (tmp_path / before).exists(), "old content is not kept"


def test_an_empty_volume_is_an_empty_folder(tmp_path: Path) -> None:
    publish(tmp_path / "v", {})
    assert [one for one in (tmp_path / "v").iterdir() if not one.name.startswith("..")] == []


def test_overwriting_keeps_the_file_itself(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    overwrite(path, "a long first text\n")
    inode = path.stat().st_ino
    overwrite(path, "short\n")
    assert (path.read_text(), path.stat().st_ino) == ("short\n", inode)
    changed = path.stat().st_mtime_ns
    overwrite(path, "short\n")
    assert path.stat().st_mtime_ns == changed


def test_sub_paths_stay_inside_and_are_made(tmp_path: Path) -> None:
    assert sub_path(tmp_path, "x/y").is_dir()
    (tmp_path / "link").symlink_to("/etc")
    for bad in ("../other", "/etc", "link", "x/../../y"):
        with pytest.raises(NotYet, match="leads out of its volume"):
            sub_path(tmp_path, bad)


def test_host_paths_are_what_they_must_be(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert host_path(HostPathVolume(str(tmp_path / "new"), "")).is_dir()
    assert host_path(HostPathVolume(str(tmp_path / "new2"), "DirectoryOrCreate")).is_dir()
    assert host_path(HostPathVolume(str(tmp_path / "new3"), "FileOrCreate")).is_file()
    assert host_path(HostPathVolume(str(file), "File")) == file
    for path, kind in ((file, "Directory"), (tmp_path, "File"), (file, "Socket"), (file, "DirectoryOrCreate")):
        with pytest.raises(NotYet, match="hostPath type check failed"):
            host_path(HostPathVolume(str(path), kind))
    with pytest.raises(NotYet, match="hostPath type check failed"):
        host_path(HostPathVolume(str(tmp_path / "missing"), "Directory"))
