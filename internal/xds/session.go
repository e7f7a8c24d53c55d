package xds

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"weft/resource"
)

// session is the protocol of one stream: requests go into step, responses come out of ready. It has no goroutine, no
// clock and no connection. It is not safe for concurrent use.
//
// Changes are sent in the order of the types. Each type has at most one batch of responses outstanding, and changes
// meanwhile are merged. Within that:
//
//   - An assignment follows its cluster at once, changed or not: Envoy waits 15 s for the endpoints of a
//     changed cluster, and does not request them anew.
//   - Listeners, extension configs and routes wait until the clusters of the same revision are acknowledged,
//     that is until those are warm.
//   - Removals have responses of their own, since Envoy applies them even where it rejects the response;
//     clusters are removed once listeners, extension configs and routes are acked. Listeners are removed before
//     others are sent, which may have their address: Envoy rejects a second listener of an address.
//   - Resources that were rejected together are sent again one by one: after a NACK any resource of the
//     response may or may not have been applied. A resource that is rejected alone is not sent again until
//     it changes, or until a while has passed ([session.retry]).
type session struct {
	catalog *Catalog
	// wake is called, from any goroutine, when a resource set has changed.
	wake func()
	// passed is the revision up to which no type needs removed entries any more.
	passed atomic.Uint64

	sets []*ResourceSet
	subs [numTypes]subscription
	// early requests came before the stream had resource sets. A response without resources would remove everything
	// from the client.
	early []*request

	retryAt    time.Time     // when rejected resources are sent again; zero: none is rejected
	retryAfter time.Duration // the last wait
	// unassigned reports whether clusters were sent before the client requested assignments. A client that has
	// reconnected and states its assignments still waits for those of the clusters that have changed.
	unassigned bool
}

// Limits of the requests of a client. Resources that the catalog has do not count.
const (
	maxMissing = 8 << 20 // bytes for the remembered names of one type that no set has: 60,000 names of usual length
	maxName    = 1 << 10 // bytes of a name: twice the longest of weft's names
	maxEarly   = 32      // requests before the stream has resource sets
	maxMessage = 1 << 10 // bytes of a NACK's message that are kept, as one printable line
	maxBrief   = 256     // the same, beyond the first maxQuoted NACKs of a type
	maxQuoted  = 32
)

func newSession(c *Catalog, wake func()) *session {
	s := &session{catalog: c, wake: wake}
	s.passed.Store(c.Revision())
	return s
}

// outcome is the part of a request about earlier responses.
type outcome struct {
	typ   Type
	acked bool // one response was acked
	nacks []NACK
	// last reports whether nothing of the type is outstanding any more, and complete whether any of it was acked too.
	last, complete bool
}

// step handles one request. An error ends the stream and is sent to the client.
func (s *session) step(r *request) (outcome, error) {
	t, ok := TypeOf(r.typeURL)
	if !ok {
		return outcome{},
			fmt.Errorf("type_url %q is not served; request clusters, endpoints, listeners, extension "+
				"configs, routes or secrets", truncate(r.typeURL))
	}
	if err := checkNames(r); err != nil {
		return outcome{}, err
	}
	s.catalog.mu.RLock()
	defer s.catalog.mu.RUnlock()
	if s.sets == nil {
		if len(s.early) == maxEarly {
			return outcome{}, fmt.Errorf("more than %d requests before the first response", maxEarly)
		}
		s.early = append(s.early, r.keep())
		return outcome{typ: t}, nil
	}
	return s.handle(t, r)
}

func (s *session) handle(t Type, r *request) (outcome, error) {
	result := s.acknowledge(t, r)
	sub := &s.subs[t]
	if sub.open {
		s.subscribe(t, r.subscribe)
	} else {
		s.open(t, r)
	}
	s.unsubscribe(t, r.unsubscribe)
	s.advance()
	if sub.missingBytes > maxMissing {
		return result, fmt.Errorf("%d names of type %s do not exist; that is more than a stream may request",
			len(sub.missing), t)
	}
	return result, nil
}

func checkNames(r *request) error {
	for _, names := range [][]string{r.subscribe, r.unsubscribe} {
		for _, name := range names {
			if name == "" {
				return errors.New("a resource name is empty")
			}
			if len(name) > maxName {
				return fmt.Errorf("resource name %q... is longer than %d bytes", name[:64], maxName)
			}
		}
	}
	return nil
}

