package envoysim_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weft/internal/envoysim"
	"weft/internal/match"
	"weft/kind"
)

// modelAllows is the permissions in one sentence, to which the generated configuration must conform for any rules and
// callers: a caller with SPIFFE IDs of one trusted trust domain is accepted if no deny and one allow matches an ID of
// that domain.
func modelAllows(p match.Permissions, names []string) bool {
	domain := domainOf(names[0])
	trusted := []string{"default.east.mesh.local", "default.west.mesh.local"}
	if !slices.Contains(trusted, domain) {
		return false
	}
	var own []string
	for _, name := range names {
		switch other := domainOf(name); {
		case other == domain:
			own = append(own, name)
		case slices.Contains(trusted, other):
			return false
		}
	}
	return !matchesAny(p.Deny, names) && (matchesAny(p.Allow, own) || matchesAny(p.ShadowDeny, own))
}

func domainOf(name string) string {
	domain, _, _ := strings.Cut(strings.TrimPrefix(name, "spiffe://"), "/")
	return domain
}

func matchesAny(rules []match.Rule, names []string) bool {
	return slices.ContainsFunc(rules, func(r match.Rule) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			return r.Exact == name || r.Exact == "" && strings.HasPrefix(name, r.Prefix)
		})
	})
}

func TestPermissionsMeanWhatTheySay(t *testing.T) {
	names := []string{east + "a", east + "ab", west + "a", "spiffe://untrusted/a",
		"spiffe://default.east.mesh.local.evil/a"}
	prefixes := []string{"spiffe://", "spiffe://default.", "spiffe://default.east.mesh.local", east, east + "a", west,
		"spiffe://else"}
	rapid.Check(t, func(t *rapid.T) {
		rules := func(label string) []match.Rule {
			exact := rapid.Custom(func(t *rapid.T) match.Rule {
				return match.Rule{IDPattern: kind.IDPattern{Exact: rapid.SampledFrom(names).Draw(t, "exact")}}
			})
			prefix := rapid.Custom(func(t *rapid.T) match.Rule {
				return match.Rule{IDPattern: kind.IDPattern{Prefix: rapid.SampledFrom(prefixes).Draw(t, "prefix")}}
			})
			drawn := rapid.SliceOfN(rapid.OneOf(exact, prefix), 0, 3).Draw(t, label)
			for i := range drawn {
				drawn[i].Origin = label + string(rune('0'+i))
			}
			return drawn
		}
		permissions := match.Permissions{Deny: rules("deny"), ShadowDeny: rules("shadow"), Allow: rules("allow")}
		caller := rapid.SliceOfN(rapid.SampledFrom(names), 1, 3).Draw(t, "caller")
		protocol := rapid.SampledFrom([]kind.Protocol{kind.HTTP, kind.TCP}).Draw(t, "protocol")
		config, err := envoysim.Load(server(true, protocol, permissions))
		if err != nil {
			t.Fatal(err)
		}
		call := peer(caller...)
		call.Address, call.Port = "10.0.0.1", 80
		if got, want := config.Inbound(call), modelAllows(permissions, caller); got.Allowed != want {
			t.Fatalf("%v: %+v, want allowed %v", caller, got, want)
		}
	})
}
