"""Helm as `make go-tools` builds it, what it renders, and the schemas that it is held against."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from kubernetes_validate import utils as schemas
from referencing import Registry, Resource

from tests.deploy.tools import tool
from tests.support.programs import needs

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/gpufault"

OLDEST, NEWEST = "1.25", "1.37"
# A field came with 1.30 (appArmorProfile) and one with 1.31 (recursiveReadOnly), where the chart asks for the version.
VERSIONS = (OLDEST, "1.29", "1.30", "1.31", NEWEST)
# Its API is nobody's schema: tests/deploy/operator decodes it into the operator's own types.
OPERATOR = "monitoring.coreos.com/v1"
OPENSHIFT = "security.openshift.io/v1"

Object = dict[str, Any]


HELM, OPERATOR_TYPES = tool("helm"), tool("operator")
needs_helm = needs(absent=[] if HELM else ["helm"])
needs_operator = needs(absent=[] if OPERATOR_TYPES else ["go"])


def run(*command: str | Path, said: str | None = None) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    done = subprocess.run([str(part) for part in command], input=said, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def template(*options: str | Path, version: str = NEWEST, chart: Path = CHART) -> tuple[int, str, str]:
    """`helm template` as for an install into namespace gpu."""
    assert HELM
    return run(HELM, "template", "gpu", chart, "--namespace", "gpu", "--kube-version", version, *options)


@functools.cache
def rendered(mode: str, version: str = NEWEST) -> str:
    """The chart with ci/MODE-values.yaml."""
    code, text, error = template("--values", CHART / f"ci/{mode}-values.yaml", version=version)
    assert code == 0, error
    return text


def objects(text: str) -> list[Object]:
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def only(text: str, kind: str, name: str | None = None) -> Object:
    """The one object of a kind, and of a name."""
    (found,) = [o for o in objects(text) if o["kind"] == kind and name in (None, o["metadata"]["name"])]
    return found


def pods(text: str) -> Iterator[tuple[str, Object]]:
    """(kind and name, pod spec) of everything that runs."""
    for item in objects(text):
        spec = item if item["kind"] == "Pod" else item.get("spec", {}).get("template", {})
        if "containers" in spec.get("spec", {}):
            yield f"{item['kind']}/{item['metadata']['name']}", spec["spec"]


def violations(text: str, version: str) -> list[str]:
    """What the API of a version of Kubernetes would refuse, unknown fields included."""
    told = []
    for item in objects(text):
        if item["apiVersion"] in (OPERATOR, OPENSHIFT):
            continue
        errors = _validator(item["kind"], item["apiVersion"], version).iter_errors(item)
        told += [f"{item['kind']} {item['metadata']['name']} {e.json_path}: {e.message}" for e in errors]
    return told


@functools.cache
def _validator(kind: str, api_version: str, version: str) -> Draft202012Validator:
    group, _, name = api_version.rpartition("/")
    file = "-".join(part for part in (kind.lower(), group.partition(".")[0], name) if part)
    schema = schemas.schema_contents(f"kubernetes-json-schema/v{version}.0-local-strict/{file}.json", version)
    return Draft202012Validator(schema, registry=_definitions(version))


@functools.cache
def _definitions(version: str) -> Registry[Any]:
    text = schemas.schema_contents(f"kubernetes-json-schema/v{version}.0-local-strict/_definitions.json", version)
    return Resource.from_contents(text) @ Registry()
