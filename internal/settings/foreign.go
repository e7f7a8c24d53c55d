package settings

import "strings"

// agentVariables are those of the agent beside each proxy, which may share its environment with a
// control plane; a trailing "_" stands for all that begin so.
var agentVariables = []string{
	"KUMA_CONTROL_PLANE_URL",
	"KUMA_CONTROL_PLANE_CA_CERT",
	"KUMA_CONTROL_PLANE_CA_CERT_FILE",
	"KUMA_CONTROL_PLANE_RETRY_",
	"KUMA_DATAPLANE_",
	"KUMA_DNS_",
	"KUMA_APPLICATION_PROBE_PROXY_",
}

func ofAgent(name string) bool {
	for _, known := range agentVariables {
		if covers(known, name) {
			return true
		}
	}
	return false
}

// meaningless are settings of Kuma that have no effect here, with the reason; a trailing "_" stands for
// all that begin so. The first that covers a name answers.
var meaningless = []struct{ name, reason string }{
	{"KUMA_API_SERVER_HTTPS_TLS_MIN_VERSION", "TLS 1.2 is the oldest that is spoken"},
	{"KUMA_API_SERVER_HTTPS_TLS_MAX_VERSION", "TLS 1.3 is always spoken"},
	{"KUMA_API_SERVER_HTTPS_TLS_CIPHER_SUITES", "the ciphers are Go's choice"},
	{"KUMA_API_SERVER_GUI_", "there is no web interface in this release"},
	{"KUMA_API_SERVER_CORS_ALLOWED_DOMAINS", "there is no web interface in this release"},
	{"KUMA_API_SERVER_READ_ONLY", "the API takes writes"},
	{"KUMA_API_SERVER_BASE_PATH", "the API has no path of its own in front"},
	{"KUMA_API_SERVER_ROOT_URL", "the API has no path of its own in front"},
	{"KUMA_API_SERVER_AUTHN_TYPE", "every proof of who somebody is holds: user tokens, client certificates, the administrator's socket"},
	{"KUMA_API_SERVER_AUTHN_TOKENS_ENABLE_ISSUER", "KUMA_ACCESS_STATIC_GENERATE_USER_TOKEN_GROUPS says who may make user tokens"},
	{"KUMA_API_SERVER_AUTHN_TOKENS_VALIDATOR_", "user tokens are checked with the keys in the GlobalSecrets user-token-signing-key-N"},
	{"KUMA_BOOTSTRAP_SERVER_", "the agent writes Envoy's bootstrap itself"},
	{"KUMA_DEFAULTS_SKIP_TENANT_RESOURCES", "see KUMA_DEFAULTS_SKIP_MESH_CREATION and KUMA_DEFAULTS_SKIP_HOSTNAME_GENERATORS"},
	{"KUMA_DEFAULTS_ENABLE_LOCALHOST_INBOUND_CLUSTERS", "serviceAddress of an inbound decides"},
	{"KUMA_DEFAULTS_CREATE_MESH_ROUTING_RESOURCES", "routes need no resources of their own"},
	{"KUMA_DEFAULT_POLICIES_", "no policy is made on the first start"},
	{"KUMA_DIAGNOSTICS_DEBUG_ENDPOINTS", "they are always served, to administrators"},
	{"KUMA_DIAGNOSTICS_TLS_", "diagnostics are served over HTTP"},
	{"KUMA_DNS_SERVER_", "the control plane serves no DNS"},
	{"KUMA_DP_SERVER_AUTH_", "every proxy proves itself with a dataplane token"},
	{"KUMA_DP_SERVER_AUTHN_", "every proxy proves itself with a dataplane token"},
	{"KUMA_DP_SERVER_HDS_", "the agent probes the application"},
	{"KUMA_DP_SERVER_TLS_", "see KUMA_GENERAL_TLS_CERT_FILE"},
	{"KUMA_ENVIRONMENT", "the environment is universal in this release"},
	{"KUMA_EXPERIMENTAL_", "nothing here is experimental by setting"},
	{"KUMA_GENERAL_TLS_MIN_VERSION", "TLS 1.2 is the oldest that is spoken"},
	{"KUMA_GENERAL_TLS_MAX_VERSION", "TLS 1.3 is always spoken"},
	{"KUMA_GENERAL_TLS_CIPHER_SUITES", "the ciphers are Go's choice"},
	{"KUMA_GENERAL_DNS_CACHE_TTL", "the control plane resolves no names"},
	{"KUMA_GENERAL_RESILIENT_COMPONENT_", "nothing restarts by setting"},
	{"KUMA_GENERAL_WORK_DIR", "use KUMA_GENERAL_DATA_DIR"},
	{"KUMA_INTER_CP_", "instances talk through their store"},
	{"KUMA_METRICS_", "nothing is measured on a timer"},
	{"KUMA_MONITORING_ASSIGNMENT_SERVER_", "there is no monitoring assignment service in this release"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_TLS_ENABLED", "zones are served over TLS, always"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_TLS_MIN_VERSION", "TLS 1.2 is the oldest that is spoken"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_TLS_MAX_VERSION", "TLS 1.3 is always spoken"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_TLS_CIPHER_SUITES", "the ciphers are Go's choice"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_AUTH_TYPE", "every zone proves itself with a zone token"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_REFRESH_INTERVAL", "what changed is sent when it changed"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_MAX_MSG_SIZE", "what is large is sent in parts"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_MSG_SEND_TIMEOUT", "whoever answers no more is disconnected after 15 seconds"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_NACK_BACKOFF", "what was refused is tried again when something has changed"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_RESPONSE_BACKOFF", "changes of a few milliseconds travel together"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_LABELS_", "every label travels with its resource"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_ZONE_INSIGHT_FLUSH_INTERVAL", "what is known of a zone is stored when it changes"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_DISABLE_SOTW", "there is one protocol, of what changed"},
	{"KUMA_MULTIZONE_GLOBAL_KDS_ZONE_HEALTH_CHECK_", "a zone is there while its connection is"},
	{"KUMA_MULTIZONE_ZONE_DISABLE_ORIGIN_LABEL_VALIDATION", "the label kuma.io/origin is set by the control plane"},
	{"KUMA_MULTIZONE_ZONE_INGRESS_UPDATE_INTERVAL", "the zone's ingresses are told to others when they change"},
	{"KUMA_MULTIZONE_ZONE_KDS_TLS_SKIP_VERIFY", "the certificate of the global control plane is always verified; see KUMA_MULTIZONE_ZONE_KDS_ROOT_CA_FILE"},
	{"KUMA_MULTIZONE_ZONE_KDS_REFRESH_INTERVAL", "what changed is sent when it changed"},
	{"KUMA_MULTIZONE_ZONE_KDS_MAX_MSG_SIZE", "what is large is sent in parts"},
	{"KUMA_MULTIZONE_ZONE_KDS_MSG_SEND_TIMEOUT", "whoever answers no more is disconnected after 15 seconds"},
	{"KUMA_MULTIZONE_ZONE_KDS_NACK_BACKOFF", "what was refused is tried again when something has changed"},
	{"KUMA_MULTIZONE_ZONE_KDS_RESPONSE_BACKOFF", "changes of a few milliseconds travel together"},
	{"KUMA_MULTIZONE_ZONE_KDS_LABELS_", "every label travels with its resource"},
	{"KUMA_POLICIES_", "every kind of policy of this release is always on"},
	{"KUMA_PLUGIN_POLICIES_ENABLED", "every kind of policy of this release is always on"},
	{"KUMA_CORE_RESOURCES_", "every kind of this release is always on"},
	{"KUMA_IPAM_KNOWN_INTERNAL_CIDRS", "nothing here depends on which addresses are internal"},
	{"KUMA_PROXY_GATEWAY_", "there is no gateway in this release"},
	{"KUMA_RUNTIME_", "the environment is universal, and what Kuma tunes here follows from changes"},
	{"KUMA_STORE_CACHE_", "the store is read once, then watched"},
	{"KUMA_STORE_CONFLICT_RETRY_", "the control plane's own writes are repeated until they fit"},
	{"KUMA_STORE_EVENT_BUS_", "nobody is queued without end"},
	{"KUMA_STORE_KUBERNETES_", "this release keeps resources in SQLite, PostgreSQL or memory"},
	{"KUMA_STORE_POSTGRES_DRIVER_NAME", "there is one driver"},
	{"KUMA_STORE_POSTGRES_MIN_OPEN_CONNECTIONS", "connections are made when they are needed"},
	{"KUMA_STORE_POSTGRES_MAX_IDLE_CONNECTIONS", "connections that nobody uses are closed after 5 minutes"},
	{"KUMA_STORE_POSTGRES_MAX_CONNECTION_LIFETIME", "connections are kept while they are used"},
	{"KUMA_STORE_POSTGRES_MAX_CONNECTION_LIFETIME_JITTER", "connections are kept while they are used"},
	{"KUMA_STORE_POSTGRES_HEALTH_CHECK_INTERVAL", "a connection is checked before it is used"},
	{"KUMA_STORE_POSTGRES_MIN_RECONNECT_INTERVAL", "a lost connection is made again after a second"},
	{"KUMA_STORE_POSTGRES_MAX_RECONNECT_INTERVAL", "a lost connection is made again after a second"},
	{"KUMA_STORE_POSTGRES_MAX_LIST_QUERY_ELEMENTS", "the store is read once, then watched"},
	{"KUMA_STORE_POSTGRES_READ_REPLICA_", "reads see what was written, so they go where writes go"},
	{"KUMA_STORE_UNSAFE_DELETE", "a mesh that has Dataplanes is never deleted"},
	{"KUMA_STORE_UPSERT_", "the control plane's own writes are repeated until they fit"},
	{"KUMA_TRACING_", "the control plane sends no traces"},
	{"KUMA_ACCESS_TYPE", "the rules are those of access.static"},
	{"KUMA_ACCESS_LOG_", "the control plane keeps no access log"},
	{"KUMA_EVENT_BUS_", "nobody is queued without end"},
	{"KUMA_REPORTS_ENABLED", "nothing is reported to anybody"},
	{"KUMA_XDS_SERVER_", "proxies are sent what changed when it changed"},
}

func withoutMeaning(name string) (reason string, ok bool) {
	for _, known := range meaningless {
		if covers(known.name, name) {
			return known.reason, true
		}
	}
	return "", false
}

func covers(known, name string) bool {
	return known == name || strings.HasSuffix(known, "_") && strings.HasPrefix(name, known)
}
