package reconcile

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft/internal/barrier"
	"weft/internal/graph"
	"weft/internal/pki"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// world is a store that executes writes at once, with a clock that tests set.
type world struct {
	t       rapid.TB
	plan    *Plan
	barrier *barrier.Barrier
	now     time.Time
	version int
	stated  map[Request]string // names of the stated conditions
	// waits are the running waits, by name; ackAll ends them.
	waits map[string]*barrier.Wait
}

// sixRange has the IPv6 virtual IPs of all worlds.
var sixRange = netip.MustParsePrefix("fd00:fd00::/96")

func newWorld(t rapid.TB, cidr string) *world { return newWorldIn(t, "east", cidr) }

// newWorldIn returns an empty world of a zone; global has no name.
func newWorldIn(t rapid.TB, zone, cidr string) *world {
	state, all := graph.NewState(zone), netip.MustParsePrefix(cidr)
	w := &world{
		t: t, plan: NewPlan(state, Ranges{all, all, all, sixRange}, nil),
		now:    time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
		stated: map[Request]string{}, waits: map[string]*barrier.Wait{},
	}
	w.barrier = barrier.New(w.plan.Acks, nil, w.commit, slog.New(slog.DiscardHandler))
	w.barrier.Now = func() time.Time { return w.now }
	state.Tables.DB.Clock = func() time.Time { return w.now }
	return w
}

// commit changes the table.
func (w *world) commit(change func(*table.Tx)) { w.plan.State.Tables.DB.Commit(change) }

func (w *world) put(objects ...resource.Any) *table.Changes {
	return w.plan.State.Tables.DB.Commit(func(tx *table.Tx) {
		for _, o := range objects {
			if w.plan.State.Tables.HasRows(o.Key().Kind) {
				w.version++
				o.Envelope().Version = fmt.Sprint(w.version)
				if dp, ok := o.(*resource.Object[kind.Dataplane]); ok {
					kind.VouchOperator(nil, dp)
				}
				w.plan.State.Tables.Put(tx, o)
			}
		}
	})
}

func (w *world) remove(key resource.Key) *table.Changes {
	return w.plan.State.Tables.DB.Commit(func(tx *table.Tx) { w.plan.State.Tables.Remove(tx, key) })
}

func (w *world) reader() *table.Reader {
	return table.Eval(w.plan.State.Tables.DB.Snapshot().AtTime(w.now))
}

// writes returns the writes of a request of the mesh.
func (w *world) writes(r *table.Reader, kind, name string) Writes {
	return w.plan.families[kind].Get(r, Request{kind, "default", name})
}

// reconcile executes the writes of a request, and returns the time of its next change.
func (w *world) reconcile(kind, name string) time.Time {
	return w.execute(Request{kind, "default", name}, math.MaxInt)
}

// execute executes at most a number of the writes of a request, and returns the time of its next change.
func (w *world) execute(u Request, most int) time.Time {
	r := w.reader()
	writes := w.plan.families[u.Kind].Get(r, u)
	deadline := r.Deadline()
	if name := w.stated[u]; name != "" && (writes.Wait == nil || writes.Wait.Name != name) {
		w.barrier.State(name, nil)
		delete(w.stated, u)
	}
	if writes.Wait != nil {
		w.barrier.State(writes.Wait.Name, writes.Wait)
		w.stated[u] = writes.Wait.Name
	}
	w.beginWaits()
	for i := range writes.Do[:min(most, len(writes.Do))] {
		w.doWrite(&writes.Do[i])
	}
	return deadline
}

func (w *world) beginWaits() {
	for _, fresh := range w.barrier.Begin() {
		w.waits[fresh.Name] = fresh
	}
}

func (w *world) doWrite(write *Write) {
	switch {
	case write.Local != nil:
		w.commit(write.Local.store(w.plan))
	case write.Delete != nil:
		w.remove(write.Delete.Key())
	case write.Create != nil:
		w.put(write.Create)
	case write.Make != nil:
		made, err := write.Make.Make(w.now)
		if err != nil {
			w.t.Fatal(err)
		}
		w.put(w.secret(write.Make.Key.Name, string(made)))
	default:
		w.put(write.Put)
	}
}

