{{- /* What several templates share. Names are fixed: the admission policies name the accounts, and a cluster has one
release. */ -}}

{{- /* Without a registry, container runtimes ask their default one, where the name belongs to whoever takes it first. A
host has a dot or a port, or is `localhost`: of `team/rekindle` they take the first word for an account there. */ -}}
{{- define "rekindle.image" -}}
{{- $image := .Values.image }}
{{- $name := $image.repository }}
{{- with .Values.global.imageRegistry | default $image.registry }}
{{- $name = printf "%s/%s" (trimSuffix "/" .) $name }}
{{- end }}
{{- if not (or $image.digest (regexMatch "^(localhost|[^/]*[.:][^/]*)/" $name)) }}
{{- fail (printf "image.registry: %q names no registry, and no image of Rekindle is published. The nodes would ask their default registry (Docker Hub) for this name, which anybody may own there, and run what they get as a privileged container. Build the image and push it (docker build --tag REGISTRY/rekindle:%s . && docker push REGISTRY/rekindle:%s), then say where it is: --set image.registry=REGISTRY. A registry begins with a host: registry.example.com/team, docker.io/team or registry:5000. If every node has the image already, write localhost. With image.digest=sha256:... no registry is needed" $name .Chart.AppVersion .Chart.AppVersion) }}
{{- end }}
{{- $name }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "rekindle.selector" -}}
app.kubernetes.io/name: rekindle
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- /* `labels` are further ones of this object, and win over those of the values. */ -}}
{{- define "rekindle.labels" -}}
{{ include "rekindle.selector" . }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- /* Of a larger whole, where the values say so. */ -}}
{{- if not (hasKey .root.Values.labels "app.kubernetes.io/part-of") }}
app.kubernetes.io/part-of: rekindle
{{- end }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with merge (deepCopy (.labels | default dict)) .root.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The objects of a file, each with the labels of all our objects beside its own, and in the release's namespace. */ -}}
{{- define "rekindle.labelled" -}}
{{- $space := .root.Release.Namespace }}
{{- $placed := .text | replace "namespace: rekindle-system" (printf "namespace: %q" $space) | replace "rekindle-system" $space }}
{{- range $text := splitList "\n---\n" $placed }}
{{- $body := fromYaml $text }}
{{- $labels := include "rekindle.labels" (dict "root" $.root "component" $.component "labels" $body.metadata.labels) }}
{{- $_ := set $body.metadata "labels" (fromYaml $labels) }}
{{- with $.annotations }}
{{- $_ := set $body.metadata "annotations" . }}
{{- end }}
---
{{ toYaml $body }}
{{ end }}
{{- end }}

{{- /* Settings as TOML: the values of a table, then the tables in it. JSON's strings, numbers, booleans and lists are
TOML, too. A null, by which Helm takes a value back, is none. */ -}}
{{- define "rekindle.toml" -}}
{{- range $name, $value := .table }}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{ include "rekindle.tomlKey" $name }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{- range $name, $value := .table }}
{{- if and (kindIs "map" $value) $value }}
{{- $path := printf "%s%s" $.path (include "rekindle.tomlKey" $name) }}

[{{ $path }}]
{{- include "rekindle.toml" (dict "table" $value "path" (printf "%s." $path)) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "rekindle.tomlKey" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ toJson . }}{{ end }}
{{- end }}

