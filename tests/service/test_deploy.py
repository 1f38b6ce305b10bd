"""The manifests of deploy/: read, and compared with the command, the routes and the configuration.
Nothing of them is run here, except their probes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from fairwolfe.cli import commands
from fairwolfe.service.config import parse
from fairwolfe.service.keys import new_key
from fairwolfe.service.routes import ROUTES
from tests.service.pair import Node
from tests.service.postgres import Postgres
from tests.service.servers import ROOT, config, wait_for

FOLDER = ROOT / "deploy"
CONFIG = parse((FOLDER / "fairwolfe.toml").read_text())
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
KUBERNETES = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
(SET,) = (one for one in KUBERNETES if one["kind"] == "StatefulSet")
POD = SET["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
PORT = CONFIG.address[1]


def commands_of() -> Iterator[list[str]]:
    yield CONTAINER["command"]
    for name in ("a", "b"):
        yield COMPOSE["services"][name]["entrypoint"]


def probes() -> list[list[str]]:
    """What is run to see whether a container is alive."""
    found = [CONTAINER[name]["exec"]["command"] for name in PROBES]
    tests = [COMPOSE["services"][name]["healthcheck"]["test"] for name in ("a", "b")]
    assert all(test[0] == "CMD" for test in tests)
    return [*found, *(test[1:] for test in tests)]


def test_the_configuration_is_one_for_two_machines() -> None:
    assert CONFIG.shared
    assert CONFIG.public
    assert CONFIG.keys
    host = CONFIG.log.partition("@")[2].partition("/")[0]
    own = COMPOSE["services"][host]["environment"]
    assert CONFIG.log == f"postgresql://{own['POSTGRES_USER']}@{host}/{own['POSTGRES_DB']}"


def test_the_command_is_there() -> None:
    for program, command, path in commands_of():
        assert (program, command) == ("fairwolfe", "serve")
        assert CliRunner().invoke(commands, [command, "--help"]).exit_code == 0
        assert path == "/etc/fairwolfe/fairwolfe.toml"
    (mount,) = CONTAINER["volumeMounts"]
    assert mount["mountPath"] == "/etc/fairwolfe"
    for name in ("a", "b"):
        (volume,) = COMPOSE["services"][name]["volumes"]
        source, target, mode = volume.split(":")
        assert (FOLDER / source).is_file()
        assert (target, mode) == ("/etc/fairwolfe/fairwolfe.toml", "ro")


def test_ports_and_names_agree() -> None:
    (port,) = CONTAINER["ports"]
    assert port["containerPort"] == PORT
    (service,) = (one for one in KUBERNETES if one["kind"] == "Service")
    assert [one["port"] for one in service["spec"]["ports"]] == [PORT]
    assert SET["spec"]["serviceName"] == service["metadata"]["name"]
    labels = SET["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels == SET["spec"]["selector"]["matchLabels"]
    (budget,) = (one for one in KUBERNETES if one["kind"] == "PodDisruptionBudget")
    assert budget["spec"]["selector"]["matchLabels"] == labels
    assert budget["spec"]["minAvailable"] < SET["spec"]["replicas"] == 2
    for name in ("a", "b"):
        (published,) = COMPOSE["services"][name]["ports"]
        assert published.split(":")[0] == "127.0.0.1"
        assert int(published.split(":")[-1]) == PORT
    secret = CONTAINER["envFrom"][0]["secretRef"]["name"]
    assert POD["volumes"][0]["configMap"]["name"] == secret == "fairwolfe"


def test_a_stop_has_more_time_than_the_service_takes() -> None:
    from fairwolfe.service.serve import _GRACE

    assert POD["terminationGracePeriodSeconds"] > _GRACE
    for name in ("a", "b"):
        assert int(COMPOSE["services"][name]["stop_grace_period"].removesuffix("s")) > _GRACE


def test_probes_ask_for_a_route() -> None:
    paths = {route.path for route in ROUTES if route.method == "GET"}
    for command in probes():
        program, option, code = command
        assert (program, option) == ("python", "-c")
        compile(code, "probe", "exec")
        (asked,) = (word for word in code.split('"') if word.startswith("http://"))
        assert asked.removeprefix(f"http://127.0.0.1:{PORT}") in paths


@pytest.mark.needs("postgresql")
def test_probes_pass_on_a_leader_and_on_a_follower(database: Postgres, tmp_path: Path) -> None:
    """And fail where nothing answers, or without the key."""
    key, digest = new_key()
    head = f'state = "{database.url}"\nschema = "probed"\nlisten = "0.0.0.0:0"\n'
    head += f'[[keys]]\nname = "probe"\nsha256 = "{digest}"\nscopes = ["read"]\n'
    nodes: list[Node] = []

    def passes(command: list[str], url: str, shown: str) -> bool:
        code = command[2].replace(f"http://127.0.0.1:{PORT}", url.replace("0.0.0.0", "127.0.0.1"))
        run: dict[str, Any] = {"env": {**os.environ, "FAIRWOLFE_KEY": shown}, "timeout": 60}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, **run)
        return done.returncode == 0

    try:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            nodes.append(Node(tmp_path / name, config(head=head, both=False)).begin())
            wait_for(lambda: nodes[-1].url, 120)
        assert nodes[0].ready
        assert nodes[1].follows
        for command in {tuple(probe) for probe in probes()}:
            for node in nodes:
                assert passes(list(command), node.url, key)
                assert not passes(list(command), node.url, "fw_other")
            assert not passes(list(command), "http://127.0.0.1:9", key)
    finally:
        for node in nodes:
            node.kill()
