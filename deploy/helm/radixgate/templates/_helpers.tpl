{{/* Names, labels and images. Components: gateway, worker, redis, test. */}}

{{/*
What all names begin with: 35 characters at most, so that with any suffix a name stays within 63. What
is longer ends in a hash, so that two long releases do not share a name.
*/}}
{{- define "radixgate.fullname" -}}
{{- $name := .Values.fullnameOverride -}}
{{- if not $name -}}
{{- $name = ternary .Release.Name (printf "%s-radixgate" .Release.Name) (contains "radixgate" .Release.Name) -}}
{{- end -}}
{{- if gt (len $name) 35 -}}
{{- printf "%s-%s" ($name | trunc 26 | trimSuffix "-") ($name | sha256sum | trunc 8) -}}
{{- else -}}
{{- $name -}}
{{- end -}}
{{- end }}

{{/*
Labels by which Services, policies and workloads select; they never change in an upgrade.
Call with (dict "root" $ "component" "worker" "pool" "name"); without pool: the whole component.
*/}}
{{- define "radixgate.selectorLabels" -}}
app.kubernetes.io/name: radixgate
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .pool }}
radixgate.io/pool: {{ . }}
{{- end }}
{{- end }}

{{/* All labels of an object; called like radixgate.selectorLabels. */}}
{{- define "radixgate.labels" -}}
{{ include "radixgate.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The image of a program of ours; call with (dict "root" $ "image" .Values.gateway.image). */}}
{{- define "radixgate.image" -}}
{{- $common := .root.Values.image -}}
{{- $path := .image.repository -}}
{{- with $common.registry }}{{ $path = printf "%s/%s" . $path }}{{ end -}}
{{- $tag := .image.tag | default $common.tag | default .root.Chart.AppVersion -}}
{{- printf "%s:%s" $path $tag -}}
{{- with .image.digest }}@{{ . }}{{ end -}}
{{- end }}

{{/* Where workers and clients in the cluster reach the gateways. */}}
{{- define "radixgate.gatewayAddress" -}}
{{ include "radixgate.fullname" . }}-gateway.{{ .Release.Namespace }}.svc:50051
{{- end }}

{{/* Label selector of the workers' EndpointSlices, as an option of the gateway. */}}
{{- define "radixgate.discover" -}}
app.kubernetes.io/name=radixgate,app.kubernetes.io/instance={{ .Release.Name }},app.kubernetes.io/component=worker
{{- end }}
