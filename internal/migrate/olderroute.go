package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/kind"
)

// trafficRoute is the spec of a MeshTCPRoute with the same destinations, which splits the requests of HTTP too, or the
// reason why there is none. A destination with tags beside its service gets a MeshService of its own.
func (t *translation) trafficRoute(o *object) (map[string]any, string) {
	fields := o.ofPolicy()
	conf := mapping(fields["conf"])
	ref, reason := t.clientTarget(o, fields["sources"])
	if reason != "" {
		return nil, reason
	}
	services, ok := selected(fields["destinations"])
	if !ok || slices.Contains(services, anyService) {
		return nil, "its destinations are more than services by name"
	}
	for _, service := range services {
		if external := t.externalWithTags(o.mesh, map[string]any{kind.ServiceTag: service}); external != nil {
			return nil, fmt.Sprintf("its destination is %s", external)
		}
	}
	if len(list(conf["http"])) > 0 {
		return nil, "its rules of HTTP have an order, and those of a MeshHTTPRoute have none"
	}
	if balancer := mapping(conf["loadBalancer"]); len(balancer) > 0 && balancer["roundRobin"] == nil {
		return nil, "it has a loadBalancer, which a MeshLoadBalancingStrategy says"
	}
	split := list(conf["split"])
	if destination := mapping(conf["destination"]); len(split) == 0 && len(destination) > 0 {
		split = []any{map[string]any{"weight": numberOf("1"), "destination": destination}}
	}
	if len(split) == 0 {
		return nil, "it has no destination"
	}
	var backends []any
	var made []*object
	for _, item := range split {
		backend, services, reason := t.backend(o, mapping(mapping(item)["destination"]))
		if reason != "" {
			return nil, reason
		}
		if weight := mapping(item)["weight"]; weight != nil {
			backend["weight"] = weight
		}
		backends, made = append(backends, backend), append(made, services...)
	}
	for _, service := range services {
		ofPod := t.kubernetes && kind.TagOfPods.MatchString(service)
		if !ofPod && !t.servesItself(o.mesh, service) {
			return nil, fmt.Sprintf("no Dataplane of the export has its service %s, so weft has no service that its "+
				"clients could call", service)
		}
	}
	for _, service := range made {
		if !slices.ContainsFunc(t.objects, func(other *object) bool {
			return other.kind == service.kind && other.mesh == service.mesh && other.name == service.name
		}) {
			t.objects = append(t.objects, service)
			o.note(Adapted, "conf", fmt.Sprintf("%s is written, which selects %s", service,
				pairs(mapping(mapping(service.spec()["selector"])["dataplaneTags"]))), "")
		}
	}
	var to []any
	for _, service := range services {
		to = append(to, map[string]any{"targetRef": map[string]any{"kind": "MeshService", "name": service},
			"rules": []any{map[string]any{"default": map[string]any{"backendRefs": backends}}}})
	}
	return map[string]any{"targetRef": ref, "to": to}, ""
}

// backend is the reference to a destination of a TrafficRoute, with the MeshServices that it needs, or the reason why
// there is none.
func (t *translation) backend(o *object, tags map[string]any) (ref map[string]any, made []*object, reason string) {
	service := text(tags[kind.ServiceTag])
	ofPod := kind.TagOfPods.FindStringSubmatch(service)
	switch {
	case service == "" || service == anyService:
		return nil, nil, "its destination is more than a service by name"
	case t.kubernetes && ofPod != nil && ofPod[3] != "" && len(tags) == 1:
		return map[string]any{"kind": kind.MeshServices.Name, "name": service}, nil, ""
	case t.kubernetes:
		return nil, nil, fmt.Sprintf("%s are tags of Pods, which a Service of its own has to select", pairs(tags))
	}
	all, some := t.ports(o.mesh, map[string]any{kind.ServiceTag: service}), t.ports(o.mesh, tags)
	if len(all) != 1 || len(some) != 1 {
		return nil, nil, fmt.Sprintf("the Dataplanes of the export have %d ports with the tags %s, not one", len(some),
			pairs(tags))
	}
	ref = map[string]any{"kind": kind.MeshServices.Name, "name": service, "port": some[0]["port"]}
	if len(tags) == 1 {
		return ref, nil, ""
	}
	name := service
	for _, tag := range slices.Sorted(maps.Keys(tags)) {
		if tag != kind.ServiceTag {
			name += "-" + strings.Trim(strings.Map(nameLetter, strings.ToLower(text(tags[tag]))), "-")
		}
	}
	ref["name"] = name
	// A MeshService that selects the value replaces the one that weft makes of it.
	return ref, []*object{o.meshService(service, map[string]any{kind.ServiceTag: service}, all[0]),
		o.meshService(name, tags, some[0])}, ""
}