// freshCA returns a new CA in PEM, certificate and key.
func freshCA(w *world, domain string) string {
	certificate, key, err := pki.NewCA(w.now, domain)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(certificate) + string(key)
}

// ackAll ends all waits, as if every proxy had acked the current rows.
func (w *world) ackAll() {
	for name, wait := range w.waits {
		delete(w.waits, name)
		w.barrier.Finish(wait)
	}
	w.beginWaits()
}

// restart drops what is known of acks, as another leader does.
func (w *world) restart() {
	clear(w.waits)
	w.barrier.Reset()
}

func (w *world) secret(name, data string) resource.Any {
	return kind.Secrets.Make("default", name, kind.Secret{Data: []byte(data)})
}

func (w *world) dataplane(name, address, tag string) resource.Any {
	return kind.Dataplanes.Make("default", name, kind.Dataplane{Networking: kind.Networking{
		Address: address,
		Inbound: []kind.Inbound{{Port: 8080, Name: "api", Protocol: kind.HTTP,
			Tags: map[string]string{kind.ServiceTag: tag}}},
	}})
}

func (w *world) serves(name, address string) resource.Any {
	return kind.DataplaneListenerStatuses.Make("default", name, kind.DataplaneListenerStatus{
		Inbounds: []kind.ServedInbound{{Inbound: kind.Inbound{Address: address, Port: 8080, Name: "api"}}},
	})
}

func (w *world) servesInbound(name, address string, in kind.Inbound) resource.Any {
	in = (&kind.Networking{Address: address}).Effective(in)
	return kind.DataplaneListenerStatuses.Make("default", name,
		kind.DataplaneListenerStatus{Inbounds: []kind.ServedInbound{{Inbound: in}}})
}

func (w *world) service(name string) (*kind.MeshService, *kind.MeshServiceStatus) {
	var spec *kind.MeshService
	var status *kind.MeshServiceStatus
	if o, ok := w.plan.State.Tables.Services.Find(w.reader(), "default", name); ok {
		spec = &o.Spec
	}
	if o, ok := w.plan.State.Tables.ServiceStatuses.Find(w.reader(), "default", name); ok {
		status = &o.Spec
	}
	return spec, status
}

func TestATagMakesAServiceThatGoesAfterItsLastDataplane(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	w.put(w.dataplane("web-1", "10.0.0.1", "web"))
	w.reconcile(TagKind, "web")
	if spec, _ := w.service("web"); spec != nil {
		t.Fatalf("a Dataplane that has never served has made the service %+v", spec)
	}
	w.put(w.serves("web-1", "10.0.0.1"))
	w.reconcile(TagKind, "web")
	w.reconcile("MeshService", "web")
	spec, status := w.service("web")
	if spec == nil || len(spec.Ports) != 1 || spec.Ports[0].Port != 8080 || spec.Ports[0].AppProtocol != kind.HTTP {
		t.Fatalf("generated service is %+v, want port 8080 of http", spec)
	}
	if status == nil || len(status.VIPs) != 2 {
		t.Fatalf("generated service has status %+v, want a virtual IP", status)
	}
	w.remove(kind.Dataplanes.Key("default", "web-1"))
	requeue := w.reconcile("MeshService", "web")
	if want := w.now.Add(Grace); !requeue.Equal(want) {
		t.Fatalf("requeued at %v, want %v", requeue, want)
	}
	w.now = requeue.Add(-time.Second)
	w.reconcile("MeshService", "web")
	if spec, _ := w.service("web"); spec == nil {
		t.Fatal("the service went before its time")
	}
	w.now = requeue
	w.reconcile("MeshService", "web")
	if spec, _ := w.service("web"); spec != nil {
		t.Fatal("the service outlives its last Dataplane")
	}
}

