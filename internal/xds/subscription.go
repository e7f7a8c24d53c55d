package xds

import (
	"slices"
	"strings"
)

// subscription is what one stream wants of one type, and what of it the client has: everything up to
// a revision, but for the exceptions.
type subscription struct {
	open     bool // the client has asked for the type
	wildcard bool // for all of it
	answered bool // it got something, or said that it has everything
	// position: every change up to here was sent, is due, or is nothing that the client wants.
	position uint64
	// settled: everything up to here, but for removals, was acknowledged or refused.
	settled uint64
	// held is the revision at which the type began to wait for clusters; 0: it does not wait.
	held uint64

	sets    []idSets            // one for each feed
	missing map[string]struct{} // names asked for that no feed has
	gone    []string            // names to take from the client
	alone   []string            // names to send in a response each
	again   []string            // names to send once more though they are refused
	refused map[string]NACK     // by name: what the client did not take
	fresh   bool                // something was refused that had not been

	missingBytes int // what missing takes, about

	outstanding []*manifest // sent, neither acknowledged nor refused yet
}

// idSets are sets of ids of one feed's entries.
type idSets struct {
	wanted bitset // asked for by name
	due    bitset // to be sent whatever their revision: the client may have another version
}

// NACK is what a client said of a resource that it did not take.
type NACK struct {
	Type    Type
	Name    string
	Version string // empty: the removal was refused
	Message string // the client's, cut to 4 KiB
}

// removable says whether a resource that is gone is taken from clients. Only clusters and listeners
// are. What is asked for by name goes when the client stops asking: Envoy ignores the removal of a route
// or a secret, warns at that of an assignment, and an extension that is taken from a listener which
// drains would fail the requests in flight.
func removable(t Type) bool { return t == Cluster || t == Listener }

// wants says whether the client should have the entry of the feed at index i.
func (sub *subscription) wants(i int, e *entry) bool {
	return sub.wildcard || sub.sets[i].wanted.has(e.id)
}

// adopt makes a name that was asked for before it existed an entry that is wanted.
func (sub *subscription) adopt(i int, e *entry) {
	if sub.unmiss(e.name) {
		sub.sets[i].wanted.add(e.id)
	}
}

// orphan makes a wanted entry that has no resource any more a name that is asked for.
func (sub *subscription) orphan(i int, e *entry) {
	if sub.sets[i].wanted.has(e.id) {
		sub.sets[i].wanted.remove(e.id)
		sub.miss(e.name)
	}
	sub.sets[i].due.remove(e.id)
	delete(sub.refused, e.name)
}

func (sub *subscription) miss(name string) {
	if sub.missing == nil {
		sub.missing = map[string]struct{}{}
	}
	if _, ok := sub.missing[name]; !ok {
		sub.missing[strings.Clone(name)] = struct{}{} // it outlives the request
		sub.missingBytes += len(name) + missingCost
	}
}

// missingCost is what an entry of the map takes beside the name's bytes.
const missingCost = 64

// unmiss says whether the name was missing; from now on it is not.
func (sub *subscription) unmiss(name string) bool {
	_, ok := sub.missing[name]
	if ok {
		delete(sub.missing, name)
		sub.missingBytes -= len(name) + missingCost
	}
	return ok
}

// refuses says whether the client has refused just this version.
func (sub *subscription) refuses(r *Resource) bool {
	refusal, ok := sub.refused[r.Name]
	if ok && refusal.Version != r.Version {
		delete(sub.refused, r.Name)
		return false
	}
	return ok
}

func (sub *subscription) refuse(refusal NACK) {
	if sub.refused == nil {
		sub.refused = map[string]NACK{}
	}
	if known, ok := sub.refused[refusal.Name]; !ok || known.Version != refusal.Version {
		sub.fresh = true
	}
	sub.refused[refusal.Name] = refusal
}

// accept ends the refusals of what the client has taken after all.
func (sub *subscription) accept(m *manifest) {
	for _, r := range m.changed {
		if refusal, ok := sub.refused[r.Name]; ok && refusal.Version == r.Version {
			delete(sub.refused, r.Name)
		}
	}
}

// idle says whether all that was sent is acknowledged, and no resource is left to send whose revision
// does not tell of it. Removals are left aside: they may have to wait for other types.
func (sub *subscription) idle() bool {
	return len(sub.outstanding) == 0 && len(sub.alone)+len(sub.again) == 0 && !sub.overdue()
}

func (sub *subscription) overdue() bool {
	return slices.ContainsFunc(sub.sets, func(set idSets) bool { return !set.due.empty() })
}

// removing says whether the client has something that it should not have any more.
func (sub *subscription) removing() bool {
	return len(sub.gone) > 0 || slices.ContainsFunc(sub.outstanding, func(m *manifest) bool { return len(m.removed) > 0 })
}

// acknowledge takes the response with this nonce off the outstanding ones; nil where there is none.
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
