package dpserver

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weft/internal/wire"
	"weft/kind"
)

func inbound(port uint32, name string) kind.Inbound {
	return kind.Inbound{Port: port, Address: "10.0.0.1", Name: name}
}

func servedInbound(port uint32, name, serial string) kind.ServedInbound {
	n := kind.Networking{Address: "10.0.0.1"}
	return kind.ServedInbound{Inbound: n.Effective(inbound(port, name)), Serial: serial}
}

func alsoPlainSince(in kind.ServedInbound, since time.Time) kind.ServedInbound {
	in.AlsoPlaintext = kind.Time{Time: since}
	return in
}

func unhealthy(in kind.ServedInbound) kind.ServedInbound {
	in.Unhealthy = true
	return in
}

func saw(port uint32, generation, serial string) *wire.ReadyListener {
	return &wire.ReadyListener{Address: "10.0.0.1", Port: port, Generation: generation, Serial: serial, Healthy: true}
}

// begun is when a proxy of these tests reports.
var begun = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func TestReported(t *testing.T) {
	type serving = kind.DataplaneListenerStatus
	type list = []kind.ServedInbound
	const first, second = "10.0.0.1:80", "10.0.0.1:81"
	for _, c := range []struct {
		name   string
		before serving
		has    []kind.Inbound
		want   wanted
		report *wire.Report
		behind bool // the proxy does not run with the rules of its inbounds yet
		after  serving
		waits  bool
	}{
		{
			name:   "what came to a listener that is served waits for its rules, and what left it for clients",
			before: serving{Run: "a", Inbounds: list{servedInbound(80, "blue", "")}},
			has:    []kind.Inbound{inbound(80, "green")},
			want:   wanted{first: "g"},
			report: &wire.Report{Run: "a", ReadyListeners: []*wire.ReadyListener{saw(80, "g", "")}},
			behind: true,
			after:  serving{Run: "a", Inbounds: list{servedInbound(80, "blue", "")}},
			waits:  true,
		},
		{
			name:   "and is served once the proxy runs with them",
			before: serving{Run: "a", Inbounds: list{servedInbound(80, "blue", "")}},
			has:    []kind.Inbound{inbound(80, "green")},
			want:   wanted{first: "g"},
			report: &wire.Report{Run: "a", ReadyListeners: []*wire.ReadyListener{saw(80, "g", "")}},
			after:  serving{Run: "a", Inbounds: list{servedInbound(80, "green", ""), servedInbound(80, "blue", "")}},
		},
		{
			name:   "a listener comes with its rules",
			before: serving{Run: "a"},
			has:    []kind.Inbound{inbound(80, "http")},
			want:   wanted{first: "g"},
			report: &wire.Report{Run: "a", ReadyListeners: []*wire.ReadyListener{saw(80, "g", "")}},
			behind: true,
			after:  serving{Run: "a", Inbounds: list{servedInbound(80, "http", "")}},
		},
		{
			name:   "what the agent saw is served",
			before: serving{Run: "a"},
			has:    []kind.Inbound{inbound(80, "http"), inbound(81, "admin")},
			want:   wanted{first: "g", second: "g"},
			report: &wire.Report{Run: "a", ReadyListeners: []*wire.ReadyListener{saw(80, "g", "5e")}},
			after:  serving{Run: "a", Inbounds: list{servedInbound(80, "http", "5e")}},
		},
		{
			name:   "every inbound of a shared listener is served",
			before: serving{Run: "a"},
			has:    []kind.Inbound{inbound(80, "blue"), inbound(80, "green")},
			want:   wanted{first: "g"},
			report: &wire.Report{Run: "a", ReadyListeners: []*wire.ReadyListener{saw(80, "g", "")}},
			after:  serving{Run: "a", Inbounds: list{servedInbound(80, "blue", ""), servedInbound(80, "green", "")}},
		},
		{
			name:   "a new run begins as serving nothing, and stays registered",
			before: serving{Run: "a", Registered: true, Draining: true, Inbounds: list{servedInbound(80, "http", "5e")}},
			has:    []kind.Inbound{inbound(80, "http")},
			want:   wanted{first: "g"},
			report: &wire.Report{Run: "b"},
			after:  serving{Run: "b", Registered: true},
		},
		{
			name:   "a listener that is to change is not served anew before the agent saw the change",
			before: serving{Run: "a"},
			has:    []kind.Inbound{inbound(80, "http")},
			want:   wanted{first: "tls"},
			report: &wire.Report{Run: "a", ReadyListeners: []*wire.ReadyListener{saw(80, "plain", "")}},
			after:  serving{Run: "a"},
		},
		{
			name:   "and one that served goes on serving meanwhile, as what it was",
			before: serving{Run: "a", Inbounds: list{servedInbound(80, "http", "01")}},
			has:    []kind.Inbound{inbound(80, "http")},
			want:   wanted{first: "next"},
			report: &wire.Report{Run: "a", ReadyListeners: []*wire.ReadyListener{saw(80, "last", "02")}},
			after:  serving{Run: "a", Inbounds: list{servedInbound(80, "http", "01")}},
		},
		{
			name:   "what is being withdrawn stays while it is stored",
			before: serving{Run: "a", Inbounds: list{servedInbound(81, "old", "")}},
			want:   wanted{second: "g"},
			report: &wire.Report{Run: "a", ReadyListeners: []*wire.ReadyListener{saw(81, "g", "")}},
			after:  serving{Run: "a", Inbounds: list{servedInbound(81, "old", "")}},
		},
		{
			name:   "and never comes back by a report that was late",
			before: serving{Run: "a"},
			want:   wanted{},
			report: &wire.Report{Run: "a", ReadyListeners: []*wire.ReadyListener{saw(81, "g", "")}},
			after:  serving{Run: "a"},
		},
		{
			name:   "an ignored inbound is not served anew",
			before: serving{Run: "a"},
			has:    []kind.Inbound{{Port: 80, Address: "10.0.0.1", State: kind.Ignored}},
			want:   wanted{first: "g"},
			report: &wire.Report{Run: "a", ReadyListeners: []*wire.ReadyListener{saw(80, "g", "")}},
			after:  serving{Run: "a"},
		},
		{
			name:   "a dead application keeps its listener and is marked",
			before: serving{Run: "a", Inbounds: list{servedInbound(80, "http", "5e")}},
			has:    []kind.Inbound{inbound(80, "http")},
			want:   wanted{first: "g"},
			report: &wire.Report{Run: "a", ReadyListeners: []*wire.ReadyListener{{Address: "10.0.0.1", Port: 80, Generation: "g", Serial: "5e"}}},
			after:  serving{Run: "a", Inbounds: list{unhealthy(servedInbound(80, "http", "5e"))}},
		},
		{
			name:   "a crashed Envoy serves nothing",
			before: serving{Run: "a", Inbounds: list{servedInbound(80, "http", "5e")}},
			has:    []kind.Inbound{inbound(80, "http")},
			want:   wanted{first: "g"},
			report: &wire.Report{Run: "a"},
			after:  serving{Run: "a"},
		},
		{
			name:   "a plain inbound that serves with a leaf is plain too for a while",
			before: serving{Run: "a", Inbounds: list{servedInbound(80, "http", "")}},
			has:    []kind.Inbound{inbound(80, "http")},
			want:   wanted{first: "tls"},
			report: &wire.Report{Run: "a", ReadyListeners: []*wire.ReadyListener{saw(80, "tls", "5e")}},
			after:  serving{Run: "a", Inbounds: list{alsoPlainSince(servedInbound(80, "http", "5e"), begun)}},
		},
		{
			name:   "a renewed leaf changes nothing of that",
			before: serving{Run: "a", Inbounds: list{alsoPlainSince(servedInbound(80, "http", "5e"), begun.Add(-time.Second))}},
			has:    []kind.Inbound{inbound(80, "http")},
			want:   wanted{first: "tls"},
			report: &wire.Report{Run: "a", ReadyListeners: []*wire.ReadyListener{saw(80, "tls", "5f")}},
			after:  serving{Run: "a", Inbounds: list{alsoPlainSince(servedInbound(80, "http", "5f"), begun.Add(-time.Second))}},
		},
		{
			name:   "an inbound that has had a leaf from the beginning was never plain",
			before: serving{Run: "a"},
			has:    []kind.Inbound{inbound(80, "http")},
			want:   wanted{first: "tls"},
			report: &wire.Report{Run: "a", ReadyListeners: []*wire.ReadyListener{saw(80, "tls", "5e")}},
			after:  serving{Run: "a", Inbounds: list{servedInbound(80, "http", "5e")}},
		},
		{
			name:   "a draining proxy says so",
			before: serving{Run: "a", Inbounds: list{servedInbound(80, "http", "")}},
			has:    []kind.Inbound{inbound(80, "http")},
			want:   wanted{first: "g"},
			report: &wire.Report{Run: "a", Draining: true, ReadyListeners: []*wire.ReadyListener{saw(80, "g", "")}},
			after:  serving{Run: "a", Draining: true, Inbounds: list{servedInbound(80, "http", "")}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := &kind.Networking{Address: "10.0.0.1", Inbound: c.has}
			got, waits := reported(c.before, c.report, c.want, n, !c.behind, begun)
			if waits != c.waits {
				t.Errorf("something waits: %t, want %t", waits, c.waits)
			}
			if diff := cmp.Diff(c.after, got); diff != "" {
				t.Error(diff)
			}
			again, _ := reported(got, c.report, c.want, n, !c.behind, begun)
			if !equalServing(got, again) {
				t.Errorf("the same report again changes it:\n%s", cmp.Diff(got, again))
			}
		})
	}
}

