{{- /* What several templates share. Names are fixed: the admission policies name the accounts, and a cluster has one
release. */ -}}

{{- define "rekindle.image" -}}
{{- $image := .Values.image }}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "rekindle.selector" -}}
app.kubernetes.io/name: rekindle
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "rekindle.labels" -}}
{{ include "rekindle.selector" . }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- /* Groups of settings as TOML. JSON's strings, numbers, booleans and lists are TOML, too. */ -}}
{{- define "rekindle.toml" -}}
{{- range $name, $value := . }}
{{- if not (kindIs "map" $value) }}
{{ $name }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{- range $group, $fields := . }}
{{- if kindIs "map" $fields }}

[{{ $group }}]
{{- range $name, $value := $fields }}
{{ $name }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What the release itself decides beats what is set. */ -}}
{{- define "rekindle.controllerSettings" -}}
{{- $own := dict "mode" .Values.mode "namespace" .Release.Namespace }}
{{- $_ := set $own "images" (dict "scan" (include "rekindle.image" .)) }}
{{- include "rekindle.toml" (mergeOverwrite (deepCopy .Values.settings.controller) $own) | trim }}
{{- end }}

{{- /* The agent never reads what it and the controller print. */ -}}
{{- define "rekindle.agentSettings" -}}
{{- $own := dict "logs" (dict "excluded_namespaces" (list "kube-*" .Release.Namespace)) }}
{{- $settings := mergeOverwrite $own (deepCopy .Values.settings.agent) }}
{{- if .Values.settings.catalogue }}
{{- $_ := set $settings "catalogue" (dict "extra" "/etc/rekindle/catalogue.toml") }}
{{- end }}
{{- include "rekindle.toml" $settings | trim }}
{{- end }}

{{- define "rekindle.hasEnvironment" -}}
{{- $asked := .Values.policies.environment }}
{{- if and (or (eq (toString $asked) "true") (and (eq (toString $asked) "auto") (eq .Values.mode "recover")))
  (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version) }}true{{ end }}
{{- end }}

{{- define "rekindle.hasPodMonitor" -}}
{{- if and .Values.podMonitor.enabled (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1/PodMonitor") }}true{{ end }}
{{- end }}

{{- /* Of every pod of ours. */ -}}
{{- define "rekindle.pullSecrets" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What the Pod Security Standard `restricted` asks of a container, and a file system that nobody writes. */ -}}
{{- define "rekindle.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}
