package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/internal/pki"
	"weft/kind"
	"weft/resource"
)

// computedLabels are set by every control plane for itself, or have no meaning outside Kubernetes.
var computedLabels = []string{
	kind.ZoneLabel, kind.OriginLabel, kind.EnvLabel, kind.DisplayName, kind.ProxyTypeLabel, resource.MeshLabel,
	roleLabel, "kuma.io/kds-sync",
	kind.NamespaceLabel, kind.ListenerZoneIngressLabel, kind.ListenerZoneEgressLabel,
}

// clean removes computed fields, and fields whose removal changes nothing that is enforced.
func (t *translation) clean(o *object) {
	t.selectors(o)
	if o.whole() {
		return
	}
	if o.name != "" {
		o.fields["name"] = t.translatedName(o)
	}
	o.sectionNames()
	for _, field := range []string{"creationTime", "modificationTime", "kri", "snis", "status"} {
		delete(o.fields, field)
	}
	for _, label := range computedLabels {
		delete(o.labels, label)
	}
	if o.label(kind.ManagedBy) == kind.GeneratedBy {
		delete(o.labels, kind.ManagedBy)
	}
	if d := kind.ByName(o.kind); d.Describe().Scope == resource.Mesh {
		o.fields["mesh"] = o.mesh
	} else {
		delete(o.fields, "mesh") // Kuma's ContainerPatches may have one, which selects nothing
	}
	if fields, ok := o.fields["labels"].(map[string]any); ok && len(fields) == 0 {
		delete(o.fields, "labels")
	}
	switch o.kind {
	case kind.Meshes.Name:
		t.ofMesh(o)
	case kind.Dataplanes.Name:
		t.ofDataplane(o)
	case kind.ZoneIngresses.Name, kind.ZoneEgresses.Name:
		delete(o.spec(), "zone")
		delete(o.spec(), "availableServices")
		delete(mapping(o.spec()["networking"]), "publicAddress")
	case kind.MeshExternalServices.Name:
		o.protocol("spec.match", mapping(o.spec()["match"]), "protocol")
	case kind.MeshServices.Name:
		spec := o.spec()
		for i, port := range list(spec["ports"]) {
			o.protocol(fmt.Sprintf("spec.ports[%d]", i), mapping(port), "appProtocol")
		}
		delete(spec, "state")
		delete(spec, "identities")
	case kind.MeshTrafficPermissions.Name:
		o.ofRules()
	}
}

// ofMesh removes the fields of a Kuma Mesh that weft lacks. The whole Mesh is omitted if weft would allow more.
func (t *translation) ofMesh(o *object) {
	spec := o.spec()
	o.without(spec, "logging", "this release writes no access logs")
	o.without(spec, "tracing", "this release sends no traces")
	o.without(spec, "metrics", envoyMetrics)
	if mode := text(mapping(spec["meshServices"])["mode"]); mode != "" && mode != "Exclusive" {
		o.note(Adapted, "meshServices.mode", fmt.Sprintf("is %q, and every mesh of weft has the mode Exclusive", mode),
			"weft makes a MeshService of each value of kuma.io/service")
	}
	delete(spec, "meshServices")
	t.constraints(o, spec)
	delete(spec, "networking")
	for i, backend := range list(mapping(spec["mtls"])["backends"]) {
		o.backend(fmt.Sprintf("mtls.backends[%d]", i), mapping(backend))
	}
	if secret := t.secretOfBackend(o.name); spec["mtls"] == nil && secret != "" {
		o.omit("mtls", fmt.Sprintf("the export has the Secret %s of a backend, and its Mesh has no mtls: a kumactl of "+
			"the 3.0 preview leaves that field out, and the kuma.io/service of inbounds", secret),
			"export with a kumactl of 2.13 or 2.14; without mtls the mesh is plaintext, and its permissions decide "+
				"nothing")
	}
}

