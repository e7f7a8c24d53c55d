package envoy

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"sigs.k8s.io/yaml"

	"weft/internal/match"
	"weft/internal/policy"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/testwait"
	"weft/internal/xds"
	"weft/kind"
)

// SPIFFE IDs of callers, beside clientID.
const (
	shopID  = "spiffe://" + domainEast + "/ns/shop/sa/front"
	otherID = "spiffe://" + domainEast + "/ns/shop/sa/other"
)

// received is a proxy that changes its confs while callers send requests to it. Its application responds with 200.
type received struct {
	*adsEnvoy
	east    *authority
	in      *proxy.InboundListener
	secured bool
	secrets []*xds.Resource
}

// receiving starts the proxy of a protocol without confs. A secured one allows every caller of its trust domain.
func receiving(t *testing.T, protocol kind.Protocol, secured, alsoPlaintext bool) *received {
	t.Helper()
	app, _ := listener(t)
	if protocol.IsHTTP() {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Kept", "application")
			_, _ = io.WriteString(w, strings.Repeat("x", int(max(r.ContentLength, 0))))
		}))
		t.Cleanup(server.Close)
		app = server.Listener.Addr()
	}
	s := &received{east: newAuthority(t, domainEast), secured: secured}
	s.in = inboundTo(t, app, protocol, match.Rule{Origin: "east",
		IDPattern: kind.IDPattern{Prefix: "spiffe://" + domainEast + "/"}})
	s.in.AlsoPlaintext = alsoPlaintext
	s.secrets = []*xds.Resource{trust(s.east), certificateSecret(t, s.east.certificate(t, serverID))}
	s.adsEnvoy = serveEnvoy(t, append(s.resources(), s.secrets...)...)
	return s
}

func (s *received) resources() []*xds.Resource {
	return append(inboundOf(s.in, s.secured), EvictionFilters(s.in.Mesh, nil)...)
}

// get gives the proxy confs, as written in YAML. Slots that are no longer in use are removed.
func (s *received) get(confs string) {
	s.t.Helper()
	before := extensionsOf(s.resources())
	s.in.Confs = confsOf(s.t, confs)
	var removed []xds.Key
	for name := range extensionsOf(s.resources()) {
		delete(before, name)
	}
	for name := range before {
		removed = append(removed, xds.Key{Type: xds.Extension, Name: name})
	}
	s.apply(removed...)
}

// apply gives the proxy its present resources.
func (s *received) apply(removed ...xds.Key) {
	s.t.Helper()
	_, changed := withStaticSecrets(s.t, append(s.resources(), s.secrets...))
	s.change(changed, removed...)
}

func extensionsOf(resources []*xds.Resource) map[string]bool {
	names := map[string]bool{}
	for _, r := range resources {
		if r.Type == xds.Extension {
			names[r.Name] = true
		}
	}
	return names
}

func confsOf(t *testing.T, text string) policy.Confs {
	t.Helper()
	var confs policy.Confs
	if err := yaml.Unmarshal([]byte("{"+text+"}"), &confs); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return confs
}

// requester is a client with a URL of the proxy.
type requester struct {
	*http.Client
	url string
}

// caller returns a client with SPIFFE IDs; without one, it sends plaintext. Its requests use one connection.
func (s *received) caller(ids ...string) *requester {
	transport, scheme := &http.Transport{}, "http"
	if len(ids) > 0 {
		scheme = "https"
		transport.TLSClientConfig = presenting(s.east.certificate(s.t, ids...))
		transport.ForceAttemptHTTP2 = true
	}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &requester{&http.Client{Transport: transport}, scheme + "://" + address(s.in) + "/"}
}

// send returns the response to a request of a caller.
func (s *received) send(from *requester) *http.Response {
	s.t.Helper()
	response, err := from.Get(from.url)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	response.Header.Set("test-body", string(body))
	return response
}

// statuses returns the statuses of as many requests of a caller.
func (s *received) statuses(from *requester, n int) string {
	s.t.Helper()
	var all []string
	for range n {
		all = append(all, fmt.Sprint(s.send(from).StatusCode))
	}
	return strings.Join(all, " ")
}

// limitsOf are the limits of requests of an inbound, by match.
func limitsOf(byMatch ...string) string {
	return "MeshRateLimit: [" + strings.Join(byMatch, ", ") + "]"
}

// ofCallers is the limit of the callers of a match, which is empty, or the fields of one.
func ofCallers(match, conf string) string {
	return fmt.Sprintf("{match: {%s}, conf: {local: {http: {%s}}}}", match, conf)
}

