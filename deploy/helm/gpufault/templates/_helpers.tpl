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
{{- with .Values.global.imageRegistry | default .Values.image.registry }}{{ trimSuffix "/" . }}/{{ end }}
{{- with .Values.image }}
{{- .repository }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* Secrets for the registry: those of the chart, then those that all charts share, as names or as {name}. */ -}}
{{- define "gpufault.imagePullSecrets" -}}
{{- $names := list }}
{{- range concat .Values.imagePullSecrets (.Values.global.imagePullSecrets | default list) }}
{{- if kindIs "map" . }}{{ $names = append $names .name }}{{ else }}{{ $names = append $names . }}{{ end }}
{{- end }}
{{- with $names | uniq }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
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
{{- range $output, $secrets := .Values.outputs }}
{{- range $kind, $secret := $secrets }}
{{- if $secret.name }}
{{- $outputs := $config.outputs | default dict }}
{{- $own := get $outputs $output | default dict }}
{{- $file := printf "/etc/gpufault/outputs/%s/%s" $output $kind }}
{{- if eq $kind "caSecret" }}
{{- $_ := set $own "tls" (merge (dict "ca_file" $file) ($own.tls | default dict)) }}
{{- else }}
{{- $key := get (dict "urlSecret" "url_file" "headersSecret" "headers_file" "signingSecret" "secret_file") $kind }}
{{- $_ := set $own $key $file }}
{{- end }}
{{- $_ := set $outputs $output $own }}
{{- $_ := set $config "outputs" $outputs }}
{{- end }}
{{- end }}
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
{{- with .Values.seLinuxOptions | default (ternary (dict "type" "spc_t") dict .Values.openshift.enabled) }}
seLinuxOptions: {{ toJson . }}
{{- end }}
{{- end }}

{{- /* A mapping of the chart with what a value lays over it. In: text, over. */ -}}
{{- define "gpufault.laidOver" -}}
{{- if .over }}
{{- toYaml (mergeOverwrite (fromYaml .text) (deepCopy .over)) }}
{{- else }}
{{- .text }}
{{- end }}
{{- end }}

{{- /* Fields of a pod that most sites leave alone. In: the values of the daemon or of the fleet service. */ -}}
{{- define "gpufault.podFields" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- if kindIs "bool" .hostUsers }}
hostUsers: {{ .hostUsers }}
{{- end }}
{{- end }}

{{- /* The rights of what needs none, such as the fleet service. */ -}}
{{- define "gpufault.noRights" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
privileged: false
capabilities:
  drop: [ALL]
{{- end }}

{{- define "gpufault.nobody" -}}
runAsNonRoot: true
runAsUser: 65534
runAsGroup: 65534
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* Neither password nor certificate is known to the kubelet: with a web configuration the image's own program asks,
once a minute, since it takes 0.12 s of a core. */ -}}
{{- define "gpufault.probes" -}}
livenessProbe:
  {{- include "gpufault.laidOver" (dict "text" (include "gpufault.liveness" .) "over" (.values | default dict).livenessProbe) | nindent 2 }}
readinessProbe:
  {{- include "gpufault.laidOver" (dict "text" (include "gpufault.readiness" .) "over" (.values | default dict).readinessProbe) | nindent 2 }}
{{- end }}

{{- define "gpufault.liveness" -}}
{{- include "gpufault.probe" (dict "path" "/-/healthy" "port" .port "secret" .secret) }}
periodSeconds: {{ ternary 60 20 (not (empty .secret)) }}
timeoutSeconds: 10
failureThreshold: {{ ternary 2 6 (not (empty .secret)) }}
{{- end }}

{{- define "gpufault.readiness" -}}
{{- include "gpufault.probe" (dict "path" "/-/ready" "port" .port "secret" .secret) }}
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

{{- define "gpufault.daemonPodSecurity" -}}
{{- if eq .Values.securityProfile "privileged" -}}
seccompProfile: {type: Unconfined}
{{- else -}}
{{- with .Values.seccompProfile -}}
seccompProfile: {type: {{ .type }}{{ with .localhostProfile }}, localhostProfile: {{ . | quote }}{{ end }}}
{{- end }}
{{- end }}
{{- if and .Values.jobProcesses.enabled (semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version) }}
# The profile that runtimes give by default lets nobody look into processes outside of it.
appArmorProfile: {type: Unconfined}
{{- end }}
{{- end }}

{{- /* The right to list the pods of the release's namespace, which proves the node of a daemon. In: root, name, labels. */ -}}
{{- define "gpufault.podLister" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- .labels | nindent 4 }}
rules:
  - apiGroups: [""]
    resources: [pods]
    verbs: [list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- .labels | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .name }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}
