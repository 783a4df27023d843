"""What a job names as `package.module:function`: found, checked and called with messages that name the field."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from meshwright_api.errors import InvalidTrainer, Problem
from meshwright_api.trainer import Code


def load_factory(reference: str, field: str) -> Callable[..., Any]:
    """The function that a reference names.

    Args:
        reference: `package.module:function`; the function may be an attribute of a class.
        field: path of the field that holds it, for messages.

    Raises:
        InvalidTrainer: the module cannot be imported, has no such name, or it cannot be called.
    """
    module_name, _, path = reference.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        # Whatever a user's module does while it is imported, the job's author needs the field that led there.
        lost = isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]
        advice = "; is its folder in spec.trainer.code.path, and there?" if lost else ""
        raise _invalid(
            field, f"module {module_name!r} cannot be imported: {type(error).__name__}: {error}{advice}"
        ) from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise _invalid(field, f"module {module_name!r} has no {path!r}")
        found = getattr(found, name)
    if not callable(found):
        raise _invalid(field, f"{reference} is a {type(found).__name__} and cannot be called; name a function or class")
    call: Callable[..., Any] = found
    return call


def call_factory(
    reference: str, field: str, arguments: Mapping[str, Any] | None, offered: Mapping[str, Any] | None = None
) -> Any:
    """What the function returns.

    Args:
        reference: `package.module:function`.
        field: path of the field that holds it, for messages.
        arguments: keyword arguments from the job.
        offered: what the trainer knows by name; given to a function that has a parameter of that name, unless the job's
            arguments say it.

    Raises:
        InvalidTrainer: it cannot be found, or cannot be called with these arguments. What the function itself raises
            comes through as it is.
    """
    factory = load_factory(reference, field)
    given = dict(arguments or {})
    try:
        signature = inspect.signature(factory)
    except ValueError:  # built in, without a signature to check against
        return factory(**given)
    given = {name: value for name, value in (offered or {}).items() if name in signature.parameters} | given
    try:
        signature.bind(**given)
    except TypeError as error:
        raise _invalid(field.removesuffix("factory") + "arguments", f"{reference}{signature}: {error}") from error
    return factory(**given)


def _invalid(field: str, message: str) -> InvalidTrainer:
    return InvalidTrainer((Problem(field, message),))


def add_code(code: Code | None) -> None:
    """Puts the job's own code on the module path."""
    if code is not None and code.path and code.path not in sys.path:
        sys.path.insert(0, code.path)
