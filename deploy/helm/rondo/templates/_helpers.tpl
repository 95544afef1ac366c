{{/* The labels of everything. */}}
{{- define "rondo.labels" -}}
app.kubernetes.io/name: rondo
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The labels by which all pods of this chart are found. */}}
{{- define "rondo.ours" -}}
app.kubernetes.io/name: rondo
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The labels of the NATS servers' pods. */}}
{{- define "rondo.natsPods" -}}
app.kubernetes.io/name: {{ .Values.nats.nameOverride | default "nats" }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: nats
{{- end }}

{{/* The name of the NATS servers' Service, as their chart makes it. */}}
{{- define "rondo.natsName" -}}
{{- if .Values.nats.fullnameOverride }}{{ .Values.nats.fullnameOverride }}
{{- else if contains "nats" .Release.Name }}{{ .Release.Name }}
{{- else }}{{ .Release.Name }}-nats{{ end }}
{{- end }}

{{/* A selector on one line: (dict "labels" TEMPLATE "component" NAME "ctx" $). */}}
{{- define "rondo.select" -}}
{{- $labels := include .labels .ctx | fromYaml }}
{{- with .component }}{{ $_ := set $labels "app.kubernetes.io/component" . }}{{ end }}
{{- toJson (dict "matchLabels" $labels) }}
{{- end }}

{{- define "rondo.log" -}}
{{- if .Values.nats.enabled }}nats://{{ include "rondo.natsName" . }}:4222
{{- else }}{{ required "log.url: name the NATS server, or set nats.enabled" .Values.log.url }}{{ end }}
{{- end }}

{{- define "rondo.monitor" -}}
{{- if .Values.nats.enabled }}http://{{ include "rondo.natsName" . }}:8222
{{- else }}{{ .Values.log.monitor }}{{ end }}
{{- end }}

{{/* KEDA puts the name of the server that leads before this, from another namespace. */}}
{{- define "rondo.monitorOfEach" -}}
{{- if .Values.nats.enabled }}{{ include "rondo.natsName" . }}-headless.{{ .Release.Namespace }}.svc:8222
{{- else }}{{ required "log.monitor: autoscaling by runs asks the monitoring port" .Values.log.monitor | trimPrefix "http://" }}{{ end }}
{{- end }}

{{- define "rondo.store" -}}
{{- $store := .Values.store }}
{{- $query := list }}
{{- with $store.endpoint }}{{ $query = append $query (printf "endpoint=%s" .) }}{{ end }}
{{- with $store.region }}{{ $query = append $query (printf "region=%s" .) }}{{ end -}}
s3://{{ required "store.bucket: name the bucket" $store.bucket }}
{{- with $store.prefix }}/{{ . }}{{ end }}
{{- with $query }}?{{ join "&" . }}{{ end }}
{{- end }}

{{- define "rondo.settings" -}}
{{ .Values.settingsSecret | default (printf "%s-settings" .Release.Name) }}
{{- end }}

{{/*
Every Deployment: the rows of the services over the defaults, and one for each pool of tool runners over the row of the tool runner. The name of a row's key
is `service`. It is YAML with the one key "workloads".
*/}}
{{- define "rondo.workloads" -}}
{{- $all := list }}
{{- range $service, $row := .Values.services }}
{{- $row = mergeOverwrite (deepCopy $.Values.defaults) (deepCopy $row) (dict "service" $service "name" $service) }}
{{- if not $row.enabled }}
{{- else if eq $service "toolrunner" }}
{{- range $.Values.pools }}
{{- $name := printf "toolrunner-%s" (lower .name | replace "_" "-") }}
{{- $pool := mergeOverwrite (deepCopy $row) (deepCopy .) (dict "pool" .name "name" $name) }}
{{- $env := merge (dict "RONDO_POOL" .name "RONDO_TOOL_SLOTS" ($pool.slots | toString)) $pool.env }}
{{- with .labels }}{{ $_ := set $env "RONDO_LABEL" (join "," .) }}{{ end }}
{{- $all = append $all (set $pool "env" $env) }}
{{- end }}
{{- else }}
{{- $all = append $all $row }}
{{- end }}
{{- end }}
{{- toYaml (dict "workloads" $all) }}
{{- end }}

{{/* What every process of Rondo is told. */}}
{{- define "rondo.environment" -}}
- {name: RONDO_NATS, value: {{ include "rondo.log" . | quote }}}
- {name: RONDO_NATS_CREDS, value: /keys/nats.creds}
- {name: RONDO_NATS_CA, value: /keys/ca.crt}
- {name: RONDO_NATS_MONITOR, value: {{ include "rondo.monitor" . | quote }}}
- {name: RONDO_STORE, value: {{ include "rondo.store" . | quote }}}
- {name: AWS_ACCESS_KEY_ID_FILE, value: /keys/s3.access}
- {name: AWS_SECRET_ACCESS_KEY_FILE, value: /keys/s3.secret}
- {name: RONDO_LOG_FORMAT, value: {{ .Values.logFormat | quote }}}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ .Values.tracing.endpoint | quote }}}
{{- end }}

{{/* The volume with the keys of one user: (dict "user" NAME "ctx" $). */}}
{{- define "rondo.keys" -}}
name: keys
projected:
  defaultMode: 0440
  sources:
    - secret:
        name: {{ .ctx.Release.Name }}-keys-{{ .user }}
    {{- with .ctx.Values.store.secretName }}
    - secret:
        name: {{ . }}
        items: [{key: s3.access, path: s3.access}, {key: s3.secret, path: s3.secret}]
    {{- end }}
{{- end }}

{{- define "rondo.image" -}}
{{- $image := index .ctx.Values.images .image -}}
image: {{ printf "%s:%s" $image.repository ($image.tag | default .ctx.Chart.AppVersion) | quote }}
imagePullPolicy: {{ .ctx.Values.images.pullPolicy }}
{{- end }}
