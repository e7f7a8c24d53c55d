package settings

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"weft/internal/agent/kumaenv"
)

// ignoredSettings are settings of Kuma without effect here, with the reason. A trailing "_" stands for all variables
// with the prefix. The first match counts.
var ignoredSettings = []struct{ name, reason string }{
	{"KUMA_API_SERVER_HTTPS_TLS_MIN_VERSION", "TLS 1.2 is the oldest version"},
	{"KUMA_API_SERVER_HTTPS_TLS_MAX_VERSION", "TLS 1.3 is always enabled"},
	{"KUMA_API_SERVER_HTTPS_TLS_CIPHER_SUITES", "Go selects the ciphers"},
	{"KUMA_API_SERVER_GUI_", "there is no web interface in this release"},
	{"KUMA_API_SERVER_CORS_ALLOWED_DOMAINS", "there is no web interface in this release"},
	{"KUMA_API_SERVER_READ_ONLY", "the API accepts writes"},
	{"KUMA_API_SERVER_BASE_PATH", "the API has no path prefix"},
	{"KUMA_API_SERVER_ROOT_URL", "the API has no path prefix"},
	{"KUMA_API_SERVER_READ_HEADER_TIMEOUT", "the time limits of the API are fixed"},
	{"KUMA_API_SERVER_READ_TIMEOUT", "the time limits of the API are fixed"},
	{"KUMA_API_SERVER_WRITE_TIMEOUT", "the time limits of the API are fixed"},
	{"KUMA_API_SERVER_IDLE_TIMEOUT", "the time limits of the API are fixed"},
	{"KUMA_API_SERVER_AUTHN_TYPE",
		"all credentials are enabled: user tokens, client certificates, the administrator's socket"},
	{"KUMA_API_SERVER_AUTHN_TOKENS_ENABLE_ISSUER",
		"KUMA_ACCESS_STATIC_GENERATE_USER_TOKEN_GROUPS lists the groups that may generate user tokens"},
	{"KUMA_API_SERVER_AUTHN_TOKENS_VALIDATOR_",
		"user tokens are verified with the keys in the GlobalSecrets user-token-signing-key-N"},
	{"KUMA_BOOTSTRAP_SERVER_", "the agent writes Envoy's bootstrap itself"},
	{"KUMA_DEFAULTS_SKIP_TENANT_RESOURCES",
		"see KUMA_DEFAULTS_SKIP_MESH_CREATION and KUMA_DEFAULTS_SKIP_HOSTNAME_GENERATORS"},
	{"KUMA_DEFAULTS_ENABLE_LOCALHOST_INBOUND_CLUSTERS", "serviceAddress of an inbound decides"},
	{"KUMA_DEFAULTS_CREATE_MESH_ROUTING_RESOURCES", "routes need no resources of their own"},
	{"KUMA_DEFAULT_POLICIES_", "the first start creates no policy"},
	{"KUMA_DIAGNOSTICS_DEBUG_ENDPOINTS", "they are always served, to administrators"},
	{"KUMA_DIAGNOSTICS_TLS_", "diagnostics are served over HTTP"},
	{"KUMA_DNS_SERVER_", "the control plane serves no DNS; the range of IPv6 virtual IPs is KUMA_IPAM_IPV6_CIDR"},
	{"KUMA_DP_SERVER_AUTH_", "every proxy authenticates with a dataplane token"},
	{"KUMA_DP_SERVER_AUTHN_", "every proxy authenticates: Pods with tokens of their service accounts, others with " +
		"dataplane tokens"},
	{"KUMA_DP_SERVER_HDS_", "the agent probes the application"},
	{"KUMA_DP_SERVER_READ_HEADER_TIMEOUT", "the time limits of the server for proxies are fixed"},
	{"KUMA_DP_SERVER_GRACEFUL_SHUTDOWN_TIMEOUT", "the time of a shutdown is fixed"},
	{"KUMA_DP_SERVER_TLS_", "see KUMA_GENERAL_TLS_CERT_FILE"},
	{"KUMA_EXPERIMENTAL_AUTO_REACHABLE_SERVICES", "there are no experimental features"},
	{"KUMA_EXPERIMENTAL_DELTA_XDS", "there are no experimental features"},
	{"KUMA_EXPERIMENTAL_EXPOSE_ZONE_PROXY_METRICS", "there are no experimental features"},
	{"KUMA_EXPERIMENTAL_GATEWAY_API", "there are no experimental features"},
	{"KUMA_EXPERIMENTAL_INBOUND_TAGS_DISABLED", "there are no experimental features"},
	{"KUMA_EXPERIMENTAL_INGRESS_TAG_FILTERS", "there are no experimental features"},
	{"KUMA_EXPERIMENTAL_KDS_", "there are no experimental features"},
	{"KUMA_EXPERIMENTAL_KUBE_OUTBOUNDS_AS_VIPS", "there are no experimental features"},
	{"KUMA_EXPERIMENTAL_USE_TAG_FIRST_VIRTUAL_OUTBOUND_MODEL", "there are no experimental features"},
	{"KUMA_GENERAL_TLS_MIN_VERSION", "TLS 1.2 is the oldest version"},
	{"KUMA_GENERAL_TLS_MAX_VERSION", "TLS 1.3 is always enabled"},
	{"KUMA_GENERAL_TLS_CIPHER_SUITES", "Go selects the ciphers"},
	{"KUMA_GENERAL_CERT_GENERATION_", "weft-dp requests a certificate again after a failure"},
	{"KUMA_GENERAL_DNS_CACHE_TTL",
		"host names are resolved by the TTL of their records; see hostNames in the settings"},
	{"KUMA_GENERAL_RESILIENT_COMPONENT_", "components are not restarted"},
	{"KUMA_GENERAL_WORK_DIR", "use KUMA_GENERAL_DATA_DIR"},
	{"KUMA_INTER_CP_CATALOG_HEARTBEAT_INTERVAL", "replicas know each other by their store"},
	{"KUMA_INTER_CP_CATALOG_WRITER_INTERVAL", "replicas know each other by their store"},
	{"KUMA_INTER_CP_CATALOG_INSTANCE_VERSION", "replicas know each other by their store"},
	{"KUMA_INTER_CP_SERVER_TLS_", "replicas use TLS 1.3"},
	{"KUMA_METRICS_", "metrics need no timer"},
	{"KUMA_MONITORING_ASSIGNMENT_SERVER_", "there is no monitoring assignment service in this release"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_TLS_ENABLED", "the server for zones always uses TLS"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_TLS_MIN_VERSION", "TLS 1.2 is the oldest version"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_TLS_MAX_VERSION", "TLS 1.3 is always enabled"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_TLS_CIPHER_SUITES", "Go selects the ciphers"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_AUTH_TYPE", "every zone authenticates with a zone token"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_REFRESH_INTERVAL", "changes are sent when they happen"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_MAX_MSG_SIZE", "large messages are sent in chunks"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_MSG_SEND_TIMEOUT", "an unresponsive peer is disconnected after 15 seconds"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_NACK_BACKOFF", "a rejected resource is tried again when a dependency changes"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_RESPONSE_BACKOFF", "changes within a few milliseconds are sent together"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_LABELS_", "all labels are synced with their resource"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_LOG_PAYLOADS", "resources are not logged"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_TRACING_", "the control plane sends no traces"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_ZONE_INSIGHT_FLUSH_INTERVAL", "the state of a zone is stored when it changes"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_DISABLE_SOTW", "there is only a delta protocol"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_ZONE_HEALTH_CHECK_", "a zone is healthy while it is connected"},
	{"KUMA_MULTIZONE_ZONE_DISABLE_ORIGIN_LABEL_VALIDATION", "the control plane sets the label kuma.io/origin"},
	{"KUMA_MULTIZONE_ZONE_INGRESS_UPDATE_INTERVAL", "changes of the zone's ingresses are sent when they happen"},
	{"KUMA_MULTIZONE_ZONE_KDS_TLS_SKIP_VERIFY",
		"the certificate of the global control plane is always verified; see KUMA_MULTIZONE_ZONE_KDS_ROOT_CA_FILE"},
	{"KUMA_MULTIZONE_ZONE_KDS_REFRESH_INTERVAL", "changes are sent when they happen"},
	{"KUMA_MULTIZONE_ZONE_KDS_MAX_MSG_SIZE", "large messages are sent in chunks"},
	{"KUMA_MULTIZONE_ZONE_KDS_MSG_SEND_TIMEOUT", "an unresponsive peer is disconnected after 15 seconds"},
	{"KUMA_MULTIZONE_ZONE_KDS_NACK_BACKOFF", "a rejected resource is tried again when a dependency changes"},
	{"KUMA_MULTIZONE_ZONE_KDS_RESPONSE_BACKOFF", "changes within a few milliseconds are sent together"},
	{"KUMA_MULTIZONE_ZONE_KDS_LABELS_", "all labels are synced with their resource"},
	{"KUMA_MULTIZONE_ZONE_KDS_LOG_PAYLOADS", "resources are not logged"},
	{"KUMA_POLICIES_", "all policies of this release are always enabled"},
	{"KUMA_PLUGIN_POLICIES_ENABLED", "all policies of this release are always enabled"},
	{"KUMA_CORE_RESOURCES_", "all kinds of this release are always enabled"},
	{"KUMA_IPAM_KNOWN_INTERNAL_CIDRS", "no behavior depends on internal addresses"},
	{"KUMA_IPAM_ALLOCATION_INTERVAL", "virtual IPs are assigned when they are needed"},
	{"KUMA_MESH_SERVICE_GENERATION_INTERVAL", "MeshServices are generated when their Dataplanes change"},
	{"KUMA_MESH_SERVICE_DELETION_GRACE_PERIOD", "a generated MeshService stays for an hour after its last Dataplane"},
	{"KUMA_MESH_SERVICE_LABEL_PROPAGATION_", "resources that are generated have fixed labels"},
	{"KUMA_PROXY_GATEWAY_", "there is no gateway in this release"},
	{"KUMA_RUNTIME_KUBERNETES_ALLOWED_USERS", "the API server's authorization decides who writes"},
	{"KUMA_RUNTIME_KUBERNETES_CLIENT_CONFIG_", "the API server limits requests (API priority and fairness)"},
	{"KUMA_RUNTIME_KUBERNETES_CONTROLLERS_CONCURRENCY_", "changes are computed together"},
	{"KUMA_RUNTIME_KUBERNETES_DISALLOW_MULTIPLE_MESHES_PER_NAMESPACE", "a namespace may have several meshes"},
	{"KUMA_RUNTIME_KUBERNETES_INJECTOR_EBPF_", "connections are redirected by iptables"},
	{"KUMA_RUNTIME_KUBERNETES_INJECTOR_BUILTIN_DNS_LOGGING", "queries are not logged"},
	{"KUMA_RUNTIME_KUBERNETES_INJECTOR_BUILTIN_DNS_EXPERIMENTAL_PROXY", "there is one DNS server, in weft-dp"},
	{"KUMA_RUNTIME_KUBERNETES_INJECTOR_OTEL_PIPE_ENABLED", "weft-dp collects no telemetry for a collector"},
	{"KUMA_RUNTIME_KUBERNETES_INJECTOR_SIDECAR_CONTAINER_ADMIN_PORT",
		"Envoy's admin interface is a unix socket; networking.admin.port of a Dataplane makes it a port"},
	{"KUMA_RUNTIME_KUBERNETES_INJECTOR_SIDECAR_CONTAINER_DRAIN_TIME",
		"dpServer.drainTime is the drain time of all proxies"},
	{"KUMA_RUNTIME_KUBERNETES_INJECTOR_TRANSPARENT_PROXY_CONFIGMAP_NAME",
		"runtime.kubernetes.injector.sidecarTraffic and annotations of the Pod are the configuration"},
	{"KUMA_RUNTIME_KUBERNETES_INJECTOR_UNIFIED_RESOURCE_NAMING_ENABLED", "resources of Envoy have one form of names"},
	{"KUMA_RUNTIME_KUBERNETES_MARSHALING_CACHE_EXPIRATION_TIME", "the store is read once, then watched"},
	{"KUMA_RUNTIME_KUBERNETES_NODE_TAINT_CONTROLLER_", "no node is tainted"},
	{"KUMA_RUNTIME_KUBERNETES_SKIP_MESH_OWNER_REFERENCE", "resources of users have no owner references"},
	{"KUMA_RUNTIME_KUBERNETES_SUPPORT_GATEWAY_SECRETS_IN_ALL_NAMESPACES", "there is no gateway in this release"},
	{"KUMA_RUNTIME_KUBERNETES_VIRTUAL_PROBES_", "see KUMA_RUNTIME_KUBERNETES_APPLICATION_PROBE_PROXY_PORT"},
	{"KUMA_RUNTIME_UNIVERSAL_", "updates follow changes instead of timers"},
	{"KUMA_STORE_CACHE_", "the store is read once, then watched"},
	{"KUMA_STORE_CONFLICT_RETRY_", "writes of the control plane are retried after a conflict"},
	{"KUMA_STORE_EVENT_BUS_", "queues are bounded"},
	{"KUMA_STORE_POSTGRES_DRIVER_NAME", "there is one driver"},
	{"KUMA_STORE_POSTGRES_MIN_OPEN_CONNECTIONS", "connections are opened on demand"},
	{"KUMA_STORE_POSTGRES_MAX_IDLE_CONNECTIONS", "idle connections are closed after 5 minutes"},
	{"KUMA_STORE_POSTGRES_MAX_CONNECTION_IDLE_TIME", "idle connections are closed after 5 minutes"},
	{"KUMA_STORE_POSTGRES_MAX_CONNECTION_LIFETIME", "connections are kept while they are used"},
	{"KUMA_STORE_POSTGRES_MAX_CONNECTION_LIFETIME_JITTER", "connections are kept while they are used"},
	{"KUMA_STORE_POSTGRES_HEALTH_CHECK_INTERVAL", "a connection is checked before it is used"},
	{"KUMA_STORE_POSTGRES_MIN_RECONNECT_INTERVAL", "a lost connection is reopened after a second"},
	{"KUMA_STORE_POSTGRES_MAX_RECONNECT_INTERVAL", "a lost connection is reopened after a second"},
	{"KUMA_STORE_POSTGRES_MAX_LIST_QUERY_ELEMENTS", "the store is read once, then watched"},
	{"KUMA_STORE_POSTGRES_READ_REPLICA_", "reads must return earlier writes, so they use the same server as writes"},
	{"KUMA_STORE_POSTGRES_TOLERATE_NEWER_DB_VERSIONS",
		"a database that a newer release wrote is never opened by an older one"},
	{"KUMA_STORE_POSTGRES_TLS_DISABLE_SSLSNI", "the TLS handshake names the host of the database"},
	{"KUMA_STORE_UNSAFE_DELETE", "a mesh that has Dataplanes is never deleted"},
	{"KUMA_STORE_UPSERT_", "writes of the control plane are retried after a conflict"},
	{"KUMA_TRACING_", "the control plane sends no traces"},
	{"KUMA_ACCESS_TYPE", "access.static has the rules"},
	{"KUMA_ACCESS_LOG_", "the control plane keeps no access log"},
	{"KUMA_EVENT_BUS_", "queues are bounded"},
	{"KUMA_REPORTS_ENABLED", "no usage reports are sent"},
	{"KUMA_XDS_SERVER_", "changes are sent to proxies when they happen"},
	{"KUMA_XDS_DATAPLANE_DEREGISTRATION_DELAY",
		"the Dataplane of an agent is deleted 5 minutes after it has disconnected"},
}

