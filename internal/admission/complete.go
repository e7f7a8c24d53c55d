package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/internal/pki"
	"weft/internal/policy"
	"weft/kind"
	"weft/resource"
)

// ownerOf returns the owner, with which a resource is deleted; nil where it has none.
func ownerOf(key resource.Key) *resource.Key {
	info := kind.ByName(key.Kind).Describe()
	switch of := kind.OwnerKind(info); {
	case of == "":
		return nil
	case of == kind.Meshes.Name && info.Scope == resource.Mesh:
		return &resource.Key{Kind: of, Name: key.Mesh}
	default:
		return &resource.Key{Kind: of, Mesh: key.Mesh, Name: key.Name}
	}
}

// complete fills in defaults and computed fields, and returns every problem.
func (w *Writer) complete(o resource.Any, stored *current, controlPlane bool) error {
	d := kind.ByName(o.Key().Kind)
	problems := checkScope(d.Describe(), o.Key())
	w.setEnvironment(o)
	problems = append(problems, d.Prepare(o)...)
	written := !d.Describe().ReadOnly && !d.Describe().Hidden
	if written || d.Describe().Sync != 0 {
		problems = append(problems, w.setLabels(o, stored, controlPlane)...)
	}
	if realm, kid, signs := pki.SigningKeyOf(o.Key()); signs && pki.IsReservedKeyID(w.zone, kid) {
		problems.Add("name", "is how the global control plane names a key that it makes; name an own key %s",
			realm.SigningKey("1").Name)
	}
	if written {
		if stored == nil && !controlPlane {
			problems = append(problems, w.operatorsName(o.Key())...)
			problems = append(problems, kind.CopyNameProblems(d.Describe(), o.Key().Name)...)
		}
		problems = append(problems, w.namespaceProblems(o)...)
		problems = append(problems, w.specFields(o, stored, controlPlane)...)
		problems = append(problems, w.fillSNIs(o, stored, controlPlane)...)
	}
	if len(problems) > 0 {
		return &resource.Error{Code: resource.Invalid, Detail: o.Key().String() + " is invalid", Problems: problems}
	}
	return nil
}

// checkScope rejects a resource without a mesh if its kind belongs to a mesh, and with a mesh otherwise.
func checkScope(info *resource.Info, key resource.Key) resource.Problems {
	var problems resource.Problems
	switch {
	case info.Scope == resource.Global && key.Mesh != "":
		problems.Add("mesh", "a %s is in no mesh; leave it out", key.Kind)
	case info.Scope == resource.Mesh:
		if problem := resource.MeshNameProblem(key.Mesh); problem != "" {
			problems.Add("mesh", "%s", problem)
		}
	}
	return problems
}

// setEnvironment sets the label [kind.EnvLabel] of a policy on Kubernetes, where its references may have a namespace. A
// value that a user wrote is kept, for [Writer.setLabels] to reject.
func (w *Writer) setEnvironment(o resource.Any) {
	meta := o.Envelope()
	if _, policy := kind.ByName(o.Key().Kind).(kind.Policy); policy && w.env == kind.Kubernetes &&
		meta.Labels[kind.EnvLabel] == "" {
		labels := map[string]string{kind.EnvLabel: w.env}
		maps.Copy(labels, meta.Labels)
		meta.Labels = labels
	}
}

// setLabels sets the labels that the control plane computes. A value that a user wrote must be equal.
func (w *Writer) setLabels(o resource.Any, stored *current, controlPlane bool) resource.Problems {
	var problems resource.Problems
	meta := o.Envelope()
	labels := map[string]string{}
	protected := w.protectedLabels(o)
	for _, name := range slices.Sorted(maps.Keys(protected)) {
		want := protected[name]
		got, written := meta.Labels[name]
		switch {
		case written && want == "":
			problems.Add("labels["+name+"]", "is %q, and has no meaning here; leave it out", got)
		case written && got != want:
			problems.Add("labels["+name+"]", "is %q, and the control plane sets %q; leave it out", got, want)
		case want != "" && name != resource.MeshLabel:
			labels[name] = want
		}
	}
	if _, written := meta.Labels[kind.NamespaceLabel]; written && protected[kind.NamespaceLabel] == "" {
		problems.Add("labels["+kind.NamespaceLabel+"]", "has no meaning outside Kubernetes; leave it out")
	}
	if role := meta.Labels[policy.RoleLabel]; role != "" && role != policy.SystemRole && w.isPolicyOfMachines(o) {
		problems.Add("labels["+policy.RoleLabel+"]", "is %q, the role of a policy in a namespace of Kubernetes, and a "+
			"policy without a namespace has the role %s; leave it out", role, policy.SystemRole)
	}
	if !controlPlane && meta.Labels[kind.ManagedBy] == kind.GeneratedBy && !generated(stored) {
		problems.Add("labels["+kind.ManagedBy+"]", "%q marks what the control plane makes; leave it out",
			kind.GeneratedBy)
	}
	if _, policy := kind.ByName(o.Key().Kind).(kind.Policy); meta.Labels[kind.CanarySelector] != "" && !policy {
		problems.Add("labels["+kind.CanarySelector+"]",
			"narrows the targetRef of a policy, and a %s is none; leave it out", o.Key().Kind)
	}
	for name, value := range meta.Labels {
		if _, sets := labels[name]; !sets && name != resource.MeshLabel {
			labels[name] = value
		}
	}
	meta.Labels = labels
	return problems
}

