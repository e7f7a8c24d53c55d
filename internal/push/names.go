package push

import (
	"cmp"
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
		tell(h.hostNames.sent[kept.Proxy.Group])
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

// groupNames has the host names of the proxy groups that are in use, as agents were sent them. The lock of the hub
// guards it.
type groupNames struct {
	derived *table.Derived[graph.ProxyGroup, *HostNames]
	sets    *resourceSets
	sent    map[graph.ProxyGroup]*HostNames
	late    map[graph.ProxyGroup]bool // groups whose further host names wait
}

func newGroupNames(c *config, sets *resourceSets) *groupNames {
	return &groupNames{
		derived: c.names, sets: sets,
		sent: map[graph.ProxyGroup]*HostNames{}, late: map[graph.ProxyGroup]bool{},
	}
}

// join makes the names of a group for its first proxy.
func (n *groupNames) join(group graph.ProxyGroup) {
	if n.sent[group] == nil {
		n.sent[group] = cmp.Or(n.derived.Pin(group), newNames(nil)) // nil: generation failed
	}
}

// leave drops the names of a group without a proxy.
func (n *groupNames) leave(group graph.ProxyGroup) {
	delete(n.sent, group)
	delete(n.late, group)
	n.derived.Unpin(group)
}

// changes reports whether a commit changes or removes host names that agents have. An agent is sent all names at once,
// so the names that wait are published before.
func (n *groupNames) changes(changes *table.Changes) bool {
	for group, names := range n.derived.Changed(changes) {
		if names != nil && !names.onlyAdds(n.sent[group]) {
			return true
		}
	}
	return false
}

// publish returns the names, by group, that a commit changes and that agents are to be sent. Names that are only added
// wait while resources of their group wait, since an application that resolves a name may dial it.
func (n *groupNames) publish(changes *table.Changes) map[graph.ProxyGroup]*HostNames {
	changed := map[graph.ProxyGroup]*HostNames{}
	for group, names := range n.derived.Changed(changes) {
		if n.sets.waits(group) {
			n.late[group] = true
			continue
		}
		delete(n.late, group)
		changed[group] = names
	}
	maps.Copy(n.sent, changed)
	return changed
}

// publishLate returns the names, by group, that waited until the resources of their services were published.
func (n *groupNames) publishLate() map[graph.ProxyGroup]*HostNames {
	changed := map[graph.ProxyGroup]*HostNames{}
	for group := range n.late {
		if n.sets.waits(group) {
			continue
		}
		delete(n.late, group)
		if names, ok := n.derived.Value(group); ok && n.sent[group] != nil {
			changed[group] = names
		}
	}
	maps.Copy(n.sent, changed)
	return changed
}

// tellNames sends the proxies of some groups their names.
func (h *Hub) tellNames(changed map[graph.ProxyGroup]*HostNames) {
	if len(changed) == 0 {
		return
	}
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
