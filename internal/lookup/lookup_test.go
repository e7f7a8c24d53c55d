package lookup_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"weft/internal/agent/nameserver"
	"weft/internal/bubble"
	"weft/internal/graph"
	"weft/internal/lookup"
	"weft/internal/table"
	"weft/internal/testwait"
	"weft/kind"
	"weft/resource"
)

// world is a zone with a resolver, whose rows are stored in its table at once, or late.
type world struct {
	t      *testing.T
	state  *graph.State
	runner *lookup.Runner

	mu      sync.Mutex
	results map[string]dnsResult
	queries map[string]int
	writes  int
	failing error         // of the store
	late    time.Duration // between a write and the table
	changes int           // that the runner has stored
}

type dnsResult struct {
	addresses []string
	life      time.Duration
	hangs     time.Duration
	err       error
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, state: graph.NewState("east"), results: map[string]dnsResult{}, queries: map[string]int{}}
	w.runner = lookup.New(lookup.Config{State: w.state, Writer: w, Find: w.find, Drain: 30 * time.Second,
		Log: slog.New(slog.DiscardHandler)})
	return w
}

func (w *world) find(name string) (addresses []netip.Addr, life time.Duration, err error) {
	w.mu.Lock()
	a := w.results[name]
	w.queries[name]++
	w.mu.Unlock()
	time.Sleep(a.hangs)
	for _, text := range a.addresses {
		addresses = append(addresses, netip.MustParseAddr(text))
	}
	return addresses, a.life, a.err
}

func (w *world) Modify(_ context.Context, name string, change func(*kind.ResolvedName) bool) error {
	w.mu.Lock()
	failing, late := w.failing, w.late
	if w.changes++; w.changes > 1000 {
		late = 0 // a runner that repeats a change until the table has it
	}
	w.mu.Unlock()
	if failing != nil {
		return failing
	}
	row := kind.ResolvedNames.Make("", name, kind.ResolvedName{})
	if stored, ok := w.state.Tables.ResolvedNames.Find(table.Eval(w.state.Tables.DB.Snapshot()), "", name); ok {
		*row = *stored
	}
	if !change(&row.Spec) {
		return nil
	}
	if late > 0 {
		time.AfterFunc(late, func() { w.put(row) })
		return nil
	}
	w.put(row)
	return nil
}

func (w *world) Delete(_ context.Context, name string) error {
	w.remove(kind.ResolvedNames.Key("", name))
	return nil
}

// put and remove commit, as the hub does for a batch, and tell the runner.
func (w *world) put(all ...resource.Any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	w.state.Tables.DB.Commit(func(tx *table.Tx) {
		for _, o := range all {
			w.state.Tables.Put(tx, o)
		}
	})
	w.runner.Observe(all, nil, nil, time.Now())
}

func (w *world) remove(key resource.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state.Tables.DB.Commit(func(tx *table.Tx) { w.state.Tables.Remove(tx, key) })
	w.runner.Observe(nil, []resource.Key{key}, nil, time.Now())
}

func (w *world) resolveTo(name string, life time.Duration, addresses ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.results[name] = dnsResult{addresses: addresses, life: life}
}

func (w *world) fail(name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.results[name] = dnsResult{err: err}
}

func (w *world) storeFails(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failing = err
}

// storeLate has the table get writes later, and returns the number of changes that the runner has stored.
func (w *world) storeLate(late time.Duration) (changes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = late
	return w.changes
}

func (w *world) times(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queries[name]
}

// row writes down the row of a name; "none": there is none.
func (w *world) row(name string) string {
	row, ok := w.state.Tables.ResolvedNames.Find(table.Eval(w.state.Tables.DB.Snapshot()), "", name)
	if !ok {
		return "none"
	}
	var words []string
	for _, a := range row.Spec.Addresses {
		if a.Until.IsZero() {
			words = append(words, a.Address)
		} else {
			words = append(words, "("+a.Address+")")
		}
	}
	if row.Spec.Problem != "" {
		words = append(words, "! "+row.Spec.Problem)
	}
	return strings.Join(words, " ")
}

