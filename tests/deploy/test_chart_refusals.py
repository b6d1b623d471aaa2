"""Values that do not go together are refused when the chart is rendered, each with its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.deploy.kubernetes import needs_helm, template

pytestmark = [pytest.mark.deploy, needs_helm]

WEB = "web: {existingSecret: web}\n"
PLAIN_WEB = "web: {existingSecret: web, tls: false}\n"
TLS = "tlsConfig: {serverName: gpufault}"
FILES = "config: {sources: [{kind: files, paths: [%s]}]}"
OTLP = "config: {outputs: {otlp: {url: 'http://otel:4318/v1/logs'}}}\n"
STACK = "kubePrometheusStack: {enabled: true}\n"


@pytest.mark.parametrize(
    ("wrong", "what", "remedy"),
    [
        ("podMonitor: {enabled: true}\nserviceMonitor: {enabled: true}",
         "each daemon would be scraped twice", "podMonitor: {enabled: false}\nserviceMonitor: {enabled: true}"),
        ("serviceMonitor: {enabled: true}\nservice: {enabled: false}",
         "serviceMonitor.enabled: selects a Service", "podMonitor: {enabled: true}\nservice: {enabled: false}"),
        (f"{WEB}podMonitor: {{enabled: true, scheme: http, {TLS}}}",
         "podMonitor.scheme: http, and the web configuration in Secret web has TLS",
         f"{WEB}podMonitor: {{enabled: true, {TLS}}}"),
        (f"{WEB}serviceMonitor: {{enabled: true, scheme: http, {TLS}}}",
         "serviceMonitor.scheme: http, and the web configuration in Secret web has TLS",
         "web: {existingSecret: web, tls: false}\nserviceMonitor: {enabled: true, scheme: http}"),
        (f"{WEB}podMonitor: {{enabled: true}}",
         "podMonitor.tlsConfig: Prometheus cannot verify", f"{WEB}podMonitor: {{enabled: true, {TLS}}}"),
        ("podMonitor: {enabled: true, scheme: https}",
         "podMonitor.scheme: https, and no web configuration has TLS", "podMonitor: {enabled: true}"),
        ("fleet: {enabled: true, webExistingSecret: web, serviceMonitor: {enabled: true, scheme: http}}",
         "fleet.serviceMonitor.scheme: http, and the web configuration in Secret web has TLS",
         f"fleet: {{enabled: true, webExistingSecret: web, serviceMonitor: {{enabled: true, {TLS}}}}}"),
        ("nameOverride: crashes", "nameOverride: the label job would be crashes", "nameOverride: my-gpufault"),
        ("podMonitor: {enabled: true, jobLabel: team}\npodLabels: {team: sre}",
         'jobLabel: the label job would be "sre"', "podMonitor: {enabled: true, jobLabel: app.kubernetes.io/name}"),
        (FILES % "/scratch/*/slurm-*.out",
         "config.sources[0]: /scratch/*/slurm-*.out is not mounted",
         f"{FILES % '/scratch/*/slurm-*.out'}\nextraHostPaths: [/scratch]"),
        (FILES % "/var/logs/*.log", "config.sources[0]: /var/logs/*.log is not mounted", FILES % "/var/log/*.log"),
        ("config: {sources: [{kind: files, paths: [/var/log/pods/*/*/*.log], allow_roots: [/var/lib/docker]}]}",
         "/var/lib/docker is not mounted; add its folder to extraHostPaths",
         ("config: {sources: [{kind: files, paths: [/var/log/pods/*/*/*.log], allow_roots: [/var/lib/docker]}]}\n"
         "extraHostPaths: [/var/lib/docker]")),
        ("config: {sources: [{kind: journald, units: [slurmd]}]}",
         "config.sources[0]: the node's journal is not mounted",
         "config: {sources: [{kind: journald, units: [slurmd]}]}\njournald: {enabled: true}"),
        ("config: {sources: [{kind: kmsg, mode: journal}]}",
         "config.sources[0]: the node's journal is not mounted",
         "config: {sources: [{kind: kmsg, mode: journal}]}\njournald: {enabled: true}"),
        ("config: {sources: [{kind: kmsg, mode: kmsg}]}",
         "only a privileged container has /dev/kmsg",
         "config: {sources: [{kind: kmsg, mode: kmsg}]}\nsecurityProfile: privileged"),
        ("config: {journal: {dir: /srv/journal}}",
         "config.journal.dir: /srv/journal is on the read-only root",
         "config: {journal: {dir: /var/lib/gpufault/records}}"),
        ("extraHostPaths: [/var/log]", "extraHostPaths: /var/log is mounted already", "extraHostPaths: [/scratch]"),
        ("podResources: {enabled: true}\nsecurityProfile: nonroot-filecaps",
         "only user 0 may connect to the kubelet's socket", "podResources: {enabled: true}"),
        (f"{OTLP}networkPolicy: {{enabled: true}}",
         "networkPolicy.egress: empty, which cuts off config.outputs.otlp",
         f"{OTLP}networkPolicy: {{enabled: true, egress: [{{ports: [{{port: 4318}}]}}]}}"),
        ("outputs: {webhook: {headersSecret: {name: hook}}}",
         "outputs.webhook: the output has no receiver", "outputs: {webhook: {urlSecret: {name: hook}}}"),
        (f"{OTLP}outputs: {{otlp: {{urlSecret: {{name: otlp}}}}}}",
         "config.outputs.otlp.url names a receiver too", "outputs: {otlp: {urlSecret: {name: otlp}}}"),
        ("config: {outputs: {webhook: {url_file: /etc/hook/url}}}",
         "config.outputs.webhook: /etc/hook/url is not mounted",
         ("config: {outputs: {webhook: {url_file: /etc/hook/url}}}\n"
         "extraVolumes: [{name: hook, secret: {secretName: hook}}]\n"
         "extraVolumeMounts: [{name: hook, mountPath: /etc/hook}]")),
        ("config: {outputs: {textfile: {path: /var/lib/node-exporter/g.prom}}}",
         "config.outputs.textfile: /var/lib/node-exporter/g.prom is not mounted",
         ("config: {outputs: {textfile: {path: /var/lib/node-exporter/g.prom}}}\n"
         "extraVolumes: [{name: text, hostPath: {path: /var/lib/node-exporter}}]\n"
         "extraVolumeMounts: [{name: text, mountPath: /var/lib/node-exporter}]")),
        ("fleet: {enabled: true}\nservice: {enabled: false}",
         "the fleet service finds the daemons by their Service",
         "fleet: {enabled: true, config: {prometheus: {url: 'http://p:9090'}}}\nservice: {enabled: false}"),
        (f"{PLAIN_WEB}fleet: {{enabled: true}}",
         "fleet.config.pull.user: the daemons' users are in Secret web",
         (f"{PLAIN_WEB}fleet: {{enabled: true, existingSecret: s, "
         "config: {pull: {user: fleet, password_file: /etc/gpufault/secrets/password}}}")),
        (f"{WEB}fleet: {{enabled: true, config: {{pull: {{user: fleet}}}}}}",
         "fleet.config.pull.server_name: the certificates cannot name the addresses of pods",
         f"{WEB}fleet: {{enabled: true, config: {{pull: {{user: fleet, server_name: gpufault}}}}}}"),
        ("fleet: {enabled: true, config: {pull: {user: fleet, password_file: /etc/gpufault/secrets/password}}}",
         "/etc/gpufault/secrets/password is not mounted; set fleet.existingSecret",
         ("fleet: {enabled: true, existingSecret: s, "
         "config: {pull: {user: fleet, password_file: /etc/gpufault/secrets/password}}}")),
        ("fleet: {enabled: true, config: {prometheus: {url: 'http://p:9090'}}, networkPolicy: {enabled: true}}",
         "fleet.networkPolicy.egress: empty, which cuts off the Prometheus",
         ("fleet: {enabled: true, config: {prometheus: {url: 'http://p:9090'}}, "
         "networkPolicy: {enabled: true, egress: [{ports: [{port: 9090}]}]}}")),
        ("web: {readers: everyone}\nnetworkPolicy: {enabled: true}",
         "networkPolicy.from: empty admits everyone",
         "web: {readers: everyone}\nnetworkPolicy: {enabled: true, from: [{podSelector: {}}]}"),
        (f"{STACK}fleet: {{serviceMonitor: {{namespace: monitoring}}}}",
         "fleet.serviceMonitor.namespace: the Secret with the password is in gpu",
         f"{STACK}fleet: {{serviceMonitor: {{namespace: monitoring, basicAuth: {{username: {{name: s, key: u}}}}}}}}"),
        (f"{PLAIN_WEB}nodeConditions: {{enabled: true}}",
         "nodeConditions.extraArgs: the daemons' users are in Secret web",
         f"{PLAIN_WEB}nodeConditions: {{enabled: true, existingSecret: s, extraArgs: [--pull.user=conditions]}}"),
        ("extraArgs: [--web.telemetry-path=/m]", "remove --web.telemetry-path", "extraArgs: []"),
    ],
)  # fmt: skip
def test_a_combination_is_refused_and_its_remedy_is_accepted(
    wrong: str, what: str, remedy: str, tmp_path: Path
) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(wrong)
    code, text, error = template("--values", values)
    assert code != 0, text
    assert "these values do not go together:" in error
    assert what in error
    assert error.count("\n- ") == 1, "another problem than the one that is tested"
    values.write_text(remedy)
    code, _, error = template("--values", values)
    assert code == 0, error


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    values = {
        "service": {"enabled": False},
        "serviceMonitor": {"enabled": True},
        "podMonitor": {"enabled": True},
        "extraHostPaths": ["/var/log"],
    }
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    code, _, error = template("--values", tmp_path / "values.yaml")
    assert code != 0
    assert error.count("\n- ") == 3