// A port that no proxy serves, and a port above the limit, is not added to a service.
func TestAServiceGrowsByServedPortsUpToItsBound(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	w.put(w.dataplane("web-1", "10.0.0.1", "web"), w.serves("web-1", "10.0.0.1"))
	for i := range kind.MaxServicePorts + 10 {
		in := kind.Inbound{Port: uint32(9000 + i), Tags: map[string]string{kind.ServiceTag: "web"}}
		name := fmt.Sprintf("more-%d", i)
		w.put(kind.Dataplanes.Make("default", name,
			kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.2", Inbound: []kind.Inbound{in}}}))
		if i == 0 {
			w.reconcile(TagKind, "web")
			if spec, _ := w.service("web"); len(spec.Ports) != 1 {
				t.Fatalf("the service has the ports %+v, of which one is served", spec.Ports)
			}
		}
		w.put(w.servesInbound(name, "10.0.0.2", in))
	}
	w.reconcile("MeshService", "web")
	spec, _ := w.service("web")
	if len(spec.Ports) != kind.MaxServicePorts || spec.Ports[0].Port != 8080 {
		t.Errorf("the service has %d ports, the first %d; want %d, and the port that it had", len(spec.Ports),
			spec.Ports[0].Port, kind.MaxServicePorts)
	}
}

// TestAMeshHasABoundOfGeneratedServices: beyond it tags get none, until a service goes. Those count that the table has
// not heard of.
func TestAMeshHasABoundOfGeneratedServices(t *testing.T) {
	var log bytes.Buffer
	m := follow(newWorld(t, "241.0.0.0/8"), false, slog.New(slog.NewTextHandler(&log, nil)))
	m.user(kind.MeshServices.Make("default", "written", kind.MeshService{}))
	for i := range service.MaxGenerated - 2 {
		name := fmt.Sprint("s-", i)
		o := kind.MeshServices.Make("default", name,
			kind.MeshService{Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}}})
		o.Labels = map[string]string{kind.ManagedBy: kind.GeneratedBy}
		m.user(o)
	}
	made := func() (n int) {
		for _, name := range []string{"a", "b", "c"} {
			if _, ok := m.rows[kind.MeshServices.Key("default", name)]; ok {
				n++
			}
		}
		return n
	}
	for i, name := range []string{"a", "b", "c"} {
		address := fmt.Sprint("10.0.0.", i)
		m.user(m.dataplane(name, address, name), m.serves(name, address))
	}
	m.lags = true
	m.now = m.now.Add(servingDelay)
	m.step()
	if got := made(); got != 2 {
		t.Fatalf("%d services are made before the table has heard of any, want 2", got)
	}
	m.drain()
	if got := made(); got != 2 || strings.Count(log.String(), "no service is generated for a tag") != 1 {
		t.Fatalf("%d services are made, want 2; the log has\n%s", got, log.String())
	}
	m.removes(kind.MeshServices.Key("default", "s-1"))
	m.drain()
	if made() != 3 {
		t.Error("there is room, and the service is not made")
	}
}

func TestAWrittenServiceIsNotReplaced(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	written := kind.MeshServices.Make("default", "mine", kind.MeshService{
		Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "web"}},
		Ports:    []kind.ServicePort{{Port: 80}},
	})
	w.put(w.dataplane("web-1", "10.0.0.1", "web"), written)
	w.reconcile(TagKind, "web")
	if spec, _ := w.service("web"); spec != nil {
		t.Errorf("a service was made for a tag that a written service selects: %+v", spec)
	}
}

func TestVirtualIPsAreKeptAndNeverShared(t *testing.T) {
	w := newWorld(t, "241.0.0.0/29") // six addresses
	taken := map[string]string{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		w.put(kind.MeshServices.Make("default", name, kind.MeshService{Ports: []kind.ServicePort{{Port: 80}}}))
		w.reconcile("MeshService", name)
		_, status := w.service(name)
		ip := status.VIPs[0].IP
		if other, shared := taken[ip]; shared {
			t.Errorf("%s and %s share %s", name, other, ip)
		}
		taken[ip] = name
	}
	for ip, name := range taken {
		w.reconcile("MeshService", name)
		if _, status := w.service(name); status.VIPs[0].IP != ip {
			t.Errorf("%s had %s and has %s now", name, ip, status.VIPs[0].IP)
		}
	}
}

func TestAFullRangeIsACondition(t *testing.T) {
	w := newWorld(t, "241.0.0.0/30") // two addresses
	for _, name := range []string{"a", "b", "c"} {
		w.put(kind.MeshServices.Make("default", name, kind.MeshService{Ports: []kind.ServicePort{{Port: 80}}}))
		w.reconcile("MeshService", name)
	}
	_, status := w.service("c")
	if len(status.VIPs) != 0 || len(status.Conditions) != 1 || !strings.Contains(status.Conditions[0].Message,
		"KUMA_IPAM_MESH_SERVICE_CIDR") {
		t.Errorf("the third service of a range of two has status %+v, want a condition that names the setting", status)
	}
}

