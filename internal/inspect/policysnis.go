package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/internal/policy"
	"weft/kind"
	"weft/resource"
)

// ownSNI is the policy that decides about an SNI of a MeshTCPRoute, where that is the MeshTCPRoute itself.
const ownSNI = ""

// sniPolicies are the SNIs of a MeshTCPRoute, each with the policy that decides about it: [ownSNI] where the
// MeshTCPRoute does for some of its traffic.
type sniPolicies map[string]string

func (s sniPolicies) add(sni, decides string) {
	if had, known := s[sni]; !known || had != ownSNI {
		s[sni] = decides
	}
}

// anyOverridden returns whether another policy decides about one of the SNIs.
func (s sniPolicies) anyOverridden() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(s)), func(decides string) bool { return decides != ownSNI })
}

// warnings returns a text for each other policy that decides about SNIs.
func (s sniPolicies) warnings() []string {
	const shown = 5
	by := map[string][]string{}
	for _, sni := range slices.Sorted(maps.Keys(s)) {
		if s[sni] != ownSNI {
			by[s[sni]] = append(by[s[sni]], sni)
		}
	}
	var warnings []string
	for _, decides := range slices.Sorted(maps.Keys(by)) {
		snis := by[decides]
		if len(snis) == 1 {
			warnings = append(warnings, fmt.Sprintf("SNI %s: no effect: %s decides about it", snis[0], decides))
			continue
		}
		text := strings.Join(snis[:min(len(snis), shown)], ", ")
		if more := len(snis) - shown; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		warnings = append(warnings, fmt.Sprintf("SNIs %s: no effect: %s decides about them", text, decides))
	}
	return warnings
}

// snis adds which policies decide about the SNIs of the MeshTCPRoutes about some connections. It returns the merged
// rules that no connection takes, since rules of other policies have all of their SNIs.
func (s *selectionFields) snis(about []policy.Part, m policy.Merged, protocol kind.Protocol) (unused map[int]bool) {
	conf, ok := m.Conf.(*kind.TCPRouteConf)
	if !ok || protocol.IsHTTP() {
		return nil // requests have no SNI
	}
	serving, by := kind.RulesOfSNIs(conf.Rules), map[int]resource.Key{}
	for path, origin := range m.Origins.All() {
		if rule, ok := path.ItemOf("rules"); ok {
			by[rule] = origin.Policy
		}
	}
	for i := range about {
		of := about[i].Policy.Key
		if s.result.snis[of] == nil {
			s.result.snis[of] = sniPolicies{}
		}
		for _, rule := range about[i].Conf.(*kind.TCPRouteConf).Rules {
			for _, match := range rule.Matches {
				decides := ownSNI
				if with := by[serving[match.SNI.Value]]; with != of {
					decides = with.String()
				}
				s.result.snis[of].add(match.SNI.Value, decides)
			}
		}
	}
	unused = map[int]bool{}
	for i := range conf.Rules {
		unused[i] = len(conf.Rules[i].Matches) > 0
	}
	for _, i := range serving {
		unused[i] = false
	}
	return unused
}
