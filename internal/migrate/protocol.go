package migrate

import (
	"fmt"
	"slices"
	"strings"

	"weft/kind"
)

// protocols are the values of the tag kuma.io/protocol that the Dataplanes of a mesh have in Kuma, by the protocol that
// weft writes in their place.
type protocols map[string][]string

// protocolAdvice says what to do where [translation.protocolProblem] has a reason.
const protocolAdvice = "select by other tags, or write one spelling in the Dataplanes and selectors of the export"

// readProtocols reads the protocols of each mesh, before any is written as weft does.
func (t *translation) readProtocols() {
	t.protocols = map[string]protocols{}
	for _, o := range t.objects {
		if o.kind != kind.Dataplanes.Name {
			continue
		}
		of := t.protocols[o.mesh]
		if of == nil {
			of = protocols{}
			t.protocols[o.mesh] = of
		}
		for _, item := range list(mapping(o.spec()["networking"])["inbound"]) {
			is := text(mapping(mapping(item)["tags"])[kind.ProtocolTag])
			if protocol := servedAs(is); is != "" && !slices.Contains(of[protocol], is) {
				of[protocol] = append(of[protocol], is)
			}
		}
	}
}

// servedAs returns the protocol that weft writes in the place of one: in lower case, and tcp for one that Kuma treats
// so.
func servedAs(protocol string) string {
	lower := strings.ToLower(protocol)
	if !slices.Contains(servedProtocols, lower) {
		return "tcp"
	}
	return lower
}

// protocolProblem returns why a selector of a mesh with a value of kuma.io/protocol would select other inbounds in
// weft; empty: it selects the same. Kuma compares the value as it is written, and weft has one for several of them.
func (t *translation) protocolProblem(mesh, value string) string {
	if value == "" || value == "*" {
		return ""
	}
	protocol := servedAs(value)
	others := slices.Clone(t.protocols[mesh][protocol])
	others = slices.DeleteFunc(others, func(is string) bool { return is == value })
	if len(others) == 0 {
		return ""
	}
	return fmt.Sprintf("selects %s: %s, and would select the Dataplanes with %s too, since weft writes %s for all of "+
		"them", kind.ProtocolTag, value, strings.Join(others, ", "), protocol)
}

// servesItself returns whether a Dataplane of a mesh has an inbound of a service.
func (t *translation) servesItself(mesh, service string) bool {
	for _, w := range t.workloads(mesh) {
		if w.count(map[string]any{kind.ServiceTag: service}) > 0 {
			return true
		}
	}
	return false
}

// targetOfExternal returns why the target of a policy is an ExternalService, which a policy of weft does not target;
// empty: it is none.
func (t *translation) targetOfExternal(o *object) string {
	ref := mapping(o.spec()["targetRef"])
	service := text(mapping(ref["tags"])[kind.ServiceTag])
	if of := text(ref["kind"]); of == "MeshService" || of == "MeshServiceSubset" {
		service = text(ref["name"])
	}
	external := t.external(o.mesh, service)
	if external == nil || t.servesItself(o.mesh, service) {
		return ""
	}
	return fmt.Sprintf("its targetRef selects %s, and a policy of weft selects Dataplanes alone", external)
}
