{{/* Names, labels and images. */}}

{{/* Names of Services take no dot and no digit in front; those of releases do. */}}
{{- define "openrl.name" -}}
{{- $both := ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) -}}
{{ .Values.fullnameOverride | default $both | replace "." "-" | trunc 34 | trimSuffix "-" }}
{{- end }}

{{/* What a Service or Deployment selects by: (dict "root" $ "component" "gateway"). */}}
{{- define "openrl.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- with .model }}
openrl.dev/model: {{ . | quote }}
{{- end }}
{{- end }}

{{- define "openrl.labels" -}}
{{ include "openrl.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* One of OpenRL's images: (dict "root" $ "image" "gateway"). */}}
{{- define "openrl.image" -}}
{{- $images := .root.Values.images -}}
{{- $tag := get $images.tags .image | default $images.tag | default .root.Chart.AppVersion -}}
{{- with $images.registry }}{{ . }}/{{ end }}{{ get $images .image }}{{ ternary "@" ":" (hasPrefix "sha256:" $tag) }}{{ $tag }}
{{- end }}

{{/* A model's part of names: its id, or one made of its name. */}}
{{- define "openrl.modelId" -}}
{{- $last := .name | lower | regexFind "[^/]+$" -}}
{{- .id | default (regexReplaceAll "[^a-z0-9]+" $last "-") | trunc 20 | trimAll "-" -}}
{{- end }}

{{/* Every worker of a base model that is asked for, as JSON: [{role, model, id, worker, name}]. */}}
{{- define "openrl.workers" -}}
{{- $found := list -}}
{{- range $model := .Values.models -}}
{{- range $role := list "device" "train" "sample" -}}
{{- if hasKey $model $role -}}
{{- $worker := mergeOverwrite (deepCopy $.Values.workers.all) (deepCopy (get $.Values.workers $role)) (get $model $role | default dict) -}}
{{- $id := include "openrl.modelId" $model -}}
{{- $name := printf "%s-%s-%s" (include "openrl.name" $) $role $id -}}
{{- $found = append $found (dict "role" $role "model" $model "id" $id "worker" $worker "name" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end }}
