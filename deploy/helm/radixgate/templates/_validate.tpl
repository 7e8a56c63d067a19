{{/* What values.schema.json cannot say, or not so that it helps: asked, found, to do. */}}
{{- define "radixgate.validate" -}}
{{- include "radixgate.validateRedis" . -}}
{{- include "radixgate.validateTag" (dict "tag" .Values.image.tag "where" "image") -}}
{{- include "radixgate.validateTag" (dict "tag" .Values.gateway.image.tag "where" "gateway.image") -}}
{{- include "radixgate.validateTag" (dict "tag" .Values.redis.bundled.image.tag "where" "redis.bundled.image") -}}
{{- include "radixgate.validateMemory" (dict "resources" .Values.gateway.resources "where" "gateway") -}}
{{- include "radixgate.validateMemory" (dict "resources" .Values.redis.bundled.resources "where" "redis.bundled") -}}
{{- if or .Values.workerDefaults.name .Values.workerDefaults.model -}}
{{- fail "workerDefaults has name or model, which each pool has of its own; move them to the entries of workers" -}}
{{- end -}}
{{- include "radixgate.validateClients" . -}}
{{- $names := dict -}}
{{- $scaled := dict -}}
{{- range .Values.workers -}}
{{- $pool := mergeOverwrite (deepCopy $.Values.workerDefaults) . -}}
{{- $where := printf "worker pool %s" $pool.name -}}
{{- if hasKey $names $pool.name -}}
{{- fail (printf "two worker pools are named %s; give each a name of its own" $pool.name) -}}
{{- end -}}
{{- $_ := set $names $pool.name true -}}
{{- include "radixgate.validateModel" (dict "root" $ "pool" $pool "where" $where) -}}
{{- if and (ne $pool.autoscaling.mode "none") (hasKey . "replicas") -}}
{{- fail (printf "%s has replicas: %v and autoscaling.mode: %s, which would undo each other; leave out replicas, or set mode: none" $where .replicas $pool.autoscaling.mode) -}}
{{- end -}}
{{- include "radixgate.validateScaling" (dict "scaling" $pool.autoscaling "model" $pool.model.name "where" $where) -}}
{{- if ne $pool.autoscaling.mode "none" -}}
{{- with get $scaled $pool.model.name -}}
{{- fail (printf "worker pools %s and %s both scale by what model %s needs, so each would become as large as both together should be; autoscale one of them" . $pool.name $pool.model.name) -}}
{{- end -}}
{{- $_ := set $scaled $pool.model.name $pool.name -}}
{{- end -}}
{{- if and $pool.gpu.enabled (ne $pool.weights "float32") -}}
{{- fail (printf "%s has gpu.enabled and weights: %s, which only a CPU keeps; leave out weights" $where $pool.weights) -}}
{{- end -}}
{{- include "radixgate.validateMemory" (dict "resources" $pool.resources "where" $where) -}}
{{- $limit := dig "limits" "memory" "" $pool.resources -}}
{{- if and $limit (not $pool.gpu.enabled) (le (include "radixgate.bytes" $limit | float64) (include "radixgate.bytes" $pool.kv.memory | float64)) -}}
{{- fail (printf "%s: kv.memory is %s, and the memory limit of %s must hold the model as well; raise resources.limits.memory or lower kv.memory" $where $pool.kv.memory $limit) -}}
{{- end -}}
{{- include "radixgate.validateTag" (dict "tag" $pool.image.tag "where" (printf "%s: image" $where)) -}}
{{- end -}}
{{- end }}

{{/* A limit that is given alone stands beside the request of the defaults. */}}
{{- define "radixgate.validateMemory" -}}
{{- $resources := .resources | default dict -}}
{{- $request := dig "requests" "memory" "" $resources -}}
{{- $limit := dig "limits" "memory" "" $resources -}}
{{- if and $request $limit (gt (include "radixgate.bytes" $request | float64) (include "radixgate.bytes" $limit | float64)) -}}
{{- fail (printf "%s: resources.requests.memory is %v, more than limits.memory, %v; lower the one or raise the other" .where $request $limit) -}}
{{- end -}}
{{- end }}

{{- define "radixgate.validateTag" -}}
{{- if eq .tag "latest" -}}
{{- fail (printf "%s.tag is latest, which is another image tomorrow; give the tag of a release" .where) -}}
{{- end -}}
{{- end }}

{{- define "radixgate.validateClients" -}}
{{- $outside := false -}}
{{- range .Values.networkPolicy.clients }}{{ if .ipBlock }}{{ $outside = true }}{{ end }}{{ end -}}
{{- if and (eq .Values.gateway.service.type "LoadBalancer") .Values.networkPolicy.enabled (not $outside) -}}
{{- fail "gateway.service.type is LoadBalancer, but networkPolicy.clients lets nobody in from outside the cluster; add an ipBlock, such as {ipBlock: {cidr: 203.0.113.0/24}}" -}}
{{- end -}}
{{- end }}