// variablesOf are the variables of keys whose name does not follow from the path, see [variableOf].
var variablesOf = map[string]string{
	"runtime.kubernetes.injector.virtualProbesEnabled": runtimeVariable + "VIRTUAL_PROBES_ENABLED",
	"runtime.kubernetes.injector.virtualProbesPort":    runtimeVariable + "VIRTUAL_PROBES_PORT",
	"runtime.kubernetes.injector.transparentProxyConfigMap": runtimeVariable +
		"INJECTOR_TRANSPARENT_PROXY_CONFIGMAP_NAME",
	"store.postgres.tolerateNewerDBVersions": "KUMA_STORE_POSTGRES_TOLERATE_NEWER_DB_VERSIONS",
}

// endOfWord is where a word of a key ends.
var endOfWord = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// variableOf returns Kuma's variable of a key in its settings file: KUMA_XDS_SERVER_NACK_BACKOFF for
// xdsServer.nackBackoff.
func variableOf(path string) string {
	if name, ok := variablesOf[path]; ok {
		return name
	}
	words := endOfWord.ReplaceAllString(strings.ReplaceAll(path, ".", "_"), "${1}_${2}")
	return "KUMA_" + strings.ToUpper(words)
}

// rejectedSettings are settings without effect here that protect something in Kuma: with this value the start is an
// error, since the control plane would be open where the operator has closed it.
var rejectedSettings = []struct {
	name  string
	value bool
	help  string
}{
	{"KUMA_API_SERVER_READ_ONLY", true, "the API accepts writes; leave it out, and set access.static.write.users and " +
		"access.static.write.groups to those who may write"},
	{"KUMA_DIAGNOSTICS_TLS_ENABLED", true, "diagnostics are served over HTTP; leave it out, and set " +
		"diagnostics.serverInterface to 127.0.0.1 or to an address of a network that you trust"},
}

// rejected returns an error for a value without effect here that protects something in Kuma.
func rejected(name, value string) error {
	for _, known := range rejectedSettings {
		if given, err := strconv.ParseBool(value); known.name == name && err == nil && given == known.value {
			return fmt.Errorf("%q is not possible: %s", value, known.help)
		}
	}
	return nil
}

// withoutMeaning returns the reason why a variable of Kuma has no effect.
func withoutMeaning(name string) (reason string, ok bool) {
	for _, known := range ignoredSettings {
		if kumaenv.Covers(known.name, name) {
			return known.reason, true
		}
	}
	return "", false
}

// hasIgnored reports whether keys below a path are settings of Kuma without effect.
func hasIgnored(path string) bool {
	prefix := variableOf(path) + "_"
	for _, known := range ignoredSettings {
		if strings.HasPrefix(known.name, prefix) {
			return true
		}
	}
	return false
}

// branchWithoutMeaning returns the reason why all keys below a path have no effect.
func branchWithoutMeaning(path string) (reason string, ok bool) {
	return withoutMeaning(variableOf(path) + "_")
}