// secretOfBackend returns a Secret of the CA of a builtin backend of a mesh; empty: the export has none.
func (t *translation) secretOfBackend(mesh string) string {
	certificate, _ := pki.BuiltinSecrets(mesh, "")
	for _, o := range t.objects {
		if o.kind == kind.Secrets.Name && o.mesh == mesh && strings.HasPrefix(o.name, certificate) {
			return o.name
		}
	}
	return ""
}

// exempt lets members of services without a voucher stay in a translated Mesh for a while.
func (t *translation) exempt(o *object) {
	mesh, ok := o.done.(*resource.Object[kind.Mesh])
	if !ok || t.unvouchedUntil.IsZero() {
		return
	}
	mesh.Spec.UnvouchedMembers = &kind.UnvouchedMembers{Tags: true, Addresses: true,
		Until: kind.Time{Time: t.unvouchedUntil}}
	o.note(Adapted, "unvouchedMembers", "is added: a token of Kuma vouches for the tags that it names alone, and the "+
		"proxies of others would be members of no service", "give proxies tokens of `weft generate dataplane-token "+
		"--dataplane-file`, then remove it")
}

// constraints makes the membership of the mesh of `constraints`. Both judge each inbound by its tags, alternatives are
// entries, and "*" is any value.
func (t *translation) constraints(o *object, spec map[string]any) {
	rules := mapping(mapping(spec["constraints"])["dataplaneProxy"])
	delete(spec, "constraints")
	allowed, blocked := list(rules["requirements"]), list(rules["restrictions"])
	for i, item := range blocked {
		if reason := t.impossiblePair(mapping(mapping(item)["tags"])); reason != "" {
			o.omit("", fmt.Sprintf("constraints.dataplaneProxy.restrictions[%d] blocks %s, so that it would admit more",
				i, reason), "restrict it by other tags in the export, or remove the restriction, and translate it "+
				"again")
			return
		}
	}
	for i, item := range allowed {
		if reason := t.impossiblePair(mapping(mapping(item)["tags"])); reason != "" {
			o.omit(fmt.Sprintf("constraints.dataplaneProxy.requirements[%d]", i), "it requires "+reason+", so that it "+
				"admits no proxy", "require other tags")
		}
	}
	for _, field := range []string{"requirements", "restrictions"} {
		for i, item := range list(rules[field]) {
			at, tags := fmt.Sprintf("constraints.dataplaneProxy.%s[%d].tags", field, i), mapping(mapping(item)["tags"])
			if reason := t.protocolProblem(o.name, text(tags[kind.ProtocolTag])); reason != "" {
				o.omit("", at+" "+reason, protocolAdvice)
				return
			}
			o.protocol(at, tags, kind.ProtocolTag)
		}
	}
	switch {
	case len(allowed)+len(blocked) == 0:
	case spec["dataplaneProxyMembership"] != nil:
		o.omit("", "it has constraints and dataplaneProxyMembership", "write all of it as dataplaneProxyMembership")
	default:
		membership := map[string]any{}
		if len(allowed) > 0 {
			membership["allowed"] = allowed
		}
		if len(blocked) > 0 {
			membership["blocked"] = blocked
		}
		spec["dataplaneProxyMembership"] = membership
		o.note(Adapted, "constraints", "is written as dataplaneProxyMembership", "")
	}
}

// backend cleans one backend of a mesh's mtls. Without its CA the mesh would be plaintext, so that the whole Mesh is
// omitted where weft has no such backend.
func (o *object) backend(at string, backend map[string]any) {
	delete(backend, "rootChain")
	delete(mapping(backend["dpCert"]), "requestTimeout")
	switch kind := text(backend["type"]); kind {
	case "builtin", "provided":
	default:
		o.omit("", fmt.Sprintf("%s.type is %q, and weft has builtin and provided", at, kind),
			"bring its CA as a backend of the type provided, with Secrets")
		return
	}
	conf := mapping(backend["conf"])
	if backend["conf"] != nil && len(conf) == 0 {
		delete(backend, "conf")
	}
	for _, part := range []string{"cert", "key"} {
		source := mapping(conf[part])
		if file := text(source["file"]); file != "" {
			secret := text(backend["name"]) + "-" + part
			conf[part] = map[string]any{"secret": secret}
			o.omit(at+".conf."+part+".file", "weft reads no files of the control plane's machine",
				fmt.Sprintf("write the content of %s as the Secret %s of the mesh, which the Mesh names now", file,
					secret))
		}
	}
}

