package xds

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// session is the protocol of one stream: requests go into step, responses come out of ready. It has no
// goroutine, no clock and no connection. One caller at a time.
//
// Changes are sent in the order of the types, each type with one lot of responses outstanding at most;
// what changes meanwhile is merged. Within that:
//
//   - An assignment follows its cluster at once, changed or not: Envoy waits 15 s for the endpoints of a
//     changed cluster, and does not ask for them anew.
//   - Listeners and routes wait until the clusters that were sent before them are acknowledged, that is
//     until those are warm.
//   - Removals have responses of their own, since Envoy applies them even where it refuses the response;
//     clusters go once listeners and routes are settled.
//   - What was refused together is sent again one by one: after a refusal any name of the response may or
//     may not have been applied. One that is refused alone is not sent again until it changes, or until a
//     while has passed ([session.retry]).
type session struct {
	catalog *Catalog
	// wake is called, from any goroutine, when a feed has changed.
	wake func()
	// passed is the revision up to which no type needs to see a removed entry any more.
	passed atomic.Uint64

	feeds []*ResourceSet
	subs  [numTypes]subscription
	// early requests came before the stream had feeds. Answering them from nothing would take from the
	// client all that it has.
	early []*request

	retryAt    time.Time     // when what is refused is sent again; zero: nothing is refused
	retryAfter time.Duration // the last wait
	// unassigned says that clusters were sent before the client asked for assignments. One that has come
	// back and states its assignments waits for those of the clusters that have changed all the same.
	unassigned bool
}

// Limits of what a client may ask. Nothing that the catalog has counts against them.
const (
	maxMissing = 8 << 20 // bytes that remembering names of one type takes which no feed has: 60,000 of usual length
	maxName    = 1 << 10 // bytes of a name: twice the longest that there is
	maxEarly   = 32      // requests before the stream has feeds
	maxMessage = 4 << 10 // bytes of a refusal's message that are kept
)

func newSession(c *Catalog, wake func()) *session {
	s := &session{catalog: c, wake: wake}
	s.passed.Store(c.Revision())
	return s
}

// outcome is what a request said about earlier responses.
type outcome struct {
	typ     Type
	acked   bool // one response was taken whole
	refused []NACK
}

// step takes one request. An error is a reason to end the stream, in words for the client.
func (s *session) step(r *request) (outcome, error) {
	t, ok := TypeOf(r.typeURL)
	if !ok {
		return outcome{}, fmt.Errorf("type_url %q is not served; ask for clusters, endpoints, listeners, routes, extension configs or secrets", brief(r.typeURL))
	}
	if err := checkNames(r); err != nil {
		return outcome{}, err
	}
	s.catalog.mu.RLock()
	defer s.catalog.mu.RUnlock()
	if s.feeds == nil {
		if len(s.early) == maxEarly {
			return outcome{}, fmt.Errorf("more than %d requests before the first answer", maxEarly)
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
	s.settle()
	if sub.missingBytes > maxMissing {
		return result, fmt.Errorf("%d names of type %s that do not exist are more than are remembered", len(sub.missing), t)
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

// acknowledge handles the nonce. One that is unknown is stale, and says nothing.
func (s *session) acknowledge(t Type, r *request) outcome {
	sub := &s.subs[t]
	m := sub.acknowledge(r.nonce)
	if m == nil {
		return outcome{typ: t}
	}
	if r.rejection == nil {
		sub.accept(m)
		return outcome{typ: t, acked: true}
	}
	return outcome{typ: t, refused: sub.reject(m, clip(r.rejection.Message))}
}

// reject handles a refused response: the culprit is known where it had one resource, and is looked for
// where it had several.
func (sub *subscription) reject(m *manifest, message string) []NACK {
	if len(m.changed) > 1 {
		for _, r := range m.changed {
			sub.alone = append(sub.alone, r.Name)
		}
		return nil
	}
	var refused []NACK
	for _, r := range m.changed {
		refusal := NACK{Type: r.Type, Name: r.Name, Version: r.Version, Message: message}
		sub.refuse(refusal)
		refused = append(refused, refusal)
	}
	for _, name := range m.removed {
		refused = append(refused, NACK{Type: m.typ, Name: name, Message: message})
	}
	return refused
}

// open handles the first request of a type.
func (s *session) open(t Type, r *request) {
	sub := &s.subs[t]
	sub.open = true
	sub.sets = make([]idSets, len(s.feeds))
	sub.wildcard = removable(t) && len(r.subscribe) == 0
	stated := r.stated
	sub.answered = len(stated) > 0
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

// state handles what the client says that it has.
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
	for i, f := range s.feeds {
		for e := f.shelves[t].newest; e != nil; e = e.older {
			if e.resource != nil {
				s.subs[t].sets[i].due.add(e.id)
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
			sub.miss(name)
		default:
			sub.sets[i].wanted.add(e.id)
			sub.sets[i].due.add(e.id)
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
		sub.unmiss(name)
		for i, f := range s.feeds {
			if e := f.shelves[t].entries[name]; e != nil {
				sub.forget(i, e)
			}
		}
	}
}

// forget handles an entry that is no longer asked for by name. Where "*" covers it all the same it is
// sent once more, since the client can't tell.
func (sub *subscription) forget(i int, e *entry) {
	sub.sets[i].wanted.remove(e.id)
	sub.sets[i].due.remove(e.id)
	if sub.wildcard && e.resource != nil {
		sub.sets[i].due.add(e.id)
	}
	if !sub.wildcard {
		delete(sub.refused, e.name)
	}
}

// find answers a resource that is there, and the index of its feed.
func (s *session) find(t Type, name string) (int, *entry) {
	for i, f := range s.feeds {
		if e := f.shelves[t].find(name); e != nil {
			return i, e
		}
	}
	return 0, nil
}

// brief is as much of a word of the client as an error repeats.
func brief(word string) string { return strings.ToValidUTF8(word[:min(len(word), 100)], "") }

func clip(message string) string {
	return strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
}
