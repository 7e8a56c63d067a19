{{/* The name of the Secret that has the URL of Redis, or nothing when the URL is no secret. */}}
{{- define "radixgate.redisSecret" -}}
{{- if eq .Values.redis.mode "external" -}}
{{- .Values.redis.external.existingSecret.name -}}
{{- else -}}
{{- .Values.redis.bundled.existingSecret | default (printf "%s-redis" (include "radixgate.fullname" .)) -}}
{{- end -}}
{{- end }}

{{/* The password of the bundled Valkey: the one given, else the one it has already, else a random one. */}}
{{- define "radixgate.redisPassword" -}}
{{- $bundled := .Values.redis.bundled -}}
{{- if not $bundled.password -}}
{{- $found := lookup "v1" "Secret" .Release.Namespace (include "radixgate.redisSecret" .) -}}
{{- $password := dig "data" "password" "" $found | b64dec | default (randAlphaNum 32) -}}
{{- $_ := set $bundled "password" $password -}}
{{- end -}}
{{- $bundled.password -}}
{{- end }}

{{/*
Changes with how Redis is reached, so that pods start anew. Of Secrets that are not ours it takes the
version, not what they hold.
*/}}
{{- define "radixgate.redisChecksum" -}}
{{- $redis := .Values.redis -}}
{{- $seen := list $redis.mode $redis.external.url -}}
{{- if and (eq $redis.mode "bundled") (not $redis.bundled.existingSecret) -}}
{{- $seen = append $seen (include "radixgate.redisPassword" .) -}}
{{- else -}}
{{- range list (include "radixgate.redisSecret" .) $redis.external.caSecret.name -}}
{{- if . -}}
{{- $found := lookup "v1" "Secret" $.Release.Namespace . -}}
{{- $seen = append $seen (printf "%s %s" . (dig "metadata" "resourceVersion" "" $found)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $seen | join " " | sha256sum -}}
{{- end }}
