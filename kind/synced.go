package kind

import (
	"fmt"
	"hash/fnv"
	"strings"

	"weft/resource"
)

// What the label kuma.io/origin says of who owns a resource.
const (
	OriginGlobal = "global"
	OriginZone   = "zone"
)

// Owner is who may change a resource, and whose copy everybody else holds: global, or one zone. The zero
// value is global.
type Owner struct{ Zone string }

// Global says whether it is the global control plane.
func (o Owner) Global() bool { return o.Zone == "" }

// String is "global", or the zone's name in words.
func (o Owner) String() string {
	if o.Global() {
		return "global"
	}
	return "zone " + o.Zone
}

// OwnerOf reads the owner off the labels that the control plane sets.
func OwnerOf(meta *resource.Meta) Owner {
	if meta.Label(OriginLabel) == OriginGlobal {
		return Owner{}
	}
	return Owner{Zone: meta.Label(ZoneLabel)}
}

// syncedNameLength keeps the name of whatever is stored away from its owner within a DNS label, as long as it
// had the length of one.
const syncedNameLength = maxLabel - 1 - 16

// SyncedName is the name of a resource where it is stored away from its owner: equal names of two owners are
// two resources. A kind that only global owns keeps its name, since no other owner has the kind.
//
// It is the name, cut where that is long, "-" and 16 hexadecimal digits: FNV-1a of 64 bits over the name and
// the owner's zone, with a zero byte between. It depends on nothing else, so that it is the same everywhere.
func SyncedName(info *resource.Info, name string, owner Owner) string {
	if !info.Sync.Has(resource.ZoneToGlobal) {
		return name
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s", name, owner.Zone)
	cut := strings.TrimRight(name[:min(len(name), syncedNameLength)], "-.")
	return fmt.Sprintf("%s-%016x", cut, h.Sum64())
}

// DisplayNameOf is the name that a resource's owner gave it.
func DisplayNameOf(meta *resource.Meta) string {
	if name := meta.Label(DisplayName); name != "" {
		return name
	}
	return meta.Name
}
