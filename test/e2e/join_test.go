package e2e

import (
	"encoding/json"
	"testing"
)

// TestAMeshThatStartsAtOnce connects simulated Envoys to the real control plane, without a ready endpoint before. Each
// gets little more than one full configuration, and nothing after a kill and restart of the control plane.
func TestAMeshThatStartsAtOnce(t *testing.T) {
	out := measure(t, "join", "--proxies", "120", "--services", "30")
	var report struct {
		FullBytes     int64
		ControlPlane  struct{ Bytes int64 }
		BackSeconds   float64
		BackResources int64
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v in:\n%s", err, out)
	}
	if report.FullBytes == 0 || float64(report.ControlPlane.Bytes) > 1.2*float64(report.FullBytes) {
		t.Errorf("%d bytes to each proxy, want at most 1.2 times one full configuration of %d",
			report.ControlPlane.Bytes, report.FullBytes)
	}
	if report.BackSeconds == 0 || report.BackResources != 0 {
		t.Errorf("after a restart %d resources were sent, want none", report.BackResources)
	}
}
