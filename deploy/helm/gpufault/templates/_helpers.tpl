{{- define "gpufault.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "gpufault.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 57 | trimSuffix "-" }}
{{- else if contains (include "gpufault.name" .) .Release.Name }}
{{- .Release.Name | trunc 57 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "gpufault.name" .) | trunc 57 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "gpufault.selector" -}}
app.kubernetes.io/name: {{ include "gpufault.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "gpufault.labels" -}}
{{ include "gpufault.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "gpufault.image" -}}
{{- with .Values.image }}
{{- with .registry }}{{ . }}/{{ end }}{{ .repository }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "gpufault.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "gpufault.fullname" .) }}
{{- else }}
{{- .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- /* The configuration file: what the values say, and what follows from the mounts. */ -}}
{{- define "gpufault.config" -}}
{{- $config := deepCopy .Values.config }}
{{- $facts := $config.facts | default dict }}
{{- $_ := set $facts "rootfs" (ternary "/host" "/" .Values.hostFacts.enabled) }}
{{- if not .Values.jobProcesses.enabled }}
{{- $_ := set $facts "processes" nil }}
{{- end }}
{{- $_ := set $config "facts" $facts }}
{{- if .Values.podResources.enabled }}
{{- $jobs := $config.jobs | default dict }}
{{- $_ := set $jobs "pod_resources" "/var/lib/kubelet/pod-resources/kubelet.sock" }}
{{- $_ := set $config "jobs" $jobs }}
{{- end }}
{{- if include "gpufault.packs" . }}
{{- $signatures := $config.signatures | default dict }}
{{- $_ := set $signatures "dirs" (prepend ($signatures.dirs | default list) "/etc/gpufault/signatures.d") }}
{{- $_ := set $config "signatures" $signatures }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- /* The ConfigMap with the site's packs; empty if there are none. */ -}}
{{- define "gpufault.packs" -}}
{{- if .Values.signatures.existingConfigMap }}
{{- .Values.signatures.existingConfigMap }}
{{- else if .Values.signatures.packs }}
{{- include "gpufault.fullname" . }}-signatures
{{- end }}
{{- end }}

{{- /* How a folder of the node is mounted to be read: with all that is mounted in it, where the cluster can. */ -}}
{{- define "gpufault.readOnly" -}}
readOnly: true
{{- if semverCompare ">=1.31-0" .Capabilities.KubeVersion.Version }}
recursiveReadOnly: IfPossible
{{- end }}
{{- end }}

{{- define "gpufault.securityContext" -}}
{{- $capabilities := list "SYSLOG" }}
{{- if or .Values.userLogs.enabled .Values.jobProcesses.enabled (eq .Values.securityProfile "nonroot-filecaps") }}
{{- $capabilities = prepend $capabilities "DAC_READ_SEARCH" }}
{{- end }}
{{- if .Values.jobProcesses.enabled }}
{{- $capabilities = append $capabilities "SYS_PTRACE" }}
{{- end -}}
readOnlyRootFilesystem: true
{{- if eq .Values.securityProfile "privileged" }}
privileged: true
allowPrivilegeEscalation: true
runAsUser: 0
runAsGroup: 0
{{- else }}
privileged: false
capabilities:
  drop: [ALL]
  add: {{ toJson $capabilities }}
{{- if eq .Values.securityProfile "nonroot-filecaps" }}
allowPrivilegeEscalation: true
runAsNonRoot: true
runAsUser: 65534
runAsGroup: 65534
{{- else }}
allowPrivilegeEscalation: false
runAsUser: 0
runAsGroup: 0
{{- end }}
{{- end }}
{{- with .Values.seLinuxOptions }}
seLinuxOptions: {{ toJson . }}
{{- end }}
{{- end }}

{{- /* Neither password nor certificate is known to the kubelet: with a web configuration the image's own program asks,
once a minute, since it takes 0.12 s of a core. */ -}}
{{- define "gpufault.probes" -}}
livenessProbe:
  {{- include "gpufault.probe" (dict "path" "/-/healthy" "port" .port "secret" .secret) | nindent 2 }}
  periodSeconds: {{ ternary 60 20 (not (empty .secret)) }}
  timeoutSeconds: 10
  failureThreshold: {{ ternary 2 6 (not (empty .secret)) }}
readinessProbe:
  {{- include "gpufault.probe" (dict "path" "/-/ready" "port" .port "secret" .secret) | nindent 2 }}
  periodSeconds: {{ ternary 60 15 (not (empty .secret)) }}
  timeoutSeconds: 10
{{- end }}

{{- define "gpufault.probe" -}}
{{- if .secret -}}
exec:
  command: [/opt/gpufault/bin/python, -I, /opt/gpufault/ask.py, "127.0.0.1:{{ .port }}{{ .path }}"]
{{- else -}}
httpGet:
  path: {{ .path }}
  port: http
{{- end }}
{{- end }}

{{- /* What a PodMonitor and a ServiceMonitor have in common. */ -}}
{{- define "gpufault.endpoint" -}}
path: /metrics
interval: {{ .interval }}
scrapeTimeout: {{ .scrapeTimeout }}
scheme: {{ .scheme }}
honorLabels: false
{{- with .tlsConfig }}
tlsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .basicAuth }}
basicAuth: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .relabelings }}
relabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "gpufault.limits" -}}
{{- if .attachNodeMetadata }}
attachMetadata:
  node: true
{{- end }}
{{- with .sampleLimit }}
sampleLimit: {{ . }}
{{- end }}
{{- with .labelLimit }}
labelLimit: {{ . }}
{{- end }}
{{- end }}