{{- /* What the release itself decides beats what is set. */ -}}
{{- define "rekindle.controllerSettings" -}}
{{- $own := dict "mode" .Values.mode "modes" .Values.modes "namespace" .Release.Namespace "agents_are_pods" .Values.agent.enabled "node_condition" (eq (toString .Values.controller.nodeCondition) "true") }}
{{- $_ := set $own "images" (dict "scan" (include "rekindle.image" .)) }}
{{- if eq .Values.mode "repair" }}
{{- $_ := set $own.images "repair" .Values.repair.image }}
{{- $files := dict "reset" "/etc/rekindle-repair/reset.yaml" "reboot" "/etc/rekindle-repair/reboot.yaml" "validate" "/etc/rekindle-repair/validate.yaml" }}
{{- $_ := set $own "repair" (dict "templates" $files) }}
{{- if .Values.repair.webhookSecret }}
{{- $_ := set $own.repair "webhook" (dict "token_file" "/etc/rekindle-webhook/token") }}
{{- end }}
{{- end }}
{{- if not (include "rekindle.has" (list . "1.27")) }}
{{- $_ := set $own "scheduling_gates" false }}
{{- end }}
{{- $settings := mergeOverwrite (deepCopy .Values.settings.controller) $own }}
{{- include "rekindle.toml" (dict "table" $settings "path" "") | trim }}
{{- end }}

{{- /* The agent never reads what it and the controller print. Its pod's readiness shows that it lives, so it writes
nothing for that. */ -}}
{{- define "rekindle.agentSettings" -}}
{{- $own := dict "logs" (dict "excluded_namespaces" (list "kube-*" .Release.Namespace)) "publishing" (dict "idle_refresh_s" 0) }}
{{- $settings := mergeOverwrite $own (deepCopy .Values.settings.agent) }}
{{- if .Values.settings.catalogue }}
{{- $_ := set $settings "catalogue" (dict "extra" "/etc/rekindle/catalogue.toml") }}
{{- end }}
{{- include "rekindle.toml" (dict "table" $settings "path" "") | trim }}
{{- end }}

{{- /* Whether the API server is of that version or a later one, builds of vendors included. */ -}}
{{- define "rekindle.has" -}}
{{- if semverCompare (printf ">=%s.0-0" (last .)) (first .).Capabilities.KubeVersion.Version }}true{{ end }}
{{- end }}

{{- /* For people: what this API server cannot do for the release, and what happens in its place. */ -}}
{{- define "rekindle.lacks" -}}
{{- if not (include "rekindle.has" (list . "1.27")) }}
- scheduling gates (1.27): Rekindle creates the scan pod, which looks for checkpoints, only after a job's old pods have ended,
  and each recovery waits for the start of the scan pod.
- the eviction of unready pods (1.27): if a controller never becomes ready, the drain of the controller's node may be delayed.
{{- end }}
{{- if not (include "rekindle.has" (list . "1.30")) }}
- admission policies, and tokens that name a node (1.30): each agent may write the NodeHealths of other nodes, too.
{{- end }}
{{- if not (include "rekindle.has" (list . "1.36")) }}
- policies that change objects (1.36): the ranks of a Job or JobSet learn the checkpoint of a resume only by an envFrom in the
  template, which `rekindle enable -f job.yaml` writes.
{{- end }}
{{- end }}

{{- /* `on`: the condition AcceleratorHealthy is written. `remove`: it is removed, and the controller keeps the right for that:
by this value, or in the first upgrade after it was on, which Helm sees where it asks the cluster. Empty: neither. */ -}}
{{- define "rekindle.nodeCondition" -}}
{{- $asked := toString .Values.controller.nodeCondition }}
{{- $role := lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "rekindle-node-condition" }}
{{- if eq $asked "true" }}on
{{- else if or (eq $asked "remove") (eq (dig "metadata" "annotations" "rekindle.dev/node-condition" "" $role) "on") }}remove
{{- end }}
{{- end }}

{{- define "rekindle.hasEnvironment" -}}
{{- $asked := .Values.policies.environment }}
{{- if and (or (eq (toString $asked) "true") (and (eq (toString $asked) "auto") (ne .Values.mode "observe")))
  (include "rekindle.has" (list . "1.36")) }}true{{ end }}
{{- end }}

