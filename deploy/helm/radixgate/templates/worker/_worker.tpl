{{/* What is called like this takes (dict "root" $ "pool" a pool merged with workerDefaults). */}}

{{/* What `--model` says: a directory below /models, or what the init container has pulled there. */}}
{{- define "radixgate.modelRef" -}}
{{- with .pool.model -}}
{{- if .hub -}}{{ .hub.repository }}
{{- else -}}
{{- $path := (.pvc | default .image).path | default "" | trimAll "/" -}}
{{- printf "/models/%s" $path | trimSuffix "/" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Threads that compute: as given, else the cores requested; on a GPU, what torch takes. */}}
{{- define "radixgate.threads" -}}
{{- $cpu := dig "requests" "cpu" "" .resources | toString -}}
{{- if .threads -}}{{ int64 .threads }}
{{- else if and $cpu (not .gpu.enabled) -}}
{{- if hasSuffix "m" $cpu -}}{{ trimSuffix "m" $cpu | float64 | mulf 0.001 | ceil }}
{{- else -}}{{ ceil (float64 $cpu) }}{{- end -}}
{{- end -}}
{{- end }}

{{/* Options of `radixgate worker`, a list. */}}
{{- define "radixgate.workerArgs" -}}
{{- $pool := .pool -}}
{{- $args := list "worker" "--model" (include "radixgate.modelRef" .) "--model-name" $pool.model.name -}}
{{- $args = concat $args (list "--host" "0.0.0.0" "--port" "50052" "--metrics-port" "9091") -}}
{{- $args = concat $args (list "--advertise" "$(POD_IP):50052" "--worker-id" "$(POD_NAME)") -}}
{{- $args = concat $args (list "--gateway" (include "radixgate.gatewayAddress" .root)) -}}
{{- $args = concat $args (list "--device" (ternary "cuda" "cpu" $pool.gpu.enabled)) -}}
{{- with include "radixgate.threads" $pool }}{{ $args = concat $args (list "--threads" .) }}{{ end -}}
{{- $args = concat $args (list "--weights" $pool.weights "--kv-format" $pool.kv.format) -}}
{{- with $pool.kv.layers }}{{ $args = concat $args (list "--kv-format-layers" .) }}{{ end -}}
{{- $args = concat $args (list "--kv-memory" $pool.kv.memory "--eviction" $pool.kv.eviction) -}}
{{- with $pool.tenantShares }}{{ $args = concat $args (list "--tenant-shares" (include "radixgate.pairs" .)) }}{{ end -}}
{{- $args = concat $args (list "--max-running" (toString (int64 $pool.maxRunning))) -}}
{{- $args = concat $args (list "--token-budget" (toString (int64 $pool.tokenBudget))) -}}
{{- $args = concat $args (list "--grace" (toString (int64 $pool.graceSeconds))) -}}
{{- $where := printf "worker pool %s" $pool.name -}}
{{- include "radixgate.args" (dict "args" $args "environment" list "extra" $pool.extraArgs "where" $where) -}}
{{- end }}

{{/* Where a worker, or the pull of its model, writes: /var/cache/radixgate. */}}
{{- define "radixgate.workerHome" -}}
- name: HOME
  value: /var/cache/radixgate
- name: RADIXGATE_HOME
  value: /models
{{- end }}

{{/* Environment of the pull of a model, a list. */}}
{{- define "radixgate.pullEnv" -}}
{{- $env := include "radixgate.workerHome" . | fromYamlArray -}}
{{- with .pool.model.hub.tokenSecret -}}
{{- $secret := dict "name" .name "key" (.key | default "token") -}}
{{- $env = append $env (dict "name" "HF_TOKEN" "valueFrom" (dict "secretKeyRef" $secret)) -}}
{{- end -}}
{{- $where := printf "worker pool %s" .pool.name -}}
{{- include "radixgate.env" (dict "env" $env "extra" .pool.extraEnv "where" $where) -}}
{{- end }}

{{/* Environment of a worker, a list. */}}
{{- define "radixgate.workerEnv" -}}
{{- $env := include "radixgate.workerHome" . | fromYamlArray -}}
{{- range $name, $path := dict "POD_IP" "status.podIP" "POD_NAME" "metadata.name" -}}
{{- $env = append $env (dict "name" $name "valueFrom" (dict "fieldRef" (dict "fieldPath" $path))) -}}
{{- end -}}
{{- $env = append $env (dict "name" "NUMBA_CACHE_DIR" "value" "/var/cache/radixgate/kernels") -}}
{{- $env = append $env (dict "name" "HF_HUB_OFFLINE" "value" "1") -}}
{{- $where := printf "worker pool %s" .pool.name -}}
{{- include "radixgate.env" (dict "env" $env "extra" .pool.extraEnv "where" $where) -}}
{{- end }}

{{/* Requests and limits, with the GPU. */}}
{{- define "radixgate.workerResources" -}}
{{- $resources := deepCopy .resources -}}
{{- if .gpu.enabled -}}
{{- $limits := merge (dict .gpu.resource 1) ($resources.limits | default dict) -}}
{{- $_ := set $resources "limits" $limits -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end }}

{{/* The volume /models. */}}
{{- define "radixgate.modelVolume" -}}
name: models
{{- with .model.pvc }}
persistentVolumeClaim:
  claimName: {{ .claimName | quote }}
  readOnly: true
{{- end }}
{{- with .model.image }}
image:
  reference: {{ .reference | quote }}
  pullPolicy: {{ .pullPolicy | default "IfNotPresent" }}
{{- end }}
{{- with .model.hub }}
{{- if .claimName }}
persistentVolumeClaim:
  claimName: {{ .claimName | quote }}
{{- else }}
emptyDir: {}
{{- end }}
{{- end }}
{{- end }}