func (w *world) wants(name, want string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.row(name); got != want {
		w.t.Errorf("the row of %s is %q, want %q", name, got, want)
	}
}

// dataplane is one of this zone at a host name.
func dataplane(name, address string) resource.Any {
	return kind.Dataplanes.Make("default", name, kind.Dataplane{Networking: kind.Networking{Address: address}})
}

// ingresses are those of another zone.
func ingresses(zone string, addresses ...string) resource.Any {
	row := kind.MeshZoneAddresses.Make("default", kind.SyncedName(&kind.MeshZoneAddresses.Info, "default",
		zone, kind.Owner{Zone: zone}), kind.MeshZoneAddress{})
	row.Labels = map[string]string{kind.ZoneLabel: zone, kind.OriginLabel: kind.OriginZone, kind.DisplayName: zone}
	for i, address := range addresses {
		row.Spec.Ingresses = append(row.Spec.Ingresses, kind.ZoneProxyAddress{Name: fmt.Sprint(i), Address: address,
			Port: 1, Healthy: true})
	}
	return row
}

// run runs the runner in fake time until the test ends.
func (w *world) run(test func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var group sync.WaitGroup
	group.Go(func() { w.runner.Run(ctx) })
	test()
	cancel()
	group.Wait()
	time.Sleep(time.Minute) // lookups that are under way end
}

// An address that leaves a name stays for the drain time beside the new ones, and nothing is written while nothing
// changes.
func TestANameMoves(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.resolveTo("lb.example", 10*time.Second, "192.0.2.1", "192.0.2.2")
		w.put(ingresses("west", "lb.example", "192.0.2.9", "lb.example"), dataplane("a", "10.0.0.1"))
		w.run(func() {
			w.wants("lb.example", "192.0.2.1 192.0.2.2")
			writes := w.writes
			time.Sleep(5 * time.Minute)
			if n := w.times("lb.example"); n < 25 || n > 31 {
				t.Errorf("it is looked up %d times in 5 minutes, with a time to live of 10 seconds", n)
			}
			if w.writes != writes {
				t.Errorf("%d rows are written, though nothing has changed", w.writes-writes)
			}
			w.resolveTo("lb.example", 10*time.Second, "192.0.2.2", "192.0.2.3")
			time.Sleep(11 * time.Second)
			w.wants("lb.example", "(192.0.2.1) 192.0.2.2 192.0.2.3")
			time.Sleep(31 * time.Second)
			w.wants("lb.example", "192.0.2.2 192.0.2.3")
		})
	})
}

// Between the write of a row and its commit to the table, a drained address causes no further write.
func TestADrainedAddressIsRemovedOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.resolveTo("lb.example", 2*time.Minute, "192.0.2.1")
		w.put(ingresses("west", "lb.example"))
		w.run(func() {
			w.wants("lb.example", "192.0.2.1")
			w.resolveTo("lb.example", 2*time.Minute, "192.0.2.2")
			time.Sleep(2*time.Minute + 2*time.Second)
			w.wants("lb.example", "(192.0.2.1) 192.0.2.2")
			changes := w.storeLate(time.Second)
			time.Sleep(32 * time.Second)
			w.wants("lb.example", "192.0.2.2")
			if n := w.storeLate(0) - changes; n != 1 {
				t.Errorf("the runner stores %d changes, want 1", n)
			}
		})
	})
}

