"""Makes an image of a few files without a builder: an archive of one layer, as `docker save` writes it."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write_archive(path: Path, name: str, files: Mapping[str, Path], entrypoint: Sequence[str]) -> None:
    """Writes an archive of the image `name` whose root holds `files` (by their path in it), all of them executable."""
    layer = _tar({inside: file.read_bytes() for inside, file in files.items()})
    configuration = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": list(entrypoint), "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created_by": "devcluster"}],
    }
    described = json.dumps(configuration).encode()
    config_name = f"{hashlib.sha256(described).hexdigest()}.json"
    manifest: list[dict[str, Any]] = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
    parts = {config_name: described, "layer.tar": layer, "manifest.json": json.dumps(manifest).encode()}
    path.write_bytes(_tar(parts))


def _tar(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
