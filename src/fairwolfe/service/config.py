"""The configuration: one TOML file, checked whole before anything is opened."""

from __future__ import annotations

import ipaddress
import json
import re
import tomllib
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec

from fairwolfe.agent.names import arm_names
from fairwolfe.core.build import build_objective, build_policy, from_text
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput, did_you_mean, require_extra
from fairwolfe.objectives import Concave
from fairwolfe.ranking.policies import recommended
from fairwolfe.service.dictionaries import Encoders, read_encoders

Scope = Literal["decide", "feedback", "read", "admin"]
SCOPES: tuple[Scope, ...] = ("decide", "feedback", "read", "admin")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SECONDS |= {"minutes": 60.0, "hours": 3600.0, "days": 86400.0, "weeks": 7 * 86400.0}
_SECONDS |= {"minute": 60.0, "hour": 3600.0, "day": 86400.0, "week": 7 * 86400.0}
_BYTES = {"B": 1, "kB": 1000, "KiB": 1024, "MB": 1000**2, "MiB": 1024**2}
_LONGEST_WINDOW, _LONGEST_RETAIN = 400 * 86400.0, 4000 * 86400.0
_POSTGRES = ("postgresql://", "postgres://")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_LEASES = (0.5, 60.0)  # seconds
_MOST_KEYS = 256  # the log names the key of a decision by a byte

T = TypeVar("T")


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key that clients may show: its hash, never itself. Two entries of one name: rotation."""

    name: str
    sha256: str
    scopes: tuple[Scope, ...]
    models: tuple[str, ...] | None = None  # patterns of names, such as "shop-*"; None: all
    # Bounds on what this key can ask for, besides those of everybody; None: only those.
    rate: float | None = None  # requests a second
    body: str | int | None = None  # bytes of a request
    candidates: int | None = None  # arms or candidates of a question
    dimensions: int | None = None  # numbers in the features of a question
    open: int | None = None  # decisions of a model that wait for their feedback

    def sees(self, model: str) -> bool:
        """Whether the key is for a model."""
        return self.models is None or any(fnmatchcase(model, one) for one in self.models)


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds on what a client can make the service hold."""

    body: str | int = "1 MiB"  # of a request
    held: str | int = "24 MiB"  # bodies that wait; as much again for what has come in part
    waiting: int = 4096  # requests that wait for their group
    connections: int = 20_000
    open: int = 200_000  # decisions of a model that wait for their feedback: in the first window
    later: int = 10_000_000  # those whose first window has ended, and that wait for later rewards
    candidates: int = 10_000  # arms or candidates of a question
    dimensions: int = 1_000_000  # numbers in the features of a question
    values: int = 50_000  # values in the dictionaries of a question, with their products
    seconds: float = 10.0  # for a request to arrive
    listeners: int = 50  # of the streams of all models


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a model decides, how it learns, and how its feedback is joined."""

    problem: dict[str, Any]
    missing: Literal["zero", "skip"]
    objective: dict[str, Any] | str | None = None
    policy: dict[str, Any] | None = None  # None: the one recommended for the objective
    seed: int = 0
    window: str = "10 min"
    apply: Literal["window", "arrival"] = "window"
    anticipate: bool = True
    items: str | None = None
    start: str | None = None  # an agent's file, whose knowledge it begins with
    arms: list[str] | None = None  # their names, in the order of every context
    features: dict[str, Any] | None = None  # the encoder of dictionaries
    tolerance: float = 0.001  # how much older than a decision its direction may be: Agent.propose
    audit: bool = False  # keep what decisions were made from, so that each can be made again
    out_of_range: Literal["refuse", "clip", "learn"] = "refuse"  # a reward outside its range


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files of a certificate with its chain, and of its private key, in PEM."""

    certificate: str
    key: str


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A service."""

    state: str  # a folder, or postgresql://USER@HOST/DATABASE
    models: dict[str, ModelConfig]
    listen: str = "127.0.0.1:8710"
    keys: tuple[Key, ...] = ()
    limits: Limits = Limits()
    hosts: tuple[str, ...] = ()  # names of a service without keys, besides localhost
    tls: Tls | None = None  # serve https
    schema: str = "fairwolfe"  # of the log in PostgreSQL
    lease: str = "2 s"  # without a sign of the leader, another process leads
    retain: str | None = None  # closed decisions older than that are exported and deleted
    folder: str = "."  # of the file: paths are relative to it

    def path(self, name: str) -> Path:
        """A path of the configuration."""
        return Path(self.folder) / Path(name).expanduser()

    @property
    def shared(self) -> bool:
        """Whether the log is in PostgreSQL, where other processes can follow it."""
        return self.state.startswith(_POSTGRES)

    @property
    def log(self) -> str:
        """Where the log is, for people."""
        return place_of(self.state) if self.shared else str(self.path(self.state))

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port to listen at."""
        return _address(self.listen)

    @property
    def public(self) -> bool:
        """Whether others than this machine can reach it."""
        return not is_loopback(self.address[0])


