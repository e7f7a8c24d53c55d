package envoy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weft/internal/match"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/testwait"
	"weft/internal/xds"
	"weft/kind"
)

// faultsOf are the faults of an inbound, by match.
func faultsOf(byMatch ...string) string {
	return "MeshFaultInjection: [" + strings.Join(byMatch, ", ") + "]"
}

// faultsOfCallers are the faults of the callers of a match, which is empty, or the fields of one.
func faultsOfCallers(match string, faults ...string) string {
	return fmt.Sprintf("{match: {%s}, conf: {http: [%s]}}", match, strings.Join(faults, ", "))
}

func aborted(status int, percentage string) string {
	return fmt.Sprintf("{abort: {httpStatus: %d, percentage: %s}}", status, percentage)
}

func delayed(value string) string { return "{delay: {value: " + value + ", percentage: 100}}" }

// TestFaultsHaveTheirEffect: each field of a fault does what it says, for the callers of a match. What a match is,
// [TestRateLimitsHaveTheirEffect] has.
func TestFaultsHaveTheirEffect(t *testing.T) {
	s := receiving(t, kind.HTTP, true, true)
	client, shop, plain := s.caller(clientID), s.caller(shopID), s.caller()
	both := s.caller(clientID, shopID)
	const exact = "id: {exact: '" + shopID + "'}"
	const other = "id: {exact: '" + clientID + "'}"
	for _, c := range []struct {
		name, confs string
		caller      *requester
		want        string
		delays      int // that are injected
	}{
		{"no policy", "", client, "200", 0},
		{"abort", faultsOf(faultsOfCallers("", aborted(599, "100"))), client, "599", 0},
		{"abort in plaintext", faultsOf(faultsOfCallers("", aborted(200, "100"))), plain, "200 fault filter abort", 0},
		{"abort of none", faultsOf(faultsOfCallers("", aborted(555, "0"))), client, "200", 0},
		{"delay", faultsOf(faultsOfCallers("", delayed("10ms"))), client, "200", 1},
		{"delay of none", faultsOf(faultsOfCallers("", "{delay: {value: 1h, percentage: 0}}")), client, "200", 0},
		{"a delayed abort", faultsOf(faultsOfCallers("", "{abort: {httpStatus: 555, percentage: 100}, "+
			"delay: {value: 10ms, percentage: 100}}")), client, "555", 1},
		{"a delay, then an abort", faultsOf(faultsOfCallers("", delayed("10ms"), aborted(555, "100"))), client, "555",
			1},
		{"every delay", faultsOf(faultsOfCallers("", delayed("1ms"), delayed("1ms"), delayed("1ms"), delayed("1ms"))),
			client, "200", 4},
		{"the fifth", faultsOf(faultsOfCallers("", delayed("1ms"), delayed("1ms"), delayed("1ms"), delayed("1ms"),
			aborted(555, "100"))), client, "200", 4},
		{"an exact ID", faultsOf(faultsOfCallers(exact, aborted(555, "100"))), shop, "555", 0},
		{"the first match of two IDs", faultsOf(faultsOfCallers(other, delayed("10ms")),
			faultsOfCallers(exact, aborted(555, "100"))), both, "200", 1},
		{"the most specific match", faultsOf(faultsOfCallers(exact, delayed("10ms"), aborted(556, "100")),
			faultsOfCallers("", aborted(557, "100"))), shop, "556", 1},
		{"every other caller", faultsOf(faultsOfCallers(exact, delayed("10ms"), aborted(556, "100")),
			faultsOfCallers("", aborted(557, "100"))), client, "557", 0},
		{"no policy any more", "", client, "200", 0},
	} {
		s.get(c.confs)
		before := s.faults("delays_injected")
		response := s.send(c.caller)
		got := fmt.Sprint(response.StatusCode, " ", response.Header.Get("test-body"))
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if n := s.faults("delays_injected") - before; n != c.delays {
			t.Errorf("%s: it has %d delays, want %d", c.name, n, c.delays)
		}
	}
	s.get(faultsOf(faultsOfCallers("", delayed("1s"))))
	begun := time.Now()
	s.send(client)
	// Envoy counts a timer from the beginning of the iteration of its event loop that starts it.
	if took := time.Since(begun); took < 500*time.Millisecond {
		t.Errorf("a response with a delay of a second takes %s", took)
	}
	s.undrained()
}

// faults returns a count of the faults of the inbound.
func (s *received) faults(count string) int {
	s.t.Helper()
	return s.stat("http.self_inbound_" + strings.ReplaceAll(address(s.in), ":", "_") + ".fault." + count)
}

