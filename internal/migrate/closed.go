package migrate

import (
	"fmt"
	"slices"
	"strings"

	"weft/kind"
)

// forbidding is the field of a Mesh by which its external services are closed to clients that no permission allows.
const forbidding = "routing.defaultForbidMeshExternalServiceAccess"

// closed closes the external services of a mesh whose permissions restrict who calls them. Kuma enforces permissions
// for an ExternalService at its zone egress, and weft opens a MeshExternalService to the whole mesh by default.
func (t *translation) closed() {
	const advice = "write a MeshTrafficPermission about the MeshExternalService, see " +
		"docs/operations/external-services.md"
	for _, o := range t.objects {
		if o.was != "ExternalService" || o.whole() {
			continue
		}
		mesh := t.meshes[o.mesh]
		if mesh == nil {
			o.omit("", "the Mesh is not in the export, which says whether permissions restrict its clients; weft "+
				"opens a MeshExternalService to its mesh", "translate it with the Mesh and its permissions")
			continue
		}
		if text(mapping(mesh.spec()["mtls"])["enabledBackend"]) == "" || t.allowsAll(o.mesh) {
			continue
		}
		if other := t.reachesEgresses(o.mesh); other != nil {
			o.omit("", fmt.Sprintf("permissions restrict its clients, and %s would allow or deny them at the zone "+
				"egress", other), advice+", after the service itself")
			continue
		}
		routing := mapping(mesh.spec()["routing"])
		if routing == nil {
			routing = map[string]any{}
			mesh.spec()["routing"] = routing
		}
		if routing["defaultForbidMeshExternalServiceAccess"] != true {
			routing["defaultForbidMeshExternalServiceAccess"] = true
			mesh.note(Adapted, forbidding, fmt.Sprintf("is set: permissions restrict who calls %s, and weft opens "+
				"external services to the mesh without it", o), advice)
		}
		for _, p := range t.objects {
			if p.mesh == o.mesh && slices.Contains(p.permitsTo(), o.service) {
				p.omit("targetRef", fmt.Sprintf("is about %s, for which no permission is translated; all of its "+
					"clients are denied", o), advice)
			}
		}
	}
}

// reachesEgresses returns a permission of a mesh that is about more than services by name, so that it holds for
// external services too; nil where there is none.
func (t *translation) reachesEgresses(mesh string) *object {
	for _, o := range t.objects {
		if o.mesh == mesh && o.kind == kind.MeshTrafficPermissions.Name && !o.whole() && len(o.permitsTo()) == 0 {
			return o
		}
	}
	return nil
}

// permitsTo returns the services that a permission is about by name; none for another object.
func (o *object) permitsTo() []string {
	ref := mapping(o.ofPolicy()["targetRef"])
	if o.kind != kind.MeshTrafficPermissions.Name || o.whole() || text(ref["kind"]) != kind.MeshServices.Name {
		return nil
	}
	return []string{text(ref["name"])}
}

// allowsAll returns whether the permissions of a mesh allow every client to call every service, and none says more.
func (t *translation) allowsAll(mesh string) bool {
	found := false
	for _, o := range t.objects {
		if o.mesh != mesh || o.kind != kind.MeshTrafficPermissions.Name && o.kind != "TrafficPermission" {
			continue
		}
		if o.kind == "TrafficPermission" || !o.allowsAll() {
			return false
		}
		found = true
	}
	return found
}

// allowsAll returns whether a permission is about the whole mesh and allows every client.
func (o *object) allowsAll() bool {
	fields := o.ofPolicy()
	ref := mapping(fields["targetRef"])
	wholeMesh := len(ref) == 0 || len(ref) == 1 && text(ref["kind"]) == "Mesh"
	from := list(fields["from"])
	return wholeMesh && len(from) > 0 && fields["rules"] == nil && !slices.ContainsFunc(from, func(item any) bool {
		caller, conf := mapping(mapping(item)["targetRef"]), mapping(mapping(item)["default"])
		return len(caller) != 1 || text(caller["kind"]) != "Mesh" || !strings.EqualFold(text(conf["action"]), "Allow")
	})
}