class Setup(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the fold of a model rests on: it is written to the log once, and cannot change."""

    name: str
    problem: str  # JSON of the keywords of Problem; a ranking's has no n_items
    policy: str  # its repr
    seed: int
    missing: str
    apply: str
    arms: tuple[str, ...] = ()  # names, where they are given once
    features: str = ""  # JSON of the encoders; empty: none

    def make_problem(self, n_items: int) -> Problem:
        """The problem; n_items: for rankings."""
        return _problem_of(self.problem, n_items)

    def make_policy(self) -> Any:
        """The policy."""
        return _policy_of(self.policy)

    def agrees(self, other: Setup) -> bool:
        """Whether both say the same; a policy can be written in several ways."""
        if msgspec.structs.replace(other, policy=self.policy) != self:
            return False
        return self.policy == other.policy or bool(self.make_policy() == other.make_policy())

    def make_encoders(self) -> Encoders:
        """What dictionaries are encoded with."""
        return Encoders.from_json(self.features)

    @property
    def n_slots(self) -> int:
        """Of a ranking; 0 for arms."""
        return int(json.loads(self.problem).get("n_slots") or 0)


@lru_cache(maxsize=256)  # many models may be alike
def _problem_of(text: str, n_items: int) -> Problem:
    return _problem(json.loads(text), "problem", n_items)


@lru_cache(maxsize=256)
def _policy_of(text: str) -> Any:
    return from_text(text)


def read(path: Path, listen: str | None = None) -> Config:
    """The configuration of a file; `listen` instead of its own."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInput(f"{path} cannot be read: {reason}; give a TOML file") from error
    return parse(text, str(path.parent), listen, str(path))


def parse(text: str, folder: str = ".", listen: str | None = None, path: str = "config") -> Config:
    """The configuration that a text says.

    >>> parse('stat = "s"')
    Traceback (most recent call last):
    ...
    fairwolfe.errors.InvalidInput: config: stat is unknown; did you mean 'state'? Known are: ...
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from error
    try:
        if listen is not None:
            table["listen"] = listen
        return _checked(table, folder)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error


def _checked(table: dict[str, Any], folder: str) -> Config:
    _known(table, Config, "")
    _known(table.get("limits", {}), Limits, "limits.")
    _known(table.get("tls", {}), Tls, "tls.")
    for i, key in enumerate(_list(table.get("keys", []), "keys")):
        _known(key, Key, f"keys.{i}.")
    models = table.get("models", {})
    if not isinstance(models, dict) or not models:
        raise InvalidInput("models is missing; give at least one table [models.NAME]")
    for name, model in models.items():
        if not _NAME.fullmatch(name):
            raise InvalidInput(
                f"a model is called {name!r:.80}; names are letters, digits and _ . - and begin "
                "with a letter or digit, at most 64"
            )
        _known(model, ModelConfig, f"models.{name}.")
        if "missing" not in model:
            raise InvalidInput(
                f'models.{name}.missing is not given; give "zero" (where nothing came back, '
                "nothing was earned: right where every page reports) or "
                '"skip" (it is unknown and left out: right where reports get lost). No default '
                "fits both"
            )
    config = _convert({**table, "folder": folder}, Config)
    _check_state(config, table)
    _check_numbers(config)
    if config.public and not config.keys:
        raise InvalidInput(
            f"listen is {config.listen!r}, which others can reach, and there are no [[keys]]; make "
            "one with `fairwolfe keys new`, or listen at 127.0.0.1"
        )
    for name in config.models:
        setup(config, name)
    return config


def place_of(url: str) -> str:
    """A database for people to read: without parameters.

    >>> place_of("postgresql://shop@db1,db2/shop?sslmode=verify-full")
    'postgresql://shop@db1,db2/shop'
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))


