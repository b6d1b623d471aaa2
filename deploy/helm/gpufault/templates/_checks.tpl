{{- /* Values that contradict each other, each with its remedy, as a list of YAML. What one value alone can break is in
values.schema.json. */ -}}
{{- define "gpufault.problems" -}}
{{- include "gpufault.monitorProblems" . }}
{{- include "gpufault.sourceProblems" . }}
{{- include "gpufault.outputProblems" . }}
{{- include "gpufault.fleetProblems" . }}
{{- include "gpufault.conditionProblems" . }}
{{- include "gpufault.networkProblems" . }}
{{- end }}

{{- define "gpufault.monitorProblems" -}}
{{- $name := include "gpufault.name" . }}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled }}
- "podMonitor.enabled and serviceMonitor.enabled: each daemon would be scraped twice; disable one of them"
{{- end }}
{{- if and .Values.serviceMonitor.enabled (not .Values.service.enabled) }}
- "serviceMonitor.enabled: selects a Service, and service.enabled is false; set it to true, or use podMonitor"
{{- end }}
{{- if not (contains "gpufault" $name) }}
- {{ printf "nameOverride: the label job would be %s, and rules and dashboards select job=~\".*gpufault.*\"; use a name with gpufault in it, or fullnameOverride" $name | quote }}
{{- else if and (or .Values.podMonitor.enabled .Values.serviceMonitor.enabled) (not (contains "gpufault" (include "gpufault.job" .))) }}
- {{ printf "jobLabel: the label job would be %q, and rules and dashboards select job=~\".*gpufault.*\"; use a label of the pods with gpufault in its value" (include "gpufault.job" .) | quote }}
{{- end }}
{{- range $key, $monitor := dict "podMonitor" .Values.podMonitor "serviceMonitor" .Values.serviceMonitor }}
{{- if $monitor.enabled }}
{{- include "gpufault.schemeProblems" (dict "key" $key "monitor" $monitor "secret" $.Values.web.existingSecret "tls" $.Values.web.tls "value" "web.tls") }}
{{- end }}
{{- end }}
{{- with .Values.fleet.serviceMonitor }}
{{- if and $.Values.fleet.enabled .enabled (include "gpufault.access" $) (not $.Values.fleet.webExistingSecret) (not .basicAuth) .namespace (ne .namespace $.Release.Namespace) }}
- {{ printf "fleet.serviceMonitor.namespace: the Secret with the password is in %s, and the operator reads it from the monitor's namespace; leave it empty, or set basicAuth" $.Release.Namespace | quote }}
{{- end }}
{{- end }}
{{- if and .Values.fleet.enabled .Values.fleet.serviceMonitor.enabled }}
{{- include "gpufault.schemeProblems" (dict "key" "fleet.serviceMonitor" "monitor" .Values.fleet.serviceMonitor "secret" .Values.fleet.webExistingSecret "tls" .Values.fleet.webTls "value" "fleet.webTls") }}
{{- end }}
{{- range .Values.extraArgs }}
{{- if and (hasPrefix "--web.telemetry-path" .) (ne . "--web.telemetry-path=/metrics") }}
- "extraArgs: the monitors and helm test ask for /metrics; remove --web.telemetry-path"
{{- end }}
{{- end }}
{{- end }}

{{- define "gpufault.schemeProblems" -}}
{{- $tls := and .secret .tls }}
{{- if and $tls (eq .monitor.scheme "http") }}
- {{ printf "%s.scheme: http, and the web configuration in Secret %s has TLS; leave it empty, or set %s to false if it has none" .key .secret .value | quote }}
{{- else if and (not $tls) (eq .monitor.scheme "https") }}
- {{ printf "%s.scheme: https, and no web configuration has TLS; leave it empty, or name the Secret with web-config.yaml" .key | quote }}
{{- else if and $tls (not .monitor.tlsConfig) }}
- {{ printf "%s.tlsConfig: Prometheus cannot verify the certificate of an address; set ca and serverName, or insecureSkipVerify" .key | quote }}
{{- end }}
{{- end }}

