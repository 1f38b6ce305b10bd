from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.service.postgres import Postgres


@pytest.fixture(scope="session")
def database() -> Iterator[Postgres]:
    """A PostgreSQL that nobody harms; a test takes a schema of its own."""
    from tests.service.postgres import own_postgres

    with own_postgres() as server:
        yield server
