package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// measure runs a scenario of the load tool with the control plane of the tests, and returns its report.
func measure(t *testing.T, args ...string) []byte {
	args = append(args, "--weft", filepath.Join(binaries, "weft"), "-o", "json")
	cmd := exec.CommandContext(t.Context(), filepath.Join(binaries, "load"), args...)
	var progress strings.Builder
	cmd.Stderr = &progress
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("load %s: %v after:\n%s", args[0], err, &progress)
	}
	return out
}

func TestMembershipIsMeasured(t *testing.T) {
	t.Parallel()
	out := measure(t, "membership", "--proxies", "20", "--services", "2")
	var report struct {
		Evicted                                        int
		StreamsSeconds, EvictedCPUSeconds, BackSeconds float64
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	if report.Evicted != 10 || report.StreamsSeconds <= 0 || report.EvictedCPUSeconds <= 0 || report.BackSeconds <= 0 {
		t.Errorf("measured %+v, want 10 proxies evicted and admitted again: %s", report, out)
	}
}