func TestFormerEndpointsGoWhenTheNewOnesServeOrInTime(t *testing.T) {
	selecting := func(name string) resource.Any {
		return kind.MeshServices.Make("default", "web", kind.MeshService{
			Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}},
			Ports:    []kind.ServicePort{{Port: 8080}},
		})
	}
	begin := func(t *testing.T, successors ...string) (*world, func() bool) {
		w := newWorld(t, "241.0.0.0/8")
		w.put(selecting("green"), w.dataplane("blue-1", "10.0.0.1", "blue"), w.serves("blue-1", "10.0.0.1"))
		for _, address := range successors {
			w.put(w.dataplane("green-"+address[len(address)-1:], address, "green"))
		}
		destination := service.DestinationKey{Mesh: "default", Zone: "east", Service: "web", Port: 8080}
		former := []service.Endpoint{{Address: "10.0.0.1", Port: 8080,
			Proxy: state.ProxyKey{Mesh: "default", Name: "blue-1"}}}
		w.put(w.plan.State.Services.RetainEndpoints(w.reader(), destination, former, w.now))
		return w, func() bool {
			endpoints := w.plan.State.Services.Endpoints.Get(w.reader(), destination).Endpoints
			for _, e := range endpoints {
				if e.Address == "10.0.0.1" {
					return true
				}
			}
			return false
		}
	}
	t.Run("all new members serve", func(t *testing.T) {
		w, retained := begin(t, "10.0.0.2")
		w.reconcile("RetainedEndpoints", "web-8080")
		if !retained() {
			t.Fatal("nothing serves, and the former endpoint is gone")
		}
		w.put(w.serves("green-2", "10.0.0.2"))
		w.reconcile("RetainedEndpoints", "web-8080")
		if retained() {
			t.Error("all new members serve, and the former endpoint is still there")
		}
	})
	t.Run("ten seconds after the first of them", func(t *testing.T) {
		w, retained := begin(t, "10.0.0.2", "10.0.0.3")
		w.put(w.serves("green-2", "10.0.0.2"))
		requeue := w.reconcile("RetainedEndpoints", "web-8080")
		if !retained() || !requeue.Equal(w.now.Add(10*time.Second)) {
			t.Fatalf("retained: %v, requeued at %v; want retained for ten seconds more", retained(), requeue)
		}
		w.now = requeue
		w.reconcile("RetainedEndpoints", "web-8080")
		if retained() {
			t.Error("held for longer than ten seconds after the first new member")
		}
	})
	t.Run("five minutes", func(t *testing.T) {
		w, retained := begin(t)
		w.now = w.reconcile("RetainedEndpoints", "web-8080")
		w.reconcile("RetainedEndpoints", "web-8080")
		if retained() {
			t.Error("held for longer than five minutes")
		}
	})
	for what, change := range map[string]func(*kind.DataplaneListenerStatus){
		"its probe fails":               func(s *kind.DataplaneListenerStatus) { s.Inbounds[0].Unhealthy = true },
		"its proxy drains":              func(s *kind.DataplaneListenerStatus) { s.Draining = true },
		"its listener is removed":       func(s *kind.DataplaneListenerStatus) { s.Inbounds = nil },
		"its listener has another port": func(s *kind.DataplaneListenerStatus) { s.Inbounds[0].Port++ },
	} {
		t.Run("at once when "+what, func(t *testing.T) {
			w, retained := begin(t, "10.0.0.2")
			w.put(w.changed(w.serves("blue-1", "10.0.0.1"), change))
			if retained() {
				t.Error("the former endpoint is still published")
			}
			w.reconcile("RetainedEndpoints", "web-8080")
			if _, ok := w.plan.State.Tables.RetainedEndpoints.Find(w.reader(), "default", "web-8080"); ok {
				t.Error("no former endpoint is left, and their row is")
			}
		})
	}
}

// changed returns a listener status with a change.
func (w *world) changed(o resource.Any, change func(*kind.DataplaneListenerStatus)) resource.Any {
	status := o.(*resource.Object[kind.DataplaneListenerStatus])
	change(&status.Spec)
	return status
}