{{- /* Folders that the daemon's container has, as a list of JSON. */ -}}
{{- define "gpufault.mounted" -}}
{{- $folders := concat (list "/var/log" "/tmp" (.Values.config.state_dir | default "/var/lib/gpufault")) .Values.extraHostPaths }}
{{- range .Values.extraVolumeMounts }}{{ $folders = append $folders .mountPath }}{{ end }}
{{- if .Values.hostFacts.enabled }}
{{- range .Values.hostFacts.paths }}{{ $folders = append $folders (printf "/host%s" .) }}{{ end }}
{{- end }}
{{- if .Values.journald.enabled }}{{ $folders = append $folders "/run/log/journal" }}{{ end }}
{{- if .Values.web.existingSecret }}{{ $folders = append $folders "/etc/gpufault/web" }}{{ end }}
{{- if include "gpufault.outputsVolume" . }}{{ $folders = append $folders "/etc/gpufault/outputs" }}{{ end }}
{{- toJson $folders }}
{{- end }}

{{- /* Whether a path, or the part of a glob before its first wildcard, is below a mounted folder. In: root, path. */ -}}
{{- define "gpufault.isMounted" -}}
{{- $fixed := regexReplaceAll "[*?\\[{].*$" .path "" }}
{{- range fromJsonArray (include "gpufault.mounted" .root) }}
{{- $folder := trimSuffix "/" . }}
{{- if or (eq $fixed $folder) (hasPrefix (printf "%s/" $folder) $fixed) }}true{{ end }}
{{- end }}
{{- end }}

{{- define "gpufault.sourceProblems" -}}
{{- range $index, $source := .Values.config.sources }}
{{- $key := printf "config.sources[%d]" $index }}
{{- range concat ($source.paths | default list) (list ($source.path | default "")) ($source.allow_roots | default list) | compact }}
{{- if not (include "gpufault.isMounted" (dict "root" $ "path" .)) }}
- {{ printf "%s: %s is not mounted; add its folder to extraHostPaths" $key . | quote }}
{{- end }}
{{- end }}
{{- if and (or (eq $source.kind "journald") (eq ($source.mode | default "") "journal")) (not $.Values.journald.enabled) }}
- {{ printf "%s: the node's journal is not mounted; set journald.enabled to true" $key | quote }}
{{- end }}
{{- if and (eq $source.kind "kmsg") (eq ($source.mode | default "") "kmsg") (not $source.path) (ne $.Values.securityProfile "privileged") }}
- {{ printf "%s: only a privileged container has /dev/kmsg; use mode: auto, or securityProfile: privileged" $key | quote }}
{{- end }}
{{- end }}
{{- $state := .Values.config.state_dir | default "/var/lib/gpufault" }}
{{- with (.Values.config.journal | default dict).dir }}
{{- $writable := list $state }}
{{- range $.Values.extraVolumeMounts }}{{ $writable = append $writable .mountPath }}{{ end }}
{{- $below := false }}
{{- range $writable }}
{{- if hasPrefix (printf "%s/" (trimSuffix "/" .)) (printf "%s/" $.Values.config.journal.dir) }}{{ $below = true }}{{ end }}
{{- end }}
{{- if not $below }}
- {{ printf "config.journal.dir: %s is on the read-only root; use a folder below %s, or leave it out" . $state | quote }}
{{- end }}
{{- end }}
{{- range .Values.extraHostPaths }}
{{- if or (eq . "/var/log") (eq . $state) }}
- {{ printf "extraHostPaths: %s is mounted already; remove it" . | quote }}
{{- end }}
{{- end }}
{{- if and .Values.podResources.enabled (eq .Values.securityProfile "nonroot-filecaps") }}
- "podResources.enabled: only user 0 may connect to the kubelet's socket; use securityProfile: restricted-root"
{{- end }}
{{- end }}

