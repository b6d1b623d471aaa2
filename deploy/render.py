"""Write the dashboards, the copies of rules and dashboards in chart and overlays, and the chart's README:
`python deploy/render.py`.

`tests/deploy/test_rendered.py` checks that they are up to date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parent
CHART = DEPLOY / "helm/gpufault/files"
RULES = DEPLOY / "prometheus/rules.yml"
MAX_DEFAULT_CHARS = 60
README = """<!-- Made by deploy/render.py from values.schema.json and values.yaml. Do not edit. -->

# gpufault

Find out why GPU jobs crash across your fleet: a daemon on each GPU node reads the logs of all pods and the kernel log. It
counts each crash once, with its pod and its root cause, and serves counters for Prometheus. Needs Kubernetes 1.25 or newer and
Helm 3.

Beside kube-prometheus-stack, one value gives scraped targets, alerts, four dashboards and the fleet's pages:

```console
$ helm install gpufault deploy/helm/gpufault --namespace gpufault --create-namespace \\
    --set image.registry=registry.example.org/hpc --set kubePrometheusStack.enabled=true
```

`docs/install-kubernetes.md` has the rest: image, privileges, mounts, outputs, upgrades. Examples of values are in `ci/`.
Values that contradict each other are refused when the chart is rendered, all at once, each with its remedy.

## Values

| value | type | default | meaning |
| --- | --- | --- | --- |
{values}"""

sys.path.insert(0, str(DEPLOY / "grafana"))
from dashboards import DASHBOARDS  # noqa: E402 - beside the JSON that it renders, outside the package


def value_rows(schema: Mapping[str, Any], defaults: Any, above: str = "") -> Iterator[str]:
    """A row of the README for each value that the schema describes, in the order of values.yaml."""
    for name, default in defaults.items():
        part = schema["properties"][name]
        if "description" in part or "properties" not in part:
            shown = "" if default in (None, "", [], {}) else f"`{json.dumps(default)}`"
            shown = shown if len(shown) <= MAX_DEFAULT_CHARS else "in values.yaml"
            cells = (f"`{above}{name}`", value_type(part), shown, part.get("description", ""))
            yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |\n"
        else:
            yield from value_rows(part, default, f"{above}{name}.")


def value_type(part: Mapping[str, Any]) -> str:
    """The type of a value in words."""
    if "enum" in part:
        return ", ".join(f"`{json.dumps(value).strip(chr(34)) or 'empty'}`" for value in part["enum"])
    return str(part.get("type", "object"))


def rendered() -> dict[Path, str]:
    """The text of each rendered file. Helm reads only files in the chart."""
    rules = RULES.read_text(encoding="utf-8")
    schema = json.loads((CHART.parent / "values.schema.json").read_text(encoding="utf-8"))
    defaults = yaml.safe_load((CHART.parent / "values.yaml").read_text(encoding="utf-8"))
    texts = {
        CHART.parent / "README.md": README.format(values="".join(value_rows(schema, defaults))),
        CHART / "rules.yaml": rules,
    }
    for name, make in DASHBOARDS.items():
        text = json.dumps(make(), indent=1, ensure_ascii=False) + "\n"
        texts[DEPLOY / f"grafana/{name}.json"] = texts[CHART / f"dashboards/{name}.json"] = text
    return texts


if __name__ == "__main__":
    for path, text in rendered().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