const oneAnHour = "requestRate: {num: 1, interval: 1h}"

// TestRateLimitsHaveTheirEffect: each field of a limit of requests does what it says, for the callers of a match.
func TestRateLimitsHaveTheirEffect(t *testing.T) {
	s := receiving(t, kind.HTTP, true, true)
	client, shop, plain := s.caller(clientID), s.caller(shopID), s.caller()
	both := s.caller(clientID, shopID) // a workload that is changing its ID
	const exact, prefix = "id: {exact: '" + shopID + "'}", "id: {prefix: 'spiffe://" + domainEast + "/ns/shop/'}"
	const segment = "id: {exact: '" + clientID + "', prefix: '" + clientID + "/'}" // a prefix without a final slash
	for i, c := range []struct {
		name, confs string
		caller      *requester
		want        string
	}{
		{"no policy", "", client, "200 200 200"},
		{"requestRate", limitsOf(ofCallers("", "requestRate: {num: 2, interval: 1h}")), client, "200 200 429"},
		{"requestRate in plaintext", limitsOf(ofCallers("", "requestRate: {num: 2, interval: 1h}")), plain,
			"200 200 429"},
		{"disabled", limitsOf(ofCallers("", "disabled: true, "+oneAnHour)), client, "200 200 200"},
		{"not disabled", limitsOf(ofCallers("", "disabled: false, "+oneAnHour)), client, "200 429 429"},
		{"onRateLimit.status", limitsOf(ofCallers("", oneAnHour+", onRateLimit: {status: 503}")), client,
			"200 503 503"},
		{"onRateLimit.status below 400", limitsOf(ofCallers("", oneAnHour+", onRateLimit: {status: 202}")), client,
			"200 429 429"},
		{"onRateLimit alone", limitsOf(ofCallers("", "onRateLimit: {status: 503}")), client, "200 200 200"},
		{"an exact ID", limitsOf(ofCallers(exact, oneAnHour)), shop, "200 429 429"},
		{"another ID", limitsOf(ofCallers(exact, oneAnHour)), client, "200 200 200"},
		{"a plaintext caller", limitsOf(ofCallers(exact, oneAnHour)), plain, "200 200 200"},
		{"one of two IDs", limitsOf(ofCallers(exact, oneAnHour)), both, "200 429 429"},
		{"a prefix of one of two IDs", limitsOf(ofCallers(prefix, oneAnHour)), both, "200 429 429"},
		{"a prefix", limitsOf(ofCallers(prefix, oneAnHour)), shop, "200 429 429"},
		{"not the prefix", limitsOf(ofCallers(prefix, oneAnHour)), client, "200 200 200"},
		{"the end of a segment", limitsOf(ofCallers(segment, oneAnHour)), client, "200 429 429"},
		{"a further segment", limitsOf(ofCallers(segment, oneAnHour)), s.caller(clientID + "/1"), "200 429 429"},
		{"within a segment", limitsOf(ofCallers(segment, oneAnHour)), s.caller(clientID + "-2"), "200 200 200"},
		{"the most specific match", limitsOf(ofCallers(exact, "requestRate: {num: 2, interval: 1h}"),
			ofCallers(prefix, oneAnHour), ofCallers("", oneAnHour)), shop, "200 200 429"},
		{"every other caller", limitsOf(ofCallers(exact, oneAnHour),
			ofCallers("", "requestRate: {num: 2, interval: 1h}")), client, "200 200 429"},
		{"every other caller in plaintext", limitsOf(ofCallers(exact, oneAnHour),
			ofCallers("", "requestRate: {num: 2, interval: 1h}")), plain, "200 200 429"},
		{"disabled for one caller", limitsOf(ofCallers(exact, "disabled: true"), ofCallers("", oneAnHour)), shop,
			"200 200 200"},
		{"disabled for others", limitsOf(ofCallers(exact, oneAnHour), ofCallers("", "disabled: true")), client,
			"200 200 200"},
		{"no policy any more", "", client, "200 200 200"},
	} {
		// Another interval is another limit, so each case begins with full buckets.
		s.get(strings.ReplaceAll(c.confs, "1h", fmt.Sprintf("%dh", i+1)))
		if got := s.statuses(c.caller, 3); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	s.get(limitsOf(ofCallers("", "requestRate: {num: 1, interval: 100h}")))
	if got := s.statuses(client, 2) + ", " + s.statuses(plain, 2); got != "200 429, 200 429" {
		t.Errorf("callers with TLS and in plaintext: %s, want a bucket for each", got)
	}
	s.undrained()
}

// TestTheResponseToALimitedRequest: it has the added headers, and those that replace others.
func TestTheResponseToALimitedRequest(t *testing.T) {
	s := receiving(t, kind.HTTP, true, false)
	s.get(limitsOf(ofCallers("", oneAnHour+", onRateLimit: {headers: {set: [{name: x-set, value: 'a, b'}, "+
		"{name: server, value: weft}], add: [{name: x-add, value: '5% of %PROTOCOL%'}]}}")))
	client := s.caller(clientID)
	s.statuses(client, 1)
	response := s.send(client)
	if response.StatusCode != 429 || response.Header.Get("test-body") != "local_rate_limited" {
		t.Errorf("%s %s, want 429 local_rate_limited", response.Status, response.Header.Get("test-body"))
	}
	for name, want := range map[string][]string{"X-Set": {"a, b"}, "Server": {"weft"},
		"X-Add": {"5% of HTTP/2"}} {
		if got := response.Header[name]; strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if s.stat("self_rate_limit_main.http_local_rate_limit.rate_limited") != 1 {
		t.Error("the limited request is not counted")
	}
}

// TestBucketsStay: a bucket keeps its tokens while its limit stays, whatever else changes. A limit that changes begins
// with full buckets.
func TestBucketsStay(t *testing.T) {
	s := receiving(t, kind.HTTP, true, false)
	client, shop := s.caller(clientID), s.caller(shopID)
	const exact = "id: {exact: '" + shopID + "'}"
	limits := limitsOf(ofCallers(exact, oneAnHour), ofCallers("", "requestRate: {num: 2, interval: 1h}"))
	s.get(limits)
	if got := s.statuses(client, 3) + ", " + s.statuses(shop, 2); got != "200 200 429, 200 429" {
		t.Fatalf("at first: %s", got)
	}
	stay := func(change string) {
		t.Helper()
		if got := s.statuses(client, 1) + " " + s.statuses(shop, 1); got != "429 429" {
			t.Errorf("%s: %s, want 429 429", change, got)
		}
	}
	s.apply()
	stay("the same resources")
	s.get(limits + ", MeshTimeout: [{match: {}, conf: {connectionTimeout: 3s, http: {requestTimeout: 9s}}}]")
	stay("other timeouts")
	s.in.Permissions.Allow = append(s.in.Permissions.Allow, match.Rule{Origin: "more",
		IDPattern: kind.IDPattern{Exact: otherID}})
	s.apply()
	stay("another permission")
	s.in.AlsoPlaintext = true
	s.apply()
	testwait.UntilTrue(t, "plaintext is accepted", func() bool {
		plain := s.caller()
		response, err := plain.Get(plain.url)
		if err == nil {
			response.Body.Close()
		}
		return err == nil
	})
	stay("another mode")
	s.get(limitsOf(ofCallers(exact, "requestRate: {num: 1, interval: 2h}"),
		ofCallers("", "requestRate: {num: 2, interval: 1h}")))
	if got := s.statuses(client, 3) + ", " + s.statuses(shop, 2); got != "200 200 429, 200 429" {
		t.Errorf("another limit: %s, want full buckets", got)
	}
}

// TestLimitsOfConnectionsHaveTheirEffect: connections over the rate are closed, and those that are open stay. The
// chains for TLS and for plaintext of an inbound count together.
func TestLimitsOfConnectionsHaveTheirEffect(t *testing.T) {
	t.Parallel()
	const limit = "MeshRateLimit: [{match: {}, conf: {local: {tcp: {%s}}}}]"
	for _, protocol := range []kind.Protocol{kind.TCP, kind.HTTP} {
		s := receiving(t, protocol, true, true)
		passes := func(secured bool) bool { return s.passes(protocol, secured) }
		for _, c := range []struct {
			conf string
			want string
		}{
			{"", "true true true"},
			{"connectionRate: {num: 2, interval: 1h}", "true true false"},
			{"disabled: true, connectionRate: {num: 2, interval: 1h}", "true true true"},
			{"connectionRate: {num: 1, interval: 1h}", "true false false"},
		} {
			s.get(strings.ReplaceAll(fmt.Sprintf(limit, c.conf), "tcp: {}", ""))
			if got := fmt.Sprint(passes(true), passes(false), passes(true)); got != c.want {
				t.Errorf("%s, %q: %s connections pass, want %s", protocol, c.conf, got, c.want)
			}
		}
		s.get("")
		if !passes(true) || !passes(false) {
			t.Errorf("%s: a connection is closed after the end of the limit", protocol)
		}
		s.undrained()
	}
}

// passes reports whether a new connection carries bytes to the application and back.
func (s *received) passes(protocol kind.Protocol, secured bool) bool {
	s.t.Helper()
	conn, err := net.Dial("tcp", address(s.in))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	if secured {
		conn = tls.Client(conn, presenting(s.east.certificate(s.t, clientID)))
	}
	if !protocol.IsHTTP() {
		return echoes(conn)
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"); err != nil {
		return false
	}
	response, err := io.ReadAll(conn)
	return err == nil && strings.HasPrefix(string(response), "HTTP/1.1 200")
}

// Every status that a policy may have is one that Envoy knows, and the other way round.
func TestStatusesOfLimits(t *testing.T) {
	for status := range uint32(1000) {
		conf := kind.RateLimitConf{Local: &kind.LocalRateLimit{HTTP: &kind.HTTPRateLimit{
			OnRateLimit: &kind.LimitedResponse{Status: &status}}}}
		o := kind.MeshRateLimits.Make("m", "r", kind.MeshRateLimit{
			Rules: []kind.RuleItem[kind.RateLimitConf]{{Default: conf}}})
		_, known := typev3.StatusCode_name[int32(status)]
		if accepted := len(kind.MeshRateLimits.Prepare(o)) == 0; accepted != (known && status > 0) {
			t.Errorf("%d is accepted: %v, and Envoy knows it: %v", status, accepted, known)
		}
	}
}

// TestLimitsAtZoneProxies: a zone egress limits the requests and connections to each external service, and a zone
// ingress the connections that it forwards.
func TestLimitsAtZoneProxies(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(app.Close)
	echoing, _ := listener(t)
	east := newAuthority(t, domainEast)
	all := match.AllowAll("the mesh").Allow
	api, open := chainFor(apiSNI, kind.HTTP, all...), chainFor(otherSNI, kind.HTTP, all...)
	db := chainFor("a0123456789abcdef.db.80.default.mes", kind.TCP, all...)
	api.Confs = confsOf(t, limitsOf(ofCallers("id: {exact: '"+shopID+"'}", "requestRate: {num: 2, interval: 1h}"),
		ofCallers("", oneAnHour)))
	const twoConnections = "MeshRateLimit: [{match: {}, conf: {local: {tcp: {connectionRate: {num: 2, " +
		"interval: 1h}}}}}]"
	db.Confs = confsOf(t, twoConnections)
	var more []*xds.Resource
	for chain, at := range map[*proxy.EgressChain]net.Addr{&api: app.Listener.Addr(), &open: app.Listener.Addr(),
		&db: echoing} {
		o := upstreamOf(*chain, nil, serverOf(t, "127.0.0.1", at))
		more = append(more, ExternalUpstream(o, proxy.Confs{}, service.Effective{}, "")...)
		if o.Protocol.IsHTTP() {
			more = append(more, ExternalRoute(o, chain.Confs))
		}
	}
	const sni = "a0123456789abcdef.web.80.default.ms"
	server := inboundTo(t, echoing, kind.TCP, all...)
	ingress := &proxy.IngressListener{Address: "127.0.0.1", Port: freePort(t), Confs: confsOf(t, twoConnections)}
	more = append(append(more, ClusterOfSNIRoute(sni, service.Effective{}), EndpointsOfSNIRoute(sni,
		[]service.Endpoint{{Address: server.Address, Port: server.Port}})), Ingress(ingress)...)
	egress := startEgress(t, east, []proxy.EgressChain{api, open, db}, append(more, inboundOf(server, true)...)...)

	for _, c := range []struct{ id, sni, want string }{
		{clientID, apiSNI, "200 429 429"},
		{otherID, apiSNI, "429 429 429"}, // it has the bucket of every caller
		{shopID, apiSNI, "200 200 429"},
		{clientID, otherSNI, "200 200 200"},
	} {
		client, got := through(t, egress, c.sni, east.certificate(t, c.id)), []string{}
		for range 3 {
			response, err := client.Get("https://example/")
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			got = append(got, fmt.Sprint(response.StatusCode))
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s to %s: %s, want %s", c.id, c.sni, got, c.want)
		}
	}
	for address, name := range map[string]string{egress: db.SNIs[0], fmt.Sprintf("127.0.0.1:%d", ingress.Port): sni} {
		var got []bool
		for range 3 {
			conn, err := tls.Dial("tcp", address, naming(east.certificate(t, clientID), name))
			got = append(got, err == nil && echoes(conn))
		}
		if fmt.Sprint(got) != "[true true false]" {
			t.Errorf("%s: connections pass: %v, want two", name, got)
		}
	}
}
