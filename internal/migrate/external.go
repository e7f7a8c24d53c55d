package migrate

import (
	"fmt"
	"maps"
	"net"
	"reflect"
	"slices"
	"strings"

	"weft/kind"
)

// externalService is the spec of a MeshExternalService to the same server. Its clients find it by another host name.
func (o *object) externalService() map[string]any {
	fields := o.ofPolicy()
	networking, tags := mapping(fields["networking"]), mapping(fields["tags"])
	host, port, err := net.SplitHostPort(text(networking["address"]))
	o.service, o.members = text(tags[kind.ServiceTag]), []map[string]any{tags}
	tls := mapping(networking["tls"])
	if err != nil || o.service == "" || tls["caCert"] != nil || tls["clientCert"] != nil || tls["clientKey"] != nil {
		return nil
	}
	number := numberOf(port)
	protocol := "tcp"
	if is := strings.ToLower(text(tags[kind.ProtocolTag])); slices.Contains(servedProtocols, is) {
		protocol = is
	}
	spec := map[string]any{
		"match":     map[string]any{"type": "HostnameGenerator", "port": number, "protocol": protocol},
		"endpoints": []any{map[string]any{"address": host, "port": number}},
	}
	if tls["enabled"] == true {
		written := map[string]any{"enabled": true}
		verification := map[string]any{}
		if name := text(tls["serverName"]); name != "" {
			verification["serverName"] = name
		}
		if tls["skipHostnameVerification"] == true {
			verification["mode"] = "SkipSAN"
		}
		if len(verification) > 0 {
			written["verification"] = verification
		}
		if tls["allowRenegotiation"] == true {
			written["allowRenegotiation"] = true
		}
		spec["tls"] = written
	}
	return spec
}

// joinExternals joins the ExternalServices of one service, of which Kuma makes the endpoints of one destination. Those
// with another protocol or other TLS than the first can't be joined to it.
func (t *translation) joinExternals() {
	first := map[[2]string]*object{}
	for _, o := range t.objects {
		if o.kind != "ExternalService" || o.written == nil {
			continue
		}
		key := [2]string{o.mesh, o.service}
		to := first[key]
		if to == nil {
			first[key] = o
			continue
		}
		o.dropped = true
		spec, joined := mapping(o.written["spec"]), mapping(to.written["spec"])
		o.written = nil
		if !reflect.DeepEqual(normalized(spec["tls"]), normalized(joined["tls"])) ||
			mapping(spec["match"])["protocol"] != mapping(joined["match"])["protocol"] {
			o.service = ""
			o.omit("", fmt.Sprintf("it is of %s, as %s is, which has another protocol or other TLS: a "+
				"MeshExternalService has one for all of its endpoints", key[1], to),
				"write a MeshExternalService of its own, and split the requests to both with a MeshHTTPRoute or a "+
					"MeshTCPRoute")
			continue
		}
		o.service = ""
		to.members = append(to.members, o.members...)
		for _, endpoint := range list(spec["endpoints"]) {
			if !slices.ContainsFunc(list(joined["endpoints"]), func(other any) bool {
				return reflect.DeepEqual(normalized(other), normalized(endpoint))
			}) {
				joined["endpoints"] = append(list(joined["endpoints"]), endpoint)
			}
		}
		o.note(Adapted, "", fmt.Sprintf("its server is an endpoint of %s, which has the same service %s", to, key[1]),
			"")
	}
}

// tagsOfExternals reports what a MeshExternalService does not have of the tags of an ExternalService.
func (t *translation) tagsOfExternals() {
	for _, o := range t.objects {
		if o.kind != "ExternalService" || o.written == nil {
			continue
		}
		o.omit("tags["+kind.ServiceTag+"]", fmt.Sprintf("the host name of %s in Kuma is not one in weft, where the "+
			"MeshExternalService has those of HostnameGenerators, by default %s.extsvc.mesh.local", o.service, o.name),
			"let its clients call that name, or write a HostnameGenerator; it needs a zone egress and mutual TLS")
		names := map[string]bool{}
		for _, tags := range o.members {
			for name := range tags {
				names[name] = name != kind.ServiceTag && name != kind.ProtocolTag
			}
		}
		maps.DeleteFunc(names, func(_ string, other bool) bool { return !other })
		for _, name := range slices.Sorted(maps.Keys(names)) {
			o.omit("tags["+name+"]", "a MeshExternalService has no tags", "write a label where something selects by it")
		}
	}
}

// external returns the object that stands for the ExternalServices of a service; nil where there are none.
func (t *translation) external(mesh, service string) *object {
	for _, o := range t.objects {
		if service != "" && o.service == service && o.mesh == mesh {
			return o
		}
	}
	return nil
}

// externalTags writes the tags of an outbound to an ExternalService as the MeshExternalService that replaces it. It
// returns a reason against it: that service is not translated, or the tags select some of the ExternalServices that it
// stands for.
func (t *translation) externalTags(o *object, at string, outbound map[string]any) (reason, advice string) {
	tags := mapping(outbound["tags"])
	external := t.external(o.mesh, text(tags[kind.ServiceTag]))
	if external == nil {
		return "", ""
	}
	selected := 0
	for _, member := range external.members {
		if subset(tags, member) {
			selected++
		}
	}
	switch {
	case external.was == "" || external.whole():
		return fmt.Sprintf("leads to %s, which is not translated", external),
			"write a backendRef to the MeshExternalService that replaces it"
	case selected < len(external.members):
		reason = fmt.Sprintf("selects %d of the %d ExternalServices that are %s, and a MeshExternalService has no tags",
			selected, len(external.members), external.name)
		return reason, "write a MeshExternalService with their servers, and a backendRef to it"
	}
	delete(outbound, "tags")
	outbound["backendRef"] = map[string]any{"kind": kind.MeshExternalServices.Name, "name": external.name}
	o.note(Adapted, at+".tags", fmt.Sprintf("is written as a backendRef to %s", external), "")
	return "", ""
}

// reachableExternals writes the services that a transparent proxy reaches: those of ExternalServices are references.
func (t *translation) reachableExternals(o *object, networking map[string]any) {
	transparent := mapping(networking["transparentProxying"])
	services := list(transparent["reachableServices"])
	var left, refs []any
	for i, service := range services {
		external := t.external(o.mesh, text(service))
		if external == nil {
			left = append(left, service)
			continue
		}
		refs = append(refs, map[string]any{"kind": kind.MeshExternalServices.Name, "name": external.name})
		o.note(Adapted, fmt.Sprintf("networking.transparentProxying.reachableServices[%d]", i),
			fmt.Sprintf("is written as one of reachableBackends, %s", external), "")
	}
	if len(refs) == 0 {
		return
	}
	delete(transparent, "reachableServices")
	if len(left) > 0 {
		transparent["reachableServices"] = left
	}
	backends := mapping(transparent["reachableBackends"])
	if backends == nil {
		backends = map[string]any{}
		transparent["reachableBackends"] = backends
	}
	backends["refs"] = append(list(backends["refs"]), refs...)
}
