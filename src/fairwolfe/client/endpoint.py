"""`Endpoint`: where a service is, how it is asked, and how long it is waited for."""

from __future__ import annotations

from urllib.parse import urlsplit

from fairwolfe.client.calls import TYPE
from fairwolfe.errors import InvalidInput

__all__ = ["Endpoint"]


class Endpoint:
    """The address of a service, checked, with the headers of every request."""

    def __init__(self, address: str, key: str | None, deadline: float, timeout: float) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise InvalidInput(
                f"the address is {address!r:.80}; give one such as http://127.0.0.1:8710"
            )
        if not (deadline > 0.0 and timeout > 0.0):
            raise InvalidInput(
                f"deadline is {deadline!r} and timeout {timeout!r}; give positive seconds"
            )
        self.address = address.rstrip("/")
        self.secure, self.host, self.port = parts.scheme == "https", parts.hostname, parts.port
        self.prefix = parts.path.rstrip("/")
        self.deadline, self.timeout = deadline, timeout
        self.headers = {"content-type": TYPE, "accept": TYPE}
        if key is not None:
            self.headers["authorization"] = f"Bearer {key}"
