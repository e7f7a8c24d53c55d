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
// resources. A kind that only global owns keeps its name, since no other owner has the kind.
//
// It is the name, cut if it is too long, "-" and 16 hexadecimal digits: FNV-1a of 64 bits over the name and the owner's
// zone, with a zero byte between. It depends on nothing else, so it is the same on every control plane.
func SyncedName(info *resource.Info, name string, owner Owner) string {
	if !info.Sync.Has(resource.ZoneToGlobal) {
		return name
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s", name, owner.Zone)
	cut := strings.TrimRight(name[:min(len(name), syncedNameLength)], "-.")
	return fmt.Sprintf("%s-%016x", cut, h.Sum64())
}

// DisplayNameOf returns the resource's name on its owner.
func DisplayNameOf(meta *resource.Meta) string {
	if name := meta.Label(DisplayName); name != "" {
		return name
	}
	return meta.Name
}
