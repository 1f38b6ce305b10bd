"""One file out of a published zip archive, checked before anything is written."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from fairwolfe.core.folders import whole_file
from fairwolfe.errors import InvalidInput, MissingData

__all__ = ["download"]

_TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 16
_LARGEST = 1 << 27  # bytes: both are kept in memory until they are checked

Progress = Callable[[int, int | None], None]


def download(
    url: str, member: str, sha256: str, target: Path, progress: Progress = lambda done, of: None
) -> None:
    """Write a member of the zip archive at `url` to `target`, or leave everything as it was.

    progress: is told the bytes that have come, and how many there will be if that is known.
    """
    content = _member(_body(url, progress), member, url)
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise MissingData(
            f"{member} of {url} has sha256 {found[:12]}..., not {sha256[:12]}..., so it is not the "
            "published file; nothing was written, try another address with --from"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as file:
            file.write(content)
    except OSError as error:
        raise InvalidInput(
            f"{target} cannot be written: {error.strerror}; choose another folder with --to"
        ) from error


def _body(url: str, progress: Progress) -> bytes:
    if not url.startswith(("https://", "http://")):
        raise InvalidInput(f"the address is {url!r}; give one that starts with https:// or http://")
    body = bytearray()
    total = None
    try:
        with urlopen(url, timeout=_TIMEOUT) as answer:
            length = answer.headers.get("Content-Length")
            total = int(length) if length and length.isdigit() else None
            progress(0, total)
            while part := answer.read(_CHUNK):
                body += part
                progress(len(body), total)
                if len(body) > _LARGEST:
                    raise MissingData(f"{url} is larger than {_LARGEST:,} bytes; give the archive")
    except HTTPError as error:
        error.close()
        raise MissingData(
            f"{url} answers {error.code} {error.reason}; nothing was written, try another address "
            "with --from"
        ) from error
    except MissingData:
        raise
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise MissingData(
            f"{url} cannot be downloaded ({reason}); nothing was written, look at the connection "
            "and try again"
        ) from error
    if total is not None and len(body) != total:
        raise MissingData(
            f"the download of {url} ended after {len(body):,} of {total:,} bytes; nothing was "
            "written, try again"
        )
    return bytes(body)


def _member(archive: bytes, member: str, url: str) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as files:
            # Some archives hold a folder, others the files themselves.
            found = [one for one in files.infolist() if Path(one.filename).name == member]
            if not found or found[0].file_size > _LARGEST:
                raise MissingData(
                    f"the archive at {url} has no file {member}; nothing was written, try another "
                    "address with --from"
                )
            return files.read(found[0])
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError) as error:
        raise MissingData(
            f"what is at {url} is not a zip archive ({error}); nothing was written, try another "
            "address with --from"
        ) from error
