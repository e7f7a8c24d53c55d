package xds

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestResourcesFollowTheirClusters: whatever is committed or acked late, and whichever group the stream is moved to, a
// client never gets a listener, an extension config or a route before it has acked their cluster, and never loses a
// cluster before it has acked that the listener is gone.
func TestResourcesFollowTheirClusters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newServices()
		t.Repeat(map[string]func(*rapid.T){
			"add":    w.add,
			"remove": w.remove,
			"move":   func(*rapid.T) { w.move(w.named()) },
			"switch": func(*rapid.T) { w.move() },
			"ack":    w.ack,
			"":       func(t *rapid.T) { w.pump(t) },
		})
	})
}

// services are clusters in two groups, each with a resource of the same name that leads to it: in the group, or in the
// own set of the one client.
type services struct {
	catalog *Catalog
	groups  []*ResourceSet
	own     *ResourceSet
	group   int
	session *session
	count   int
	present []service

	unacked [numTypes][]*manifest
	// warm are the clusters that the client has acked. leading are the resources that it may have.
	warm, leading map[string]bool
}

type service struct {
	name    string
	leading Type
	group   int
	own     bool
}

func newServices() *services {
	w := &services{catalog: NewCatalog(), warm: map[string]bool{}, leading: map[string]bool{}}
	w.groups = []*ResourceSet{w.catalog.NewResourceSet(), w.catalog.NewResourceSet()}
	w.own = w.catalog.NewResourceSet()
	w.session = newSession(w.catalog, func() {})
	w.session.follow([]*ResourceSet{w.own, w.groups[0]})
	for _, t := range []Type{Cluster, Listener, Extension, Route} {
		if _, err := w.session.step(&request{typeURL: t.URL()}); err != nil {
			panic(err)
		}
	}
	return w
}

func (w *services) named() service {
	w.count++
	return service{name: fmt.Sprintf("s%d", w.count), leading: Listener}
}

// edit commits changes, and moves the client in the same step.
func (w *services) edit(group int, added, removed []service) {
	changes := []Change{{Set: w.groups[0]}, {Set: w.groups[1]}, {Set: w.own}}
	of := func(s service) *Change {
		if s.own {
			return &changes[2]
		}
		return &changes[s.group]
	}
	for _, s := range added {
		changes[s.group].Changed = append(changes[s.group].Changed, fake(Cluster, s.name, "1"))
		of(s).Changed = append(of(s).Changed, fake(s.leading, s.name, "1"))
	}
	for _, s := range removed {
		changes[s.group].Removed = append(changes[s.group].Removed, Key{Cluster, s.name})
		of(s).Removed = append(of(s).Removed, Key{s.leading, s.name})
	}
	gone := func(s service) bool { return slices.Contains(removed, s) }
	w.present = append(slices.DeleteFunc(w.present, gone), added...)
	if len(added)+len(removed) > 0 {
		w.catalog.Commit(changes...)
	}
	if group != w.group {
		w.group = group
		w.session.follow([]*ResourceSet{w.own, w.groups[group]})
	}
}

func (w *services) add(t *rapid.T) {
	s := w.named()
	s.leading = rapid.SampledFrom([]Type{Listener, Listener, Extension, Route}).Draw(t, "type")
	if s.leading != Listener {
		if _, err := w.session.step(&request{typeURL: s.leading.URL(), subscribe: []string{s.name}}); err != nil {
			t.Fatal(err)
		}
	}
	s.group = rapid.IntRange(0, 1).Draw(t, "group")
	w.edit(w.group, []service{s}, nil)
}

// remove removes a listener with its cluster. Other types stay with clients that have requested them.
func (w *services) remove(t *rapid.T) {
	listeners := slices.DeleteFunc(slices.Clone(w.present), func(s service) bool { return s.leading != Listener })
	if len(listeners) > 0 {
		w.edit(w.group, nil, []service{rapid.SampledFrom(listeners).Draw(t, "service")})
	}
}

// move moves the client to the other group, whose clusters its own listeners lead to.
func (w *services) move(own ...service) {
	for i := range own {
		own[i].group, own[i].own = 1-w.group, true
	}
	var former []service
	for _, s := range w.present {
		if s.own {
			former = append(former, s)
		}
	}
	w.edit(1-w.group, own, former)
}

// ack acks the oldest response of a type.
func (w *services) ack(t *rapid.T) {
	typ := rapid.SampledFrom([]Type{Cluster, Listener, Extension, Route}).Draw(t, "type")
	if len(w.unacked[typ]) == 0 {
		return
	}
	m := w.unacked[typ][0]
	w.unacked[typ] = w.unacked[typ][1:]
	for _, r := range m.changed {
		if typ == Cluster {
			w.warm[r.Name] = true
		}
	}
	for _, name := range m.removed {
		if typ == Listener {
			delete(w.leading, name)
		}
	}
	if _, err := w.session.step(&request{typeURL: typ.URL(), nonce: m.nonce}); err != nil {
		t.Fatal(err)
	}
}

func (w *services) pump(t *rapid.T) {
	for _, r := range w.session.ready() {
		w.unacked[r.typ] = append(w.unacked[r.typ], r.manifest)
		for _, changed := range r.changed {
			switch {
			case r.typ == Cluster:
			case !w.warm[changed.Name]:
				t.Fatalf("%s %s is sent before the client has acked its cluster", r.typ, changed.Name)
			default:
				w.leading[changed.Name] = r.typ == Listener
			}
		}
		for _, name := range r.removed {
			if r.typ == Cluster && w.leading[name] {
				t.Fatalf("cluster %s is removed before the client has acked that its listener is", name)
			}
			if r.typ == Cluster {
				delete(w.warm, name)
			}
		}
	}
}
