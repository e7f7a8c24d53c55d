// Package kumaenv has the environment variables of kuma-dp, the agent of Kuma: those that set a flag of weft-dp, and
// those without effect. weft-dp reads them, and the control plane tells them from its own settings, whose prefix they
// share.
package kumaenv

import "strings"

// Flags are the variables that set a flag of weft-dp run, in the order in which they are read.
var Flags = []struct{ Variable, Flag string }{
	{"KUMA_CONTROL_PLANE_URL", "cp-address"},
	{"KUMA_CONTROL_PLANE_CA_CERT_FILE", "ca-cert-file"},
	{"KUMA_DATAPLANE_PROXY_TYPE", "proxy-type"},
	{"KUMA_DATAPLANE_RUNTIME_RESOURCE_PATH", "dataplane-file"},
	{"KUMA_DATAPLANE_MESH", "mesh"},
	{"KUMA_DATAPLANE_NAME", "name"},
	{"KUMA_DATAPLANE_RUNTIME_TOKEN_PATH", "dataplane-token-file"},
	{"KUMA_DATAPLANE_RUNTIME_BINARY_PATH", "envoy"},
	{"KUMA_DATAPLANE_RUNTIME_CONCURRENCY", "concurrency"},
	{"KUMA_DATAPLANE_RUNTIME_ENVOY_LOG_LEVEL", "envoy-log-level"},
	{"KUMA_DATAPLANE_RUNTIME_ENVOY_COMPONENT_LOG_LEVEL", "envoy-component-log-level"},
	{"KUMA_DATAPLANE_RESOURCES_MAX_MEMORY_BYTES", "envoy-max-memory"},
	{"KUMA_READINESS_PORT", "readiness-port"},
	{"KUMA_DNS_ENABLED", "dns-port"}, // before the port, which a disabled server does not have
	{"KUMA_DNS_PROXY_PORT", "dns-port"},
	{"KUMA_DNS_CORE_DNS_PORT", "dns-port"},
}

// ignored are the variables without effect, with the reason. A trailing "_" stands for all variables with the prefix.
// The first match counts.
var ignored = []struct{ variable, reason string }{
	{"KUMA_CONTROL_PLANE_CA_CERT", "the CA is read from a file, see --ca-cert-file"},
	{"KUMA_CONTROL_PLANE_TLS_SKIP_VERIFY", "the certificate of the control plane is always verified"},
	{"KUMA_CONTROL_PLANE_API_SERVER_URL", "weft-dp uses only the server for proxies, see --cp-address"},
	{"KUMA_CONTROL_PLANE_RETRY_", "weft-dp retries until it is connected"},
	{"KUMA_DATAPLANE_DRAIN_TIME", "the control plane sets the drain time: dpServer.drainTime"},
	{"KUMA_DATAPLANE_RUNTIME_TOKEN", "the token is read from a file, see --dataplane-token-file"},
	{"KUMA_DATAPLANE_RUNTIME_RESOURCE", "the Dataplane is read from a file, see --dataplane-file"},
	{"KUMA_DATAPLANE_RUNTIME_TRANSPARENT_PROXY", "networking.transparentProxying of the Dataplane has it"},
	{"KUMA_DATAPLANE_RUNTIME_SPIRE_", "a MeshIdentity has the socket of SPIRE"},
	{"KUMA_DATAPLANE_RUNTIME_METRICS_", "weft-dp has no listener for metrics with a certificate of its own"},
	{"KUMA_DATAPLANE_RUNTIME_", "weft-dp makes the configuration of Envoy itself"},
	{"KUMA_DATAPLANE_RESILIENT_COMPONENT_", "weft-dp has its own times between attempts"},
	{"KUMA_DATAPLANE_", "weft-dp has no such setting"},
	{"KUMA_DNS_", "weft-dp serves DNS itself, see --dns-port"},
	{"KUMA_APPLICATION_PROBE_PROXY_", "see --probe-proxy-port"},
}

// Has reports whether a variable is one of the agent.
func Has(name string) bool { return setsFlag(name) || IgnoredReason(name) != "" }

// IgnoredReason returns why a variable of the agent has no effect; empty: it has one, or is of another program.
func IgnoredReason(name string) string {
	if setsFlag(name) {
		return ""
	}
	for _, known := range ignored {
		if Covers(known.variable, name) {
			return known.reason
		}
	}
	return ""
}

func setsFlag(name string) bool {
	for i := range Flags {
		if Flags[i].Variable == name {
			return true
		}
	}
	return false
}

// Covers reports whether a variable is the known one, or begins with it where that ends with "_".
func Covers(known, name string) bool {
	return known == name || strings.HasSuffix(known, "_") && strings.HasPrefix(name, known)
}