// TestSuccessorsOfFormerEndpoints: former endpoints stay while a Ready new member of the same port serves and fails its
// probe, drains, or has no listener. Members of other ports, and those that are not Ready, are not waited for.
func TestSuccessorsOfFormerEndpoints(t *testing.T) {
	sick := func(s *kind.DataplaneListenerStatus) { s.Inbounds[0].Unhealthy = true }
	drains := func(s *kind.DataplaneListenerStatus) { s.Draining = true }
	none := func(s *kind.DataplaneListenerStatus) { s.Inbounds = nil }
	notReady := func(d *kind.Dataplane) { d.Networking.Inbound[0].State = kind.NotReady }
	otherPort := func(d *kind.Dataplane) { d.Networking.Inbound[0].Port = 9090 }
	same := func(*kind.Dataplane) {}
	type successor struct {
		dataplane func(*kind.Dataplane)
		status    func(*kind.DataplaneListenerStatus)
	}
	serves := successor{same, func(*kind.DataplaneListenerStatus) {}}
	for what, c := range map[string]struct {
		successors []successor
		stays      bool
	}{
		"none":                   {nil, true},
		"one that serves":        {[]successor{serves}, false},
		"one whose probe fails":  {[]successor{{same, sick}}, true},
		"one that drains":        {[]successor{{same, drains}}, true},
		"one without a listener": {[]successor{{same, none}}, true},
		"one that serves, and one whose probe fails": {[]successor{serves, {same, sick}}, true},
		"one that serves, and one that is NotReady":  {[]successor{serves, {notReady, none}}, false},
		"one that serves, and one of another port":   {[]successor{serves, {otherPort, none}}, false},
		"one that is NotReady":                       {[]successor{{notReady, serves.status}}, true},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, "241.0.0.0/8")
			w.put(kind.MeshServices.Make("default", "web", kind.MeshService{
				Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "green"}},
				Ports:    []kind.ServicePort{{Port: 8080}},
			}), w.dataplane("blue-1", "10.0.0.1", "blue"), w.serves("blue-1", "10.0.0.1"))
			for i, s := range c.successors {
				name, address := fmt.Sprintf("green-%d", i), fmt.Sprintf("10.0.1.%d", i+1)
				dp := w.dataplane(name, address, "green").(*resource.Object[kind.Dataplane])
				s.dataplane(&dp.Spec)
				w.put(dp, w.changed(w.serves(name, address), s.status))
			}
			destination := service.DestinationKey{Mesh: "default", Zone: "east", Service: "web", Port: 8080}
			former := []service.Endpoint{{Address: "10.0.0.1", Port: 8080,
				Proxy: state.ProxyKey{Mesh: "default", Name: "blue-1"}}}
			w.put(w.plan.State.Services.RetainEndpoints(w.reader(), destination, former, w.now))
			w.reconcile("RetainedEndpoints", "web-8080")
			_, stays := w.plan.State.Tables.RetainedEndpoints.Find(w.reader(), "default", "web-8080")
			if stays != c.stays {
				t.Errorf("the former endpoint stays: %t, want %t", stays, c.stays)
			}
		})
	}
}

func TestAGeneratedServiceIsAdmitted(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	for port, name := range map[uint32]string{8080: "api", 8081: "api", 8082: ""} {
		inbound := kind.Inbound{Port: port, Name: name, Tags: map[string]string{kind.ServiceTag: "web"}}
		w.put(kind.Dataplanes.Make("default", fmt.Sprintf("web-%d", port), kind.Dataplane{
			Networking: kind.Networking{Address: "10.0.0.1", Inbound: []kind.Inbound{inbound}},
		}))
		w.put(w.servesInbound(fmt.Sprintf("web-%d", port), "10.0.0.1", inbound))
	}
	w.reconcile(TagKind, "web")
	spec, _ := w.service("web")
	if spec == nil || len(spec.Ports) != 3 {
		t.Fatalf("generated service is %+v, want three ports", spec)
	}
	if problems := kind.MeshServices.Prepare(kind.MeshServices.Make("default", "web", *spec)); len(problems) > 0 {
		t.Errorf("it is rejected: %v", problems)
	}
}
