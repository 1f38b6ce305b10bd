"""The signature of a method of a client: that of the function that makes its call, except for the
answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["presented"]

F = TypeVar("F", bound=Callable[..., Any])


def presented(send: F, make: Callable[..., Any]) -> F:
    """A method with the name, the words and the signature of what makes its call."""
    stated = inspect.signature(make)
    parameters = [
        inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY),
        *stated.parameters.values(),
    ]
    answer = str(stated.return_annotation).removeprefix("Call[").removesuffix("]")
    send.__name__ = send.__qualname__ = make.__name__
    send.__doc__ = make.__doc__
    signature = inspect.Signature(parameters, return_annotation=answer)
    send.__signature__ = signature  # type: ignore[attr-defined]
    return send