// A resolver that fails, that knows no address any more or that returns addresses of the dialing machine takes nothing
// away: what was found last remains, and the problem is stated.
func TestTheLastAddressesRemain(t *testing.T) {
	for name, c := range map[string]struct {
		after dnsResult
		want  string
	}{
		"no resolver responds": {dnsResult{err: fmt.Errorf("SERVFAIL")}, "192.0.2.1 ! SERVFAIL"},
		"loopback": {dnsResult{addresses: []string{"127.0.0.1", "::1"}},
			"192.0.2.1 ! excluded: 127.0.0.1 is a loopback address, ::1 is a loopback address"},
		"the metadata of a cloud": {dnsResult{addresses: []string{"169.254.169.254"}},
			"192.0.2.1 ! excluded: 169.254.169.254 is a link-local address"},
		"loopback in IPv6": {dnsResult{addresses: []string{"64:ff9b::7f00:1"}},
			"192.0.2.1 ! excluded: 64:ff9b::7f00:1 is a loopback address"},
		"loopback beside another": {dnsResult{addresses: []string{"127.0.0.1", "192.0.2.1"}},
			"192.0.2.1 ! excluded: 127.0.0.1 is a loopback address"},
		"another beside multicast": {dnsResult{addresses: []string{"224.0.0.1", "192.0.2.7"}},
			"(192.0.2.1) 192.0.2.7 ! excluded: 224.0.0.1 is a multicast address"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.resolveTo("lb.example", time.Second, "192.0.2.1")
				w.put(ingresses("west", "lb.example"))
				w.run(func() {
					w.wants("lb.example", "192.0.2.1")
					w.mu.Lock()
					w.results["lb.example"] = c.after
					w.mu.Unlock()
					time.Sleep(6 * time.Second)
					w.wants("lb.example", c.want)
					w.resolveTo("lb.example", time.Second, "192.0.2.1")
					time.Sleep(70 * time.Second)
					w.wants("lb.example", "192.0.2.1")
				})
			})
		})
	}
}

// Names are looked up as long as a resource of this zone's proxies or of another zone's ingresses has them, and never
// those of this zone's own ingresses.
func TestWhichNamesAreLookedUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for _, name := range []string{"web.example", "lb.example", "own.example", "left.example"} {
			w.resolveTo(name, time.Second, "192.0.2.1")
		}
		w.put(kind.ResolvedNames.Make("", "left.example",
			kind.ResolvedName{Addresses: []kind.ResolvedAddress{{Address: "192.0.2.5"}}}))
		own := kind.MeshZoneAddresses.Make("default", "east",
			kind.MeshZoneAddress{Ingresses: []kind.ZoneProxyAddress{{Name: "a", Address: "own.example", Port: 1}}})
		own.Labels = map[string]string{kind.ZoneLabel: "east", kind.OriginLabel: kind.OriginZone}
		w.put(dataplane("a", "web.example"), dataplane("b", "web.example"), ingresses("west", "lb.example"), own)
		w.run(func() {
			w.wants("web.example", "192.0.2.1")
			w.wants("lb.example", "192.0.2.1")
			w.wants("own.example", "none")
			w.wants("left.example", "none")
			w.put(dataplane("a", "10.0.0.1"), ingresses("west", "192.0.2.1"))
			w.wants("web.example", "192.0.2.1")
			w.wants("lb.example", "none")
			w.remove(kind.Dataplanes.Key("default", "b"))
			w.wants("web.example", "none")
			queries := w.times("web.example")
			time.Sleep(time.Hour)
			if w.times("web.example") != queries {
				t.Error("a name that no resource has is looked up")
			}
			w.put(dataplane("b", "web.example"))
			w.wants("web.example", "192.0.2.1")
		})
	})
}

