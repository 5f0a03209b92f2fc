{{/* Quantities of Kubernetes as numbers. */}}

{{/* A quantity, as `512Mi`, `1.5` or `500m`, in units (bytes, processors); fails for one that is none: (dict "of" "4Gi" "what" …). */}}
{{- define "openrl.quantity" -}}
{{- $suffix := regexFind "[A-Za-z]+$" (toString .of) -}}
{{- $factors := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 -}}
{{- if not (and (hasKey $factors $suffix) (regexMatch "^[0-9]*\\.?[0-9]+[A-Za-z]*$" (toString .of))) -}}
{{- fail (printf "%s is %v, which is no quantity: write it as 512Mi, 4Gi, 2 or 500m" .what .of) -}}
{{- end -}}
{{- mulf (trimSuffix $suffix (toString .of) | float64) (get $factors $suffix) -}}
{{- end }}

{{/* What Valkey may fill with data, in bytes. */}}
{{- define "openrl.brokerMemory" -}}
{{- $limit := include "openrl.quantity" (dict "of" .Values.broker.resources.limits.memory "what" "broker.resources.limits.memory") | float64 -}}
{{- divf (mulf $limit .Values.broker.memoryPercent) 100 | floor | int64 -}}
{{- end }}
