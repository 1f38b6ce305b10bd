"""`Refused`: the answer to a client when something cannot be done; nothing was changed."""

from __future__ import annotations

__all__ = ["Refused"]


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
