{{- /* Values that follow from others. Each template begins with this: it replaces `auto` in .Values by true or false. */ -}}
{{- define "gpufault.resolve" -}}
{{- $stack := .Values.kubePrometheusStack.enabled }}
{{- range list .Values.prometheusRule .Values.grafanaDashboards .Values.fleet .Values.fleet.serviceMonitor }}
{{- if eq (toString .enabled) "auto" }}{{ $_ := set . "enabled" $stack }}{{ end }}
{{- end }}
{{- with .Values.podMonitor }}
{{- if eq (toString .enabled) "auto" }}
{{- $_ := set . "enabled" (and $stack (not $.Values.serviceMonitor.enabled)) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Where the fleet service finds this release's daemons. */ -}}
{{- define "gpufault.daemons" -}}
{{- printf "%s.%s.svc:%v" (include "gpufault.fullname" .) .Release.Namespace .Values.port }}
{{- end }}

{{- /* The fleet service's configuration file. Without a source, it pulls the journals of this release's daemons. */ -}}
{{- define "gpufault.fleetConfig" -}}
{{- $config := deepCopy .Values.fleet.config }}
{{- if not (or $config.pull $config.prometheus $config.journal) }}
{{- $_ := set $config "pull" (dict "dns" (list (include "gpufault.daemons" .)) "dns_names" "kubernetes") }}
{{- end }}
{{- with $config.pull }}
{{- if not (or .dns .files .prometheus) }}
{{- $_ := set . "dns" (list (include "gpufault.daemons" $)) }}
{{- $_ := set . "dns_names" "kubernetes" }}
{{- end }}
{{- if and $.Values.web.existingSecret $.Values.web.tls (not .scheme) }}
{{- $_ := set . "scheme" "https" }}
{{- end }}
{{- if include "gpufault.access" $ }}
{{- $_ := set . "token_key_file" "/etc/gpufault/keys/private-key.pem" }}
{{- end }}
{{- end }}
{{- if and (or $config.pull $config.journal) (not (get ($config.store | default dict) "file")) }}
{{- $_ := set $config "store" (merge (dict "file" "/var/lib/gpufault/history.duckdb") ($config.store | default dict)) }}
{{- end }}
{{- with $config.prometheus }}
{{- if not .selector }}{{ $_ := set . "selector" (printf "job=%q" (include "gpufault.job" $)) }}{{ end }}
{{- end }}
{{- with $config.pull }}
{{- with .prometheus }}
{{- if not .job }}{{ $_ := set . "job" (include "gpufault.job" $) }}{{ end }}
{{- end }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- /* The label `job` of the daemons' series. */ -}}
{{- define "gpufault.job" -}}
{{- $label := ternary .Values.serviceMonitor.jobLabel .Values.podMonitor.jobLabel .Values.serviceMonitor.enabled }}
{{- $labels := fromYaml (include "gpufault.labels" (dict "root" . "component" "node")) }}
{{- get (merge $labels (ternary dict .Values.podLabels .Values.serviceMonitor.enabled)) $label }}
{{- end }}

{{- /* Whether the fleet service finds the nodes of the daemons by the API server's list of pods; empty if not. */ -}}
{{- define "gpufault.listsPods" -}}
{{- if .Values.fleet.enabled }}
{{- $pull := (fromYaml (include "gpufault.fleetConfig" .)).pull | default dict }}
{{- if and $pull.dns (eq ($pull.dns_names | default "reverse") "kubernetes") }}true{{ end }}
{{- end }}
{{- end }}

{{- /* Whether the fleet service pulls with tokens of the keys of `access`; empty if not. */ -}}
{{- define "gpufault.access" -}}
{{- $config := .Values.fleet.config }}
{{- $pulls := or $config.pull (not (or $config.prometheus $config.journal)) }}
{{- $pull := $config.pull | default dict }}
{{- $own := or $pull.user $pull.token_key_file (get ($pull.tls | default dict) "cert_file") }}
{{- if and .Values.fleet.enabled $pulls (not $own) (not .Values.web.existingSecret) (eq .Values.web.readers "authenticated") }}true{{ end }}
{{- end }}

{{- define "gpufault.accessSecret" -}}
{{- .Values.access.existingSecret | default (printf "%s-access" (include "gpufault.fullname" .)) }}
{{- end }}

{{- define "gpufault.keysSecret" -}}
{{- .Values.access.existingKeysSecret | default (printf "%s-keys" (include "gpufault.fullname" .)) }}
{{- end }}

{{- /* The Secret with the daemons' web configuration, and with the fleet service's; empty if there is none. */ -}}
{{- define "gpufault.webSecret" -}}
{{- if .Values.web.existingSecret }}
{{- .Values.web.existingSecret }}
{{- else if include "gpufault.access" . }}
{{- include "gpufault.keysSecret" . }}
{{- end }}
{{- end }}

{{- define "gpufault.fleetWebSecret" -}}
{{- if .Values.fleet.webExistingSecret }}
{{- .Values.fleet.webExistingSecret }}
{{- else if include "gpufault.access" . }}
{{- include "gpufault.accessSecret" . }}
{{- end }}
{{- end }}

{{- /* The volume of a web configuration. Of `access`, without password and private key. In: secret, own (it is the site's),
keys (it names public keys). */ -}}
{{- define "gpufault.webVolume" -}}
name: web
secret:
  secretName: {{ .secret }}
  defaultMode: 0440
  {{- if not .own }}
  items: [{key: web-config.yaml, path: web-config.yaml}{{ if .keys }}, {key: public-keys.pem, path: public-keys.pem}{{ end }}]
  {{- end }}
{{- end }}

{{- /* The volume with the private key that signs tokens for the daemons. */ -}}
{{- define "gpufault.keysVolume" -}}
name: keys
secret:
  secretName: {{ include "gpufault.keysSecret" . }}
  defaultMode: 0440
  items: [{key: private-key.pem, path: private-key.pem}]
{{- end }}

{{- /* The volume with the credentials of the outputs; empty if there are none. */ -}}
{{- define "gpufault.outputsVolume" -}}
{{- $sources := list }}
{{- range $output, $secrets := .Values.outputs }}
{{- range $kind, $secret := $secrets }}
{{- if $secret.name }}
{{- $item := dict "key" $secret.key "path" (printf "%s/%s" $output $kind) }}
{{- $sources = append $sources (dict "secret" (dict "name" $secret.name "items" (list $item))) }}
{{- end }}
{{- end }}
{{- end }}
{{- with $sources }}
name: outputs
projected:
  defaultMode: 0440
  sources: {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{- /* The affinity of the daemons: to nodes with a GPU, by the labels that vendors, node-feature-discovery and clouds set. */ -}}
{{- define "gpufault.affinity" -}}
{{- $affinity := deepCopy .Values.affinity }}
{{- if and (eq .Values.nodes "gpu") (not .Values.nodeSelector) (not $affinity.nodeAffinity) }}
{{- $terms := list }}
{{- range include "gpufault.gpuLabels" . | fromYamlArray }}
{{- $expression := ternary (dict "key" .key "operator" "In" "values" (list "true")) (dict "key" .key "operator" "Exists") (hasKey . "is") }}
{{- $terms = append $terms (dict "matchExpressions" (list $expression)) }}
{{- end }}
{{- $_ := set $affinity "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms)) }}
{{- end }}
{{- with $affinity }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- define "gpufault.gpuLabels" -}}
# NVIDIA: GPU feature discovery, the GPU operator
- {key: nvidia.com/gpu.present, is: "true"}
# AMD: the GPU operator, the device plugin's labeller
- {key: feature.node.kubernetes.io/amd-gpu, is: "true"}
- {key: amd.com/gpu.family}
- {key: amd.com/gpu.device-id}
# Intel: the device plugins' rules for node-feature-discovery
- {key: intel.feature.node.kubernetes.io/gpu, is: "true"}
- {key: gpu.intel.com/product}
# node-feature-discovery: pci-CLASS_VENDOR by default, pci-VENDOR below the GPU operator. Classes 0300 VGA, 0302 3D, 0380
# display, 1200 accelerator. Not 0300 of Intel: that is in most laptops and many servers.
- {key: feature.node.kubernetes.io/pci-10de.present, is: "true"}
- {key: feature.node.kubernetes.io/pci-0300_10de.present, is: "true"}
- {key: feature.node.kubernetes.io/pci-0302_10de.present, is: "true"}
- {key: feature.node.kubernetes.io/pci-0300_1002.present, is: "true"}
- {key: feature.node.kubernetes.io/pci-0380_1002.present, is: "true"}
- {key: feature.node.kubernetes.io/pci-1200_1002.present, is: "true"}
- {key: feature.node.kubernetes.io/pci-0380_8086.present, is: "true"}
# Clouds: GKE, EKS, Karpenter, AKS
- {key: cloud.google.com/gke-accelerator}
- {key: k8s.amazonaws.com/accelerator}
- {key: karpenter.k8s.aws/instance-gpu-count}
- {key: kubernetes.azure.com/accelerator}
{{- end }}
