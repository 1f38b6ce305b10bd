"""One file out of a published zip archive, checked before anything is written."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from http.client import IncompleteRead
from pathlib import Path
from typing import Any

from fairwolfe.core.files import whole_file
from fairwolfe.errors import InvalidInput, MissingData, require_extra

_TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 16
_LARGEST = 1 << 27  # bytes: both are kept in memory until they are checked

Progress = Callable[[int, int | None], None]


def download(
    url: str, member: str, sha256: str, target: Path, progress: Progress = lambda done, of: None
) -> None:
    """Write a member of the zip archive at `url` to `target`, or leave everything as it was.

    progress: called with the bytes that have come, and how many there will be if that is known.
    """
    content = _member(_body(url, progress), member, url)
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise MissingData(
            f"{member} of {url} has sha256 {digest[:12]}..., not {sha256[:12]}..., so it is not "
            "the published file; nothing was written, try another address with --from"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as file:
            file.write(content)
    except OSError as error:
        raise InvalidInput(
            f"{target} cannot be written: {error.strerror}; choose another folder with --to"
        ) from error


class _Body(io.BytesIO):
    """What has come of an answer."""

    def __init__(self, url: str, progress: Progress) -> None:
        super().__init__()
        self._url, self._progress, self._total = url, progress, 0
        self.answers = ExitStack()  # pooch leaves those open that it does not read to the end

    def begin(self, answer: Any, **options: Any) -> None:
        """An answer with its head, which may have its length."""
        self.answers.callback(answer.close)
        length = answer.headers.get("Content-Length", "")
        self._total = int(length) if length.isdigit() else 0
        self._progress(0, self._total or None)

    def write(self, part: Any) -> int:
        size = super().write(part)
        self._progress(self.tell(), self._total or None)
        if self.tell() > _LARGEST:
            raise MissingData(f"{self._url} is larger than {_LARGEST:,} bytes; give the archive")
        return size


def _body(url: str, progress: Progress) -> bytes:
    if not url.startswith(("https://", "http://")):
        raise InvalidInput(f"the address is {url!r}; give one that starts with https:// or http://")
    require_extra("lab", "a download", "pooch")
    from pooch import HTTPDownloader
    from requests import HTTPError, RequestException

    body = _Body(url, progress)
    hooks = {"response": body.begin}
    try:
        with body.answers:
            HTTPDownloader(chunk_size=_CHUNK, timeout=_TIMEOUT, hooks=hooks)(url, body, None)
    except HTTPError as error:
        answer: Any = error.response
        raise MissingData(
            f"{url} answers {answer.status_code} {answer.reason}; nothing was written, try another "
            "address with --from"
        ) from error
    except (RequestException, OSError, ValueError) as error:
        reason = _first(error)
        if isinstance(reason, IncompleteRead) and reason.expected is not None:
            came = len(reason.partial) if isinstance(reason.partial, bytes) else reason.partial
            raise MissingData(
                f"the download of {url} ended after {came:,} of {came + reason.expected:,} bytes; "
                "nothing was written, try again"
            ) from error
        raise MissingData(
            f"{url} cannot be downloaded ({reason}); nothing was written, check the connection "
            "and try again"
        ) from error
    return body.getvalue()


def _first(error: BaseException) -> BaseException:
    """What was raised first, of errors that were raised for each other."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def _member(archive: bytes, member: str, url: str) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as files:
            # Some archives hold a folder, others the files themselves.
            members = [one for one in files.infolist() if Path(one.filename).name == member]
            if not members or members[0].file_size > _LARGEST:
                raise MissingData(
                    f"the archive at {url} has no file {member}; nothing was written, try another "
                    "address with --from"
                )
            return files.read(members[0])
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError) as error:
        raise MissingData(
            f"what is at {url} is not a zip archive ({error}); nothing was written, try another "
            "address with --from"
        ) from error