def _check_state(config: Config, table: dict[str, Any]) -> None:
    """Nothing here repeats the address: it may hold a password."""
    if not config.shared:
        for name in ("schema", "lease"):
            if name in table:
                raise InvalidInput(
                    f"{name} is for a log in PostgreSQL, and state is a folder; leave it out, or "
                    'give state = "postgresql://USER@HOST/DATABASE"'
                )
        return
    if config.retain is not None:
        raise InvalidInput(
            "retain is for a log in a state folder, and state is a database; leave it out, and see "
            "`fairwolfe log export`"
        )
    parts = urlsplit(config.state)
    if parts.password is not None or "password" in parts.query.lower():
        raise InvalidInput(
            "state holds a password; leave it out, and give it in the environment variable "
            "PGPASSWORD, or in a file that PGPASSFILE names"
        )
    if not _SCHEMA.fullmatch(config.schema):
        raise InvalidInput(
            f"schema is {config.schema!r:.80}; give small letters, digits and _, at most 63"
        )
    low, high = _LEASES
    if not low <= seconds("lease", config.lease) <= high:
        raise InvalidInput(f"lease is {config.lease!r}; give from {low:g} s to {high:g} s")


def _check_numbers(config: Config) -> None:
    _check_positive("limits", config.limits)
    if config.retain is not None:
        seconds("retain", config.retain, _LONGEST_RETAIN)
        require_extra("lab", "retain", "pyarrow")
    assert config.address
    if len(config.keys) > _MOST_KEYS:
        raise InvalidInput(f"keys has {len(config.keys)} entries; at most {_MOST_KEYS} are taken")
    for i, key in enumerate(config.keys):
        if not re.fullmatch(r"[0-9a-f]{64}", key.sha256):
            raise InvalidInput(
                f"keys.{i}.sha256 is {key.sha256!r:.20}...; give the 64 hexadecimal digits that "
                "`fairwolfe keys new` prints, never the key itself"
            )
        if not key.scopes:
            raise InvalidInput(f"keys.{i}.scopes is empty; give some of {', '.join(SCOPES)}")
        if key.models is not None and not key.models:
            raise InvalidInput(f"keys.{i}.models is empty; name models, or leave it out for all")
        _check_positive(f"keys.{i}", key)


def _check_positive(path: str, bounds: Limits | Key) -> None:
    for name in bounds.__struct_fields__:
        given = getattr(bounds, name)
        if name in ("body", "held") and given is not None:
            bytes_of(f"{path}.{name}", given)
        elif isinstance(given, int | float) and not given > 0:
            raise InvalidInput(f"{path}.{name} is {given}; give a positive number")


def setup(config: Config, name: str) -> Setup:
    """What the fold of a model rests on, built and tried."""
    model = config.models[name]
    text = repr(model)
    if text not in _TRIED:
        _TRIED[text] = _setup(model, f"models.{name}")
    return msgspec.structs.replace(_TRIED[text], name=name)


_TRIED: dict[str, Setup] = {}  # by the text of a model: many may be alike


