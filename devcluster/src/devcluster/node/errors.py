"""What the node program raises on purpose.

::

    DevClusterError
    └── NodeError
        ├── ApiError           the API server answered with an error
        ├── ApiUnreachable     it did not answer, or said "not now"; trying again is right
        ├── NotYet             a pod cannot go on yet (kubelet's waiting reasons); trying again is right
        ├── ContainerNotStarted  the container's process cannot be made; final
        ├── NoLog              a container has no log, as a kubelet says it
        └── IsolationError     namespaces were asked for and cannot be had
"""

from __future__ import annotations

from devcluster.errors import DevClusterError


class NodeError(DevClusterError):
    """The root of this package's errors."""


class ApiError(NodeError):
    """The API server refused a request.

    Attributes:
        status: The HTTP status.
        reason: The `reason` of the Status object, such as `NotFound`; empty when there was none.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message


class ApiUnreachable(NodeError):
    """No answer, or one (429, 5xx, 401) that a later attempt may better."""


class NotYet(NodeError):
    """Something that the pod needs is missing; it waits, as it would with a kubelet.

    Attributes:
        waiting: The container's waiting reason while it lasts, such as `CreateContainerConfigError`.
        event: The reason of the event that says so.
    """

    def __init__(self, message: str, *, waiting: str = "ContainerCreating", event: str = "FailedMount") -> None:
        super().__init__(message)
        self.waiting, self.event = waiting, event


class ContainerNotStarted(NodeError):
    """The container's program cannot be executed; its state becomes `StartError`, exit code 128."""


class NoLog(NodeError):
    """There is no log to show.

    Attributes:
        status: The HTTP status to answer with.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class IsolationError(NodeError):
    """This machine does not let us have the namespaces that were asked for."""