// Names whose resolvers do not respond keep no other name from being looked up in its time, and are looked up less and
// less.
func TestANameThatHangsBlocksNoOther(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hanging := make([]string, 64)
		for i := range hanging {
			hanging[i] = fmt.Sprintf("hang%d.example", i)
			w.results[hanging[i]] = dnsResult{hangs: 4500 * time.Millisecond, err: fmt.Errorf("no resolver responds")}
		}
		w.resolveTo("lb.example", time.Second, "192.0.2.1")
		w.put(ingresses("hostile", hanging...), ingresses("west", "lb.example"))
		w.run(func() {
			time.Sleep(2 * 4500 * time.Millisecond)
			w.wants("lb.example", "192.0.2.1")
			time.Sleep(3 * time.Minute) // the hanging names are looked up less and less often meanwhile
			before := w.times("lb.example")
			time.Sleep(5 * time.Minute)
			if n := w.times("lb.example") - before; n < 45 {
				t.Errorf("it is looked up %d times in 5 minutes, want about 57", n)
			}
			if n := w.times(hanging[0]); n > 18 {
				t.Errorf("a name that hangs is looked up %d times in 8 minutes", n)
			}
			w.wants(hanging[0], "! no resolver responds")
		})
	})
}

// A name has 16 addresses at most, and as many that it has left.
func TestTheNumberOfAddressesIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put(ingresses("hostile", "lb.example"))
		w.run(func() {
			for round := range 10 {
				var all []string
				for i := range 200 {
					all = append(all, fmt.Sprintf("198.51.%d.%d", round, i))
				}
				w.resolveTo("lb.example", 0, all...)
				time.Sleep(6 * time.Second)
				synctest.Wait()
				if n := len(strings.Fields(w.row("lb.example"))); n > 32 {
					t.Fatalf("%d addresses are used", n)
				}
			}
		})
	})
}

// What could not be stored is tried again; another run begins with all names.
func TestAnotherRunGoesOn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.resolveTo("lb.example", time.Minute, "192.0.2.1")
		w.storeFails(fmt.Errorf("the store is away"))
		w.put(ingresses("west", "lb.example"))
		w.run(func() {
			w.wants("lb.example", "none")
			w.storeFails(nil)
			time.Sleep(6 * time.Second)
			w.wants("lb.example", "192.0.2.1")
		})
		w.resolveTo("lb.example", time.Minute, "192.0.2.2")
		time.Sleep(time.Hour)
		w.wants("lb.example", "192.0.2.1") // another instance leads
		w.run(func() { w.wants("lb.example", "(192.0.2.1) 192.0.2.2") })
	})
}

// Lookups query real resolvers. They return the addresses of a chain of aliases with the shortest time to live, IPv6
// where there is no IPv4, and tell a name without addresses from a resolver that fails or does not respond.
func TestLookup(t *testing.T) {
	records := map[string][]string{
		"lb.example. A": {"lb.example. 300 IN CNAME a.example.", "a.example. 7 IN A 192.0.2.2",
			"a.example. 60 IN A 192.0.2.1"},
		"six.example. AAAA": {"six.example. 60 IN AAAA 2001:db8::1"},
	}
	at := resolver(t, func(w dns.ResponseWriter, request *dns.Msg) {
		q := request.Question[0]
		reply := new(dns.Msg).SetReply(request)
		switch {
		case strings.HasPrefix(q.Name, "hang."):
			return
		case strings.HasPrefix(q.Name, "fail."):
			reply.Rcode = dns.RcodeServerFailure
		case !strings.HasSuffix(q.Name, ".example."):
			reply.Rcode = dns.RcodeNameError
		}
		for _, text := range records[q.Name+" "+dns.TypeToString[q.Qtype]] {
			rr, err := dns.NewRR(text)
			if err != nil {
				t.Error(err)
			}
			reply.Answer = append(reply.Answer, rr)
		}
		w.WriteMsg(reply)
	})
	names := nameserver.NewLookup(nameserver.ExternalConfig{Resolvers: []netip.AddrPort{at}, ResolvConf: "/dev/null",
		Hosts: "/dev/null", Log: slog.New(slog.DiscardHandler)})
	for name, want := range map[string]string{
		"lb.example":   "[192.0.2.1 192.0.2.2] 7s <nil>",
		"six.example":  "[2001:db8::1] 1m0s <nil>",
		"none.example": "[] 0s the name has no address",
		"gone.invalid": "[] 0s the name has no address",
		"fail.example": "[] 0s no resolver has an answer: SERVFAIL",
		"hang.example": "[] 0s no resolver has an answer: SERVFAIL",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A busy machine may not respond in the time that a resolver has.
			testwait.Until(t, "the lookup has the result "+want, func() error {
				addresses, life, err := names.Addresses(name)
				if got := fmt.Sprint(addresses, " ", life, " ", err); got != want {
					return fmt.Errorf("it has %s", got)
				}
				return nil
			})
		})
	}
}

