"""The bill of materials of a hash-locked install: CycloneDX 1.6, as JSON on standard output.

    python requirements/sbom.py > sbom.cdx.json
    python requirements/sbom.py --lock > serve.txt

It says what requirements/dev.txt says: every package with its version, the SHA-256 of each file
that may be installed, and what needs what. Scope: `required` for what the library and its service
need, `optional` for figures, `excluded` for what only development needs. The same lock gives the
same bytes. With --lock it prints the part of the lock that is required instead, hashes and all,
for an install of the service alone. Needs nothing but Python.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements" / "dev.txt"

_PIN = re.compile(r"([A-Za-z0-9][\w.-]*)==([\w.!+-]+)(?: ; (.*?))?\s*\\")
_HASH = re.compile(r"\s+--hash=sha256:([0-9a-f]{64})(?: \\)?")
_VIA = re.compile(r"\s+#\s+(?:via\s+)?(\S.*)?")
_PROJECT = "fairwolfe"


class Package(NamedTuple):
    """A package of the lock: the condition under which it is installed, hashes, who needs it."""

    name: str
    version: str
    condition: str
    hashes: list[str]
    needed_by: list[str]

    @property
    def purl(self) -> str:
        """Its address, by which others know it."""
        return f"pkg:pypi/{self.name}@{self.version}"


def packages(text: str) -> list[Package]:
    """What a lock holds; ValueError for a line that is not pinned and hashed."""
    found: list[Package] = []
    for number, line in enumerate(text.splitlines(), 1):
        if pin := _PIN.fullmatch(line):
            found.append(Package(pin[1], pin[2], pin[3] or "", [], []))
        elif found and (digest := _HASH.fullmatch(line)):
            found[-1].hashes.append(digest[1])
        elif found and (via := _VIA.fullmatch(line)):
            if via[1] and via[1] != "via":
                found[-1].needed_by.append(via[1])
        elif line.strip():
            raise ValueError(f"line {number} is not a pinned package, a hash or a comment: {line}")
    bare = [package.name for package in found if not package.hashes]
    if bare:
        raise ValueError(f"without a hash: {', '.join(bare)}")
    return found


def _named(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", one, maxsplit=1)[0].lower() for one in requirements}


def _reached(roots: set[str], needs: dict[str, list[str]]) -> set[str]:
    """What roots need, and what that needs."""
    found, left = set(), [name for name in roots if name in needs]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += needs[name]
    return found


def _needs(held: list[Package]) -> dict[str, list[str]]:
    needs: dict[str, list[str]] = {package.name: [] for package in held}
    for package in held:
        for by in package.needed_by:
            if by in needs:
                needs[by].append(package.name)
    return needs


def _required(project: dict[str, Any], needs: dict[str, list[str]]) -> set[str]:
    direct = [*project["dependencies"], *project["optional-dependencies"]["serve"]]
    return _reached(_named(direct), needs)


def service_lock(lock: str, project: dict[str, Any]) -> str:
    """The lines of a lock that the library and its service need."""
    held = packages(lock)
    required = _required(project, _needs(held))
    lines = []
    for package in held:
        if package.name in required:
            condition = f" ; {package.condition}" if package.condition else ""
            hashes = " \\\n    ".join(f"--hash=sha256:{digest}" for digest in package.hashes)
            lines.append(f"{package.name}=={package.version}{condition} \\\n    {hashes}\n")
    return "".join(lines)


def document(lock: str, project: dict[str, Any]) -> dict[str, Any]:
    """The bill; project: that of pyproject.toml."""
    held = packages(lock)
    needs = _needs(held)
    required = _required(project, needs)
    optional = _reached(_named(project["optional-dependencies"]["plot"]), needs) - required
    addresses = {package.name: package.purl for package in held}
    root = f"pkg:pypi/{_PROJECT}@{project['version']}"
    asked = sorted(p.name for p in held if any(by.startswith(_PROJECT) for by in p.needed_by))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, root + lock)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": root,
                "name": _PROJECT,
                "version": project["version"],
                "purl": root,
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": [_component(package, required, optional) for package in held],
        "dependencies": [
            {"ref": root, "dependsOn": [addresses[name] for name in asked]},
            *(
                {"ref": p.purl, "dependsOn": [addresses[n] for n in sorted(needs[p.name])]}
                for p in held
            ),
        ],
    }


def _component(package: Package, required: set[str], optional: set[str]) -> dict[str, Any]:
    scope = "required" if package.name in required else "optional"
    if package.name not in required | optional:
        scope = "excluded"
    told: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        "scope": scope,
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in package.hashes],
    }
    if package.condition:
        told["properties"] = [{"name": f"{_PROJECT}:condition", "value": package.condition}]
    return told


def main() -> int:
    """Print it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    try:
        if sys.argv[1:] == ["--lock"]:
            print(service_lock(LOCK.read_text(), project), end="")
        else:
            print(json.dumps(document(LOCK.read_text(), project), indent=1))
    except ValueError as error:
        print(f"{LOCK.name}: {error}; renew it with make lock", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
