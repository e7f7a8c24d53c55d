package xds

import (
	"slices"
	"strings"
)

// subscription has the resources of one type that one stream wants, and those that the client has: everything up to a
// revision, with exceptions.
type subscription struct {
	open      bool // the client has requested the type
	wildcard  bool // with "*"
	responded bool // it was sent a response, or stated the resources that it has
	// position: every change up to here was sent, is due, or is not wanted by the client.
	position uint64
	// acked: everything up to here, except removals, was acknowledged or rejected.
	acked uint64
	// waitsSince is the revision at which the type began to wait for clusters; 0: it does not wait.
	waitsSince uint64
	// postponed are the entries that a response left out, since they may lead to clusters that the client does not have
	// yet; with the revision of the content that was sent all the same, 0: none.
	postponed map[*entry]uint64

	sets    []idSets            // one for each resource set
	missing map[string]struct{} // requested names that no set has
	gone    []string            // names to remove from the client
	alone   []string            // names to send in a response each
	again   []string            // rejected names to send once more
	nacks   map[string]NACK     // by name
	fresh   bool                // a resource was rejected since the last retry

	missingBytes int // approximate memory of missing

	outstanding []*manifest // sent, neither acknowledged nor rejected yet
	accepted    bool        // any response was acknowledged since none was outstanding
}

// idSets are sets of ids of the entries of one resource set.
type idSets struct {
	wanted bitset // requested by name
	due    bitset // to be sent whatever their revision: the client may have another version
}

// NACK is a resource that a client rejected.
type NACK struct {
	Type    Type
	Name    string
	Version string // empty: the removal was rejected
	Message string // the client's, cut to 4 KiB
}

// removable reports whether a removed resource is removed from clients. Only clusters and listeners are. A resource
// that is requested by name goes when the client unsubscribes: Envoy ignores the removal of a route or a secret, and
// warns at that of an assignment. An extension that is removed from a listener which drains would fail the requests in
// flight.
func removable(t Type) bool { return t == Cluster || t == Listener }

// wants reports whether the client should have the entry of the resource set at index i.
func (sub *subscription) wants(i int, e *entry) bool {
	return sub.wildcard || sub.sets[i].wanted.has(e.id)
}

// resolveMissing marks an entry as wanted where its name was requested before it existed.
func (sub *subscription) resolveMissing(i int, e *entry) {
	if sub.removeMissing(e.name) {
		sub.sets[i].wanted.add(e.id)
	}
}

// require makes an entry due, also where the client has it.
func (sub *subscription) require(i int, e *entry) {
	sub.sets[i].due.add(e.id)
	delete(sub.postponed, e)
}

// passes reports whether an entry may be sent in a response with the changes up to a revision. An entry that has
// changed since is postponed once. It is sent if it has changed again in the meantime: a listener of all services
// that come and go would never be sent.
func (sub *subscription) passes(e *entry, limit uint64) bool {
	sent, known := sub.postponed[e]
	switch {
	case e.changed <= limit:
		delete(sub.postponed, e)
	case !known:
		if sub.postponed == nil {
			sub.postponed = map[*entry]uint64{}
		}
		sub.postponed[e] = 0
		return false
	default:
		sub.postponed[e] = e.changed
	}
	return sent != e.changed
}

// markMissing turns a wanted entry without a resource into a requested name that is missing.
func (sub *subscription) markMissing(i int, e *entry) {
	if sub.sets[i].wanted.has(e.id) {
		sub.sets[i].wanted.remove(e.id)
		sub.addMissing(e.name)
	}
	sub.sets[i].due.remove(e.id)
	delete(sub.postponed, e)
	delete(sub.nacks, e.name)
}

func (sub *subscription) addMissing(name string) {
	if sub.missing == nil {
		sub.missing = map[string]struct{}{}
	}
	if _, ok := sub.missing[name]; !ok {
		sub.missing[strings.Clone(name)] = struct{}{} // it outlives the request
		sub.missingBytes += len(name) + missingCost
	}
}

// missingCost is the size in bytes of an entry of the map beside its name.
const missingCost = 64

// removeMissing removes a name from the missing ones, and reports whether it was one.
func (sub *subscription) removeMissing(name string) bool {
	_, ok := sub.missing[name]
	if ok {
		delete(sub.missing, name)
		sub.missingBytes -= len(name) + missingCost
	}
	return ok
}

// rejects reports whether the client has rejected this version.
func (sub *subscription) rejects(r *Resource) bool {
	nack, ok := sub.nacks[r.Name]
	if ok && nack.Version != r.Version {
		delete(sub.nacks, r.Name)
		return false
	}
	return ok
}

// maxMessage is the number of bytes of the message of a further NACK that are kept.
func (sub *subscription) maxMessage() int {
	if len(sub.nacks) < maxQuoted {
		return maxMessage
	}
	return maxBrief
}

func (sub *subscription) addNACK(nack NACK) {
	if sub.nacks == nil {
		sub.nacks = map[string]NACK{}
	}
	if known, ok := sub.nacks[nack.Name]; !ok || known.Version != nack.Version {
		sub.fresh = true
	}
	sub.nacks[nack.Name] = nack
}

// accept removes the NACKs of resources that the client has applied after all.
func (sub *subscription) accept(m *manifest) {
	for _, r := range m.changed {
		if nack, ok := sub.nacks[r.Name]; ok && nack.Version == r.Version {
			delete(sub.nacks, r.Name)
		}
	}
}

// idle reports whether everything that was sent is acknowledged, and no resource is due. Removals do not count: they
// may have to wait for other types.
func (sub *subscription) idle() bool {
	return len(sub.outstanding) == 0 && len(sub.alone)+len(sub.again) == 0 && !sub.overdue()
}

func (sub *subscription) overdue() bool {
	return slices.ContainsFunc(sub.sets, func(set idSets) bool { return !set.due.empty() })
}

// removing reports whether the client has resources that were removed.
func (sub *subscription) removing() bool {
	return len(sub.gone) > 0 || slices.ContainsFunc(sub.outstanding, func(m *manifest) bool {
		return len(m.removed) > 0
	})
}

// acknowledge removes the response with this nonce from the outstanding ones and returns it, or nil where there is
// none.
func (sub *subscription) acknowledge(nonce string) *manifest {
	i := slices.IndexFunc(sub.outstanding, func(m *manifest) bool { return m.nonce == nonce })
	if i < 0 {
		return nil
	}
	m := sub.outstanding[i]
	sub.outstanding = slices.Delete(sub.outstanding, i, i+1)
	if len(sub.outstanding) == 0 {
		sub.outstanding = nil
	}
	return m
}