// resolver starts a DNS server.
func resolver(t *testing.T, handle dns.HandlerFunc) netip.AddrPort {
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: socket, Handler: handle}
	go server.ActivateAndServe()
	t.Cleanup(func() { server.Shutdown() })
	return netip.MustParseAddrPort(socket.LocalAddr().String())
}

// hang has a resolver that does not respond for n names.
func (w *world) hang(prefix string, n int) (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range n {
		name := fmt.Sprintf("%s%d.example", prefix, i)
		w.results[name] = dnsResult{hangs: 4500 * time.Millisecond, err: fmt.Errorf("no resolver responds")}
		names = append(names, name)
	}
	return names
}

// Silent names of a hostile mesh and of a hostile zone delay neither the names of another zone's ingresses nor those of
// another mesh's Dataplanes, new or known, nor names of the same mesh that resolve.
func TestSilentNamesDelayNoOther(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.resolveTo("known.example", time.Second, "10.0.0.1")
		w.put(dataplane("known", "known.example"))
		w.run(func() {
			w.wants("known.example", "10.0.0.1")
			var all []resource.Any
			for i, name := range w.hang("silent", 900) {
				all = append(all, dataplane(fmt.Sprint("hostile-", i), name))
			}
			w.put(append(all, ingresses("hostile", w.hang("quiet", 64)...))...)
			time.Sleep(time.Second)
			for i := range 20 {
				lb, web := fmt.Sprintf("lb%d.example", i), fmt.Sprintf("web%d.example", i)
				w.resolveTo(lb, time.Second, "192.0.2.1")
				w.resolveTo(web, time.Second, "10.0.0.2")
				other := kind.Dataplanes.Make("other", web, kind.Dataplane{Networking: kind.Networking{Address: web}})
				w.put(ingresses(fmt.Sprint("west-", i), lb), other)
				w.wants(lb, "192.0.2.1")
				w.wants(web, "10.0.0.2")
				time.Sleep(10 * time.Second)
			}
			before := w.times("known.example")
			time.Sleep(10 * time.Minute)
			if n := w.times("known.example") - before; n < 55 {
				t.Errorf("a name of the same mesh is looked up %d times in 10 minutes", n)
			}
			if n := w.times("silent0.example"); n > 9 {
				t.Errorf("a silent name is looked up %d times in 13 minutes", n)
			}
		})
	})
}

// Names that resolve, but slowly, delay names of the same mesh by one round at most.
func TestSlowNamesAreLast(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var all []resource.Any
		for i, name := range w.hang("slow", 400) {
			w.results[name] = dnsResult{addresses: []string{"10.0.0.9"}, hangs: 4 * time.Second}
			all = append(all, dataplane(fmt.Sprint("hostile-", i), name))
		}
		w.put(all...)
		w.run(func() {
			time.Sleep(2 * time.Minute)
			w.resolveTo("web.example", time.Second, "10.0.0.1")
			w.put(dataplane("web", "web.example"))
			time.Sleep(5 * time.Second)
			w.wants("web.example", "10.0.0.1")
			before := w.times("web.example")
			time.Sleep(5 * time.Minute)
			if n := w.times("web.example") - before; n < 30 {
				t.Errorf("it is looked up %d times in 5 minutes", n)
			}
		})
	})
}

