package kind

import (
	"crypto/sha256"
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
//
// A writer may choose a name whose hash is that of another one, since FNV is no cryptographic hash. The second resource
// has its [LongerSyncedName].
func SyncedName(info *resource.Info, mesh, name string, owner Owner) string {
	if !HasSyncedName(info) {
		return name
	}
	h := fnv.New64a()
	_, _ = h.Write(syncedNameInput(mesh, name, owner)) // it never fails
	return fmt.Sprintf("%s-%016x", syncedNamePrefix(name, syncedNameLength), h.Sum64())
}

// HasSyncedName returns whether the copies of a kind have another name than the resource on its owner.
func HasSyncedName(info *resource.Info) bool { return info.Sync.Has(resource.ZoneToGlobal) }

const (
	// longerNameMark stands before the hash of a [LongerSyncedName].
	longerNameMark = "-copy-"
	// longerNameDigits is the number of hexadecimal digits of its hash.
	longerNameDigits = 32
)

// LongerSyncedName returns the name of a resource's copy where another resource has its [SyncedName]. The kind is one
// with [HasSyncedName]. It is the name, with "-" in place of "." and cut if it is too long, "-copy-" and 128 bits of
// SHA-256 over the same text, in hexadecimal digits. It is the SyncedName of no resource, and no user creates a
// resource with a name of this form.
func LongerSyncedName(mesh, name string, owner Owner) string {
	hash := sha256.Sum256(syncedNameInput(mesh, name, owner))
	return fmt.Sprintf("%s%s%x", syncedNamePrefix(name, maxLabel-len(longerNameMark)-longerNameDigits), longerNameMark,
		hash[:longerNameDigits/2])
}

// IsLongerSyncedName returns whether a name has the form of a [LongerSyncedName].
func IsLongerSyncedName(name string) bool {
	at := len(name) - longerNameDigits - len(longerNameMark)
	return at > 0 && strings.HasPrefix(name[at:], longerNameMark) &&
		strings.Trim(name[at+len(longerNameMark):], "0123456789abcdef") == ""
}

func syncedNameInput(mesh, name string, owner Owner) []byte {
	return fmt.Appendf(nil, "%s\x00%s\x00%s", name, owner.Zone, mesh)
}

// syncedNamePrefix returns the first bytes of a name, as a part of a DNS label.
func syncedNamePrefix(name string, length int) string {
	return strings.TrimRight(strings.ReplaceAll(name[:min(len(name), length)], ".", "-"), "-")
}

// IsCopyOf returns whether a stored resource is the copy of an owner's resource, by its [OwnerName] there. The stored
// resource is at the [SyncedName] of the other one. One whose labels do not state another resource counts.
func IsCopyOf(info *resource.Info, meta *resource.Meta, name string, owner Owner) bool {
	if meta.Label(OriginLabel) != "" && OwnerOf(meta) != owner {
		return false
	}
	is := OwnerName(info, meta)
	return is == name || SyncedName(info, meta.Mesh, is, owner) != meta.Name
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
