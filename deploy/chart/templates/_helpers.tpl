{{/* The labels of every object. */}}
{{- define "weft.labels" -}}
app.kubernetes.io/part-of: weft
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* An image: (list CONTEXT IMAGE), where IMAGE has repository and tag. */}}
{{- define "weft.image" -}}
{{- $global := (index . 0).Values.global.image }}
{{- $image := index . 1 }}
{{- $tag := $image.tag | default $global.tag | default (index . 0).Chart.AppVersion }}
{{- printf "%s/%s:%s" $global.registry $image.repository $tag }}
{{- end }}

{{/* The Secret with the certificate of all servers; empty where the control plane makes the certificates. */}}
{{- define "weft.certificate" -}}
{{- $tls := .Values.controlPlane.tls.general }}
{{- if $tls.certManager.enabled }}kuma-tls-cert{{ else }}{{ $tls.secretName }}{{ end }}
{{- end }}

{{/* The Secrets that are mounted below /var/run/secrets/kuma.io, as JSON: directory and name. */}}
{{- define "weft.secrets" -}}
{{- $tls := .Values.controlPlane.tls }}
{{- $certificate := include "weft.certificate" . }}
{{- $all := dict }}
{{- if $certificate }}
{{- $all = set $all "tls-cert" $certificate }}
{{- if and $tls.general.caSecretName (not $tls.general.certManager.enabled) }}
{{- $all = set $all "tls-ca" $tls.general.caSecretName }}
{{- end }}
{{- end }}
{{- if $tls.apiServer.secretName }}{{ $all = set $all "api-server-tls-cert" $tls.apiServer.secretName }}{{ end }}
{{- if $tls.apiServer.clientCertsSecretName }}
{{- $all = set $all "api-server-client-certs" $tls.apiServer.clientCertsSecretName }}
{{- end }}
{{- if $tls.kdsGlobalServer.secretName }}{{ $all = set $all "kds-server-tls-cert" $tls.kdsGlobalServer.secretName }}{{ end }}
{{- if $tls.kdsZoneClient.secretName }}{{ $all = set $all "kds-client-tls-cert" $tls.kdsZoneClient.secretName }}{{ end }}
{{- toJson $all }}
{{- end }}

