{{- define "softserve.fullname" -}}
{{- $own := ternary .Release.Name (printf "%s-softserve" .Release.Name) (contains "softserve" .Release.Name) -}}
{{- .Values.fullnameOverride | default $own | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "softserve.selector" -}}
app.kubernetes.io/name: softserve
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "softserve.labels" -}}
{{ include "softserve.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "softserve.serviceAccount" -}}
{{- $name := ternary (include "softserve.fullname" .) "default" .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default $name -}}
{{- end }}

{{- define "softserve.apiKeys" -}}
{{- $own := ternary (printf "%s-api-keys" (include "softserve.fullname" .)) "" (not (empty .Values.apiKeys.keys)) -}}
{{- .Values.apiKeys.existingSecret | default $own -}}
{{- end }}

{{- define "softserve.publicKey" -}}
{{- $own := ternary (printf "%s-public-key" (include "softserve.fullname" .)) "" (not (empty .Values.requireSignature.publicKey)) -}}
{{- .Values.requireSignature.existingConfigMap | default $own -}}
{{- end }}

{{- define "softserve.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Labels that the ServiceMonitor gives to the series of this release. */}}
{{- define "softserve.series" -}}
namespace="{{ .Release.Namespace }}", service="{{ include "softserve.fullname" . }}"
{{- end }}
