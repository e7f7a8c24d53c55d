package kind_test

import (
	"strings"
	"testing"

	"weft/kind"
	"weft/resource"
)

// TestUnvouchedChanges: a writer that vouches for nothing leaves vouched facts as they are, and leads requests of
// others to no other machine and to no further application of a machine.
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
	)
	edited := func(from, to string) string { return strings.Replace(basic, from, to, 1) + egress }
	remote := edited("servicePort", "serviceAddress: 192.0.2.9, servicePort")
	for name, test := range map[string]struct {
		networking, labels string
		free, vouched      string // the reason for a Dataplane without a voucher, and for one with; empty: accepted
	}{
		"the same":         {basic + egress, label, "", ""},
		"a new label":      {basic + egress, label + ", team: a", "", ""},
		"a new tag":        {edited("service: bank", "service: bank, a: b"), label, "", ""},
		"another workload": {basic + egress, "kuma.io/workload: web", "", "the label kuma.io/workload: bank"},
		"no workload":      {basic + egress, "", "", "the label kuma.io/workload: bank"},
		"another service":  {edited("bank", "web"), label, "", "the tag kuma.io/service: bank"},
		"another address":  {edited("0.1", "0.2"), label, "", "the address 10.0.0.1"},
		"no section":       {basic, label, "", "networking.zoneEgress"},
		"another section":  {basic + strings.Replace(egress, "3", "4", 1), label, "", "networking.zoneEgress"},
		"an ingress": {basic + egress + ", zoneIngress: {address: 10.0.0.1, port: 5, " +
			"advertisedAddress: 10.0.0.1, advertisedPort: 5}", label, "", ""},
		"another machine": {remote, label, "networking.inbound[0] adds the application 192.0.2.9:8080",
			"networking.inbound[0] adds the application 192.0.2.9:8080"},
		"another application": {edited("8080", "22"), label, "",
			"networking.inbound[0] adds the application 127.0.0.1:22"},
		"a second port of the application": {edited("[", "[{port: 81, servicePort: 8080}, "), label, "", ""},
		"the address of the machine": {edited("servicePort", "serviceAddress: 10.0.0.1, servicePort"), label, "",
			"networking.inbound[0] adds the application 10.0.0.1:8080"},
		"the port of administration": {basic + egress + ", admin: {port: 9901}", label, "", "networking.admin is new"},
	} {
		after := func() *resource.Object[kind.Dataplane] { return dataplane(test.networking, test.labels) }
		for voucher, record := range map[string]func(o *resource.Object[kind.Dataplane]){
			"a token":     func(o *resource.Object[kind.Dataplane]) { kind.VouchToken(nil, o, kind.Facts(o)) },
			"an operator": func(o *resource.Object[kind.Dataplane]) { kind.VouchOperator(nil, o) },
			"an operator of an earlier release": func(o *resource.Object[kind.Dataplane]) {
				o.Vouched.Operator = []string{kind.NameFact("bank")}
			},
		} {
			before := dataplane(basic+egress, label)
			record(before)
			got := kind.UnvouchedChange(before, after())
			if (got == "") != (test.vouched == "") || !strings.Contains(got, test.vouched) {
				t.Errorf("%s, vouched for by %s: %q, want %q", name, voucher, got, test.vouched)
			}
		}
		named := dataplane(basic+egress, label)
		kind.VouchToken(nil, named, []string{kind.NameFact("bank")})
		for _, before := range []*resource.Object[kind.Dataplane]{nil, named} {
			if got := kind.UnvouchedChange(before, after()); got != test.free {
				t.Errorf("%s, without a voucher: %q, want %q", name, got, test.free)
			}
		}
	}
	workload := dataplane(basic, label)
	kind.VouchToken(nil, workload, []string{kind.LabelFact(kind.WorkloadLabel, "bank")})
	const address = "networking.inbound[0] adds the address 10.0.0.2"
	moved := strings.Replace(basic, "0.1", "0.2", 1)
	if got := kind.UnvouchedChange(workload, dataplane(moved, label)); got != address {
		t.Errorf("another address without a voucher: %q, want %q", got, address)
	}
	stored := dataplane(remote, label)
	kind.VouchOperator(nil, stored)
	if got := kind.UnvouchedChange(stored, dataplane(remote, label)); got != "" {
		t.Errorf("an application that is stored: %q", got)
	}
}
