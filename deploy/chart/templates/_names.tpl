{{- define "dlite.labels" -}}
app.kubernetes.io/name: delegate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "dlite.stages" -}}
{{ .Values.stages.namespace | default .Release.Namespace }}
{{- end }}
{{- define "dlite.secret" -}}
{{ .Values.token.secret | default (printf "%s-token" .Release.Name) }}
{{- end }}
