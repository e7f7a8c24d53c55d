package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/kind"
	"weft/resource"
)

// anyService is the selector of every service in the older kinds.
const anyService = "*"

// older writes the objects of Kuma's older kinds as those that replace them. Of several older policies Kuma takes the
// most specific one alone, and none beside one of the kind that replaces it, while the others merge: a policy is
// translated where no other one of the export could be taken in its place.
func (t *translation) older() {
	for _, o := range t.objects {
		to := kind.ReplacementOf(o.kind)
		if to == "" || o.whole() {
			continue
		}
		if o.noPatch() {
			o.note(Skipped, "", "it changes nothing: weft always applies the profile default-proxy", "")
			continue
		}
		spec, reason := t.replacement(o)
		if reason != "" {
			o.omit("", lacks(o)+", and "+reason, kind.InsteadOf(o.kind))
			continue
		}
		if o.kind == "ExternalService" && t.servesItself(o.mesh, o.service) {
			o.omit("", fmt.Sprintf("Dataplanes of the mesh have its service %s too, and Kuma sends requests to both; "+
				"a destination of weft is in the mesh or outside", o.service),
				"write a MeshExternalService with a name of its own, and split the requests with a MeshHTTPRoute or a "+
					"MeshTCPRoute")
			o.service = ""
			continue
		}
		o.written = map[string]any{"type": to, "mesh": o.mesh, "name": o.name, "spec": spec}
		if kind.ByName(to).Describe().Scope == resource.Global {
			delete(o.written, "mesh")
		}
		if len(o.labels) > 0 {
			o.written["labels"] = o.labels
		}
	}
	t.joinExternals()
	t.tagsOfExternals()
	for _, o := range t.objects {
		if o.written != nil {
			o.note(Adapted, "", "is written as a "+kind.ReplacementOf(o.kind), "")
			o.was, o.kind, o.fields, o.written = o.kind, kind.ReplacementOf(o.kind), o.written, nil
			o.mesh = text(o.fields["mesh"])
		}
	}
}

// replacement is the spec of an object of an older kind in the kind that replaces it, or the reason why there is none.
func (t *translation) replacement(o *object) (spec map[string]any, reason string) {
	if o.kind == "ExternalService" {
		if spec = o.externalService(); spec == nil {
			return nil, "it has no address and service, or certificates"
		}
		return spec, ""
	}
	if o.kind == "TrafficPermission" && t.meshes[o.mesh] == nil {
		return nil, "without a permission weft denies; the Mesh is not in the export, nor perhaps other permissions"
	}
	for _, other := range t.objects {
		if other != o && other.mesh == o.mesh && (other.kind == o.kind || other.kind == kind.ReplacementOf(o.kind)) &&
			!o.outranks(other) {
			return nil, fmt.Sprintf("%s may be taken in its place", other)
		}
	}
	for _, other := range t.objects {
		if o.kind == "TrafficRoute" && other.kind == kind.MeshHTTPRoutes.Name && other.mesh == o.mesh {
			return nil, fmt.Sprintf("%s may be taken in its place", other)
		}
	}
	switch o.kind {
	case "TrafficPermission":
		spec = o.trafficPermission()
	case "Timeout":
		return t.sent(o, timeoutConf)
	case "CircuitBreaker":
		return t.sent(o, circuitBreakerConf)
	case "HealthCheck":
		return t.sent(o, healthCheckConf)
	case "Retry":
		return t.sent(o, retryConf)
	case "RateLimit":
		return t.rateLimit(o)
	case "FaultInjection":
		return t.faultInjection(o)
	case "TrafficRoute":
		return t.trafficRoute(o)
	case "ProxyTemplate":
		return t.proxyTemplate(o)
	case "VirtualOutbound":
		return t.virtualOutbound(o)
	}
	if spec == nil {
		return nil, "its selectors have no plain equal"
	}
	return spec, ""
}

// outranks returns whether Kuma takes a permission for one service over another one, or the other is about another
// service, or both have their effect.
func (o *object) outranks(other *object) bool {
	switch {
	case other.kind != o.kind:
		return false
	case o.kind == "FaultInjection", o.kind == "VirtualOutbound": // each injects its fault, or gives its host name
		return true
	case o.kind == "RateLimit":
		return !limitsSame(o, other)
	case o.kind == "TrafficRoute":
		mine, ok := selected(o.ofPolicy()["destinations"])
		theirs, known := selected(other.ofPolicy()["destinations"])
		return other.ofEachMesh() || ok && known && !slices.Contains(theirs, anyService) &&
			!slices.Contains(mine, anyService) &&
			!slices.ContainsFunc(mine, func(service string) bool { return slices.Contains(theirs, service) })
	case o.kind != "TrafficPermission":
		return false
	}
	mine, ok := selected(o.ofPolicy()["destinations"])
	theirs, known := selected(other.ofPolicy()["destinations"])
	return ok && known && !slices.Contains(mine, anyService) &&
		!slices.ContainsFunc(mine, func(service string) bool { return slices.Contains(theirs, service) })
}

// selected returns the services of a list of selectors of an older kind; false where one selects by other tags too, or
// where there is none.
func selected(selectors any) ([]string, bool) {
	var services []string
	for _, item := range list(selectors) {
		match := mapping(mapping(item)["match"])
		service := text(match[kind.ServiceTag])
		if service == "" || len(match) != 1 {
			return nil, false
		}
		services = append(services, service)
	}
	return services, len(services) > 0
}

