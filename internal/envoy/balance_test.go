package envoy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"weft/internal/service"
	"weft/kind"
)

// named starts servers that respond with their names.
func (l *lab) named(names ...string) []service.Endpoint {
	var servers []service.Endpoint
	for _, name := range names {
		servers = append(servers, l.server(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }))
	}
	return servers
}

// by returns the names of the servers that respond to requests with a path and headers.
func (d *labDestination) by(times int, path string, header ...string) map[string]int {
	d.lab.t.Helper()
	seen := map[string]int{}
	for range times {
		response := d.sendTo(path, header...)
		if response == nil {
			d.lab.t.Fatal("no response")
		}
		seen[response.Header.Get("test-body")]++
	}
	return seen
}

// TestLoadBalancersHaveTheirEffect: each type and field of a MeshLoadBalancingStrategy's loadBalancer and hashPolicies
// does to traffic what it says, in one Envoy.
func TestLoadBalancersHaveTheirEffect(t *testing.T) {
	l := newLab(t)
	three := l.named("a", "b", "c")
	to := func(protocol kind.Protocol, balancer, hashes string, servers ...service.Endpoint) *labDestination {
		e := effectiveOf(t, fmt.Sprintf("MeshLoadBalancingStrategy: {loadBalancer: {%s}, hashPolicies: [%s]}"+endless,
			balancer, hashes))
		return l.destination(protocol, e, servers...)
	}
	const byUser = "{type: Header, header: {name: x-user}}"
	sticky := map[string]*labDestination{
		"RingHash": to(kind.HTTP, "type: RingHash", byUser, three...),
		"MurmurHash2": to(kind.HTTP, "type: RingHash, ringHash: {hashFunction: MurmurHash2, minRingSize: 64, "+
			"maxRingSize: 64}", byUser, three...),
		"Maglev":       to(kind.HTTP, "type: Maglev, maglev: {tableSize: 101}", byUser, three...),
		"gRPC":         to(kind.GRPC, "type: Maglev", byUser, three...),
		"a small ring": to(kind.HTTP, "type: RingHash, ringHash: {maxRingSize: 100}", byUser, three...),
	}
	many := service.DestinationKey{Kind: service.MultiZoneService, Mesh: "default", Service: "many", Port: 80}
	sticky["several zones"] = l.add(&service.Destination{Key: many, Protocol: kind.HTTP, Local: &service.Servers{},
		Effective: effectiveOf(t, "MeshLoadBalancingStrategy: {loadBalancer: {type: RingHash}, hashPolicies: ["+byUser+
			"]}")}, Assignment(&service.Endpoints{Destination: many.WithLocality(service.LocalLocality),
		Endpoints: three}))
	cookie := to(kind.HTTP, "type: RingHash", "{type: Cookie, cookie: {name: sess, ttl: 60s, path: /}}", three...)
	query := to(kind.HTTP, "type: RingHash", "{type: QueryParameter, queryParameter: {name: user}}", three...)
	source := to(kind.HTTP, "type: Maglev", "{type: Connection, connection: {sourceIP: true}}", three...)
	terminal := to(kind.HTTP, "type: RingHash", "{type: Header, terminal: true, header: {name: x-a}}, "+byUser,
		three...)
	joined := to(kind.HTTP, "type: RingHash", "{type: Header, header: {name: x-a}}, "+byUser, three...)
	unhashed := to(kind.HTTP, "type: RoundRobin", byUser, three...)
	random := to(kind.HTTP, "type: Random", "", three...)
	stall, begun := l.stalling()
	least := to(kind.HTTP, "type: LeastRequest, leastRequest: {choiceCount: 12, activeRequestBias: 1}", "",
		append(l.named("a", "b"), l.server(stall))...)
	tcp := to(kind.TCP, "type: RingHash", "{type: Connection, connection: {sourceIP: true}}",
		l.tcpNamed("a", "b", "c")...)
	l.start()

	for name, d := range sticky {
		all := map[string]int{}
		for user := range 12 {
			of := d.by(4, "/", "x-user", fmt.Sprint("user-", user))
			if len(of) != 1 {
				t.Errorf("%s: the requests of one user are served by %v", name, of)
			}
			for server := range of {
				all[server]++
			}
		}
		if len(all) < 2 {
			t.Errorf("%s: all users are served by %v", name, all)
		}
	}
	if size := sticky["MurmurHash2"].stat(`ring_hash_lb\.size`); size < 60 || size > 64 {
		t.Errorf("minRingSize and maxRingSize 64: the ring has %d entries", size)
	}
	if size := sticky["a small ring"].stat(`ring_hash_lb\.size`); size > 100 {
		t.Errorf("maxRingSize 100: the ring has %d entries", size)
	}
	if least := sticky["Maglev"].stat(`maglev_lb\.max_entries_per_host`); least < 33 || least > 35 {
		t.Errorf("tableSize 101: a host has %d entries", least)
	}

	first := cookie.send()
	given := first.Header.Get("set-cookie")
	if !strings.Contains(given, "Max-Age=60") || !strings.Contains(given, "Path=/") ||
		!strings.Contains(given, "HttpOnly") {
		t.Errorf("Cookie: the first response sets %q", given)
	}
	value, _, _ := strings.Cut(given, ";")
	if of := cookie.by(12, "/", "cookie", strings.ReplaceAll(value, `"`, "")); len(of) != 1 ||
		of[first.Header.Get("test-body")] == 0 {
		t.Errorf("Cookie: the next requests are served by %v, the first one by %q", of, first.Header.Get("test-body"))
	}
	for name, of := range map[string]map[string]int{
		"QueryParameter": query.by(12, "/?user=1"), "Connection": source.by(12, "/"),
	} {
		if len(of) != 1 {
			t.Errorf("%s: the requests are served by %v", name, of)
		}
	}
	withTerminal, without := map[string]bool{}, map[string]bool{}
	for user := range 12 {
		for server := range terminal.by(1, "/", "x-a", "1", "x-user", fmt.Sprint(user)) {
			withTerminal[server] = true
		}
		for server := range joined.by(1, "/", "x-a", "1", "x-user", fmt.Sprint(user)) {
			without[server] = true
		}
	}
	if len(withTerminal) != 1 || len(without) < 2 {
		t.Errorf("terminal: one value is served by %v, and without terminal by %v", withTerminal, without)
	}
	if of := unhashed.by(12, "/", "x-user", "1"); len(of) != 3 {
		t.Errorf("RoundRobin: the requests are served by %v", of)
	}
	if !repeats(random) {
		t.Error("Random: no server gets two requests in a row")
	}
	if repeats(unhashed) {
		t.Error("RoundRobin: a server gets two requests in a row")
	}

	for slow := false; !slow; { // one after the other, until the slow server has one
		done := make(chan struct{})
		go func() {
			defer close(done)
			least.send()
		}()
		select {
		case <-begun:
			slow = true
		case <-done:
		}
	}
	if of := least.by(30, "/"); of["a"]+of["b"] != 30 || len(of) != 2 {
		t.Errorf("LeastRequest: beside a server that does not respond, the requests are served by %v", of)
	}

	names := map[string]bool{}
	for range 12 {
		conn, err := net.Dial("tcp", tcp.address)
		if err != nil {
			t.Fatal(err)
		}
		name, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		names[string(name)] = true
		conn.Close()
	}
	if len(names) != 1 {
		t.Errorf("Connection of TCP: the connections of one address are served by %v", names)
	}
}

// repeats reports whether one of 40 requests is served by the server of the one before.
func repeats(d *labDestination) bool {
	last, repeated := "", false
	for range 40 {
		by := d.send().Header.Get("test-body")
		repeated, last = repeated || by == last, by
	}
	return repeated
}

// tcpNamed starts servers that write their names to each connection and close it.
func (l *lab) tcpNamed(names ...string) []service.Endpoint {
	var servers []service.Endpoint
	for _, name := range names {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			l.t.Fatal(err)
		}
		l.t.Cleanup(func() { listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, name)
				conn.Close()
			}
		}()
		servers = append(servers, endpointAt(listener.Addr()))
	}
	return servers
}
