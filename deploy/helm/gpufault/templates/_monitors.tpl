{{- /* What a PodMonitor and a ServiceMonitor have in common. In: root, monitor, tls (of the endpoint), access (whether it asks
for the password of `access`). */ -}}
{{- define "gpufault.endpoint" -}}
{{- with .monitor -}}
path: /metrics
interval: {{ .interval }}
scrapeTimeout: {{ .scrapeTimeout }}
scheme: {{ .scheme | default (ternary "https" "http" $.tls) }}
honorLabels: false
{{- with .tlsConfig }}
tlsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .basicAuth }}
basicAuth: {{- toYaml .basicAuth | nindent 2 }}
{{- else if $.access }}
basicAuth:
  username: {name: {{ include "gpufault.accessSecret" $.root }}, key: username}
  password: {name: {{ include "gpufault.accessSecret" $.root }}, key: password}
{{- end }}
{{- with .relabelings }}
relabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- define "gpufault.limits" -}}
{{- if .attachNodeMetadata }}
attachMetadata:
  node: true
{{- end }}
{{- with .podTargetLabels }}
podTargetLabels: {{ toJson . }}
{{- end }}
{{- with .sampleLimit }}
sampleLimit: {{ . }}
{{- end }}
{{- with .labelLimit }}
labelLimit: {{ . }}
{{- end }}
{{- end }}

{{- /* Labels of an object that the stack's Prometheus selects. In: root, labels. */ -}}
{{- define "gpufault.selected" -}}
{{- $labels := deepCopy .labels }}
{{- if .root.Values.kubePrometheusStack.enabled }}
{{- $labels = merge $labels (dict "release" .root.Values.kubePrometheusStack.release) }}
{{- end }}
{{- with $labels }}
{{ toYaml . }}
{{- end }}
{{- end }}
