"""Writes the dashboards, and into chart and overlays what they hold copies of: `python deploy/render.py`.

A test holds all of it to its sources.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

DEPLOY = Path(__file__).parent
CHART = DEPLOY / "helm/gpufault/files"
RULES = DEPLOY / "prometheus/rules.yml"
PROMETHEUS_RULE = """# A copy that deploy/render.py makes of deploy/prometheus/rules.yml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: gpufault
  labels:
    app.kubernetes.io/name: gpufault
spec:
"""

sys.path.insert(0, str(DEPLOY / "grafana"))
from dashboards import DASHBOARDS  # noqa: E402 - beside the JSON that it makes, and no part of the package


def rendered() -> dict[Path, str]:
    """What is made of other files. Helm reads only what lies in the chart, kustomize what lies in the overlay."""
    rules = RULES.read_text(encoding="utf-8")
    texts = {
        CHART / "rules.yaml": rules,
        DEPLOY / "kustomize/overlays/prometheus-operator/prometheusrule.yaml": PROMETHEUS_RULE
        + textwrap.indent(rules, "  "),
    }
    for name, make in DASHBOARDS.items():
        text = json.dumps(make(), indent=1, ensure_ascii=False) + "\n"
        texts[DEPLOY / f"grafana/{name}.json"] = texts[CHART / f"dashboards/{name}.json"] = text
    return texts


if __name__ == "__main__":
    for path, text in rendered().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
