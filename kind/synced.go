package kind

import (
	"fmt"
	"hash/fnv"
	"strings"

	"weft/resource"
)

// Values of the label kuma.io/origin, which states the owner of a resource.
const (
	OriginGlobal = "global"
	OriginZone   = "zone"
)

// Owner is the control plane that may change a resource: global, or one zone. All others store a copy. The zero value
// is global.
type Owner struct{ Zone string }

// Global reports whether the owner is the global control plane.
func (o Owner) Global() bool { return o.Zone == "" }

// String returns "global", or a text with the zone's name.
func (o Owner) String() string {
	if o.Global() {
		return "global"
	}
	return "zone " + o.Zone
}

// OwnerOf returns the owner by the labels that the control plane sets.
func OwnerOf(meta *resource.Meta) Owner {
	if meta.Label(OriginLabel) == OriginGlobal {
		return Owner{}
	}
	return Owner{Zone: meta.Label(ZoneLabel)}
}

// syncedNameLength limits the prefix so that a copy's name is a DNS label if the owner's name is one.
const syncedNameLength = maxLabel - 1 - 16

// SyncedName returns the name of a resource's copy on other control planes: equal names of two owners are two
// resources. name is the [OwnerName]. A kind that only global owns keeps its name, since no other owner has the kind.
//
// It is the name, with "-" in place of "." and cut if it is too long, "-" and 16 hexadecimal digits: FNV-1a of 64 bits
// over the name, the owner's zone and the mesh, with a zero byte between. It depends on nothing else, so it is the same
// on every control plane. Without a dot it names an object of the system namespace of every cluster, where the copies
// of all meshes and namespaces are.
func SyncedName(info *resource.Info, mesh, name string, owner Owner) string {
	if !info.Sync.Has(resource.ZoneToGlobal) {
		return name
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s\x00%s", name, owner.Zone, mesh)
	cut := strings.TrimRight(strings.ReplaceAll(name[:min(len(name), syncedNameLength)], ".", "-"), "-")
	return fmt.Sprintf("%s-%016x", cut, h.Sum64())
}

// OfOperators reports whether resources of a kind concern a whole mesh, so that on Kubernetes all are in the system
// namespace. A policy that operators write concerns the Pods of its namespace.
func OfOperators(name string) bool {
	d := ByName(name)
	if d == nil || d.Describe().WrittenBy != resource.Operator {
		return false
	}
	_, policy := d.(Policy)
	return !policy
}

// OwnerName returns the name of a resource that is unique among those of its owner, mesh and kind. It is the display
// name and, on Kubernetes, "." and the namespace. The namespace is left out for kinds of operators, which have one.
func OwnerName(info *resource.Info, meta *resource.Meta) string {
	name := DisplayNameOf(meta)
	if namespace := meta.Label(NamespaceLabel); namespace != "" && !OfOperators(info.Name) {
		name += "." + namespace
	}
	return name
}

// DisplayNameOf returns the resource's name on its owner, without its namespace.
func DisplayNameOf(meta *resource.Meta) string {
	if name := meta.Label(DisplayName); name != "" {
		return name
	}
	return meta.Name
}
