{{/* What pods and containers share. */}}

{{/* Of every pod. Service links would be variables named OPENRL_…, which are no settings and are refused. With a process
     namespace for the pod, its containers' processes are not number 1 there: SIGTERM ends one that has no handler yet, and
     orphans are reaped. */}}
{{- define "openrl.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
shareProcessNamespace: true
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {{ .seccomp | default (dict "type" "RuntimeDefault") | toJson }}
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end }}

{{/* Of every container. */}}
{{- define "openrl.container" -}}
imagePullPolicy: {{ .Values.images.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* Probes of a process of OpenRL on its metrics port; a start may take so many seconds, until `started` (/readyz). */}}
{{- define "openrl.probes" -}}
startupProbe:
  httpGet: {path: {{ .started | default "/readyz" }}, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: {{ max 1 (div .startSeconds 5) }}
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 3
{{- end }}

{{/* Where a pod may run: the values of its component, or of the one whose place it shares. */}}
{{- define "openrl.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}

{{/* How a component's pods are spread: (dict "of" (openrl.selector's dict) "constraints" list). They select its pods where
     they do not say which. */}}
{{- define "openrl.spread" -}}
{{- $own := dict "labelSelector" (dict "matchLabels" (include "openrl.selector" .of | fromYaml)) -}}
{{- with .constraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{ merge (deepCopy .) $own | toJson }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Labels and annotations of pods: (dict "of" (openrl.labels' dict) "more" (its values)). */}}
{{- define "openrl.podMetadata" -}}
labels:
  {{- include "openrl.labels" .of | nindent 2 }}
  {{- if .worker }}
  openrl.dev/worker: "true"
  {{- end }}
  {{- with .more.podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
{{- with .more.podAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Mounts that every process of OpenRL has; the depot's where it is a volume. */}}
{{- define "openrl.mounts" -}}
- {name: data, mountPath: /data}
- {name: data, mountPath: /tmp, subPath: tmp}
{{- if not .Values.depot.url }}
- {name: depot, mountPath: /depot, subPath: depot}
{{- end }}
{{- include "openrl.trustMount" . }}
{{- end }}

{{/* Certificates that URLs name. */}}
{{- define "openrl.trustMount" -}}
{{- if .Values.trust.existingSecret }}
- {name: trust, mountPath: /trust, readOnly: true}
{{- end }}
{{- end }}

{{- define "openrl.trustVolume" -}}
{{- with .Values.trust.existingSecret }}
- {name: trust, secret: {secretName: {{ . | quote }}}}
{{- end }}
{{- end }}

{{/* Of those that use the catalog, where that is an SQLite file. */}}
{{- define "openrl.catalogMount" -}}
{{- if not .Values.catalog.existingSecret }}
- {name: depot, mountPath: /catalog, subPath: catalog}
{{- end }}
{{- end }}

{{/* (dict "root" $ "scratch" "2Gi") */}}
{{- define "openrl.volumes" -}}
- {name: data, emptyDir: {sizeLimit: {{ .scratch }}}}
{{- if not .root.Values.depot.url }}
- {name: depot, persistentVolumeClaim: {claimName: {{ .root.Values.depot.volume.existingClaim | default (printf "%s-depot" (include "openrl.name" .root)) | quote }}}}
{{- end }}
{{- include "openrl.trustVolume" .root }}
{{- end }}