// TestPercentagesOfFaults: a fault is injected into its share of the requests, and each of several faults draws for
// itself.
func TestPercentagesOfFaults(t *testing.T) {
	s := receiving(t, kind.HTTP, true, false)
	client := s.caller(clientID)
	const requests = 400
	for _, c := range []struct {
		faults    []string
		low, high int // of the requests that are aborted
	}{
		{[]string{aborted(555, "50")}, 120, 280},
		{[]string{aborted(555, "'50.0001'"), aborted(556, "50")}, 240, 360},
		{[]string{aborted(555, "'0.0001'")}, 0, 10},
	} {
		s.get(faultsOf(faultsOfCallers("", c.faults...)))
		got := 0
		for range requests {
			if s.send(client).StatusCode != 200 {
				got++
			}
		}
		if got < c.low || got > c.high {
			t.Errorf("%s: %d of %d requests are aborted, want %d to %d", c.faults, got, requests, c.low, c.high)
		}
	}
}

// TestTheBandwidthOfResponses: kbps is 1,024 bytes per second, and the highest limit is one.
func TestTheBandwidthOfResponses(t *testing.T) {
	s := receiving(t, kind.HTTP, true, false)
	client := s.caller(clientID)
	const size = 200 * 1024
	for limits, c := range []struct {
		limit string
		least time.Duration
	}{
		{"100 kbps", time.Second}, // of 2: a part is sent at once
		{"1000 Gbps", 0},
	} {
		s.get(faultsOf(faultsOfCallers("", "{responseBandwidth: {limit: "+c.limit+", percentage: 100}}")))
		begun := time.Now()
		response, err := client.Post(client.url, "text/plain", strings.NewReader(
			strings.Repeat("x", size)))
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if took := time.Since(begun); err != nil || n != size || took < c.least || took > testwait.Timeout {
			t.Errorf("%s: %d bytes take %s (%v), want %s at least, and an end", c.limit, n, took, err, c.least)
		}
		if n := s.faults("response_rl_injected"); n != limits+1 {
			t.Errorf("%s: %d responses are limited, want %d", c.limit, n, limits+1)
		}
	}
}

// TestALimitedRequestGetsNoFault: a request that is denied takes no token, and a limited one gets no fault.
func TestALimitedRequestGetsNoFault(t *testing.T) {
	s := receiving(t, kind.HTTP, true, false)
	s.in.Permissions.Deny = []match.Rule{{Origin: "shop", IDPattern: kind.IDPattern{Exact: shopID}}}
	s.get(limitsOf(ofCallers("", oneAnHour)) + ", " + faultsOf(faultsOfCallers("", aborted(555, "100"))))
	if got := s.statuses(s.caller(shopID), 2) + " " + s.statuses(s.caller(clientID), 3); got != "403 403 555 429 429" {
		t.Errorf("%s, want 403 403 555 429 429", got)
	}
}

// TestFaultsAtAZoneEgress: the requests to one external service get faults, by caller.
func TestFaultsAtAZoneEgress(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(app.Close)
	east := newAuthority(t, domainEast)
	all := match.AllowAll("the mesh").Allow
	api, open := chainFor(apiSNI, kind.HTTP, all...), chainFor(otherSNI, kind.HTTP, all...)
	ofShop := faultsOfCallers("id: {exact: '"+shopID+"'}", aborted(556, "100"), aborted(555, "100"))
	api.Confs = confsOf(t, faultsOf(ofShop,
		faultsOfCallers("", aborted(555, "100"))))
	var more []*xds.Resource
	for _, chain := range []proxy.EgressChain{api, open} {
		o := upstreamOf(chain, nil, serverOf(t, "127.0.0.1", app.Listener.Addr()))
		more = append(append(more, ExternalUpstream(o, proxy.Confs{}, service.Effective{}, "")...),
			ExternalRoute(o, chain.Confs))
	}
	egress := startEgress(t, east, []proxy.EgressChain{api, open}, more...)
	for _, c := range []struct {
		id, sni string
		want    int
	}{{clientID, apiSNI, 555}, {shopID, apiSNI, 556}, {clientID, otherSNI, 200}} {
		response, err := through(t, egress, c.sni, east.certificate(t, c.id)).Get("https://example/")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != c.want {
			t.Errorf("%s to %s: %s, want %d", c.id, c.sni, response.Status, c.want)
		}
	}
}
