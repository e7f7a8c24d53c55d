package push

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"weft/internal/graph"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/wire"
)

// HostNames are the host names that the proxies of a group resolve, at one revision. It is safe for concurrent use.
type HostNames struct {
	Version string       // equal for equal names
	hosts   []graph.Host // sorted

	mu      sync.Mutex
	updates map[string]*HostNamesUpdate // by the version that they apply to; "": all names
}

// HostNamesUpdate is a [wire.HostNamesUpdate], encoded once for all agents that receive it.
type HostNamesUpdate struct{ encoded []byte }

// Encoded implements xds.Encoded.
func (u *HostNamesUpdate) Encoded() []byte { return u.encoded }

func newNames(hosts []graph.Host) *HostNames {
	return &HostNames{Version: versionOf(hosts), hosts: hosts, updates: map[string]*HostNamesUpdate{}}
}

// versionOf returns a hash of all names and addresses.
func versionOf(hosts []graph.Host) string {
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

// Since returns the update from earlier names, or the update with all names where before is nil.
func (n *HostNames) Since(before *HostNames) *HostNamesUpdate {
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
	var had []graph.Host
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
		panic("publish: host names are UTF-8: " + err.Error())
	}
	return encoded
}

func wireHost(host graph.Host) *wire.HostName {
	w := &wire.HostName{Name: host.Name}
	for _, address := range host.Addresses {
		w.Addresses = append(w.Addresses, address.AsSlice())
	}
	return w
}

func (c *config) makeNames(r *table.Reader, group graph.ProxyGroup) *HostNames {
	return newNames(c.state.Hosts.Get(r, group))
}

func sameNames(a, b *HostNames) bool { return a == b || a != nil && b != nil && a.Version == b.Version }

// WatchHostNames calls tell with the host names that a proxy resolves (nil: there is no such proxy) and whenever they
// change, until stop. The table's writer makes the calls one after another, so tell must not block and must not call
// the Hub.
func (h *Hub) WatchHostNames(key state.ProxyKey, tell func(*HostNames)) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.acquireProxy(key)
	p.resolvers[&tell] = struct{}{}
	if kept, _ := h.config.own.Value(key); kept != nil {
		tell(h.names[kept.Proxy.Group])
	} else {
		tell(nil)
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(p.resolvers, &tell)
		h.releaseProxy(key, p)
	}
}

func (p *proxy) tellNames(names *HostNames) {
	for tell := range p.resolvers {
		(*tell)(names)
	}
}

// changesNames reports whether a commit changes or removes host names that agents have. An agent is sent all names at
// once, so the names that wait are published before.
func (h *Hub) changesNames(changes *table.Changes) bool {
	for group, names := range h.config.names.Changed(changes) {
		if names != nil && !names.onlyAdds(h.names[group]) {
			return true
		}
	}
	return false
}

// publishNames sends agents the names that a commit changes. Names that are only added wait while resources of their
// group wait, since an application that resolves a name may dial it.
func (h *Hub) publishNames(changes *table.Changes) {
	changed := map[graph.ProxyGroup]*HostNames{}
	for group, names := range h.config.names.Changed(changes) {
		if of := h.groups.open[group]; of != nil && of.late {
			h.lateNames[group] = true
			continue
		}
		delete(h.lateNames, group)
		changed[group] = names
	}
	h.tellNames(changed)
}

// tellNames sends the proxies of some groups their names.
func (h *Hub) tellNames(changed map[graph.ProxyGroup]*HostNames) {
	if len(changed) == 0 {
		return
	}
	maps.Copy(h.names, changed)
	for _, p := range h.proxies {
		if p.own == nil {
			continue
		}
		if names := changed[p.own.Proxy.Group]; names != nil {
			p.tellNames(names)
		}
	}
}

// onlyAdds reports whether n has all earlier names, unchanged.
func (n *HostNames) onlyAdds(before *HostNames) bool {
	if before == nil {
		return true
	}
	now := n.hosts
	for _, host := range before.hosts {
		i, found := slices.BinarySearchFunc(now, host.Name, func(h graph.Host, name string) int {
			return strings.Compare(h.Name, name)
		})
		if !found || !slices.Equal(now[i].Addresses, host.Addresses) {
			return false
		}
		now = now[i+1:]
	}
	return true
}
