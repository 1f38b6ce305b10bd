"""How many Python calls one durable decide makes: from its body to its answer, synced in between.

``python -m tests.service.calls`` prints the number, and who is called how often.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from fairwolfe.service.config import parse
from fairwolfe.service.routes import HOT_ROUTES, HotEndpoint
from fairwolfe.service.serve import open_service
from tests.service.servers import config

MARK = 120
BODY = json.dumps({"arms": [[0.1, 0.2, 0.3, 0.0, 0.1], [0.0, 0.1, 0.0, 0.2, 0.1]]}).encode()
USUAL = 50  # decisions before the one that is counted


class Waiter:
    result: Any = None

    def absent(self) -> bool:
        return False

    def answer(self, result: Any) -> None:
        self.result = result

    def refuse(self, error: Exception) -> None:
        raise error


async def counted(folder: Path) -> Counter[str]:
    """Calls of Python functions by name, without those of HTTP and of this file."""
    settings = parse(config(both=False), str(folder))
    service = open_service(settings)
    core, calls = service.core, Counter[str]()
    hot = HotEndpoint(HOT_ROUTES[0], core, core.models["router"])

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename != __file__:
            calls["/".join(Path(code.co_filename).parts[-2:]) + ":" + code.co_qualname] += 1

    for step in range(USUAL + 1):
        waiter = Waiter()
        if step == USUAL:
            sys.setprofile(note)
        work = hot.work(BODY, "application/json", None, waiter)
        core.submit(work)
        core._next()
        answer, _ = hot.encoded(work, waiter.result, "application/json")
        sys.setprofile(None)
    assert json.loads(answer)["id"].endswith(f"-{USUAL}")
    core.store.close()
    return calls


def main() -> None:
    with TemporaryDirectory() as folder:
        calls = asyncio.run(counted(Path(folder)))
    files = {name.partition(":")[0] for name in calls}
    print(f"{calls.total()} Python calls in {len(files)} files; at most {MARK} are allowed")
    for name, count in calls.most_common():
        print(f"{count:4} {name}")


if __name__ == "__main__":
    main()
