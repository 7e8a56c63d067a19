{{/* Names, labels and images. Components: gateway, worker, redis, test. */}}

{{/*
What all names begin with: 35 characters at most, so that with any suffix a name stays within 63. What
is longer ends in a hash, so that two long releases do not share a name. As a chart of charts may have two of
these, each with an alias, the chart's own name is in it and in the selectors.
*/}}
{{- define "radixgate.fullname" -}}
{{- $name := .Values.fullnameOverride -}}
{{- if not $name -}}
{{- $name = ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) -}}
{{- end -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "names of Services begin with a letter and have no dots, so none can begin with %s; set fullnameOverride" $name) -}}
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
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- with .pool }}
radixgate.io/pool: {{ . | quote }}
{{- end }}
{{- end }}

{{/*
All labels of an object; called like radixgate.selectorLabels. Pods have those alone: a new version of the
chart that changes nothing for a worker must not cost its cache.
*/}}
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
app.kubernetes.io/name={{ .Chart.Name }},app.kubernetes.io/instance={{ .Release.Name }},app.kubernetes.io/component=worker
{{- end }}

{{/* Pod-level security: what the `restricted` profile asks for. Call with the root. */}}
{{- define "radixgate.podSecurityContext" -}}
runAsNonRoot: true
{{- with .Values.runAsUser }}
runAsUser: {{ int64 . }}
runAsGroup: {{ int64 . }}
fsGroup: {{ int64 . }}
fsGroupChangePolicy: OnRootMismatch
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* Container-level security: the rest of it, and a root file system that nobody writes to. */}}
{{- define "radixgate.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* A gRPC probe; call with (dict "port" 50051 "seconds" 60), within which it must have succeeded once. */}}
{{- define "radixgate.startupProbe" -}}
grpc:
  port: {{ .port }}
periodSeconds: 5
timeoutSeconds: 5
failureThreshold: {{ max 1 (ceil (divf .seconds 5)) }}
{{- end }}

{{/* The other two; `port`. A pod that leaves is not probed for life, so NOT_SERVING ends nothing too early. */}}
{{- define "radixgate.runningProbes" -}}
readinessProbe:
  grpc:
    port: {{ .port }}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
livenessProbe:
  grpc:
    port: {{ .port }}
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 6
{{- end }}

{{/* Where pods run; call with a map that has the values. */}}
{{- define "radixgate.placement" -}}
{{- $placement := dict -}}
{{- range $key := list "nodeSelector" "tolerations" "priorityClassName" -}}
{{- with get $ $key }}{{ $_ := set $placement $key . }}{{ end -}}
{{- end -}}
{{- with $placement }}{{ toYaml . }}{{ end -}}
{{- end }}

{{- define "radixgate.imagePullSecrets" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end -}}
{{- end }}

{{/* A map as in acme:3,*:1. */}}
{{- define "radixgate.pairs" -}}
{{- $pairs := list -}}
{{- range $name, $value := . }}{{ $pairs = append $pairs (printf "%s:%v" $name $value) }}{{ end -}}
{{- join "," $pairs -}}
{{- end }}

{{/*
Options, refused where they say again what the chart says, there or in the environment; call with
(dict "args" list "environment" list "extra" list "where" "gateway").
*/}}
{{- define "radixgate.args" -}}
{{- range .extra -}}
{{- $option := . | splitList "=" | first -}}
{{- if and (hasPrefix "--" $option) (has $option (concat $.args $.environment)) -}}
{{- fail (printf "%s.extraArgs has %s, which the chart sets itself; use the value for it, or leave it out" $.where $option) -}}
{{- end -}}
{{- end -}}
{{- toYaml (concat .args .extra) -}}
{{- end }}

{{/* Environment variables likewise; call with (dict "env" list "extra" list "where" "gateway"). */}}
{{- define "radixgate.env" -}}
{{- $names := list -}}
{{- range .env }}{{ $names = append $names .name }}{{ end -}}
{{- range .extra -}}
{{- if has .name $names -}}
{{- fail (printf "%s.extraEnv has %s, which is set already, by the chart or earlier in the list; leave it out" $.where .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- toYaml (concat .env .extra) -}}
{{- end }}

{{/* "true" if any pool is autoscaled, else nothing. */}}
{{- define "radixgate.autoscaled" -}}
{{- range .Values.workers -}}
{{- $pool := mergeOverwrite (deepCopy $.Values.workerDefaults) . -}}
{{- if ne $pool.autoscaling.mode "none" -}}true{{- end -}}
{{- end -}}
{{- end }}

{{/* Labels that select the gateways' pods, as a peer of a NetworkPolicy. */}}
{{- define "radixgate.peer" -}}
podSelector:
  matchLabels:
    {{- include "radixgate.selectorLabels" . | nindent 4 }}
{{- end }}