// trafficPermission is the spec of a permission that allows the same callers by `from`. Of several older permissions
// each allows, whatever their order.
func (o *object) trafficPermission() map[string]any {
	fields := o.ofPolicy()
	sources, ok := selected(fields["sources"])
	destinations, known := selected(fields["destinations"])
	if !ok || !known || len(destinations) > 1 {
		return nil
	}
	ref := map[string]any{"kind": "Mesh"}
	if destinations[0] != anyService {
		ref = map[string]any{"kind": "MeshService", "name": destinations[0]}
	}
	var from []any
	for _, source := range sources {
		caller := map[string]any{"kind": "Mesh"}
		if source != anyService {
			caller = map[string]any{"kind": "MeshService", "name": source}
		}
		from = append(from, map[string]any{"targetRef": caller, "default": map[string]any{"action": "Allow"}})
	}
	return map[string]any{"targetRef": ref, "from": from}
}

// sent is the spec of a policy about sent traffic, or the reason why there is none: where tags of servers are selected,
// or a field of the conf has no equal.
func (t *translation) sent(o *object, conf func(fields map[string]any) (map[string]any, bool)) (map[string]any,
	string) {
	fields := o.ofPolicy()
	client, reason := t.clientTarget(o, fields["sources"])
	if reason != "" {
		return nil, reason
	}
	destinations, known := selected(fields["destinations"])
	written, plain := conf(mapping(fields["conf"]))
	switch {
	case !known:
		return nil, "its destinations are more than services by name"
	case !plain || len(written) == 0:
		return nil, "its conf has no plain equal"
	}
	var to []any
	for _, service := range destinations {
		ref := map[string]any{"kind": "Mesh"}
		if service != anyService {
			ref = map[string]any{"kind": "MeshService", "name": service}
		}
		to = append(to, map[string]any{"targetRef": ref, "default": written})
	}
	return map[string]any{"targetRef": client, "to": to}, ""
}

// renamed moves fields to other names; false where there is one that has none.
func renamed(fields map[string]any, names map[string]string) (map[string]any, bool) {
	out := map[string]any{}
	for name, value := range fields {
		path, known := names[name]
		if !known {
			return nil, false
		}
		at := out
		steps := strings.Split(path, ".")
		for _, step := range steps[:len(steps)-1] {
			inner := mapping(at[step])
			if inner == nil {
				inner = map[string]any{}
				at[step] = inner
			}
			at = inner
		}
		at[steps[len(steps)-1]] = value
	}
	return out, true
}

// flat is a mapping with the fields of its mappings, as "http.idleTimeout".
func flat(fields map[string]any) map[string]any {
	out := map[string]any{}
	for name, value := range fields {
		inner, isMapping := value.(map[string]any)
		if !isMapping || len(inner) == 0 {
			out[name] = value
			continue
		}
		for field, value := range flat(inner) {
			out[name+"."+field] = value
		}
	}
	return out
}

// timeoutConf is the conf of a Timeout. The idle timeouts of TCP and of HTTP are one field in a MeshTimeout.
func timeoutConf(fields map[string]any) (map[string]any, bool) {
	conf := flat(fields)
	tcp, ofHTTP := conf["tcp.idleTimeout"], conf["http.idleTimeout"]
	if tcp != nil && ofHTTP != nil && normalized(tcp) != normalized(ofHTTP) {
		return nil, false
	}
	if streams := conf["grpc.streamIdleTimeout"]; streams != nil {
		if conf["http.streamIdleTimeout"] != nil && normalized(streams) != normalized(conf["http.streamIdleTimeout"]) {
			return nil, false
		}
	}
	return renamed(conf, map[string]string{"connectTimeout": "connectionTimeout", "tcp.idleTimeout": "idleTimeout",
		"http.idleTimeout": "idleTimeout", "http.requestTimeout": "http.requestTimeout",
		"http.streamIdleTimeout": "http.streamIdleTimeout", "http.maxStreamDuration": "http.maxStreamDuration"})
}

// circuitBreakerConf is the conf of a CircuitBreaker that has limits of connections alone: its detectors count other
// failures than those of a MeshCircuitBreaker by default.
func circuitBreakerConf(fields map[string]any) (map[string]any, bool) {
	return renamed(flat(fields), map[string]string{
		"thresholds.maxConnections":     "connectionLimits.maxConnections",
		"thresholds.maxPendingRequests": "connectionLimits.maxPendingRequests",
		"thresholds.maxRequests":        "connectionLimits.maxRequests",
		"thresholds.maxRetries":         "connectionLimits.maxRetries",
	})
}

// healthCheckConf is the conf of a HealthCheck of connections, or of requests for a path.
func healthCheckConf(fields map[string]any) (map[string]any, bool) {
	if tcp, has := fields["tcp"]; has && len(mapping(tcp)) > 0 {
		return nil, false // what it sends is in base64
	}
	conf := maps.Clone(fields)
	_, ofConnections := conf["tcp"]
	delete(conf, "tcp")
	written, ok := renamed(flat(conf), map[string]string{"interval": "interval", "timeout": "timeout",
		"unhealthyThreshold": "unhealthyThreshold", "healthyThreshold": "healthyThreshold", "http.path": "http.path",
		"http.expectedStatuses": "http.expectedStatuses"})
	if ok && ofConnections {
		written["tcp"] = map[string]any{}
	}
	return written, ok
}

// retryConf is the conf of a Retry.
func retryConf(fields map[string]any) (map[string]any, bool) {
	names := map[string]string{"tcp.maxConnectAttempts": "tcp.maxConnectAttempt"}
	for _, protocol := range []string{"http", "grpc"} {
		for _, field := range []string{"numRetries", "perTryTimeout", "backOff.baseInterval", "backOff.maxInterval"} {
			names[protocol+"."+field] = protocol + "." + field
		}
	}
	return renamed(flat(fields), names)
}