// nameLetter is a letter of a tag as a name may have it.
func nameLetter(r rune) rune {
	if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
		return r
	}
	return '-'
}

// meshService is a MeshService beside an object.
func (o *object) meshService(name string, tags, port map[string]any) *object {
	return &object{source: o.source, kind: kind.MeshServices.Name, mesh: o.mesh, name: name,
		fields: map[string]any{"type": kind.MeshServices.Name, "mesh": o.mesh, "name": name, "spec": map[string]any{
			"selector": map[string]any{"dataplaneTags": maps.Clone(tags)}, "ports": []any{maps.Clone(port)}}}}
}

// ports are the ports of a MeshService of the inbounds of a mesh that have tags.
func (t *translation) ports(mesh string, tags map[string]any) []map[string]any {
	var ports []map[string]any
	for _, o := range t.objects {
		if o.kind != kind.Dataplanes.Name || o.mesh != mesh {
			continue
		}
		for _, item := range list(mapping(o.spec()["networking"])["inbound"]) {
			in := mapping(item)
			if !subset(tags, mapping(in["tags"])) || slices.ContainsFunc(ports, func(p map[string]any) bool {
				return fmt.Sprint(p["port"]) == fmt.Sprint(in["port"])
			}) {
				continue
			}
			port := map[string]any{"port": in["port"]}
			if protocol := text(mapping(in["tags"])[kind.ProtocolTag]); protocol != "" {
				port["appProtocol"] = protocol
			}
			ports = append(ports, port)
		}
	}
	return ports
}

// clientTarget is the target of the proxies that a list of sources selects, or the reason why there is none. Kuma
// selects a proxy by any of its inbounds, as `to` of a policy does.
func (t *translation) clientTarget(o *object, selectors any) (ref map[string]any, reason string) {
	sources, ok := selected(selectors)
	switch {
	case !ok || len(sources) > 1 && !slices.Contains(sources, anyService):
		return nil, "its sources are more than one service by name"
	case slices.Contains(sources, anyService):
		return map[string]any{"kind": "Mesh"}, ""
	}
	for _, dp := range t.objects {
		gateway := mapping(mapping(dp.spec()["networking"])["gateway"])
		if dp.kind == kind.Dataplanes.Name && dp.mesh == o.mesh &&
			text(mapping(gateway["tags"])[kind.ServiceTag]) == sources[0] {
			return nil, fmt.Sprintf("its source is the gateway %s, which has no tags in weft", dp)
		}
	}
	return map[string]any{"kind": "MeshService", "name": sources[0]}, ""
}

// proxyTemplate is the spec of a MeshProxyPatch with the same modifications, or the reason why there is none. Those
// that select resources of Envoy by name are left out, since names differ.
func (t *translation) proxyTemplate(o *object) (map[string]any, string) {
	fields := o.ofPolicy()
	conf := mapping(fields["conf"])
	ref := map[string]any{"kind": "Mesh"}
	if selectors := list(fields["selectors"]); len(selectors) > 0 {
		var reason string
		if ref, reason = t.clientTarget(o, selectors); reason != "" {
			return nil, strings.Replace(reason, "sources are", "selectors are", 1)
		}
	}
	if text(ref["kind"]) == "Mesh" {
		ref = map[string]any{"kind": "Dataplane"} // the whole mesh has zone egresses, which it does not select
	}
	switch imports := list(conf["imports"]); {
	case len(list(conf["resources"])) > 0:
		return nil, "it has resources of its own"
	case len(imports) != 1 || text(imports[0]) != "default-proxy":
		return nil, "it does not import the profile default-proxy, which weft always applies"
	}
	var modifications []any
	var omitted []fault
	for i, item := range list(conf["modifications"]) {
		modification, reason := patchOf(mapping(item))
		if reason != "" {
			omitted = append(omitted, fault{fmt.Sprintf("conf.modifications[%d]", i), reason,
				"write it with weft's names, see docs/operations/proxy-patches.md"})
			continue
		}
		modifications = append(modifications, modification)
	}
	if len(modifications) == 0 {
		return nil, "no modification of it has a plain equal"
	}
	for _, f := range omitted {
		o.omit(f.field, f.reason, f.advice)
	}
	return map[string]any{"targetRef": ref, "default": map[string]any{"appendModifications": modifications}}, ""
}

