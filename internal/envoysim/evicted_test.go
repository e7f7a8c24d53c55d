package envoysim_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weft/internal/envoy"
	"weft/internal/envoysim"
	"weft/internal/match"
	"weft/kind"
)

// TestEvictedInstancesOnlyAreDenied: with any set of names with common prefixes, only an evicted instance is denied.
func TestEvictedInstancesOnlyAreDenied(t *testing.T) {
	names := rapid.Custom(func(t *rapid.T) string {
		return fmt.Sprintf("%s-%s.default.east.dataplane.mesh.local",
			rapid.StringMatching(`[ab]{1,3}`).Draw(t, "workload"),
			rapid.StringMatching(`[0-2]{0,4}`).Draw(t, "instance"))
	})
	rapid.Check(t, func(t *rapid.T) {
		evicted := rapid.SliceOfN(names, 0, 60).Draw(t, "evicted")
		slices.Sort(evicted)
		evicted = slices.Compact(evicted)
		callers := append(rapid.SliceOfN(names, 1, 5).Draw(t, "callers"), evicted[:min(len(evicted), 10)]...)
		protocol := rapid.SampledFrom([]kind.Protocol{kind.HTTP, kind.TCP}).Draw(t, "protocol")
		all := server(true, protocol, match.Permissions{Allow: []match.Rule{{Origin: "allow",
			IDPattern: kind.IDPattern{Prefix: east}}}})
		for _, r := range envoy.EvictionFilters("default", evicted) {
			for i := range all {
				if all[i].Name == r.Name {
					all[i] = r
				}
			}
		}
		config, err := envoysim.Load(all)
		if err != nil {
			t.Fatal(err)
		}
		for _, caller := range callers {
			call := peer(east + "web")
			call.Address, call.Port, call.PeerDNS = "10.0.0.1", 80, caller
			if got := config.Inbound(call); got.Allowed == slices.Contains(evicted, caller) {
				t.Fatalf("%s, of %v: %+v", caller, evicted, got)
			}
		}
	})
}