// acknowledge handles the nonce. An unknown nonce is stale, and is ignored.
func (s *session) acknowledge(t Type, r *request) outcome {
	sub := &s.subs[t]
	m := sub.acknowledge(r.nonce)
	if m == nil {
		return outcome{typ: t}
	}
	result := outcome{typ: t, acked: r.rejection == nil}
	if result.acked {
		sub.accept(m)
	} else {
		result.nacks = sub.reject(m, resource.PrintableLine(r.rejection.Message, sub.maxMessage()))
	}
	sub.accepted = sub.accepted || result.acked
	if len(sub.outstanding) == 0 {
		result.last, result.complete, sub.accepted = true, sub.accepted, false
	}
	return result
}

// reject handles a NACK. The rejected resource is known where the response had one resource; otherwise all are sent
// again one by one.
func (sub *subscription) reject(m *manifest, message string) []NACK {
	if len(m.changed) > 1 {
		for _, r := range m.changed {
			sub.alone = append(sub.alone, r.Name)
		}
		return nil
	}
	var nacks []NACK
	for _, r := range m.changed {
		nack := NACK{Type: r.Type, Name: r.Name, Version: r.Version, Message: message}
		sub.addNACK(nack)
		nacks = append(nacks, nack)
	}
	for _, name := range m.removed {
		nacks = append(nacks, NACK{Type: m.typ, Name: name, Message: message})
	}
	return nacks
}

// open handles the first request of a type.
func (s *session) open(t Type, r *request) {
	sub := &s.subs[t]
	sub.open = true
	sub.sets = make([]idSets, len(s.sets))
	sub.wildcard = removable(t) && len(r.subscribe) == 0
	stated := r.stated
	sub.responded = len(stated) > 0
	if !sub.wildcard || len(stated) > 0 {
		sub.position = s.catalog.revision
	}
	if sub.wildcard && len(stated) > 0 {
		s.requireAll(t)
	}
	s.subscribe(t, r.subscribe)
	if t == Endpoint && s.unassigned {
		stated = nil
	}
	for _, has := range stated {
		s.state(t, has.name, has.version)
	}
	slices.Sort(sub.gone)
}

// state handles a resource that the client states.
func (s *session) state(t Type, name, version string) {
	sub := &s.subs[t]
	i, e := s.find(t, name)
	switch {
	case e != nil && e.resource.Version == version:
		sub.sets[i].due.remove(e.id)
	case e == nil && removable(t):
		sub.gone = append(sub.gone, strings.Clone(name))
	}
}

// requireAll makes everything of a type due.
func (s *session) requireAll(t Type) {
	for i, f := range s.sets {
		for e := f.types[t].newest; e != nil; e = e.older {
			if e.resource != nil {
				s.subs[t].require(i, e)
			}
		}
	}
}

const wildcard = "*"

func (s *session) subscribe(t Type, names []string) {
	sub := &s.subs[t]
	for _, name := range names {
		i, e := s.find(t, name)
		switch {
		case name == wildcard && !sub.wildcard:
			sub.wildcard = true
			s.requireAll(t)
		case name == wildcard:
		case e == nil:
			sub.addMissing(name)
		default:
			sub.sets[i].wanted.add(e.id)
			sub.require(i, e)
		}
	}
}

func (s *session) unsubscribe(t Type, names []string) {
	sub := &s.subs[t]
	for _, name := range names {
		if name == wildcard {
			sub.wildcard = false
			continue
		}
		sub.removeMissing(name)
		for i, f := range s.sets {
			if e := f.types[t].entry(name); e != nil {
				sub.dropEntry(i, e)
			}
		}
	}
}

// dropEntry handles an entry that is no longer requested by name. Where "*" covers it, it is sent once more, since the
// client cannot tell the difference.
func (sub *subscription) dropEntry(i int, e *entry) {
	sub.sets[i].wanted.remove(e.id)
	sub.sets[i].due.remove(e.id)
	if sub.wildcard && e.resource != nil {
		sub.require(i, e)
	}
	if !sub.wildcard {
		delete(sub.nacks, e.name)
	}
}

// find returns an entry that has a resource, and the index of its resource set; nil where a set excludes it.
func (s *session) find(t Type, name string) (int, *entry) {
	if s.excludes(t, name) {
		return 0, nil
	}
	for i, f := range s.sets {
		if e := f.types[t].find(name); e != nil {
			return i, e
		}
	}
	return 0, nil
}

// truncate returns the beginning of a text of the client, as an error repeats it.
func truncate(word string) string { return strings.ToValidUTF8(word[:min(len(word), 100)], "") }

// currentNACKs returns the NACKs of resources in the version that the stream's sets have.
func (s *session) currentNACKs() []NACK {
	s.catalog.mu.RLock()
	defer s.catalog.mu.RUnlock()
	var all []NACK
	for t := range numTypes {
		for name, nack := range s.subs[t].nacks {
			if _, e := s.find(t, name); e != nil && e.resource.Version == nack.Version {
				all = append(all, nack)
			}
		}
	}
	return all
}