def _setup(model: ModelConfig, path: str) -> Setup:
    table, _ = _staged(model, path)
    problem = _problem(table, f"{path}.problem", int(table.get("n_slots") or 1))
    objective: Concave | None = None
    if model.objective is not None:
        objective = build_objective(model.objective, f"{path}.objective")
    policy = _policy(model, path, objective, problem)
    try:
        rebuilt = from_text(repr(policy))
    except InvalidInput as error:
        raise InvalidInput(
            f"{path}.policy: {error}; the log keeps a policy by its text, so give classes of the "
            "registry (an entry point makes one of your own such a class)"
        ) from error
    if rebuilt != policy:
        raise InvalidInput(f"{path}.policy is not what its own text says: {policy!r:.200}")
    if model.seed < 0:
        raise InvalidInput(f"{path}.seed is {model.seed}; give a whole number of at least 0")
    if not 0.0 <= model.tolerance <= 1.0:
        raise InvalidInput(f"{path}.tolerance is {model.tolerance}; give a number from 0 to 1")
    if model.items is not None and problem.kind != "ranking":
        raise InvalidInput(f"{path}.items is for rankings, and the problem has arms")
    arms: tuple[str, ...] = ()
    if model.arms is not None:
        try:
            arms = arm_names(model.arms, problem).all
        except InvalidInput as error:
            raise InvalidInput(f"{path}.arms: {error}") from error
    features = ""
    if model.features is not None:
        encoders = read_encoders(model.features, problem, f"{path}.features")
        features = encoders.to_json(problem)
    if problem.kind != "ranking":  # that of a ranking depends on how many items there are
        try:
            policy.init(problem)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from error
    text = json.dumps(dict(sorted(table.items())))  # rewards keep their order, which has a meaning
    begun = (model.seed, model.missing, model.apply)
    return Setup("", text, repr(policy), *begun, arms, features)


def _policy(model: ModelConfig, path: str, objective: Concave | None, problem: Problem) -> Any:
    if model.policy is not None:
        default = {"objective": objective, "anticipate": model.anticipate}
        return build_policy(model.policy, f"{path}.policy", **default)
    if objective is None:
        raise InvalidInput(f"{path} has neither an objective nor a policy; give an objective")
    return replace(recommended(objective, problem), anticipate=model.anticipate)


def windows_of(config: Config) -> dict[str, tuple[float, ...]]:
    """The windows of each model in seconds, from stage to stage."""
    return {name: _staged(one, f"models.{name}")[1] for name, one in config.models.items()}


def _staged(model: ModelConfig, path: str) -> tuple[dict[str, Any], tuple[float, ...]]:
    """The problem of a model with the stages of its rewards, as `Problem` takes it, and the window
    of each: rewards with one window are a stage, and those without one have that of the model.

    >>> kept = {"range": [0, 1], "window": "30 d"}
    >>> rewards = {"clicks": [0, 1], "kept": kept}
    >>> table, each = _staged(ModelConfig({"rewards": rewards}, "zero"), "models.router")
    >>> table["rewards"], table["stages"], each
    ({'clicks': [0, 1], 'kept': [0, 1]}, [['clicks'], ['kept']], (600.0, 2592000.0))
    """
    common = seconds(f"{path}.window", model.window)
    table, given = dict(model.problem), model.problem.get("rewards")
    if "stages" in table:
        raise InvalidInput(
            f"{path}.problem.stages is not given here: rewards with one window are a stage, such "
            'as returned = { range = [0, 1], window = "30 d" }'
        )
    if not isinstance(given, dict) or not any(isinstance(one, dict) for one in given.values()):
        return table, (common,)
    ranges: dict[str, Any] = {}
    each: dict[str, float] = {}
    for name, one in given.items():
        where = f"{path}.problem.rewards.{name}"
        ranges[name], each[name] = one, common
        if isinstance(one, dict):
            if "range" not in one or not one.keys() <= {"range", "window"}:
                raise InvalidInput(
                    f"{where} is {one!r:.80}; give its range, and the window in which it arrives, "
                    'such as { range = [0, 1], window = "30 min" }'
                )
            ranges[name] = one["range"]
            if "window" in one:
                each[name] = seconds(f"{where}.window", str(one["window"]))
    order = sorted(each, key=each.__getitem__)
    if order != list(each):
        raise InvalidInput(
            f"{path}.problem.rewards are {', '.join(each)}; rewards arrive in stages by their "
            f"windows, and the shortest comes first: list them as {', '.join(order)} (numbers that "
            "an objective has by place, such as weights, move with them)"
        )
    spans = sorted(set(each.values()))
    table["rewards"] = ranges
    if len(spans) > 1:
        table["stages"] = [[name for name in each if each[name] == span] for span in spans]
    return table, tuple(spans)