func ingress(port uint32) *kind.ZoneIngressSection {
	return &kind.ZoneIngressSection{Address: "10.0.0.1", Port: port, AdvertisedAddress: "192.168.1.100", AdvertisedPort: 30000 + port}
}

func TestReportedIngress(t *testing.T) {
	const first, second = "10.0.0.1:80", "10.0.0.1:81"
	type list = []kind.ZoneIngressSection
	for _, c := range []struct {
		name    string
		before  list
		section *kind.ZoneIngressSection
		want    wanted
		report  *wire.Report
		after   list
	}{
		{
			name: "one that the agent saw is served", section: ingress(80), want: wanted{first: "g"},
			report: &wire.Report{Run: "a", ReadyListeners: []*wire.ReadyListener{saw(80, "g", "")}}, after: list{*ingress(80)},
		},
		{
			name: "one that it has not seen is not", section: ingress(80), want: wanted{first: "g"},
			report: &wire.Report{Run: "a"},
		},
		{
			name: "one that moves serves at both places", before: list{*ingress(80)}, section: ingress(81), want: wanted{first: "g", second: "g"},
			report: &wire.Report{Run: "a", ReadyListeners: []*wire.ReadyListener{saw(80, "g", ""), saw(81, "g", "")}}, after: list{*ingress(80), *ingress(81)},
		},
		{
			name: "one that goes stays while it is stored", before: list{*ingress(80)}, want: wanted{first: "g"},
			report: &wire.Report{Run: "a", ReadyListeners: []*wire.ReadyListener{saw(80, "g", "")}}, after: list{*ingress(80)},
		},
		{
			name: "and not in a new run", before: list{*ingress(80)}, want: wanted{first: "g"},
			report: &wire.Report{Run: "b", ReadyListeners: []*wire.ReadyListener{saw(80, "g", "")}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := &kind.Networking{ZoneIngress: c.section}
			got, _ := reported(kind.DataplaneListenerStatus{Run: "a", Ingresses: c.before}, c.report, c.want, n, true, begun)
			if diff := cmp.Diff(c.after, got.Ingresses); diff != "" || len(got.Inbounds) > 0 {
				t.Errorf("%v %s", got.Inbounds, diff)
			}
		})
	}
}

func TestAcknowledgedKeepsWhatIsBeingWithdrawn(t *testing.T) {
	before := kind.DataplaneListenerStatus{Inbounds: []kind.ServedInbound{servedInbound(80, "http", ""), servedInbound(82, "gone", "")}}
	got := acknowledged(before, &kind.Networking{Address: "10.0.0.1", Inbound: []kind.Inbound{
		inbound(80, "http"), inbound(81, "new"), {Port: 83, State: kind.Ignored},
	}})
	want := kind.DataplaneListenerStatus{Inbounds: []kind.ServedInbound{
		servedInbound(80, "http", ""), servedInbound(81, "new", ""), servedInbound(82, "gone", ""),
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
