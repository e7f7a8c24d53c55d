package xds

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// TestClientsConverge: a client may request, reject, apply in part, delay, reconnect, and move to another group in any
// order, whatever is committed. Once it has caught up it has the resources of its sets.
func TestClientsConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"commit":      w.commit,
			"deliver":     w.deliver,
			"subscribe":   w.subscribe,
			"unsubscribe": w.unsubscribe,
			"move":        w.move,
			"reconnect":   w.reconnect,
			"wait":        w.wait,
			"":            func(*rapid.T) { w.pump() },
		})
		w.converge(t)
		w.compare(t)
	})
}

// world is a catalog with two groups' sets and an own set, and one client.
type world struct {
	catalog   *Catalog
	groups    []*ResourceSet
	own       *ResourceSet
	group     int
	session   *session
	has       [numTypes]map[string]string // applied by the client: name to version
	requested [numTypes]map[string]bool
	queue     []*discoveryv3.DeltaDiscoveryResponse // sent, not delivered yet
	versions  int
	now       time.Time
}

func newWorld(t *rapid.T) *world {
	w := &world{catalog: NewCatalog()}
	w.groups = []*ResourceSet{w.catalog.NewResourceSet(), w.catalog.NewResourceSet()}
	w.own = w.catalog.NewResourceSet()
	for typ := range numTypes {
		w.has[typ], w.requested[typ] = map[string]string{}, map[string]bool{}
	}
	w.reconnect(t)
	return w
}

func (w *world) sets() []*ResourceSet { return []*ResourceSet{w.own, w.groups[w.group]} }

// commit draws a change. Names that end in "own" are in the own set: only one set of a stream has a name. The own set
// also excludes listeners and clusters of the groups.
func (w *world) commit(t *rapid.T) {
	var changes []Change
	for i, f := range append([]*ResourceSet{w.own}, w.groups...) {
		change := Change{Set: f}
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			key := Key{drawType(t), rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name")}
			if i == 0 && removable(key.Type) && rapid.IntRange(0, 2).Draw(t, "excludes") == 0 {
				if rapid.Bool().Draw(t, "ends") {
					change.Removed = append(change.Removed, key)
				} else {
					change.Changed = append(change.Changed, Exclusion(key.Type, key.Name))
				}
				continue
			}
			if i == 0 {
				key.Name += "-own"
			}
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				change.Removed = append(change.Removed, key)
			case 1:
				w.versions++
				change.Changed = append(change.Changed, fake(key.Type, key.Name, fmt.Sprintf("%d-bad", w.versions)))
			default:
				version := rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "version")
				change.Changed = append(change.Changed, fake(key.Type, key.Name, version))
			}
		}
		changes = append(changes, change)
	}
	w.catalog.Commit(changes...)
}

func drawType(t *rapid.T) Type { return Type(rapid.IntRange(0, int(numTypes)-1).Draw(t, "type")) }

// pump moves the responses of the session into the queue.
func (w *world) pump() {
	w.session.retry(w.now)
	for _, r := range w.session.ready() {
		var message discoveryv3.DeltaDiscoveryResponse
		if err := proto.Unmarshal(r.wire, &message); err != nil {
			panic(err)
		}
		w.queue = append(w.queue, &message)
	}
}

// deliver gives the client its next response. It rejects a response with a bad resource, and may have applied any of
// the others.
func (w *world) deliver(t *rapid.T) {
	w.pump()
	if len(w.queue) == 0 {
		return
	}
	message := w.queue[0]
	w.queue = w.queue[1:]
	typ, _ := TypeOf(message.TypeUrl)
	if len(message.Resources) > 0 && len(message.RemovedResources) > 0 {
		t.Fatalf("a removal shares a response with a change: %v", message)
	}
	nacks := slices.ContainsFunc(message.Resources, bad)
	for _, r := range message.Resources {
		if !bad(r) && (!nacks || rapid.Bool().Draw(t, "applied all the same")) {
			w.has[typ][r.Name] = r.Version
		}
	}
	for _, name := range message.RemovedResources {
		delete(w.has[typ], name)
	}
	request := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: message.TypeUrl, ResponseNonce: message.Nonce}
	if nacks {
		request.ErrorDetail = &status.Status{Message: "bad"}
	}
	w.step(t, request)
}

func bad(r *discoveryv3.Resource) bool { return len(r.Version) > 1 }

func (w *world) step(t *rapid.T, request *discoveryv3.DeltaDiscoveryRequest) {
	if _, err := stepWith(t, w.session, request); err != nil {
		t.Fatalf("an ordinary request was rejected: %v", err)
	}
}

func (w *world) subscribe(t *rapid.T) {
	typ, name := drawNamed(t)
	w.requested[typ][name] = true
	w.step(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typ.URL(), ResourceNamesSubscribe: []string{name}})
}

