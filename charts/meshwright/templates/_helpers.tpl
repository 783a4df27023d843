{{- define "meshwright.name" -}}meshwright-operator{{- end }}

{{- define "meshwright.labels" -}}
app.kubernetes.io/name: meshwright
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "meshwright.selector" -}}
app.kubernetes.io/name: meshwright
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "meshwright.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* What the operator may do where it serves jobs. */}}
{{- define "meshwright.jobRules" -}}
- apiGroups: [meshwright.dev]
  resources: [trainingjobs]
  verbs: [get, list, watch, delete]
- apiGroups: [meshwright.dev]
  resources: [trainingjobs/status]
  verbs: [patch]
# Clusters that enforce owner references ask for this before pods may block a job's foreground deletion.
- apiGroups: [meshwright.dev]
  resources: [trainingjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, create, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [create]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}
