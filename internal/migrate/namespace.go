package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weft/internal/policy"
	"weft/kind"
	"weft/resource"
)

// defaultSystemNamespace is the namespace of Kuma's control plane, unless its installation names another.
const defaultSystemNamespace = "kuma-system"

// systemRole is the role of a policy that concerns the whole mesh.
const systemRole = "system"

// ofNamespace returns the namespace of Kubernetes whose proxies, or whose services' clients, a resource concerns; false
// for one of the system namespace and for one without a namespace. The namespace is empty where the document has a role
// alone.
func (o *object) ofNamespace() (namespace string, ok bool) {
	switch role := o.label(roleLabel); {
	case role == systemRole:
		return "", false
	case role != "":
		return o.namespace, true
	}
	return o.namespace, o.namespace != "" && o.namespace != defaultSystemNamespace
}

// plainName is the name without the namespace that the Universal form of a resource of Kubernetes appends.
func (o *object) plainName() string {
	if o.namespace == "" {
		return o.name
	}
	return strings.TrimSuffix(o.name, "."+o.namespace)
}

// translatedName is the name of the resource in weft: on Kubernetes with the namespace, unless that is the system
// namespace.
func (t *translation) translatedName(o *object) string {
	namespace, ok := o.ofNamespace()
	if !t.kubernetes || !ok || kind.OfOperators(o.kind) || kind.ByName(o.kind).Describe().Encrypted {
		return o.plainName()
	}
	return o.plainName() + "." + namespace
}

// namespaces decides on resources of one namespace, and on those that Kuma made of Pods and Services. Outside
// Kubernetes a policy of a namespace would be one of the whole mesh. Permissions are decided together.
func (t *translation) namespaces() {
	for _, o := range t.objects {
		if o.whole() {
			continue
		}
		namespace, ok := o.ofNamespace()
		d := kind.ByName(o.kind)
		_, isPolicy := d.(kind.Policy)
		switch {
		case o.ofPod != "" && t.kubernetes:
			o.note(Skipped, "", o.ofPod+", as weft does", "")
		case o.ofPod != "":
			o.omit("", o.ofPod+", and there are none on machines", "for a control plane on Kubernetes, which makes it "+
				"itself, translate with --format kubernetes; for machines, write the Dataplane or the MeshService")
		case t.kubernetes && !ok && !kind.OfOperators(o.kind) && strings.Contains(o.plainName(), ".") &&
			!d.Describe().Encrypted && d.Describe().Scope == resource.Mesh:
			o.omit("", "the part of a name after a dot is a namespace on Kubernetes", "rename it, without a dot")
		case t.kubernetes && ok && namespace != t.systemNamespace() && (kind.OfOperators(o.kind) ||
			d.Describe().Encrypted) && !clusterScoped[o.kind]:
			o.omit("", fmt.Sprintf("it is in the namespace %q, and a %s is of the whole mesh: the system namespace %s "+
				"alone has it", namespace, o.kind, t.systemNamespace()), "move it to the system namespace in the "+
				"export if its owner may speak for the whole mesh")
		case !ok || t.kubernetes:
		case isPolicy && o.produces(namespace):
			o.omit("", fmt.Sprintf("it is a policy of the namespace %q about the clients of its own services, which "+
				"are not on machines", namespace), "for machines, write it with the MeshServices of machines in "+
				"`to`; for a control plane on Kubernetes, translate with --format kubernetes, which keeps the "+
				"namespace")
		case isPolicy && o.kind != kind.MeshTrafficPermissions.Name:
			o.omit("", ofNamespaceAlone(namespace), namespaceAdvice)
		case !isPolicy && namespace != "":
			o.note(Adapted, "metadata.namespace", fmt.Sprintf("is %q, and there are no namespaces on machines: the "+
				"name is %q", namespace, o.plainName()), "")
		}
	}
}

// produces returns whether a policy of a namespace is about the clients of services of that namespace alone.
func (o *object) produces(namespace string) bool {
	if role := o.label(roleLabel); role != "" {
		return role == policy.ProducerRole
	}
	to := list(o.spec()["to"])
	return len(to) > 0 && !slices.ContainsFunc(to, func(item any) bool {
		ref := mapping(mapping(item)["targetRef"])
		of := text(ref["kind"])
		return of != kind.MeshServices.Name && of != kind.MeshHTTPRoutes.Name || text(ref["name"]) == "" ||
			text(ref["namespace"]) != "" && text(ref["namespace"]) != namespace
	})
}

func ofNamespaceAlone(namespace string) string {
	return fmt.Sprintf("it is a policy of the namespace %q, of whose proxies alone it speaks", namespace)
}

const namespaceAdvice = "on machines, write it with a targetRef of the labels of these proxies; for a control plane " +
	"on Kubernetes, translate with --format kubernetes, which keeps the namespace"

// systemNamespace is the namespace of the resources that concern the whole mesh.
func (t *translation) systemNamespace() string {
	for _, o := range t.objects {
		if o.label(roleLabel) == systemRole && o.namespace != "" {
			return o.namespace
		}
	}
	return defaultSystemNamespace
}

// Manifest returns a resource of a translation for Kubernetes as kubectl applies it, with its namespace.
func (r *Result) Manifest(o resource.Any) map[string]any {
	d := kind.ByName(o.Key().Kind)
	if d.Describe().Encrypted {
		return r.secret(o)
	}
	raw, _ := resource.MarshalJSON(o, nil, d, resource.Kubernetes) // it was decoded from JSON
	fields, _ := decode(raw)
	metadata := mapping(fields["metadata"])
	if clusterScoped[o.Key().Kind] {
		return fields
	}
	namespace := r.system
	if at := strings.LastIndexByte(o.Key().Name, '.'); at > 0 && !kind.OfOperators(o.Key().Kind) {
		metadata["name"], namespace = o.Key().Name[:at], o.Key().Name[at+1:]
	}
	metadata["namespace"] = namespace
	return fields
}

// clusterScoped are the kinds whose objects have no namespace.
var clusterScoped = map[string]bool{kind.Meshes.Name: true, kind.Zones.Name: true}

// secret is a Secret of Kubernetes.
func (r *Result) secret(o resource.Any) map[string]any {
	raw, _ := resource.MarshalJSON(o, nil, kind.ByName(o.Key().Kind), resource.Universal) // it was decoded from JSON
	universal, _ := decode(raw)
	metadata := map[string]any{"name": o.Key().Name, "namespace": r.system}
	of := "system.kuma.io/global-secret"
	if mesh := o.Key().Mesh; mesh != "" {
		of = "system.kuma.io/secret"
		metadata["labels"] = map[string]any{resource.MeshLabel: mesh}
	}
	return map[string]any{"apiVersion": "v1", "kind": "Secret", "type": of, "metadata": metadata,
		"data": map[string]any{"value": cmp.Or(text(universal["data"]), "")}}
}
