"""`AsyncTransport`: calls over the connections of aiohttp."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from fairwolfe.client.calls import Call
from fairwolfe.client.endpoint import Endpoint
from fairwolfe.client.retry import Attempts, Reply
from fairwolfe.errors import require_extra

if TYPE_CHECKING:
    import aiohttp

__all__ = ["AsyncTransport"]

T = TypeVar("T")


class AsyncTransport:
    """Connections to one service, kept open; every call is safe to repeat, so it is repeated.

    lost: what `once` raises where there is no answer
    """

    def __init__(self, endpoint: Endpoint) -> None:
        require_extra("client", "AsyncClient", instead="Client does without")
        import aiohttp

        self.endpoint = endpoint
        self.lost: tuple[type[BaseException], ...] = (OSError, aiohttp.ClientError)
        self._session: aiohttp.ClientSession | None = None

    async def call(self, call: Call[T]) -> T:
        """The answer to a call; an error of the library where there is none."""
        attempts = Attempts(call, self.endpoint)
        while True:
            try:
                reply = await self.once(call, attempts.left)
            except self.lost as error:
                pause = attempts.lost(error)
            else:
                if reply.fine:
                    return attempts.answer(call, reply)
                pause = attempts.refused(reply)
            await asyncio.sleep(pause)

    async def once(self, call: Call[Any], left: float) -> Reply:
        """One attempt, with so many seconds left."""
        import aiohttp
        from yarl import URL

        if self._session is None:  # made here, since it belongs to the running loop
            self._session = aiohttp.ClientSession(
                headers=self.endpoint.headers, cookie_jar=aiohttp.DummyCookieJar()
            )
        silence = min(self.endpoint.timeout, left)
        limits = aiohttp.ClientTimeout(total=left, sock_connect=silence, sock_read=silence)
        url = URL(self.endpoint.address + call.path, encoded=True)
        async with self._session.request(
            call.method,
            url,
            data=call.body,
            headers=call.headers,
            timeout=limits,
            allow_redirects=False,
        ) as response:
            body = await response.read()
        return Reply(response.status, response.headers.get("retry-after"), body)

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
