{{- define "meshwright.fullname" -}}
{{- .Values.fullnameOverride | default (printf "%s-operator" .Release.Name) | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "meshwright.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "meshwright.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end }}

{{- define "meshwright.selector" -}}
app.kubernetes.io/name: meshwright
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "meshwright.labels" -}}
{{ include "meshwright.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "meshwright.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ $tag }}
{{- end -}}
{{- end }}

{{/* Not empty if a profile gives jobs ComputeDomains. */}}
{{- define "meshwright.computeDomains" -}}
{{- range .Values.profiles }}
{{- if ternary .computeDomain (eq (.preset | default "") "MNNVL") (hasKey . "computeDomain") }}{{ .name }} {{ end }}
{{- end }}
{{- end }}

{{/* Rights in every namespace that is served. A test compares them with those that the operator says it needs. */}}
{{- define "meshwright.jobRules" -}}
- apiGroups: [meshwright.dev]
  resources: [trainingjobs]
  verbs: [get, list, watch, delete]
- apiGroups: [meshwright.dev]
  resources: [trainingjobs/status]
  verbs: [patch]
# Where the API server enforces owner references, only who may update an owner's finalizers can block its deletion.
- apiGroups: [meshwright.dev]
  resources: [trainingjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [create]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, create, delete]
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
- apiGroups: [""]
  resources: [resourcequotas]
  verbs: [list]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- if include "meshwright.computeDomains" . }}
# ComputeDomains must outlive the pods that use them, so jobs that have some get a finalizer.
- apiGroups: [resource.nvidia.com]
  resources: [computedomains]
  verbs: [get, list, create, delete]
- apiGroups: [meshwright.dev]
  resources: [trainingjobs]
  verbs: [patch]
{{- end }}
{{- if .Values.jobs.networkPolicy.enabled }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, create, update]
{{- end }}
{{- end }}
