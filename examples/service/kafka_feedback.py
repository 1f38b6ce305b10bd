"""Feedback from a broker: read entries from Kafka and report them to the service.

    python kafka_feedback.py localhost:9092 feedback router

A message is an entry as on the wire: {"id": "...", "rewards": {"clicks": 1}}. Offsets are committed
after the service has acknowledged the entries. A bridge that is killed in between reads them again,
and the service answers `known`: every entry counts once. Entries that the service rejects go to the
topic feedback-rejected; while it is overloaded or away, the partitions pause.
"""

import json
import os
import sys
import time

from fairwolfe.client import Client
from fairwolfe.errors import InvalidInput, NotFound, Unavailable

MOST = 1000  # entries of a request
ADDRESS = os.environ.get("FAIRWOLFE", "http://127.0.0.1:8710")


def report(client, model, values, reject, wait):
    """Return when every entry is stored, or was given to `reject` with the reason."""
    entries = []
    for value in values:
        try:
            entries.append((value, dict(json.loads(value))))
        except (ValueError, TypeError) as error:
            reject(value, f"not an entry in JSON: {error}")
    _send(client, model, entries, reject, wait)


def _send(client, model, entries, reject, wait):
    while entries:
        try:
            client.feedback_many(model, [entry for _, entry in entries])
            return
        except NotFound:  # the model, not an entry
            raise
        except Unavailable:  # 429, 503, or no answer; the client has tried for its deadline
            wait()
        except InvalidInput as error:  # nothing was stored: find the entries that are wrong
            if len(entries) == 1:
                reject(entries[0][0], str(error))
                return
            half = len(entries) // 2
            _send(client, model, entries[:half], reject, wait)
            entries = entries[half:]


def kafka(consumer, producer, client, model, topic, running=lambda: True):
    """confluent_kafka.Consumer and Producer, enable.auto.commit off."""

    def reject(value, reason):
        producer.produce(f"{topic}-rejected", value, headers={"reason": reason})

    def wait():
        consumer.pause(consumer.assignment())
        consumer.poll(1.0)  # nothing comes, and the group knows that this consumer is alive
        consumer.resume(consumer.assignment())

    consumer.subscribe([topic])
    while running():
        messages = [one for one in consumer.consume(MOST, timeout=1.0) if one.error() is None]
        if messages:
            report(client, model, [one.value() for one in messages], reject, wait)
            producer.flush()
            consumer.commit(asynchronous=False)


def redis_streams(redis, client, model, stream, running=lambda: True):
    """redis.Redis; the group `fairwolfe` exists. What was read and not acknowledged comes first."""
    last = "0"
    while running():
        found = redis.xreadgroup("fairwolfe", "bridge", {stream: last}, count=MOST, block=1000)
        messages = found[0][1] if found else []
        if messages:
            values = [fields[b"entry"] for _, fields in messages]
            dead = lambda value, reason: redis.xadd(  # noqa: E731
                f"{stream}-rejected", {"entry": value, "reason": reason}
            )
            report(client, model, values, dead, lambda: time.sleep(1.0))
            redis.xack(stream, "fairwolfe", *(number for number, _ in messages))
        last = last if last == "0" and messages else ">"


def sqs(queue, rejected, client, model, running=lambda: True):
    """boto3's Queue objects; the visibility timeout is longer than the service may be away."""
    while running():
        messages = queue.receive_messages(MaxNumberOfMessages=10, WaitTimeSeconds=20)
        if messages:
            dead = lambda value, reason: rejected.send_message(MessageBody=value)  # noqa: E731
            report(client, model, [one.body for one in messages], dead, lambda: time.sleep(1.0))
            entries = [
                {"Id": one.message_id, "ReceiptHandle": one.receipt_handle} for one in messages
            ]
            queue.delete_messages(Entries=entries)


if __name__ == "__main__":
    from confluent_kafka import Consumer, Producer

    servers, topic, model = sys.argv[1:]
    settings = {"bootstrap.servers": servers}
    group = {"group.id": "fairwolfe", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    reader = Consumer(settings | group)
    try:
        kafka(reader, Producer(settings), Client(ADDRESS, deadline=10.0), model, topic)
    finally:
        reader.close()