// needSecrets notes each Secret that the CA of a mesh needs and the export lacks: with another CA, proxies that have
// moved and proxies that have not do not trust each other.
func (t *translation) needSecrets(mesh *object) {
	spec := resource.SpecOf(mesh.done).(*kind.Mesh)
	if spec.MTLS == nil {
		return
	}
	for i := range spec.MTLS.Backends {
		b := &spec.MTLS.Backends[i]
		var names []string
		if b.Type == kind.BuiltinBackend {
			certificate, key := pki.BuiltinSecrets(mesh.name, b.Name)
			names = []string{certificate, key}
		} else if b.Conf != nil {
			for _, source := range []*kind.LegacyDataSource{b.Conf.Cert, b.Conf.Key} {
				if source != nil && source.Secret != "" {
					names = append(names, source.Secret)
				}
			}
		}
		for _, name := range names {
			if o, ok := t.seen[kind.Secrets.Key(mesh.name, name)]; ok && o.done != nil {
				continue
			}
			mesh.omit(fmt.Sprintf("mtls.backends[%d]", i), fmt.Sprintf("the export lacks the Secret %s of its CA",
				name),
				"export again with `kumactl export --profile federation-with-policies`, or `--profile all "+
					"--include-admin`; another CA is trusted by no proxy that still runs with Kuma")
		}
	}
}

// ofDataplane removes the fields of a Kuma Dataplane that weft lacks.
func (t *translation) ofDataplane(o *object) {
	spec := o.spec()
	o.without(spec, "probes", "write serviceProbe of the inbound")
	o.without(spec, "metrics", envoyMetrics)
	networking := mapping(spec["networking"])
	if transparent := mapping(networking["transparentProxying"]); len(list(transparent["directAccessServices"])) > 0 {
		o.omit("networking.transparentProxying.directAccessServices", "this release has none",
			"list the destinations in reachableBackends")
		delete(transparent, "directAccessServices")
	}
	t.outbounds(o, networking)
	t.reachableExternals(o, networking)
	for i, item := range list(networking["inbound"]) {
		in := mapping(item)
		o.protocol(fmt.Sprintf("networking.inbound[%d]", i), in, "protocol")
		o.protocol(fmt.Sprintf("networking.inbound[%d].tags", i), mapping(in["tags"]), kind.ProtocolTag)
		o.ofTags(fmt.Sprintf("networking.inbound[%d].tags", i), mapping(in["tags"]))
		if probe := mapping(in["serviceProbe"]); probe != nil {
			o.zeros(fmt.Sprintf("networking.inbound[%d].serviceProbe", i), probe)
		}
	}
}

// outbounds writes outbounds to ExternalServices anew, and the port of each MeshExternalService that an outbound names,
// of which there is one.
func (t *translation) outbounds(o *object, networking map[string]any) {
	var faults []fault
	defer func() { t.leaveOut(o, faults) }()
	for i, item := range list(networking["outbound"]) {
		at := fmt.Sprintf("networking.outbound[%d]", i)
		if reason, advice := t.externalTags(o, at, mapping(item)); reason != "" {
			faults = append(faults, fault{at + ".tags", reason, advice})
			continue
		}
		ref := mapping(mapping(item)["backendRef"])
		if text(ref["kind"]) != kind.MeshExternalServices.Name || ref["port"] != nil {
			continue
		}
		for _, service := range t.objects {
			port := mapping(service.spec()["match"])["port"]
			if service.kind == kind.MeshExternalServices.Name && service.mesh == o.mesh && port != nil &&
				(text(ref["name"]) != "" && text(ref["name"]) == service.displayName() ||
					len(mapping(ref["labels"])) > 0 && subset(mapping(ref["labels"]), service.selectable())) {
				ref["port"] = port
				o.note(Adapted, fmt.Sprintf("networking.outbound[%d].backendRef.port", i),
					fmt.Sprintf("is %s, the one of %s", port, service), "")
				break
			}
		}
	}
}

