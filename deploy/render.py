"""Write the dashboards, and the copies of rules and dashboards in chart and overlays: `python deploy/render.py`.

`tests/deploy/test_rendered.py` checks that they are up to date.
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
    release: kube-prometheus-stack
spec:
"""

sys.path.insert(0, str(DEPLOY / "grafana"))
from dashboards import DASHBOARDS  # noqa: E402 - beside the JSON that it renders, outside the package


def rendered() -> dict[Path, str]:
    """The text of each rendered file. Helm reads only files in the chart, kustomize only files in the overlay."""
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