def _problem(table: dict[str, Any], path: str, n_items: int) -> Problem:
    given = dict(table)
    kind = given.pop("kind", None)
    if kind not in ("arms", "ranking"):
        raise InvalidInput(f"{path}.kind is {kind!r}; give 'arms' or 'ranking'")
    if kind == "ranking" and "n_slots" not in given:
        raise InvalidInput(f"{path}.n_slots is missing; say how many items a ranking shows")
    known = {"n_features", "rewards", "stages", "feature_norm", "parameter_norm", "noise"}
    known |= {"n_slots"} if kind == "ranking" else {"n_arms"}
    for key in given:
        if key == "n_items":
            raise InvalidInput(
                f"{path}.{key} is not given here: items come by POST, or from `items`"
            )
        if key not in known:
            raise InvalidInput(f"{path}.{key} is unknown; {did_you_mean(key, known)}")
    if "n_features" not in given:
        raise InvalidInput(f"{path}.n_features is missing; say how many features there are")
    if isinstance(given["n_features"], list):
        given["n_features"] = tuple(given["n_features"])
    if kind == "ranking":
        given["n_items"] = n_items
    try:
        return Problem(**given)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error


def seconds(path: str, text: str, most: float = _LONGEST_WINDOW) -> float:
    """A span of time such as "10 min", in seconds.

    >>> seconds("window", "20 s"), seconds("window", "1.5min")
    (20.0, 90.0)
    """
    quantity = _QUANTITY.fullmatch(text.strip())
    if not quantity or quantity[2] not in _SECONDS:
        raise InvalidInput(
            f"{path} is {text!r:.80}; give a number and one of ms, s, min, h, d, minutes, hours, "
            'days or weeks, such as "10 min"'
        )
    span = float(quantity[1]) * _SECONDS[quantity[2]]
    if not 0.0 < span <= most:
        days = f"{most / 86400:g} d"
        raise InvalidInput(f"{path} is {text!r:.80}; give more than 0 s and at most {days}")
    return span


def bytes_of(path: str, given: str | int) -> int:
    """A number of bytes such as "1 MiB".

    >>> bytes_of("body", "64 KiB"), bytes_of("body", 100)
    (65536, 100)
    """
    quantity = _QUANTITY.fullmatch(given.strip()) if isinstance(given, str) else None
    size = given if isinstance(given, int) else 0
    if quantity and quantity[2] in _BYTES:
        size = int(float(quantity[1]) * _BYTES[quantity[2]])
    if size <= 0:
        raise InvalidInput(
            f"{path} is {given!r:.80}; give a number of bytes, or one with {', '.join(_BYTES)}"
        )
    return size


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InvalidInput(f"listen is {listen!r:.80}; give HOST:PORT, such as 127.0.0.1:8710")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its address or as localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _known(table: Any, kind: type[msgspec.Struct], path: str) -> None:
    """Raise for an unknown key, with the nearest one."""
    if not isinstance(table, dict):
        raise InvalidInput(f"{path.rstrip('.')} is {table!r:.80}; give a table")
    for key in table:
        known = [name for name in kind.__struct_fields__ if name != "folder"]
        if key not in known:
            raise InvalidInput(f"{path}{key} is unknown; {did_you_mean(key, known)}")


def _list(given: Any, path: str) -> list[Any]:
    if not isinstance(given, list):
        raise InvalidInput(f"{path} is {given!r:.80}; give tables [[{path}]]")
    return given


def _convert(table: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `")
        place = where.rstrip("`").replace("$.", "").replace("[...]", "") or "the file"
        raise InvalidInput(f"{place}: {what[:1].lower()}{what[1:]}") from error