{{- /* Whether there is the Job that cleans up before a removal. Where Helm asks the cluster, it also runs hooks, and only then.
Printed by `helm template` and applied by kubectl, the Job would run at once, and end the controllers. */ -}}
{{- define "rekindle.cleansUp" -}}
{{- $asked := toString .Values.uninstall.takeBack }}
{{- if and .Values.controller.enabled (ne $asked "false") }}
{{- if or (eq $asked "always") (lookup "v1" "Namespace" "" "kube-system") }}true{{ end }}
{{- end }}
{{- end }}

{{- /* Whether an object for the Prometheus Operator is made: of root, kind, and what is asked. */ -}}
{{- define "rekindle.monitors" -}}
{{- $there := (first .).Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" (index . 1)) }}
{{- $asked := toString (last .) }}
{{- if or (eq $asked "always") (and (eq $asked "true") $there) }}true{{ end }}
{{- end }}

{{- /* The namespaces whose pods may ask for metrics, as JSON. Values of an earlier chart have no such list. */ -}}
{{- define "rekindle.scrapers" -}}
{{- $policy := .Values.networkPolicy }}
{{- ternary $policy.scrapeNamespaces (list "monitoring") (hasKey $policy "scrapeNamespaces") | toJson }}
{{- end }}

{{- /* As JSON: those that are told, and that on which the API server listens behind its Service, where Helm asks it. */ -}}
{{- define "rekindle.apiServerPorts" -}}
{{- $ports := .Values.networkPolicy.egressPorts }}
{{- range (lookup "discovery.k8s.io/v1" "EndpointSlice" "default" "kubernetes").ports }}
{{- $ports = append $ports .port }}
{{- end }}
{{- $numbers := list }}
{{- range $ports }}
{{- $numbers = append $numbers (int .) }}
{{- end }}
{{- $numbers | uniq | toJson }}
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

{{- /* Who the controller is, what it may be at most, and where it may run. */ -}}
{{- define "rekindle.controllerPod" -}}
serviceAccountName: rekindle-controller
# The account gives its token to those pods alone that ask for it.
automountServiceAccountToken: true
enableServiceLinks: false
{{- if eq (toString .Values.controller.hostUsers) "false" }}
{{- if not (include "rekindle.has" (list . "1.33")) }}
{{- fail (printf "controller.hostUsers: Kubernetes %s has no user namespaces unless a feature gate switches them on (1.33 has), and would leave the value out without a word" .Capabilities.KubeVersion.Version) }}
{{- end }}
hostUsers: false
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- with include "rekindle.pullSecrets" . }}
{{ . }}
{{- end }}
nodeSelector:
  kubernetes.io/os: linux
  {{- with .Values.controller.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with include "rekindle.offAccelerators" . }}
affinity:
  nodeAffinity:
    {{- . | nindent 4 }}
{{- end }}
{{- with .Values.controller.tolerations }}
tolerations:
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Whoever breaks out of a training container finds no token of the controller on that node. */ -}}
{{- define "rekindle.offAccelerators" -}}
{{- $asked := .Values.controller.acceleratorNodes | default "avoid" }}
{{- $none := list }}
{{- range .Values.agent.nodeLabels }}
{{- $none = append $none (dict "key" . "operator" "DoesNotExist") }}
{{- end }}
{{- if eq $asked "never" }}
{{- if not $none }}
{{- fail "controller.acceleratorNodes: never has no effect without agent.nodeLabels, which say what nodes with accelerators look like" }}
{{- end }}
requiredDuringSchedulingIgnoredDuringExecution:
  nodeSelectorTerms:
  - matchExpressions: {{ toJson $none }}
{{- else if and $none (eq $asked "avoid") }}
preferredDuringSchedulingIgnoredDuringExecution:
- weight: 100
  preference:
    matchExpressions: {{ toJson $none }}
{{- end }}
{{- end }}

{{- /* What the Pod Security Standard `restricted` asks of a container beside that, and a file system that nobody writes. */ -}}
{{- define "rekindle.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
