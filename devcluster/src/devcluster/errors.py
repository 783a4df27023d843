"""Everything that devcluster raises on purpose.

::

    DevClusterError
    ├── ToolchainError         the programs cannot be had; the message says what to do
    ├── ImageError             an image cannot be built; the message says what to do
    ├── StartError             a program of the cluster ended or did not become ready
    ├── NotRunningError        there is no cluster in that directory
    ├── AlreadyRunningError    there is one already
    ├── CommandError           kubectl or helm failed
    └── ApiError               the API server refused a request
"""

from __future__ import annotations

import json
from collections.abc import Sequence


class DevClusterError(Exception):
    """The root of the tree; its text is written for people."""


class ToolchainError(DevClusterError):
    """The cluster's programs can be neither found nor built."""


class ImageError(DevClusterError):
    """An image of the operator or the trainer cannot be built."""


class StartError(DevClusterError):
    """A program of the cluster ended, or did not become ready in time."""


class NotRunningError(DevClusterError):
    """No cluster runs in that directory."""


class AlreadyRunningError(DevClusterError):
    """A cluster runs in that directory already."""


class CommandError(DevClusterError):
    """kubectl or helm ended with an error.

    Attributes:
        returncode: The command's exit status.
        stdout: What it wrote on standard output.
        stderr: What it wrote on standard error.
    """

    def __init__(self, argv: Sequence[str], returncode: int, stdout: str, stderr: str) -> None:
        super().__init__(f"{' '.join(argv)} ended with {returncode}: {(stderr or stdout).strip()[-2000:]}")
        self.returncode, self.stdout, self.stderr = returncode, stdout, stderr


class ApiError(DevClusterError):
    """The API server refused a request.

    Attributes:
        code: The HTTP status.
        body: The whole answer, mostly a Status object as JSON.
    """

    def __init__(self, method: str, url: str, code: int, body: str) -> None:
        try:
            message = json.loads(body)["message"]
        except (ValueError, TypeError, KeyError):
            message = body
        super().__init__(f"{method} {url} was answered {code}: {message}")
        self.code, self.body = code, body
