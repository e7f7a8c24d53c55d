package kind

import (
	"slices"
	"testing"
)

// TestUsableEgresses: clients dial healthy egresses, and those that drain while no other is healthy: the status of
// another one may arrive later. They dial none that does not serve.
func TestUsableEgresses(t *testing.T) {
	down, draining := ZoneProxyAddress{Name: "down"}, ZoneProxyAddress{Name: "draining", Draining: true}
	healthy := ZoneProxyAddress{Name: "healthy", Healthy: true}
	for _, c := range []struct{ egresses, usable []ZoneProxyAddress }{
		{nil, nil},
		{[]ZoneProxyAddress{down}, nil},
		{[]ZoneProxyAddress{down, draining}, []ZoneProxyAddress{draining}},
		{[]ZoneProxyAddress{down, draining, healthy}, []ZoneProxyAddress{healthy}},
	} {
		if got := (&MeshEgressAddress{c.egresses}).Usable(); !slices.Equal(got, c.usable) {
			t.Errorf("of %v, clients dial %v, want %v", c.egresses, got, c.usable)
		}
	}
}
