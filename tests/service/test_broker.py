"""Feedback from a broker (examples/service/kafka_feedback.py): a bridge that is killed between the
acknowledgement and the commit reports again, and every entry counts once. Kafka is played by a
consumer in memory that keeps a log and a committed offset; Redis Streams is real.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from importlib.util import module_from_spec, spec_from_file_location
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairwolfe.agent.file import read_from
from fairwolfe.client import Client
from fairwolfe.errors import NotFound
from fairwolfe.service.log_file import LogFile, place_of
from fairwolfe.service.recovery import recover
from tests.service.servers import ROOT, Server, config, wait_for
from tests.service.shop import free_port

FILE = ROOT / "examples" / "service" / "kafka_feedback.py"
TEXT = config("10 min", both=False).replace("[models.router]", '[models.router]\napply = "arrival"')
N = 60


@pytest.fixture(scope="module")
def bridge() -> Any:
    spec = spec_from_file_location("kafka_feedback", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def decide(client: Client, n: int = N) -> list[bytes]:
    """The messages about n decisions, always the same ones but for their ids."""
    rng = np.random.default_rng(0)
    messages = []
    for _ in range(n):
        made = client.decide("router", arms=(rng.normal(size=(4, 5)) / 4).tolist())
        rewards = {"clicks": int(rng.random() < 0.5), "minutes": round(10 * rng.random(), 3)}
        messages.append(json.dumps({"id": made.id, "rewards": rewards}).encode())
    return messages


def learnt(folder: Path) -> Any:
    """What the agent of a service that has ended knows: every array, bit for bit."""
    with closing(LogFile(place_of(folder / "config.toml"))) as log:
        (model,) = recover(log).models.values()
    assert model.agent is not None
    _, arrays = read_from(BytesIO(model.agent.dump()), "the agent")
    return {name: array.tobytes() for name, array in arrays.items()}, model.counts


class Killed(Exception):
    """kill -9: nothing after it happens."""


class Message:
    def __init__(self, value: bytes) -> None:
        self._value = value

    def value(self) -> bytes:
        return self._value

    def error(self) -> None:
        return None


class Topic:
    """The log of a partition, and how far the group has committed."""

    def __init__(self, messages: list[bytes]) -> None:
        self.messages, self.committed = messages, 0
        self.rejected: list[tuple[bytes, str]] = []


class Consumer:
    """What the bridge uses of confluent_kafka's: it begins at the committed offset, as a consumer
    that joins after another was killed.
    """

    def __init__(self, topic: Topic, dies_at: int = -1, size: int = 25) -> None:
        self.topic, self.at, self.dies_at, self.size = topic, topic.committed, dies_at, size
        self.paused = self.pauses = 0

    def subscribe(self, topics: list[str]) -> None:
        assert topics == ["feedback"]

    def consume(self, most: int, timeout: float) -> list[Message]:
        assert most == 1000
        assert not self.paused
        found = self.topic.messages[self.at : self.at + self.size]
        self.at += len(found)
        return [Message(one) for one in found]

    def commit(self, asynchronous: bool) -> None:
        assert not asynchronous
        if self.at >= self.dies_at >= 0:
            raise Killed
        self.topic.committed = self.at

    def assignment(self) -> list[int]:
        return [0]

    def pause(self, partitions: list[int]) -> None:
        self.paused, self.pauses = 1, self.pauses + 1

    def poll(self, timeout: float) -> None:
        assert self.paused

    def resume(self, partitions: list[int]) -> None:
        self.paused = 0

    @property
    def behind(self) -> bool:
        return self.topic.committed < len(self.topic.messages)


class Producer:
    def __init__(self, topic: Topic) -> None:
        self.topic = topic

    def produce(self, name: str, value: bytes, headers: dict[str, str]) -> None:
        assert name == "feedback-rejected"
        self.topic.rejected.append((value, headers["reason"]))

    def flush(self) -> None:
        pass


def run(bridge: Any, client: Client, topic: Topic, **how: Any) -> Consumer:
    consumer = Consumer(topic, **how)
    bridge.kafka(consumer, Producer(topic), client, "router", "feedback", lambda: consumer.behind)
    return consumer


def test_a_bridge_killed_before_its_commit_counts_every_entry_once(
    bridge: Any, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("whole", "killed")]
    for folder in folders:
        folder.mkdir()
        with Server(folder, TEXT) as server, Client(server.url) as client:
            topic = Topic(decide(client))
            if folder.name == "killed":
                for dies_at in (25, 50):  # after the first batch, and after the second
                    with pytest.raises(Killed):
                        run(bridge, client, topic, dies_at=dies_at)
            run(bridge, client, topic)
            assert topic.committed == N
            assert topic.rejected == []
            assert server.stop() == 0
    (one, counts), (other, again) = map(learnt, folders)
    assert one == other
    assert (counts["known"], again["known"]) == (0, 50)
    assert counts["joined"] == again["joined"] == N


def test_what_the_service_rejects_goes_to_the_dead_letters_and_nothing_else_does(
    bridge: Any, tmp_path: Path
) -> None:
    with Server(tmp_path, TEXT) as server, Client(server.url) as client:
        good = decide(client, 20)
        wrong = [
            b"not JSON",
            b"[1, 2]",
            json.dumps({"id": json.loads(good[3])["id"], "rewards": {"clicks": "one"}}).encode(),
            json.dumps({"rewards": {"clicks": 1}}).encode(),
        ]
        mixed = [*good[:7], wrong[0], wrong[2], *good[7:19], wrong[1], wrong[3], good[19]]
        topic = Topic(mixed)
        run(bridge, client, topic)
        assert sorted(value for value, _ in topic.rejected) == sorted(wrong)
        assert all(reason for _, reason in topic.rejected)
        assert server.get("/v1/models/router")["joined"] == 20
        with pytest.raises(NotFound):  # a wrong model rejects no entry
            bridge.report(client, "missing", good, topic.rejected.append, lambda: None)


def test_the_partitions_pause_while_the_service_is_away(bridge: Any, tmp_path: Path) -> None:
    port = free_port()
    text = TEXT.replace("127.0.0.1:0", f"127.0.0.1:{port}")
    with Server(tmp_path, text) as server, Client(server.url, deadline=0.3) as client:
        topic = Topic(decide(client, 30))
        server.kill()
        consumer = Consumer(topic)
        poll = consumer.poll

        def back(timeout: float) -> None:
            poll(timeout)
            if consumer.pauses == 2:
                server.start()

        consumer.poll = back  # type: ignore[method-assign]
        bridge.kafka(
            consumer, Producer(topic), client, "router", "feedback", lambda: consumer.behind
        )
        assert consumer.pauses >= 2
        assert server.get("/v1/models/router")["joined"] == 30


# --- Redis Streams, for real ---------------------------------------------------------------------


class Redis:
    """The few commands that the bridge needs, as redis-py has them, over a socket."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30.0)
        self.file = self.socket.makefile("rb")

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def call(self, *words: Any) -> Any:
        parts = [one if isinstance(one, bytes) else str(one).encode() for one in words]
        head = b"*%d\r\n" % len(parts)
        self.socket.sendall(head + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
        return self._answer()

    def _answer(self) -> Any:
        line = self.file.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self._answer() for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest

    def xreadgroup(
        self, group: str, name: str, streams: dict[str, str], count: int, block: int
    ) -> Any:
        ((stream, last),) = streams.items()
        words = ("COUNT", count, "BLOCK", block, "STREAMS", stream, last)
        found = self.call("XREADGROUP", "GROUP", group, name, *words) or []
        return [
            [key, [(number, dict(zip(f[::2], f[1::2], strict=True))) for number, f in messages]]
            for key, messages in found
        ]

    def xack(self, stream: str, group: str, *numbers: bytes) -> int:
        return int(self.call("XACK", stream, group, *numbers))

    def xadd(self, stream: str, fields: dict[str, Any]) -> bytes:
        return bytes(self.call("XADD", stream, "*", *(x for pair in fields.items() for x in pair)))


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    port = free_port()
    command = [shutil.which("redis-server") or "", "--port", str(port), "--bind", "127.0.0.1"]
    process = subprocess.Popen(
        [*command, "--dir", str(tmp_path), "--save", "", "--daemonize", "no"],
        stdout=subprocess.DEVNULL,
    )
    try:
        opened: list[Redis] = []

        def answers() -> bool:
            try:
                opened.append(Redis(port))
            except OSError:
                return False
            return True

        wait_for(answers)
        with closing(opened[0]):
            yield opened[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@pytest.mark.needs("redis")
def test_redis_streams_lose_and_double_nothing(bridge: Any, redis: Redis, tmp_path: Path) -> None:
    with Server(tmp_path, TEXT) as server, Client(server.url) as client:
        messages = decide(client, 30)
        redis.call("XGROUP", "CREATE", "feedback", "fairwolfe", "0", "MKSTREAM")
        for value in [*messages, b"not JSON"]:
            redis.xadd("feedback", {"entry": value})
        acknowledge, redis.xack = redis.xack, _killed  # type: ignore[method-assign, assignment]
        with pytest.raises(Killed):
            bridge.redis_streams(redis, client, "router", "feedback")
        assert redis.call("XPENDING", "feedback", "fairwolfe")[0] == 31
        redis.xack = acknowledge  # type: ignore[method-assign]
        rounds = iter((True, True, True, False))
        bridge.redis_streams(redis, client, "router", "feedback", lambda: next(rounds))
        assert redis.call("XPENDING", "feedback", "fairwolfe")[0] == 0
        found = server.get("/v1/models/router")
        assert (found["joined"], found["known"], found["unknown"]) == (30, 30, 0)
        dead = redis.call("XRANGE", "feedback-rejected", "-", "+")
        assert {fields[1] for _, fields in dead} == {b"not JSON"}


def _killed(*arguments: Any) -> int:
    raise Killed
