package migrate

import (
	"encoding/json"
	"fmt"
	"strings"

	"weft/kind"
)

// isDestination returns whether a field of a policy references a service that its proxies send to.
func isDestination(at string) bool {
	return strings.HasPrefix(at, "spec.to[") && (strings.HasSuffix(at, "].targetRef") ||
		strings.HasSuffix(at, ".backendRef") || strings.HasSuffix(at, "]") && strings.Contains(at, ".backendRefs["))
}

// destinations writes the destinations of a policy that are values of kuma.io/service, which Kuma's MeshService is too,
// as the resources that have these servers: a MeshExternalService, the MeshService of a Service of Kubernetes, or the
// one that weft makes of Dataplanes.
func (t *translation) destinations(o *object) {
	walk(o.spec(), o.specField(), func(at string, fields map[string]any) {
		name := text(fields["name"])
		if !isDestination(at) || text(fields["kind"]) != kind.MeshServices.Name || name == "" ||
			fields["namespace"] != nil {
			return
		}
		if external := t.external(o.mesh, name); external != nil {
			fields["kind"], fields["name"] = kind.MeshExternalServices.Name, external.name
			delete(fields, "sectionName")
			o.note(Adapted, at, fmt.Sprintf("is %q, the MeshExternalService %s that replaces the ExternalService", name,
				external.name), "")
			return
		}
		switch tag := kind.TagOfPods.FindStringSubmatch(name); {
		case tag != nil && fields["sectionName"] == nil && (t.kubernetes || t.global):
			t.serviceOfPods(o, at, fields, tag)
		case tag == nil && !t.kubernetes:
			t.serviceOfTag(o, at, fields)
		}
	})
}

// serviceOfPods writes a destination as the MeshService of a Service: by its name on Kubernetes, and by its labels for
// a global control plane.
func (t *translation) serviceOfPods(o *object, at string, fields map[string]any, tag []string) {
	is := text(fields["name"])
	if t.kubernetes {
		fields["name"], fields["namespace"] = tag[1], tag[2]
	} else {
		delete(fields, "name")
		fields["labels"] = map[string]any{kind.DisplayName: tag[1], kind.NamespaceLabel: tag[2]}
	}
	to := fmt.Sprintf("%s in the namespace %s", tag[1], tag[2])
	if tag[3] != "" {
		to += ", port " + tag[3]
	}
	switch isTarget := strings.HasSuffix(at, ".targetRef"); {
	case tag[3] == "":
	case isTarget:
		fields["sectionName"] = tag[3]
	case fields["port"] == nil:
		fields["port"] = json.Number(tag[3])
	}
	o.note(Adapted, at+".name", fmt.Sprintf("is %q, the MeshService %s", is, to), "")
}

// serviceOfTag writes a destination as the MeshService with the servers that have a value of kuma.io/service: the one
// of the export that selects them by it, or else the one that weft makes. A value that no Dataplane has stays.
func (t *translation) serviceOfTag(o *object, at string, fields map[string]any) {
	is := text(fields["name"])
	made := kind.GeneratedName(is)
	served := false
	for _, other := range t.objects {
		if other.mesh != o.mesh || other.whole() {
			continue
		}
		switch other.kind {
		case kind.MeshServices.Name:
			if other.displayName() == is {
				return // it is a name
			}
			tags := mapping(mapping(other.spec()["selector"])["dataplaneTags"])
			if len(tags) == 1 && text(tags[kind.ServiceTag]) == is {
				made, served = other.displayName(), true
			}
		case kind.Dataplanes.Name:
			for _, in := range list(mapping(other.spec()["networking"])["inbound"]) {
				served = served || text(mapping(mapping(in)["tags"])[kind.ServiceTag]) == is
			}
		}
	}
	if !served || made == is {
		return
	}
	fields["name"] = made
	o.note(Adapted, at+".name", fmt.Sprintf("is %q, a value of %s, and the MeshService of these servers is %q", is,
		kind.ServiceTag, made), "")
}
