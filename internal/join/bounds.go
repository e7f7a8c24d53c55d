package join

import (
	"encoding/json"
	"fmt"
	"time"

	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// The bounds of one zone's cost for the global control plane, however broken or hostile the zone is. docs/operations
// has them for operators.
const (
	maxResources     = 100_000   // of one kind and zone
	maxResourceBytes = 256 << 20 // of their stored bodies
	// The MeshServices of a zone, and their ports: each is a row, a virtual IP and host names in every zone of the
	// mesh, and each port a listener of their proxies.
	maxServices = 20_000
	maxPorts    = 50_000
	// maxKeptItems bounds the rejected items that are kept, of all kinds of a zone.
	maxKeptItems = 20_000
	maxKeptBytes = 32 << 20
	// Streams that a zone opens: the burst, and the rate per second.
	streamsAtOnce  = 400
	streamsASecond = 20
	// Items that a zone sends to one replica of global, of all kinds: at once, and per second. Further ones wait. A
	// zone of 15,000 proxies sends 30,000 when it joins, and as many when all its proxies reconnect.
	itemsAtOnce     = 100_000
	itemsASecond    = 1000
	rejectedBetween = 5 * time.Second // between two records of rejected stores
)

// ownerSize is the number and the size of an owner's resources of one kind, and the number of their ports.
type ownerSize struct{ items, bytes, ports int }

// sizeOf returns the size of one item. Only MeshServices have ports: those of other kinds cost their own zone.
func (k *kindLog) sizeOf(body []byte) ownerSize {
	size := ownerSize{items: 1, bytes: len(body)}
	var service struct{ Spec struct{ Ports []struct{} } }
	if k.kind.Describe().Name == kind.MeshServices.Name && json.Unmarshal(body, &service) == nil {
		size.ports = len(service.Spec.Ports)
	}
	return size
}

// maxItems is the bound of an owner's resources of the kind.
func (k *kindLog) maxItems() int {
	if k.kind.Describe().Name == kind.MeshServices.Name {
		return maxServices
	}
	return maxResources
}

// checkBounds rejects an item above the bounds of its owner. What is stored stays, and may change as long as it does
// not grow.
func (k *kindLog) checkBounds(item zonesync.Item) error {
	if item.Deleted {
		return nil
	}
	key := k.key(item.Key)
	k.mu.Lock()
	defer k.mu.Unlock()
	has, is, was := k.sizes[item.Key.Owner], k.sizeOf(item.Body), ownerSize{}
	if stored, ok := k.rows[key]; ok && stored.key == item.Key {
		was = stored.size
	}
	exceeds := func(has, is, was, bound int) bool { return is > was && has-was+is > bound }
	switch bound := k.maxItems(); {
	case exceeds(has.items, is.items, was.items, bound):
		return errBound(k.kind, item.Key.Owner, fmt.Sprintf("%d resources", bound))
	case exceeds(has.bytes, is.bytes, was.bytes, maxResourceBytes):
		return errBound(k.kind, item.Key.Owner, fmt.Sprintf("%d MiB", maxResourceBytes>>20))
	case exceeds(has.ports, is.ports, was.ports, maxPorts):
		return errBound(k.kind, item.Key.Owner, fmt.Sprintf("%d ports", maxPorts))
	}
	return nil
}

func errBound(d resource.Descriptor, owner kind.Owner, bound string) error {
	return resource.Errorf(resource.Invalid,
		"%s has more than %s of the kind %s, which is all that global accepts from a zone; delete some in the zone",
		owner, bound, d.Describe().Name)
}

// addSize adds a size to that of an owner, or takes it away where sign is -1.
func (k *kindLog) addSize(owner kind.Owner, sign int, of ownerSize) {
	has := k.sizes[owner]
	has.items, has.bytes, has.ports = has.items+sign*of.items, has.bytes+sign*of.bytes, has.ports+sign*of.ports
	if k.sizes[owner] = has; has == (ownerSize{}) {
		delete(k.sizes, owner)
	}
}
