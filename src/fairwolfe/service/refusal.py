"""`Refused`: the answer to a client when something cannot be done; nothing was changed."""

from __future__ import annotations

import re

from fairwolfe.errors import FairwolfeError

__all__ = ["Refused", "invalid"]

_ON = re.compile(r"\.on\(([^()]*)\)")
_LONG_NAME = re.compile(r"'([^']{80})[^']+'")


class Refused(Exception):
    """A request that is answered with an error: its status, a code, a sentence and the field.

    retry_after: seconds after which it may be tried again, where that helps; headers: of the
    answer, besides those that follow from the status.
    """

    def __init__(
        self,
        status: int,
        error: str,
        message: str,
        field: str | None = None,
        retry_after: float | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.parts = status, error, message, field, retry_after
        self.status, self.error, self.message = status, error, message
        self.field, self.retry_after = field, retry_after
        self.headers = headers or {}

    def within(self, path: str) -> Refused:
        """The same, of a field below a path."""
        field = path if not self.field else f"{path}.{self.field}"
        return Refused(self.status, self.error, self.message, field, self.retry_after)


def invalid(error: FairwolfeError, field: str | None = None) -> Refused:
    """Status 422 for an error of the library: names are cut at 80 characters, and `.on(...)` is as
    the text of an objective has it.
    """

    def on(match: re.Match[str]) -> str:
        names = match[1]
        listed = names if names == "..." else f"({names},)" if "," not in names else f"({names})"
        return f"On(objective=..., coordinates={listed})"

    message = _LONG_NAME.sub(r"'\1...'", str(error)).removeprefix("context 0: ")
    return Refused(422, "invalid", _ON.sub(on, message), field)
