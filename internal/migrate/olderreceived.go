package migrate

import (
	"fmt"
	"strings"

	"weft/kind"
)

// maxFaults is how many FaultInjections of a mesh are translated: a caller gets the faults of as many rules.
const maxFaults = kind.MaxFaults

// receivedFrom is the spec of a policy about the traffic that its destination receives from its sources. Sources that
// no SPIFFE ID says are left out. Without a spec it returns the reason.
func (t *translation) receivedFrom(o *object, conf map[string]any) (spec map[string]any, reason string) {
	if reason := t.anonymous(o.mesh); reason != "" {
		return nil, reason
	}
	fields := o.ofPolicy()
	ref, reason := t.destinationTarget(o, list(fields["destinations"]))
	if reason != "" {
		return nil, reason
	}
	var matches []any
	var omitted []fault
	for i, item := range list(fields["sources"]) {
		tags := mapping(mapping(item)["match"])
		c := client{any: text(tags[kind.ServiceTag]) == anyService && len(tags) == 1}
		if !c.any {
			c = clientOf(map[string]any{"kind": "MeshSubset", "tags": tags})
		}
		switch {
		case len(tags) == 0 || c.problem != "" || c.service == anyService:
			omitted = append(omitted, fault{fmt.Sprintf("sources[%d]", i), "no SPIFFE ID says the same as " +
				pairs(tags), "write a rule with the SPIFFE IDs of these callers"})
		default:
			matches = append(matches, c.match(o.mesh))
		}
	}
	if len(matches) == 0 {
		return nil, "its sources have no SPIFFE IDs that say the same"
	}
	for _, f := range omitted {
		o.omit(f.field, f.reason, f.advice)
	}
	return map[string]any{"targetRef": ref, "rules": []any{map[string]any{"matches": matches, "default": conf}}}, ""
}

// destinationTarget is the target of the inbounds that the one selector of a list selects, or the reason why there is
// none.
func (t *translation) destinationTarget(o *object, selectors []any) (ref map[string]any, reason string) {
	if len(selectors) != 1 {
		return nil, "it has several destinations, each of which is a policy of its own"
	}
	tags := map[string]any{}
	for name, value := range mapping(mapping(selectors[0])["match"]) {
		tags[name] = value
	}
	service := text(tags[kind.ServiceTag])
	delete(tags, kind.ServiceTag)
	for name, value := range tags {
		if text(value) == anyService {
			return nil, fmt.Sprintf("its destination may have any value of the tag %s", name)
		}
	}
	if service == anyService && len(tags) == 0 {
		return map[string]any{"kind": "Mesh"}, "" // with zone egresses, and so external services
	}
	if external := t.externalWithTags(o.mesh, mapping(mapping(selectors[0])["match"])); external != nil {
		return nil, fmt.Sprintf("its destination has %s, whose traffic a policy about zone egresses limits", external)
	}
	switch {
	case service == anyService:
		return map[string]any{"kind": "MeshSubset", "tags": tags}, ""
	case service == "":
		return nil, "its destination is no service"
	case len(tags) == 0:
		return map[string]any{"kind": "MeshService", "name": service}, ""
	}
	return map[string]any{"kind": "MeshServiceSubset", "name": service, "tags": tags}, ""
}

// externalWithTags returns an ExternalService of a mesh that has tags, of which "*" is any value; nil: none has.
func (t *translation) externalWithTags(mesh string, tags map[string]any) *object {
	for _, o := range t.objects {
		has := mapping(o.ofPolicy()["tags"])
		if o.kind != "ExternalService" || o.mesh != mesh || differ(tags, has) {
			continue
		}
		missing := false
		for name := range tags {
			missing = missing || has[name] == nil
		}
		if !missing {
			return o
		}
	}
	return nil
}

// rateLimit is the spec of a MeshRateLimit with the same limit.
func (t *translation) rateLimit(o *object) (map[string]any, string) {
	http := mapping(mapping(o.ofPolicy()["conf"])["http"])
	if len(http) == 0 {
		return nil, "it has no limit of requests"
	}
	// Each value is written: of several rules that match a caller, another one could have it.
	response := map[string]any{"status": numberOf("429")}
	on := mapping(http["onRateLimit"])
	if status := on["status"]; status != nil {
		response["status"] = status
	}
	headers := map[string]any{}
	for _, item := range list(on["headers"]) {
		header := mapping(item)
		how := "set"
		if header["append"] == true {
			how = "add"
		}
		headers[how] = append(list(headers[how]), map[string]any{"name": header["key"], "value": header["value"]})
	}
	if len(headers) > 0 {
		response["headers"] = headers
	}
	rate := map[string]any{"num": http["requests"], "interval": http["interval"]}
	return t.receivedFrom(o, map[string]any{"local": map[string]any{"http": map[string]any{"requestRate": rate,
		"onRateLimit": response}}})
}

// faultInjection is the spec of a MeshFaultInjection with the same faults.
func (t *translation) faultInjection(o *object) (map[string]any, string) {
	injected := 0
	for _, other := range t.objects {
		if other.kind == o.kind && other.mesh == o.mesh {
			injected++
		}
	}
	if injected > maxFaults {
		return nil, fmt.Sprintf("the mesh has %d of them, and a caller gets the faults of %d at most", injected,
			maxFaults)
	}
	fault := map[string]any{}
	for name, value := range mapping(o.ofPolicy()["conf"]) {
		switch name {
		case "abort", "delay":
			fault[name] = value
		case "responseBandwidth", "response_bandwidth":
			bandwidth := map[string]any{"percentage": mapping(value)["percentage"],
				"limit": strings.NewReplacer("mbps", "Mbps", "gbps", "Gbps").Replace(text(mapping(value)["limit"]))}
			fault["responseBandwidth"] = bandwidth
		default:
			return nil, fmt.Sprintf("its conf has %s", name)
		}
	}
	if len(fault) == 0 {
		return nil, "it has no fault"
	}
	return t.receivedFrom(o, map[string]any{"http": []any{fault}})
}

// limitsSame returns whether one request may have the limits of two RateLimits, of which Kuma takes the one with the
// most specific source.
func limitsSame(o, other *object) bool {
	meets := func(list, others []any) bool {
		for _, item := range list {
			for _, other := range others {
				if !differ(mapping(mapping(item)["match"]), mapping(mapping(other)["match"])) {
					return true
				}
			}
		}
		return false
	}
	mine, theirs := o.ofPolicy(), other.ofPolicy()
	return meets(list(mine["sources"]), list(theirs["sources"])) &&
		meets(list(mine["destinations"]), list(theirs["destinations"]))
}

// differ returns whether nothing has both sets of tags, where "*" is any value.
func differ(a, b map[string]any) bool {
	for name, value := range a {
		if other, ok := b[name]; ok && value != anyService && other != anyService && text(value) != text(other) {
			return true
		}
	}
	return false
}
