"""A PostgreSQL of a test's own: made by initdb in a temporary folder, on loopback, and killed,
stopped, cut off or replaced by its replica as a test likes.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Self

import psycopg

from tests.capabilities import postgresql

_STARTED = 60.0  # seconds
_DONE = b"SELECT 1\0Z"  # the answer to a row, once it is committed
_CONF = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 40
shared_buffers = 16MB
wal_level = replica
max_wal_senders = 4
max_wal_size = 256MB
autovacuum = off
"""


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Postgres:
    """A server with its data in a folder."""

    def __init__(self, folder: Path, settings: str = "") -> None:
        self.data = folder / "data"
        self.port = free_port()
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(folder, "postgres")
        self.settings = settings

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def run(self, program: str, *options: str, check: bool = True) -> int:
        folder = postgresql()
        assert folder is not None
        own = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        with (self.data.parent / "commands.log").open("w+") as log:
            done = subprocess.run(
                [*own, str(folder / program), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=_STARTED,
                cwd=self.data.parent,
                check=False,
            )
            log.seek(0)
            assert not (check and done.returncode), log.read()[-2000:]
        return done.returncode

    def create(self) -> Self:
        self.run("initdb", "-D", str(self.data), "-A", "trust", "-U", "postgres", "--no-sync")
        self.write("postgresql.auto.conf", self.settings)
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(_CONF)
        return self.start()

    def write(self, name: str, text: str) -> None:
        (self.data / name).write_text(text)
        if os.geteuid() == 0:
            shutil.chown(self.data / name, "postgres", "postgres")

    def replica(self, folder: Path, name: str) -> Postgres:
        """A standby of its own, which streams from this one."""
        other = Postgres(folder, "")
        base = f"host=127.0.0.1 port={self.port} user=postgres"
        self.run("pg_basebackup", "-d", base, "-D", str(other.data), "-c", "fast", "--no-sync")
        other.write("standby.signal", "")
        other.write("postgresql.auto.conf", f"primary_conninfo = '{base} application_name={name}'")
        return other.start()

    def start(self) -> Self:
        """Start it, after a crash too; a crashed one may take a moment to let go."""
        end = time.monotonic() + _STARTED
        options = ["-D", str(self.data), "-w", "-t", "30", "-l", str(self.data / "server.log")]
        while self.run("pg_ctl", "start", *options, "-o", f"-p {self.port}", check=False):
            assert time.monotonic() < end, (self.data / "server.log").read_text()[-2000:]
            time.sleep(0.2)
        return self

    @property
    def pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def kill(self) -> None:
        """kill -9 of the postmaster; its children notice and end."""
        os.kill(self.pid, signal.SIGKILL)

    def stop(self, mode: str = "immediate") -> None:
        self.run("pg_ctl", "stop", "-D", str(self.data), "-m", mode, "-t", "30", check=False)

    def promote(self) -> None:
        self.run("pg_ctl", "promote", "-D", str(self.data), "-w", "-t", "30")

    def ask(self, query: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True, connect_timeout=5) as base:
            cursor = base.execute(query)
            return cursor.fetchall() if cursor.description else []

    def set(self, **settings: str) -> None:
        for name, value in settings.items():
            self.ask(f"ALTER SYSTEM SET {name} = '{value}'")
        self.ask("SELECT pg_reload_conf()")
        time.sleep(0.2)


class own_postgres:  # noqa: N801
    """One that a test may harm; with its replicas."""

    def __init__(self, settings: str = "") -> None:
        self._settings = settings

    def __enter__(self) -> Postgres:
        # Not below the folder of pytest, which others than its owner may not enter.
        self._folder = Path(tempfile.mkdtemp(prefix="fairwolfe-pg-"))
        self._server = Postgres(self._folder, self._settings)
        try:
            return self._server.create()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        with suppress(OSError, ValueError, subprocess.SubprocessError):
            self._server.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


class Proxy:
    """A connection to PostgreSQL through the test: `cut` closes the next one between a commit and
    its answer, since what the server sends after a statement that appends never arrives.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.cuts = 0
        self._cut = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._cut.set()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            server = socket.create_connection(("127.0.0.1", self._target))
            with server:
                appends = False  # whether the last message from the client is a row
                while True:
                    for one in select.select([client, server], [], [])[0]:
                        data = one.recv(1 << 16)
                        if not data:
                            return
                        if one is client:
                            server.sendall(data)
                            appends = data[:1] == b"B" and len(data) > 250
                        elif appends and self._cut.is_set() and _DONE in data:
                            self._cut.clear()
                            self.cuts += 1
                            return
                        else:
                            client.sendall(data)
