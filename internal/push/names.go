package push

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"weft/internal/service"
	"weft/internal/wire"
)

// HostNames are the host names that the proxies of a group resolve, at one revision. It is safe for concurrent use.
type HostNames struct {
	Version string         // equal for equal names
	hosts   []service.Host // sorted

	mu      sync.Mutex
	updates map[string]*HostNamesUpdate // by the version that they apply to; "": all names
}

// HostNamesUpdate is a [wire.HostNamesUpdate], encoded once for all agents that receive it.
type HostNamesUpdate struct{ encoded []byte }

// Wire implements xds.Encoded.
func (u *HostNamesUpdate) Wire() []byte { return u.encoded }

func newNames(hosts []service.Host) *HostNames {
	return &HostNames{Version: versionOf(hosts), hosts: hosts, updates: map[string]*HostNamesUpdate{}}
}

// versionOf returns a hash of all names and addresses.
func versionOf(hosts []service.Host) string {
	h := sha256.New()
	var text []byte
	for _, host := range hosts {
		text = binary.AppendUvarint(text[:0], uint64(len(host.Name)))
		text = append(text, host.Name...)
		text = binary.AppendUvarint(text, uint64(len(host.Addresses)))
		for _, address := range host.Addresses {
			text = binary.AppendUvarint(text, uint64(address.BitLen()))
			text = append(text, address.AsSlice()...)
		}
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// UpdateSince returns the update from earlier names, or the update with all names where before is nil.
func (n *HostNames) UpdateSince(before *HostNames) *HostNamesUpdate {
	from := ""
	if before != nil {
		from = before.Version
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.updates[from] == nil {
		n.updates[from] = &HostNamesUpdate{n.encode(before)}
	}
	return n.updates[from]
}

// encode compares two sorted lists and returns the encoded update from one to the other.
func (n *HostNames) encode(before *HostNames) []byte {
	update := &wire.HostNamesUpdate{Version: n.Version, Complete: before == nil}
	var had []service.Host
	if before != nil {
		had = before.hosts
	}
	for _, host := range n.hosts {
		for len(had) > 0 && had[0].Name < host.Name {
			update.Removed = append(update.Removed, had[0].Name)
			had = had[1:]
		}
		if len(had) > 0 && had[0].Name == host.Name {
			same := slices.Equal(had[0].Addresses, host.Addresses)
			if had = had[1:]; same {
				continue
			}
		}
		update.Changed = append(update.Changed, wireHost(host))
	}
	for _, host := range had {
		update.Removed = append(update.Removed, host.Name)
	}
	encoded, err := proto.Marshal(update)
	if err != nil {
		panic("push: host names are UTF-8: " + err.Error())
	}
	return encoded
}

func wireHost(host service.Host) *wire.HostName {
	w := &wire.HostName{Name: host.Name}
	for _, address := range host.Addresses {
		w.Addresses = append(w.Addresses, address.AsSlice())
	}
	return w
}

func sameNames(a, b *HostNames) bool { return a == b || a != nil && b != nil && a.Version == b.Version }

// onlyAdds reports whether n has all earlier names, unchanged.
func (n *HostNames) onlyAdds(before *HostNames) bool {
	if before == nil {
		return true
	}
	now := n.hosts
	for _, host := range before.hosts {
		i, found := slices.BinarySearchFunc(now, host.Name, func(h service.Host, name string) int {
			return strings.Compare(h.Name, name)
		})
		if !found || !slices.Equal(now[i].Addresses, host.Addresses) {
			return false
		}
		now = now[i+1:]
	}
	return true
}