{{/* The environment of the control plane, as JSON: name and value. */}}
{{- define "weft.environment" -}}
{{- $ := . }}
{{- $cp := .Values.controlPlane }}
{{- $env := dict
  "KUMA_AUDIT_OUTPUT" "stdout"
  "KUMA_ENVIRONMENT" "kubernetes"
  "KUMA_GENERAL_DATA_DIR" "/var/lib/weft"
  "KUMA_INJECTOR_INIT_CONTAINER_IMAGE" (include "weft.image" (list . .Values.dataPlane.initImage))
  "KUMA_RUNTIME_KUBERNETES_INJECTOR_SIDECAR_CONTAINER_IMAGE" (include "weft.image" (list . .Values.dataPlane.image))
  "KUMA_STORE_KUBERNETES_SYSTEM_NAMESPACE" .Release.Namespace
  "KUMA_STORE_TYPE" "kubernetes"
  "WEFT_CONFIG" "/var/lib/weft/contexts" }}
{{- range $path, $variable := .Files.Get "files/settings.yaml" | fromYaml }}
{{- $at := $.Values }}
{{- range splitList "." $path }}{{ $at = index $at . }}{{ end }}
{{- if kindIs "slice" $at }}{{ $at = join "," $at }}{{ end }}
{{- $env = set $env $variable (toString $at) }}
{{- end }}
{{- $mounted := include "weft.secrets" . | fromJson }}
{{- $dir := "/var/run/secrets/kuma.io/" }}
{{- if hasKey $mounted "tls-cert" }}
{{- $env = set $env "KUMA_GENERAL_TLS_CERT_FILE" (printf "%stls-cert/tls.crt" $dir) }}
{{- $env = set $env "KUMA_GENERAL_TLS_KEY_FILE" (printf "%stls-cert/tls.key" $dir) }}
{{- $env = set $env "KUMA_RUNTIME_KUBERNETES_ADMISSION_SERVER_CERT_DIR" (printf "%stls-cert" $dir) }}
{{- $ca := "tls-cert" }}{{ if hasKey $mounted "tls-ca" }}{{ $ca = "tls-ca" }}{{ end }}
{{- $env = set $env "KUMA_RUNTIME_KUBERNETES_INJECTOR_CA_CERT_FILE" (printf "%s%s/ca.crt" $dir $ca) }}
{{- end }}
{{- if hasKey $mounted "api-server-tls-cert" }}
{{- $env = set $env "KUMA_API_SERVER_HTTPS_TLS_CERT_FILE" (printf "%sapi-server-tls-cert/tls.crt" $dir) }}
{{- $env = set $env "KUMA_API_SERVER_HTTPS_TLS_KEY_FILE" (printf "%sapi-server-tls-cert/tls.key" $dir) }}
{{- end }}
{{- if hasKey $mounted "api-server-client-certs" }}
{{- $env = set $env "KUMA_API_SERVER_AUTH_CLIENT_CERTS_DIR" (printf "%sapi-server-client-certs" $dir) }}
{{- end }}
{{- if hasKey $mounted "kds-server-tls-cert" }}
{{- $env = set $env "KUMA_MULTIZONE_GLOBAL_KDS_TLS_CERT_FILE" (printf "%skds-server-tls-cert/tls.crt" $dir) }}
{{- $env = set $env "KUMA_MULTIZONE_GLOBAL_KDS_TLS_KEY_FILE" (printf "%skds-server-tls-cert/tls.key" $dir) }}
{{- end }}
{{- if hasKey $mounted "kds-client-tls-cert" }}
{{- $env = set $env "KUMA_MULTIZONE_ZONE_KDS_ROOT_CA_FILE" (printf "%skds-client-tls-cert/ca.crt" $dir) }}
{{- end }}
{{- range $name, $value := $cp.envVars }}{{ $env = set $env $name (toString $value) }}{{ end }}
{{- toJson $env }}
{{- end }}

{{/* Where a Pod may run: the values of the control plane or of a zone proxy. */}}
{{- define "weft.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* What the Pod security standard "restricted" requires of a container. */}}
{{- define "weft.restricted" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
privileged: false
readOnlyRootFilesystem: true
runAsGroup: 5678
runAsNonRoot: true
runAsUser: 5678
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* Whom a webhook of kuma.io does not review: the control plane, and controllers of Kubernetes. */}}
{{- define "weft.reviewed" -}}
!(request.userInfo.username in ['system:serviceaccount:{{ .Release.Namespace }}:kuma-control-plane',
'system:serviceaccount:kube-system:generic-garbage-collector',
'system:serviceaccount:kube-system:namespace-controller',
'system:serviceaccount:kube-system:storage-version-migrator-controller'])
{{- end }}

{{/* How the API server calls a webhook: (list CONTEXT PATH). */}}
{{- define "weft.client" -}}
{{- $ := index . 0 }}
service:
  name: {{ $.Values.controlPlane.service.name }}
  namespace: {{ $.Release.Namespace }}
  path: {{ index . 1 }}
  port: 443
{{- with $.Values.controlPlane.tls.general.caBundle }}
caBundle: {{ . }}
{{- end }}
{{- end }}

{{/* Metadata of a webhook configuration. */}}
{{- define "weft.webhooks" -}}
labels:
  {{- include "weft.labels" . | nindent 2 }}
{{- if .Values.controlPlane.tls.general.certManager.enabled }}
annotations:
  cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/kuma-tls-cert
{{- end }}
{{- end }}

{{/* What the webhooks of the injector have in common. */}}
{{- define "weft.injector" -}}
admissionReviewVersions: [v1]
sideEffects: None
failurePolicy: {{ .Values.controlPlane.injectorFailurePolicy }}
matchPolicy: Equivalent
reinvocationPolicy: IfNeeded
timeoutSeconds: 5
clientConfig:
  {{- include "weft.client" (list . "/inject-sidecar") | nindent 2 }}
rules:
- apiGroups: [""]
  apiVersions: [v1]
  operations: [CREATE]
  resources: [pods]
  scope: Namespaced
{{- end }}