func (w *world) unsubscribe(t *rapid.T) {
	typ, name := drawNamed(t)
	delete(w.requested[typ], name)
	delete(w.has[typ], name)
	w.step(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typ.URL(), ResourceNamesUnsubscribe: []string{name}})
}

func drawNamed(t *rapid.T) (Type, string) {
	typ := rapid.SampledFrom([]Type{Endpoint, Route, Extension, Secret}).Draw(t, "type")
	name := rapid.SampledFrom([]string{"a", "b", "c", "d", "a-own", "b-own"}).Draw(t, "name")
	return typ, name
}

func (w *world) move(t *rapid.T) {
	w.group = rapid.IntRange(0, 1).Draw(t, "group")
	w.session.follow(w.sets())
}

// wait passes the time after which rejected resources are sent again.
func (w *world) wait(*rapid.T) { w.now = w.now.Add(lastRetry) }

// reconnect loses the responses in flight. Envoy states the versions that it has of each type, and subscribes again.
func (w *world) reconnect(t *rapid.T) {
	if w.session != nil {
		w.session.leave()
	}
	w.session, w.queue = newSession(w.catalog, func() {}), nil
	late := rapid.Bool().Draw(t, "resource sets come late")
	if !late {
		w.session.follow(w.sets())
	}
	for typ := range numTypes {
		w.step(t, &discoveryv3.DeltaDiscoveryRequest{
			TypeUrl:                 typ.URL(),
			InitialResourceVersions: maps.Clone(w.has[typ]),
			ResourceNamesSubscribe:  slices.Sorted(maps.Keys(w.requested[typ])),
		})
		w.pump()
	}
	if late {
		w.session.follow(w.sets())
	}
}

// converge delivers until nothing is left. A session that never becomes idle fails here.
func (w *world) converge(t *rapid.T) {
	w.pump()
	for i := 0; len(w.queue) > 0; i++ {
		if i == 1000 {
			t.Fatal("the session still sends after 1000 responses")
		}
		w.deliver(t)
		w.pump()
	}
	if !w.session.inSyncAt(w.catalog.Revision()) {
		t.Fatalf("every response is acked and the stream is not in sync: %+v", w.session.subs)
	}
}

func (w *world) compare(t *rapid.T) {
	want := map[Key]string{}
	for _, f := range w.sets() {
		for _, r := range f.Resources() {
			if !w.own.types[r.Type].excludes(r.Name) {
				want[Key{r.Type, r.Name}] = r.Version
			}
		}
	}
	for typ := range numTypes {
		for name, version := range w.has[typ] {
			if _, ok := want[Key{typ, name}]; !ok && removable(typ) {
				t.Errorf("the client still has %s %s@%s, which is gone", typ, name, version)
			}
		}
	}
	for key, version := range want {
		if got := w.has[key.Type][key.Name]; got != version && len(version) == 1 &&
			(removable(key.Type) || w.requested[key.Type][key.Name]) {
			t.Errorf("the client has %s %s@%s, want @%s", key.Type, key.Name, got, version)
		}
	}
}

// FuzzStep: no sequence of requests panics, and every error has a text.
func FuzzStep(f *testing.F) {
	f.Add([]byte("\x00\x00a\x01\x01b\x02\x02*"), true)
	f.Add([]byte("\x00\x03a\x00\x04a\x01\x00*\x01\x01*"), false)
	f.Fuzz(func(t *testing.T, input []byte, late bool) {
		catalog := NewCatalog()
		set := catalog.NewResourceSet()
		set.Commit([]*Resource{fake(Cluster, "a", "1"), fake(Endpoint, "a", "1"), fake(Listener, "b", "1")}, nil)
		session := newSession(catalog, func() {})
		if !late {
			session.follow([]*ResourceSet{set})
		}
		for ; len(input) >= 3; input = input[3:] {
			request := fuzzed(input[0], input[1], string(input[2]), session)
			if _, err := stepWith(t, session, request); err != nil && err.Error() == "" {
				t.Fatal("rejected without a reason")
			}
			session.ready()
			set.Commit([]*Resource{fake(Cluster, string(input[2]), string(input[1]))}, []Key{{Cluster, "a"}})
		}
		session.follow([]*ResourceSet{catalog.NewResourceSet()})
		session.ready()
	})
}

func fuzzed(typ, what byte, name string, s *session) *discoveryv3.DeltaDiscoveryRequest {
	t := Type(typ) % numTypes
	request := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: t.URL()}
	if typ > 200 {
		request.TypeUrl = name
	}
	switch what % 6 {
	case 0:
		request.ResourceNamesSubscribe = []string{name}
	case 1:
		request.ResourceNamesUnsubscribe = []string{name}
	case 2:
		request.InitialResourceVersions = map[string]string{name: "1"}
	case 3:
		request.ErrorDetail = &status.Status{Message: name}
		fallthrough
	case 4:
		if sent := s.subs[t].outstanding; len(sent) > 0 {
			request.ResponseNonce = sent[0].nonce
		}
	case 5:
		request.ResponseNonce = name
	}
	return request
}
