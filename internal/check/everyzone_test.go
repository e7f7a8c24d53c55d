package check

import "testing"

// TestMissesOnly: a report whose errors are unknown zones alone differs from one with errors, and from one without.
func TestMissesOnly(t *testing.T) {
	missing := Finding{Problem: zoneUnknown.ID, Severity: Error}
	warning := Finding{Problem: proxyOffline.ID, Severity: Warning}
	failing := Finding{Problem: noAllowedClients.ID, Severity: Error}
	for want, findings := range map[bool][][]Finding{
		true:  {{missing}, {missing, warning}, {missing, missing}},
		false: {nil, {warning}, {failing}, {missing, failing}, {failing, missing}},
	} {
		for _, f := range findings {
			if got := (&Report{Findings: f}).MissesOnly(); got != want {
				t.Errorf("%v misses only: %v", f, got)
			}
		}
	}
}
