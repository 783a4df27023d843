"""Everything that can keep the agent from its work.

AgentError
├── Misplaced   what the operator put into the pod is missing or unreadable; nothing was started
├── Malformed   a message is not what it should be; it is dropped
└── Unanswered  the operator did not answer a report; it is tried again later
"""

from __future__ import annotations


class AgentError(Exception):
    """Root of the agent's errors."""


class Misplaced(AgentError):
    """The launch plan or the variables that name the pod's place cannot be used; the message says which and why."""


class Malformed(AgentError):
    """A message is too large, is not JSON, or has a field of the wrong kind; the message names the field."""


class Unanswered(AgentError):
    """No usable answer came from the operator."""