// One mesh has 1,000 host names of Dataplanes looked up. Each further name has a row with the reason, until another
// name is no longer used. Names of other meshes and of ingresses do not count.
func TestTheNamesOfAMeshAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var all []resource.Any
		for i := range 1000 {
			name := fmt.Sprintf("web%d.example", i)
			w.resolveTo(name, time.Hour, "10.0.0.1")
			all = append(all, dataplane(name, name))
		}
		for _, name := range []string{"further.example", "other.example", "lb.example"} {
			w.resolveTo(name, time.Hour, "10.0.0.2")
		}
		w.put(all...)
		excess := "! the Dataplanes of the mesh default have more than 1000 host names; " +
			"this one is looked up when another is no longer used: give Dataplanes IP addresses, or remove some"
		use := func() {
			w.wants("web999.example", "10.0.0.1")
			w.put(dataplane("further", "further.example"), ingresses("west", "lb.example"),
				kind.Dataplanes.Make("other", "a",
					kind.Dataplane{Networking: kind.Networking{Address: "other.example"}}))
			w.wants("lb.example", "10.0.0.2")
			w.wants("other.example", "10.0.0.2")
			w.wants("further.example", excess)
			if n := w.times("further.example"); n != 0 {
				t.Errorf("a name beyond the bound is looked up %d times", n)
			}
		}
		w.run(use)
		w.run(use) // another instance leads
		w.run(func() {
			w.wants("further.example", excess)
			w.remove(kind.Dataplanes.Key("default", "web7.example"))
			time.Sleep(6 * time.Minute)
			w.wants("further.example", "10.0.0.2")
		})
	})
}

// A name whose addresses, or whose problem, change at every lookup is written twice in 30 s at most: once for the
// change, once when the former addresses leave. Calm names are looked up after their time to live again.
func TestANameThatChangesOftenIsWrittenAtAPace(t *testing.T) {
	for what, alternate := range map[string]func(w *world, i int){
		"addresses": func(w *world, i int) { w.resolveTo("lb.example", time.Second, fmt.Sprintf("192.0.2.%d", i%250)) },
		"a resolver that fails now and then": func(w *world, i int) {
			if i%7 < 2 {
				w.fail("lb.example", fmt.Errorf("SERVFAIL"))
			} else {
				w.resolveTo("lb.example", time.Second, "192.0.2.1")
			}
		},
		"excluded addresses": func(w *world, i int) {
			w.resolveTo("lb.example", time.Second, "192.0.2.1", fmt.Sprintf("127.0.0.%d", i%250))
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := newWorld(t)
				alternate(w, 2)
				w.put(ingresses("hostile", "lb.example"))
				w.run(func() {
					for i := range 60 { // until the pace is there
						alternate(w, i)
						time.Sleep(time.Second)
					}
					before := w.writes
					for i := range 600 {
						alternate(w, i)
						time.Sleep(time.Second)
					}
					if n := w.writes - before; n > 42 {
						t.Errorf("%d rows are written in 10 minutes", n)
					}
					w.resolveTo("lb.example", time.Second, "192.0.2.1")
					time.Sleep(10 * time.Minute)
					queries := w.times("lb.example")
					time.Sleep(time.Minute)
					if n := w.times("lb.example") - queries; n < 10 {
						t.Errorf("a calm name is looked up %d times in a minute", n)
					}
				})
			})
		})
	}
}

