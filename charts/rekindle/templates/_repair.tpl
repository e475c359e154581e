{{- /* The pod templates of a repair, by step. One of one's own is taken as it is; the packaged ones are told how pods of
this cluster get images, NVML and the kernel log. */ -}}
{{- define "rekindle.repairTemplates" -}}
{{- range $step, $template := .Values.repair.templates }}
{{- if not $template }}
{{- $template = $.Files.Get (printf "files/repair/%s.yaml" $step) | fromYaml }}
{{- with include "rekindle.pullSecrets" $ }}
{{- $_ := set $template.spec "imagePullSecrets" (fromYaml .).imagePullSecrets }}
{{- end }}
{{- if eq $step "validate" }}
{{- include "rekindle.fitValidation" (dict "root" $ "spec" $template.spec "container" (first $template.spec.containers)) }}
{{- end }}
{{- end }}
{{ $step }}.yaml: |
  {{- toYaml $template | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Prints nothing: it changes the pod so that it sees what the agent sees, and judges the kernel log as it does. */ -}}
{{- define "rekindle.fitValidation" -}}
{{- $agent := .root.Values.agent }}
{{- $volumes := list }}
{{- range .spec.volumes }}
{{- $place := ternary (dict "hostPath" (dict "path" $agent.hostPaths.kmsg)) dict (eq .name "kmsg") }}
{{- $volumes = append $volumes (mergeOverwrite (deepCopy .) $place) }}
{{- end }}
{{- $mounts := .container.volumeMounts }}
{{- if $agent.runtimeClassName }}
{{- $_ := set .spec "runtimeClassName" $agent.runtimeClassName }}
{{- end }}
{{- if $agent.nvmlLibrary }}
{{- $volumes = append $volumes (dict "name" "nvml" "hostPath" (dict "path" $agent.nvmlLibrary "type" "File")) }}
{{- $mounts = append $mounts (dict "name" "nvml" "mountPath" "/opt/nvml/libnvidia-ml.so.1" "readOnly" true) }}
{{- $_ := set .container "env" (append .container.env (dict "name" "LD_LIBRARY_PATH" "value" "/opt/nvml")) }}
{{- end }}
{{- if .root.Values.settings.catalogue }}
{{- $rows := dict "name" "rekindle-settings" "items" (list (dict "key" "catalogue.toml" "path" "catalogue.toml")) }}
{{- $volumes = append $volumes (dict "name" "settings" "configMap" $rows) }}
{{- $mounts = append $mounts (dict "name" "settings" "mountPath" "/etc/rekindle" "readOnly" true) }}
{{- $_ := set .container "args" (append .container.args "--catalogue=/etc/rekindle/catalogue.toml") }}
{{- end }}
{{- $_ := set .spec "volumes" $volumes }}
{{- $_ := set .container "volumeMounts" $mounts }}
{{- end }}
