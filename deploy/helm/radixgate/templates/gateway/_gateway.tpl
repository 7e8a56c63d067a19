{{/* Options of `radixgate gateway`, a list. */}}
{{- define "radixgate.gatewayArgs" -}}
{{- $gateway := .Values.gateway -}}
{{- $args := list "gateway" "--host" "0.0.0.0" "--port" "50051" "--metrics-port" "9090" -}}
{{- $args = concat $args (list "--discover" (include "radixgate.discover" .)) -}}
{{- if include "radixgate.autoscaled" . }}{{ $args = append $args "--deletion-costs" }}{{ end -}}
{{- range $alias, $model := $gateway.aliases }}{{ $args = concat $args (list "--alias" (printf "%s=%s" $alias $model)) }}{{ end -}}
{{- with $gateway.tenantWeights }}{{ $args = concat $args (list "--tenant-weights" (include "radixgate.pairs" .)) }}{{ end -}}
{{- $args = concat $args (list "--queue-limit" (toString (int64 $gateway.queueLimit))) -}}
{{- $args = concat $args (list "--queue-seconds" (toString (int64 $gateway.queueSeconds))) -}}
{{- if $gateway.hedge }}{{ $args = append $args "--hedge" }}{{ end -}}
{{- $args = concat $args (list "--demand-window" (toString (int64 $gateway.demandWindowSeconds))) -}}
{{- $args = concat $args (list "--notice" (toString (int64 $gateway.noticeSeconds))) -}}
{{- $args = concat $args (list "--grace" (toString (int64 $gateway.graceSeconds))) -}}
{{- $environment := list "--redis" "--namespace" -}}
{{- include "radixgate.args" (dict "args" $args "environment" $environment "extra" $gateway.extraArgs "where" "gateway") -}}
{{- end }}

{{/* Its environment, a list. */}}
{{- define "radixgate.gatewayEnv" -}}
{{- $redis := .Values.redis -}}
{{- $env := list (dict "name" "POD_NAMESPACE" "valueFrom" (dict "fieldRef" (dict "fieldPath" "metadata.namespace"))) -}}
{{- with include "radixgate.redisSecret" . -}}
{{- $key := ternary $redis.external.existingSecret.key "url" (eq $redis.mode "external") -}}
{{- $env = append $env (dict "name" "RADIXGATE_REDIS" "valueFrom" (dict "secretKeyRef" (dict "name" . "key" $key))) -}}
{{- else -}}
{{- $env = append $env (dict "name" "RADIXGATE_REDIS" "value" $redis.external.url) -}}
{{- end -}}
{{- if $redis.external.caSecret.name -}}
{{- $env = append $env (dict "name" "SSL_CERT_FILE" "value" "/etc/radixgate/redis-ca/ca.crt") -}}
{{- end -}}
{{- include "radixgate.env" (dict "env" $env "extra" .Values.gateway.extraEnv "where" "gateway") -}}
{{- end }}