{{- define "gpufault.outputProblems" -}}
{{- $config := fromYaml (include "gpufault.config" .) }}
{{- range $output, $own := $config.outputs | default dict }}
{{- if kindIs "map" $own }}
{{- if and (ne $output "textfile") (not $own.url) (not $own.url_file) }}
- {{ printf "outputs.%s: the output has no receiver; set config.outputs.%s.url, or outputs.%s.urlSecret" $output $output $output | quote }}
{{- else if and $own.url $own.url_file }}
- {{ printf "outputs.%s.urlSecret: config.outputs.%s.url names a receiver too; keep one of them" $output $output | quote }}
{{- end }}
{{- $tls := $own.tls | default dict }}
{{- range list $own.url_file $own.headers_file $own.secret_file $own.path $tls.ca_file $tls.cert_file $tls.key_file | compact }}
{{- if not (include "gpufault.isMounted" (dict "root" $ "path" .)) }}
- {{ printf "config.outputs.%s: %s is not mounted; use the Secrets of outputs.%s, or extraVolumes and extraVolumeMounts" $output . $output | quote }}
{{- end }}
{{- end }}
{{- if and (ne $output "textfile") $.Values.networkPolicy.enabled (not $.Values.networkPolicy.egress) }}
- {{ printf "networkPolicy.egress: empty, which cuts off config.outputs.%s; allow its receiver and DNS" $output | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "gpufault.fleetProblems" -}}
{{- if .Values.fleet.enabled }}
{{- $config := fromYaml (include "gpufault.fleetConfig" .) }}
{{- $daemons := include "gpufault.daemons" . }}
{{- with $config.pull }}
{{- if and (has $daemons (.dns | default list)) (not $.Values.service.enabled) }}
- "fleet.enabled: the fleet service finds the daemons by their Service, and service.enabled is false; set it to true, or set fleet.config.pull.prometheus"
{{- end }}
{{- if and $.Values.web.existingSecret (eq $.Values.web.readers "authenticated") (not .user) (not .token_key_file) (not (get (.tls | default dict) "cert_file")) }}
- {{ printf "fleet.config.pull.user: the daemons' users are in Secret %s; set token_key_file (fleet.existingSecret is mounted at /etc/gpufault/secrets), tls.cert_file, or user and password_file" $.Values.web.existingSecret | quote }}
{{- end }}
{{- if and (has $daemons (.dns | default list)) (eq (.scheme | default "http") "https") (not .server_name) }}
- "fleet.config.pull.server_name: the certificates cannot name the addresses of pods; set the name that they have"
{{- end }}
{{- range list .password_file .token_key_file (get (.tls | default dict) "ca_file") (get (.tls | default dict) "cert_file") | compact }}
{{- if and (hasPrefix "/etc/gpufault/secrets/" .) (not $.Values.fleet.existingSecret) }}
- {{ printf "fleet.config.pull: %s is not mounted; set fleet.existingSecret" . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- with $config.prometheus }}
{{- if and (hasPrefix "/etc/gpufault/secrets/" (.password_file | default "")) (not $.Values.fleet.existingSecret) }}
- {{ printf "fleet.config.prometheus: %s is not mounted; set fleet.existingSecret" .password_file | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "gpufault.conditionProblems" -}}
{{- if and .Values.nodeConditions.enabled .Values.web.existingSecret (eq .Values.web.readers "authenticated") }}
{{- if not (regexMatch "--pull[.](user|cert-file|token-key-file)" (join " " .Values.nodeConditions.extraArgs)) }}
- {{ printf "nodeConditions.extraArgs: the daemons' users are in Secret %s; set --pull.user and --pull.password-file (nodeConditions.existingSecret is mounted at /etc/gpufault/secrets), or --pull.cert-file" .Values.web.existingSecret | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "gpufault.networkProblems" -}}
{{- $fleet := .Values.fleet }}
{{- if and $fleet.enabled $fleet.networkPolicy.enabled (not $fleet.networkPolicy.egress) }}
{{- if or $fleet.config.prometheus ($fleet.config.pull | default dict).prometheus }}
- "fleet.networkPolicy.egress: empty, which cuts off the Prometheus of fleet.config; allow it"
{{- end }}
{{- end }}
{{- if and .Values.networkPolicy.enabled (eq .Values.web.readers "everyone") (not .Values.networkPolicy.from) }}
- "networkPolicy.from: empty admits everyone, and web.readers lets everyone read what jobs printed; name who may connect"
{{- end }}
{{- end }}
