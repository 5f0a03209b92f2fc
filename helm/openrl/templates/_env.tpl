{{/* Environment of containers: settings as OPENRL_* variables, and what comes from secrets. */}}

{{/* A tree of settings as variables, sorted: (dict "tree" … "prefix" "OPENRL_"). */}}
{{- define "openrl.variables" -}}
{{- range $name, $value := .tree }}
{{- if kindIs "map" $value }}
{{- include "openrl.variables" (dict "tree" $value "prefix" (printf "%s%s__" $.prefix (upper $name))) }}
{{- else if kindIs "slice" $value }}
- {name: {{ $.prefix }}{{ upper $name }}, value: {{ join "," $value | quote }}}
{{- else if kindIs "float64" $value }}
- {name: {{ $.prefix }}{{ upper $name }}, value: {{ if eq (floor $value) $value }}{{ int64 $value | quote }}{{ else }}{{ $value | quote }}{{ end }}}
{{- else }}
- {name: {{ $.prefix }}{{ upper $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
{{- end }}

{{/* Settings of a component: (dict "root" $ "own" (list of trees, later ones win) "forced" (what the chart sets)). */}}
{{- define "openrl.settings" -}}
{{- $tree := deepCopy .root.Values.settings -}}
{{- range .own }}{{ $tree = mergeOverwrite $tree (deepCopy (. | default dict)) }}{{ end -}}
{{- $common := dict "data_dir" "/data" "depot_url" (include "openrl.depotUrl" .root) "metrics" (dict "host" .root.Values.listen "port" .root.Values.metrics.port) -}}
{{- $tree = mergeOverwrite $tree $common .forced -}}
{{- include "openrl.variables" (dict "tree" $tree "prefix" "OPENRL_") }}
{{- end }}

{{- define "openrl.depotUrl" -}}
{{ .Values.depot.url | default "file:///depot" }}
{{- end }}

{{/* The broker's URL; that of the release's own Valkey is made of the password. */}}
{{- define "openrl.brokerEnv" -}}
{{- with .Values.broker }}
{{- if .external }}
- name: OPENRL_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .key | quote }}}}
{{- else }}
- name: VALKEY_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .key | quote }}}}
- name: OPENRL_REDIS_URL
  value: redis://:$(VALKEY_PASSWORD)@{{ include "openrl.name" $ }}-valkey:6379/0
{{- end }}
{{- end }}
{{- end }}

{{- define "openrl.catalogEnv" -}}
- name: OPENRL_CATALOG_URL
{{- with .Values.catalog }}
{{- if .existingSecret }}
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .key | quote }}}}
{{- else }}
  value: sqlite:////catalog/catalog.db
{{- end }}
{{- end }}
{{- end }}

{{/* Places that may be written to, for what libraries keep; the root file system is read-only. */}}
{{- define "openrl.placesEnv" -}}
- {name: HOME, value: /data}
- {name: XDG_CACHE_HOME, value: /data/cache}
{{- end }}

{{- define "openrl.hubEnv" -}}
- {name: HF_HOME, value: {{ ternary "/models/huggingface" "/data/huggingface" (ne .Values.hub.existingClaim "") }}}
{{- with .Values.hub }}
{{- if .existingSecret }}
- name: HF_TOKEN
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .key | quote }}}}
{{- end }}
{{- end }}
{{- end }}

{{/* (dict "root" $ "component" "gateway") */}}
{{- define "openrl.tracingEnv" -}}
{{- with .root.Values.tracing.endpoint }}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ . | quote }}}
- {name: OTEL_SERVICE_NAME, value: openrl-{{ $.component }}}
{{- end }}
{{- end }}

{{/* Credentials of the object store. */}}
{{- define "openrl.depotEnvFrom" -}}
{{- with .Values.depot.existingSecret }}
envFrom:
  - secretRef: {name: {{ . | quote }}}
{{- end }}
{{- end }}