// A name in whose place former ingresses are dialed is tried each second or two, also where its lookups failed before,
// for a while.
func TestANameWithFormerIngressesIsTriedOften(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fail("lb.example", fmt.Errorf("SERVFAIL"))
		w.put(dataplane("a", "lb.example"))
		w.run(func() {
			time.Sleep(15 * time.Minute)
			former := kind.FormerIngresses{Mesh: "default", Zone: "west",
				Ingresses: []kind.IngressEndpoint{{Address: "192.0.2.9", Port: 1}}}
			w.put(ingresses("west", "lb.example"), kind.ResolvedNames.Make("", "lb.example", kind.ResolvedName{
				Problem: "SERVFAIL", Former: []kind.FormerIngresses{former},
			}))
			before := w.times("lb.example")
			time.Sleep(20 * time.Second)
			if n := w.times("lb.example") - before; n < 10 || n > 21 {
				t.Errorf("it is looked up %d times in 20 seconds", n)
			}
			time.Sleep(15 * time.Minute)
			before = w.times("lb.example")
			time.Sleep(10 * time.Minute)
			if n := w.times("lb.example") - before; n > 3 {
				t.Errorf("it is looked up %d times in 10 minutes after half an hour", n)
			}
			w.resolveTo("lb.example", time.Second, "192.0.2.1")
			time.Sleep(6 * time.Minute)
			w.wants("lb.example", "192.0.2.1")
		})
	})
}

// slow is a store whose deletions take a while, or fail.
type slow struct {
	*world
	failed *int
}

func (s slow) Delete(ctx context.Context, name string) error {
	time.Sleep(50 * time.Millisecond)
	if s.failed != nil {
		*s.failed++
		return fmt.Errorf("the store is away")
	}
	return s.world.Delete(ctx, name)
}

// A name that comes back while its row is being removed has a row again at once.
func TestANameReturnsWhileItsRowIsRemoved(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner.Writer = slow{world: w}
		w.resolveTo("web.example", 5*time.Minute, "10.0.0.1")
		w.put(dataplane("a", "web.example"))
		w.run(func() {
			w.wants("web.example", "10.0.0.1")
			w.remove(kind.Dataplanes.Key("default", "a"))
			time.Sleep(20 * time.Millisecond)
			w.put(dataplane("a", "web.example"))
			time.Sleep(time.Second)
			w.wants("web.example", "10.0.0.1")
			w.remove(kind.ResolvedNames.Key("", "web.example")) // by the leader before
			w.wants("web.example", "10.0.0.1")
		})
	})
}

// A row that can't be removed is tried again each 5 s.
func TestARemovalThatFailsIsTriedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w, failed := newWorld(t), 0
		w.runner.Writer = slow{w, &failed}
		w.resolveTo("web.example", time.Minute, "10.0.0.1")
		w.put(dataplane("a", "web.example"))
		w.run(func() {
			w.wants("web.example", "10.0.0.1")
			w.remove(kind.Dataplanes.Key("default", "a"))
			time.Sleep(time.Minute)
			synctest.Wait()
			if failed < 10 || failed > 13 {
				t.Errorf("it is tried %d times in a minute", failed)
			}
		})
	})
}

// An instance that does not lead keeps the names that resources have and those that have a row, and no other.
func TestAReplicaThatDoesNotLeadDropsNames(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.resolveTo("web.example", time.Minute, "10.0.0.1")
		names := func(want int) {
			t.Helper()
			synctest.Wait()
			if n := w.runner.Names(); n != want {
				t.Errorf("it keeps %d names, want %d", n, want)
			}
		}
		for i := range 1000 {
			w.put(dataplane("a", fmt.Sprintf("web%d.example", i)))
		}
		w.put(dataplane("a", "web.example"))
		names(1)
		row := kind.ResolvedNames.Make("", "web.example", kind.ResolvedName{Problem: "SERVFAIL"})
		w.put(row)
		w.remove(kind.Dataplanes.Key("default", "a"))
		names(1)
		w.remove(row.Key())
		names(0)
		w.put(row)
		names(1)
		w.remove(row.Key())
		names(0)
		w.put(dataplane("a", "web.example"))
		w.run(func() {
			w.wants("web.example", "10.0.0.1")
			names(1)
			w.remove(kind.Dataplanes.Key("default", "a"))
			names(0)
		})
	})
}
