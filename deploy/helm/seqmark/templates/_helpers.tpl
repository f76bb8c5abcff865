{{- define "seqmark.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- /* At most 52: a StatefulSet adds 11 characters for its revisions, and labels have 63. Dots are for domains. */}}
{{- define "seqmark.fullname" -}}
{{- $name := include "seqmark.name" . }}
{{- $full := default (ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name)) .Values.fullnameOverride }}
{{- $full | replace "." "-" | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "seqmark.selectorLabels" -}}
app.kubernetes.io/name: {{ include "seqmark.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "seqmark.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "seqmark.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "seqmark.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "seqmark.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "seqmark.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}

{{- /* 80 % of the container's limit in Seqmark's unit: 1 MB is 1,000,000 bytes, 1 GiB is 1073.741824 MB. */}}
{{- define "seqmark.memoryLimit" -}}
{{- $limit := dig "limits" "memory" "" .Values.resources | toString }}
{{- if .Values.memoryLimit }}
{{- .Values.memoryLimit }}
{{- else }}
{{- range $unit, $megabytes := dict "Gi" 858.993 "Mi" 0.838861 "G" 800.0 "M" 0.8 }}
{{- if regexMatch (printf "^[0-9.]+%s$" $unit) $limit }}
{{- printf "%dMB" (mulf (trimSuffix $unit $limit) $megabytes | floor | int) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "seqmark.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
{{ toYaml .settings }}
{{- end }}
