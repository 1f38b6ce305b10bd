"""A process in which nothing may leave this machine: what tries to, fails loudly before it does.

python -m tests.service.offline guarded serve CONFIG.toml     a service whose calls are watched
python -m tests.service.offline guarded imports|outside       all modules; or an attempt to go out
python -m tests.service.offline alone FOLDER                  the whole of it without a network

The first two watch the calls of Python (`sys.addaudithook`). The third has a network namespace of
its own with nothing but loopback, and prints how many packets the kernel could not send anywhere:
compiled code, which Python does not see, is counted too.
"""

from __future__ import annotations

import ipaddress
import os
import pkgutil
import socket
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_ADDRESSES = ("socket.connect", "socket.sendto", "socket.sendmsg")
_NAMES = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")


class LeavesTheMachine(BaseException):
    """Not an Exception, so that nobody catches it on the way."""


def _is_here(host: Any) -> bool:
    if host in (None, "", b"", "localhost", b"localhost"):
        return True
    try:
        return ipaddress.ip_address(str(host).partition("%")[0]).is_loopback
    except ValueError:
        return False


def watch(event: str, args: tuple[Any, ...]) -> None:
    """Refuse to talk to anything but this machine, and say so where it cannot be missed."""
    host: Any = None
    if event in _ADDRESSES:
        address = args[1]
        host = address[0] if isinstance(address, tuple) else None  # others are local sockets
    elif event in _NAMES:
        host = args[0]
    if not _is_here(host):
        os.write(2, f"LEAVES: {event} {host!r}\n".encode())
        raise LeavesTheMachine(f"{event} {host!r}")


def imports() -> None:
    """Every module of the package."""
    import fairwolfe

    names = [one.name for one in pkgutil.walk_packages(fairwolfe.__path__, "fairwolfe.")]
    for name in names:
        if not name.endswith("__main__"):
            import_module(name)
    print(f"{len(names)} modules")


def outside() -> None:
    """What must be refused: an address that nobody has, and a name."""
    refused = 0
    for attempt in (
        lambda: socket.create_connection(("192.0.2.1", 9), 0.1),
        lambda: socket.getaddrinfo("nobody.invalid", 80),
        lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"", ("192.0.2.1", 9)),
        lambda: socket.socket(socket.AF_INET6).connect(("2001:db8::1", 9)),
    ):
        try:
            attempt()
        except LeavesTheMachine:
            refused += 1
    print(f"{refused} refused")


def unsent() -> int:
    """Packets for which this network has no way out (IPv4 and IPv6)."""
    lines = Path("/proc/net/snmp").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("Ip:"))
    four = int(dict(zip(names, values, strict=True))["OutNoRoutes"])
    six = Path("/proc/net/snmp6")
    more = six.read_text().splitlines() if six.exists() else []
    return four + sum(int(line.split()[1]) for line in more if line.startswith("Ip6OutNoRoutes"))


def alone(folder: Path) -> None:
    """A service and its client with loopback only; prints what could not be sent."""
    from tests.service.servers import Server
    from tests.service.test_p22_supply import TEXT, use

    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    begun = unsent()
    imports()
    with Server(folder, TEXT) as server:
        use(server)
        assert server.stop() == 0
    print(f"unsent {unsent() - begun}", flush=True)
    before = unsent()
    try:
        socket.create_connection(("192.0.2.1", 9), 0.1)
    except OSError:
        print(f"unsent {unsent() - before}", flush=True)


def main(how: str, *words: str) -> None:
    if how == "alone":
        alone(Path(words[0]))
        return
    sys.addaudithook(watch)
    if words[0] == "imports":
        imports()
    elif words[0] == "outside":
        outside()
    else:
        from fairwolfe.cli import commands

        commands(list(words), prog_name="fairwolfe")


if __name__ == "__main__":
    main(*sys.argv[1:])
