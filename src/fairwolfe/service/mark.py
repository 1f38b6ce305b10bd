"""The mark: a small file beside the log that names its last acknowledged row.

It is written after each commit and synced only with snapshots, so a mark is never ahead of a log
that is complete. A log that ends before its mark has lost acknowledged rows.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from fairwolfe.core.folders import whole_file
from fairwolfe.errors import IncompatibleState

__all__ = ["MARK", "Mark", "read_mark", "write_mark"]

MARK = "log.mark"
_MAGIC = b"fwmk"
_BODY, _CRC = struct.Struct("<4s16sqI"), struct.Struct("<I")


class Mark(NamedTuple):
    """token: of the log; seq, crc: number and check sum of its last acknowledged row."""

    token: str
    seq: int = 0
    crc: int = 0

    def to_bytes(self) -> bytes:
        """A record of fixed size, with its own check sum."""
        body = _BODY.pack(_MAGIC, self.token.encode("ascii"), self.seq, self.crc)
        return body + _CRC.pack(crc32(body))


def read_mark(folder: Path) -> Mark | None:
    """The mark of a state folder; None if there is none."""
    path = folder / MARK
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IncompatibleState(f"{path} cannot be read: {error.strerror}") from error
    body = data[: _BODY.size]
    if data[_BODY.size :] != _CRC.pack(crc32(body)) or body[:4] != _MAGIC:
        raise IncompatibleState(
            f"{path} is damaged, so nothing tells whether the log is complete; examine the log "
            "with `fairwolfe log verify`, copy it with `fairwolfe log backup`, and put that copy "
            "or an older backup in place with `fairwolfe log restore`"
        )
    _, token, seq, crc = _BODY.unpack(body)
    return Mark(token.rstrip(b"\0").decode("ascii", "replace"), seq, crc)


def write_mark(folder: Path, mark: Mark) -> None:
    """Put a mark in place, durably."""
    with whole_file(folder / MARK) as file:
        os.chmod(file.name, 0o600)
        file.write(mark.to_bytes())