// patchOf is a modification of a ProxyTemplate in the form of a MeshProxyPatch, or the reason why there is none.
func patchOf(modification map[string]any) (map[string]any, string) {
	for object, value := range modification {
		fields := maps.Clone(mapping(value))
		match := mapping(fields["match"])
		if origin := text(match["origin"]); origin != "" && !slices.Contains(kind.PatchOrigins, origin) {
			return nil, fmt.Sprintf("nothing has the origin %q", origin)
		}
		named := []string{"listenerName", "routeConfigurationName"}
		if object != "networkFilter" && object != "httpFilter" {
			named = append(named, "name")
		}
		for _, field := range named {
			if text(match[field]) != "" {
				return nil, fmt.Sprintf("it selects by match.%s, a name that Kuma gives", field)
			}
		}
		operation := text(fields["operation"])
		if operation == "" || len(modification) != 1 {
			break
		}
		fields["operation"] = strings.ToUpper(operation[:1]) + operation[1:]
		return map[string]any{object: fields}, ""
	}
	return nil, "it has no operation"
}

// noPatch returns whether a ProxyTemplate changes nothing.
func (o *object) noPatch() bool {
	conf := mapping(o.ofPolicy()["conf"])
	imports := list(conf["imports"])
	return o.kind == "ProxyTemplate" && len(imports) == 1 && text(imports[0]) == "default-proxy" &&
		len(list(conf["modifications"]))+len(list(conf["resources"])) == 0
}

// virtualOutbound is the spec of a HostnameGenerator that gives the services of the mesh the same host names and ports,
// or the reason why there is none.
func (t *translation) virtualOutbound(o *object) (map[string]any, string) {
	fields := o.ofPolicy()
	conf := mapping(fields["conf"])
	services, ok := selected(fields["selectors"])
	parameter := ""
	for _, item := range list(conf["parameters"]) {
		if text(mapping(item)["tagKey"]) == kind.ServiceTag {
			parameter = text(mapping(item)["name"])
		}
	}
	host := strings.ReplaceAll(text(conf["host"]), " ", "")
	suffix, named := strings.CutPrefix(host, "{{."+parameter+"}}")
	switch {
	case t.kubernetes:
		return nil, "its host name is of a value of kuma.io/service, and services of Kubernetes have other names"
	case !ok || !slices.Equal(services, []string{anyService}):
		return nil, "it selects more than every service by name"
	case parameter == "" || !named || !strings.HasPrefix(suffix, ".") || strings.Contains(suffix, "{{"):
		return nil, "its host is not a service followed by a domain"
	case len(t.meshes) != 1 || t.meshes[o.mesh] == nil:
		return nil, "a HostnameGenerator is of every mesh, and the export does not have this one alone"
	}
	for _, other := range t.objects {
		if other.mesh == o.mesh && other.kind == "ExternalService" {
			return nil, fmt.Sprintf("%s has such a host name too, and a MeshExternalService has others", other)
		}
		if other.mesh == o.mesh && other.kind == kind.Dataplanes.Name {
			for _, item := range list(mapping(other.spec()["networking"])["inbound"]) {
				service := text(mapping(mapping(item)["tags"])[kind.ServiceTag])
				if strings.Map(nameLetter, service) != service {
					return nil, fmt.Sprintf("the MeshService of %q has another name", service)
				}
			}
		}
	}
	ports := t.ports(o.mesh, nil)
	if len(ports) != 1 || fmt.Sprint(ports[0]["port"]) != fmt.Sprint(conf["port"]) {
		return nil, "its port is not the port of every inbound of the export, which services have"
	}
	return map[string]any{"selector": map[string]any{"meshService": map[string]any{"matchLabels": map[string]any{}}},
		"template": "{{ .DisplayName }}" + suffix}, ""
}