// isPolicyOfMachines reports whether a resource is a policy that no user writes on Kubernetes.
func (w *Writer) isPolicyOfMachines(o resource.Any) bool {
	_, ok := kind.ByName(o.Key().Kind).(kind.Policy)
	return ok && w.env != kind.Kubernetes
}

// protectedLabels are the labels that a user cannot choose, empty where a resource does not have them.
func (w *Writer) protectedLabels(o resource.Any) map[string]string {
	meta := o.Envelope()
	labels := map[string]string{kind.DisplayName: meta.Name}
	if name, namespace := w.namespaced(o.Key()); namespace != "" {
		labels[kind.DisplayName], labels[kind.NamespaceLabel] = name, namespace
	}
	if meta.Mesh != "" {
		labels[resource.MeshLabel] = meta.Mesh
	}
	if role := w.roleOf(o); role != "" {
		labels[policy.RoleLabel] = role
	}
	owned := w.ownership()
	if kind.ByName(o.Key().Kind).Describe().Sync == 0 {
		owned = map[string]string{kind.OriginLabel: "", kind.ZoneLabel: "", kind.EnvLabel: ""}
	}
	maps.Copy(labels, owned)
	if dp, ok := o.(*resource.Object[kind.Dataplane]); ok {
		maps.Copy(labels, dp.Spec.Networking.RoleLabels(w.env))
	}
	return labels
}

// namespaced returns the name and the namespace of a resource of Kubernetes, whose name in the API is NAME.NAMESPACE.
// Secrets, the control plane's own rows, and resources with a name without a dot have no namespace. A resource of
// [kind.OfOperators] has the system namespace or none.
func (w *Writer) namespaced(key resource.Key) (name, namespace string) {
	info := kind.ByName(key.Kind).Describe()
	if w.env != kind.Kubernetes || info.Hidden || info.Encrypted {
		return key.Name, ""
	}
	at := strings.LastIndexByte(key.Name, '.')
	if at < 0 || kind.OfOperators(key.Kind) && key.Name[at+1:] != w.system {
		return key.Name, ""
	}
	return key.Name[:at], key.Name[at+1:]
}

func generated(stored *current) bool {
	return stored != nil && stored.object.Envelope().Label(kind.ManagedBy) == kind.GeneratedBy
}

// specFields sets the computed fields of a spec.
func (w *Writer) specFields(o resource.Any, stored *current, controlPlane bool) resource.Problems {
	switch o := o.(type) {
	case *resource.Object[kind.Dataplane]:
		return w.inboundTags(o)
	case *resource.Object[kind.MeshService]:
		if controlPlane {
			return nil
		}
		var before kind.MeshService
		if stored != nil {
			before = stored.object.(*resource.Object[kind.MeshService]).Spec
		}
		serviceFields(&o.Spec, before)
	case *resource.Object[kind.ZoneIngress]:
		return w.ownZone(&o.Spec.Zone)
	case *resource.Object[kind.ZoneEgress]:
		return w.ownZone(&o.Spec.Zone)
	}
	return nil
}

// ownZone sets the zone of a zone proxy, which is the zone where it is written.
func (w *Writer) ownZone(zone *string) resource.Problems {
	var problems resource.Problems
	if *zone != "" && *zone != w.zone {
		problems.Add("zone",
			"is %q, and this control plane is of zone %q; leave it out, or write it to the control plane of that zone",
			*zone, w.zone)
	}
	*zone = w.zone
	return problems
}

// inboundTags adds the zone to the tags of every inbound, and the environment in a joined zone. (Mesh Membership.)
func (w *Writer) inboundTags(dp *resource.Object[kind.Dataplane]) resource.Problems {
	var problems resource.Problems
	_, namespace := w.namespaced(dp.Key())
	computed := map[string]string{kind.ZoneLabel: w.zone, kind.EnvironmentTag: w.env, kind.NamespaceLabel: namespace}
	for i, in := range dp.Spec.Networking.Inbound {
		at := fmt.Sprintf("networking.inbound[%d].tags", i)
		for _, name := range slices.Sorted(maps.Keys(computed)) {
			got, written := in.Tags[name]
			switch want := computed[name]; {
			case written && want == "":
				problems.Add(at+"["+name+"]", "has no meaning outside Kubernetes; leave it out")
			case written && got != want:
				problems.Add(at+"["+name+"]", "is %q, and the control plane sets %q; leave it out", got, want)
			}
		}
	}
	w.tagInbounds(dp.Spec.Networking.Inbound, true)
	return problems
}

// serviceFields keeps the fields of a service that the control plane computes from its servers: clients depend on them,
// and users do not write them.
func serviceFields(s *kind.MeshService, before kind.MeshService) {
	s.State, s.Identities = before.State, before.Identities
}