// selectable are the labels of the object, with its name.
func (o *object) selectable() map[string]any {
	labels := map[string]any{kind.DisplayName: o.displayName()}
	maps.Copy(labels, o.labels)
	return labels
}

// servedProtocols are the protocols that Kuma tells apart; it treats any other one as TCP.
var servedProtocols = []string{"tcp", "tls", "http", "http2", "grpc", "kafka"}

// protocol writes a protocol as weft does: in lower case, and tcp for one that Kuma treats so.
func (o *object) protocol(at string, fields map[string]any, field string) {
	is := text(fields[field])
	if is == "" || slices.Contains(servedProtocols, is) {
		return
	}
	protocol := servedAs(is)
	fields[field] = protocol
	o.note(Adapted, at+"."+field, fmt.Sprintf("is %q, and %q is what Kuma takes it for", is, protocol), "")
}

// sectionNames writes names of inbounds and ports as weft takes them, wherever the object has them: in lower case, and
// with '-' in place of '_'.
func (o *object) sectionNames() {
	rename := func(at string, fields map[string]any, field string) {
		is := text(fields[field])
		if name := strings.ReplaceAll(strings.ToLower(is), "_", "-"); name != is {
			fields[field] = name
			o.note(Adapted, at+"."+field, fmt.Sprintf("is %q, and is written %q in every resource", is, name), "")
		}
	}
	walk(o.spec(), o.specField(), func(at string, fields map[string]any) {
		rename(at, fields, "sectionName")
		switch {
		case o.kind == kind.Dataplanes.Name && strings.HasPrefix(at, "networking.inbound["):
			rename(at, fields, "name")
		case o.kind == kind.MeshServices.Name && strings.HasPrefix(at, "spec.ports["):
			rename(at, fields, "name")
			rename(at, fields, "targetPort")
		}
	})
}

// ofTags removes the tags of an inbound that a control plane sets, or that have no meaning outside Kubernetes.
func (o *object) ofTags(at string, tags map[string]any) {
	if is := text(tags[kind.EnvironmentTag]); is != "" && is != kind.Universal && is != "kubernetes" {
		o.note(Adapted, at+"["+kind.EnvironmentTag+"]", fmt.Sprintf("is %q, and the control plane sets %q", is,
			kind.Universal), "write it as another tag where the membership of the mesh asks for it")
	}
	for _, tag := range []string{kind.ZoneLabel, kind.EnvironmentTag, kind.NamespaceLabel} {
		delete(tags, tag)
	}
}

// zeros removes the fields of a probe that are zero, which means the default to Kuma.
func (o *object) zeros(at string, probe map[string]any) {
	for _, field := range slices.Sorted(maps.Keys(probe)) {
		if zero := fmt.Sprint(probe[field]); zero == "0" || zero == "0s" {
			delete(probe, field)
			o.note(Adapted, at+"."+field, "is zero, which means the default", "")
		}
	}
}

// envoyMetrics replaces the metrics of Kuma.
const envoyMetrics = "read the metrics of Envoy's administration interface"

// without removes a field that weft has not.
func (o *object) without(spec map[string]any, field, advice string) {
	if len(mapping(spec[field])) > 0 {
		o.omit(field, "has no meaning in weft", advice)
	}
	delete(spec, field)
}
