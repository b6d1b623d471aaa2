"""Puts into the chart and the overlays what they hold copies of, each from its one source: `python deploy/render.py`.

A test holds them equal.
"""

from __future__ import annotations

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


def rendered() -> dict[Path, str]:
    """The copies, and what they are to say. Helm reads only what lies in the chart, kustomize what lies in the overlay."""
    rules = RULES.read_text(encoding="utf-8")
    return {
        CHART / "rules.yaml": rules,
        DEPLOY / "kustomize/overlays/prometheus-operator/prometheusrule.yaml": PROMETHEUS_RULE
        + textwrap.indent(rules, "  "),
    }


if __name__ == "__main__":
    for path, text in rendered().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
