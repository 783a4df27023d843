"""Writes the agent as one file that any Python 3.9 or newer runs: a zip archive of this package."""

from __future__ import annotations

import io
import os
import pkgutil
import tempfile
import zipfile
from pathlib import Path

import meshwright_agent

_SHEBANG = b"#!/usr/bin/env python3\n"
# In words that any Python 3 understands, so that an old one says what is wrong.
_MAIN = """import sys
if sys.version_info < (3, 9):
    sys.exit("meshwright-agent: needs Python 3.9 or newer in the image, not " + sys.version.split()[0])
from meshwright_agent.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def archive() -> bytes:
    """The file; equal sources give equal bytes."""
    package = meshwright_agent.__name__
    names = sorted(module.name for module in pkgutil.iter_modules(meshwright_agent.__path__))
    buffer = io.BytesIO(_SHEBANG)
    buffer.seek(0, io.SEEK_END)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as packed:
        _add(packed, "__main__.py", _MAIN.encode())
        for name in ("__init__", *names):
            source = pkgutil.get_data(package, f"{name}.py")
            assert source is not None, "the package's sources are beside it"
            _add(packed, f"{package}/{name}.py", source)
    return buffer.getvalue()


def install(path: str) -> None:
    """Writes the file in one step, executable for everybody: the user's container may run as anybody."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".agent-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(archive())
        os.chmod(temporary, 0o755)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _add(packed: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    packed.writestr(entry, data)
