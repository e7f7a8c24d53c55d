package kind_test

import (
	"strings"
	"testing"

	"weft/kind"
	"weft/resource"
)

// TestUnvouchedChanges: a writer that vouches for nothing leaves vouched facts, the workload and the networking of a
// Dataplane as they are, unless such a writer made it.
func TestUnvouchedChanges(t *testing.T) {
	dataplane := func(networking, labels string) *resource.Object[kind.Dataplane] {
		t.Helper()
		o, err := resource.Parse([]byte(`{type: Dataplane, mesh: m, name: bank, labels: {`+labels+`}, networking: {`+
			networking+`}}`), kind.ByName)
		if err != nil {
			t.Fatal(err)
		}
		return o.(*resource.Object[kind.Dataplane])
	}
	const (
		egress = `, zoneEgress: {address: 10.0.0.1, port: 3}`
		label  = `kuma.io/workload: bank`
		basic  = `address: 10.0.0.1, inbound: [{port: 80, servicePort: 8080, tags: {kuma.io/service: bank}}]`
		more   = basic + egress
	)
	edited := func(from, to string) string { return strings.Replace(basic, from, to, 1) + egress }
	const inbound = "networking.inbound"
	for name, test := range map[string]struct {
		networking, labels string
		want               string // the reason; empty: accepted
	}{
		"the same":      {more, label, ""},
		"a default":     {edited("servicePort", "serviceAddress: 127.0.0.1, servicePort"), label, ""},
		"computed tags": {edited("service: bank", "service: bank, kuma.io/zone: east"), label, ""},
		"a new label":   {more, label + ", team: a", ""},

		"another workload": {more, "kuma.io/workload: web", "the label kuma.io/workload: bank"},
		"no workload":      {more, "", "the label kuma.io/workload: bank"},
		"another service":  {edited("bank", "web"), label, "the tag kuma.io/service: bank"},
		"another address":  {edited("0.1", "0.2"), label, "the address 10.0.0.1"},
		"no section":       {basic, label, "networking.zoneEgress"},
		"another section":  {basic + strings.Replace(egress, "3", "4", 1), label, "networking.zoneEgress"},

		"a new tag":           {edited("service: bank", "service: bank, a: b"), label, inbound},
		"another machine":     {edited("servicePort", "serviceAddress: 192.0.2.9, servicePort"), label, inbound},
		"another application": {edited("8080", "22"), label, inbound},
		"another port":        {edited("[", "[{port: 81, servicePort: 8080}, "), label, inbound},
		"an ignored inbound":  {edited("servicePort", "state: Ignored, servicePort"), label, inbound},
		"an ingress": {more + ", zoneIngress: {address: 10.0.0.1, port: 5, advertisedAddress: 10.0.0.1, " +
			"advertisedPort: 5}", label, "networking.zoneIngress"},
		"the port of administration": {more + ", admin: {port: 9901}", label, "networking.admin"},
		"an outbound": {more + ", outbound: [{address: 10.0.0.1, port: 9, tags: {kuma.io/service: web}}]", label,
			"networking.outbound"},
		"redirected connections": {more + ", transparentProxying: {redirectPortInbound: 15006, " +
			"redirectPortOutbound: 15001}", label, "networking."},
	} {
		for voucher, record := range map[string]func(o *resource.Object[kind.Dataplane]){
			"a token":     func(o *resource.Object[kind.Dataplane]) { kind.VouchToken(nil, o, kind.Facts(o)) },
			"an operator": func(o *resource.Object[kind.Dataplane]) { kind.VouchOperator(nil, o) },
			"an operator of an earlier release": func(o *resource.Object[kind.Dataplane]) {
				o.Vouched.Operator = []string{kind.NameFact("bank")}
			},
		} {
			before := dataplane(more, label)
			record(before)
			got := kind.UnvouchedChange(before, dataplane(test.networking, test.labels))
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("%s, vouched for by %s: %q, want %q", name, voucher, got, test.want)
			}
		}
		registered := dataplane(more, label)
		kind.VouchToken(nil, registered, nil)
		if got := kind.UnvouchedChange(registered, dataplane(test.networking, test.labels)); (got == "") !=
			(test.want == "") {
			t.Errorf("%s, registered without a voucher: %q", name, got)
		}
		registered.Vouched.User = true
		for _, before := range []*resource.Object[kind.Dataplane]{nil, registered} {
			if got := kind.UnvouchedChange(before, dataplane(test.networking, test.labels)); got != "" {
				t.Errorf("%s, of a user: %q", name, got)
			}
		}
	}
}