{{- define "radixgate.validateRedis" -}}
{{- $external := .Values.redis.external -}}
{{- $bundled := .Values.redis.bundled -}}
{{- if eq .Values.redis.mode "external" -}}
{{- if and $external.url $external.existingSecret.name -}}
{{- fail "redis.external has url and existingSecret.name, and only one can be right; leave out one" -}}
{{- else if not (or $external.url $external.existingSecret.name) -}}
{{- fail "redis.mode is external, but nothing says where it is; set redis.external.url, or redis.external.existingSecret.name for a URL with a password" -}}
{{- end -}}
{{- if contains "@" $external.url -}}
{{- fail "redis.external.url has a user or password, which anybody who may see the Deployment could read; put the URL into a Secret and name it in redis.external.existingSecret" -}}
{{- end -}}
{{- if and $external.caSecret.name $external.url (not (hasPrefix "rediss://" $external.url)) -}}
{{- fail (printf "redis.external.caSecret is for TLS, but redis.external.url is %s; use rediss://HOST:PORT (Sentinels are not reached by TLS), or leave out caSecret" $external.url) -}}
{{- end -}}
{{- else if or $external.url $external.existingSecret.name $external.caSecret.name -}}
{{- fail "redis.external is given, but redis.mode is bundled; set redis.mode: external, or leave out redis.external" -}}
{{- else if and $bundled.password $bundled.existingSecret -}}
{{- fail "redis.bundled has password and existingSecret, and only one can be right; leave out one" -}}
{{- end -}}
{{- end }}

{{- define "radixgate.validateModel" -}}
{{- $found := list -}}
{{- range $source := list "pvc" "image" "hub" -}}
{{- if hasKey $.pool.model $source }}{{ $found = append $found $source }}{{ end -}}
{{- end -}}
{{- if ne (len $found) 1 -}}
{{- fail (printf "%s: one source of the model was expected, pvc, image or hub; found %s" .where ($found | join " and " | default "none")) -}}
{{- end -}}
{{- if and .pool.model.image (semverCompare "<1.33.0-0" .root.Capabilities.KubeVersion.Version) -}}
{{- fail (printf "%s: model.image is an image volume, which the restricted profile allows from Kubernetes 1.33 on; this cluster has %s; use model.pvc or model.hub" .where .root.Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- end }}

{{- define "radixgate.validateScaling" -}}
{{- $scaling := .scaling -}}
{{- if and (ne $scaling.mode "none") (gt (int64 $scaling.minReplicas) (int64 $scaling.maxReplicas)) -}}
{{- fail (printf "%s: autoscaling.minReplicas is %v, more than maxReplicas, %v; raise the one or lower the other" .where $scaling.minReplicas $scaling.maxReplicas) -}}
{{- end -}}
{{- if and $scaling.scaleToZero (ne $scaling.mode "keda") -}}
{{- fail (printf "%s: autoscaling.scaleToZero needs KEDA to ask the gateways, but the mode is %s; set mode: keda, or leave out scaleToZero" .where $scaling.mode) -}}
{{- end -}}
{{- if and (eq $scaling.mode "keda-prometheus") (not $scaling.prometheusAddress) -}}
{{- fail (printf "%s: autoscaling.mode keda-prometheus asks Prometheus, but nothing says where it is; set autoscaling.prometheusAddress, such as http://prometheus-operated.monitoring.svc:9090" .where) -}}
{{- end -}}
{{- if and (has $scaling.mode (list "keda-prometheus" "hpa")) (ne $scaling.metric "desired_workers") (not $scaling.target) -}}
{{- fail (printf "%s: autoscaling by %s needs to know what that should be, for only mode keda has targets of its own; set autoscaling.target" .where $scaling.metric) -}}
{{- end -}}
{{- if and (eq $scaling.mode "hpa") (not (regexMatch "^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$" .model)) -}}
{{- fail (printf "%s: autoscaling.mode hpa selects the metric by the model's name, so that must be a label's value, which %s is not; give the model another model.name, or use mode: keda" .where .model) -}}
{{- end -}}
{{- end }}

{{/* Bytes of a size such as 4Gi, 512MiB, 1.5GB or 1000000. */}}
{{- define "radixgate.bytes" -}}
{{- $text := ternary (printf "%.0f" .) (toString .) (kindIs "float64" .) -}}
{{- $number := regexFind "^[0-9.]+" $text -}}
{{- $unit := $text | trimPrefix $number | trimSuffix "B" | upper -}}
{{- $factor := ternary 1024 1000 (hasSuffix "I" $unit) -}}
{{- $bytes := float64 $number -}}
{{- range until (add1 (index (dict "" -1 "K" 0 "M" 1 "G" 2 "T" 3) (trimSuffix "I" $unit)) | int) -}}
{{- $bytes = mulf $bytes $factor -}}
{{- end -}}
{{- $bytes -}}
{{- end }}
