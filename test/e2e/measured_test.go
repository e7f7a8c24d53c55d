package e2e

import (
	"encoding/json"
	"testing"
)

func TestMembershipIsMeasured(t *testing.T) {
	w := newInstance(t, 0)
	t.Parallel()
	out, err := w.weft("load", "membership", "--proxies", "20", "--services", "2", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Evicted                                        int
		StreamsSeconds, EvictedCPUSeconds, BackSeconds float64
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if report.Evicted != 10 || report.StreamsSeconds <= 0 || report.EvictedCPUSeconds <= 0 || report.BackSeconds <= 0 {
		t.Errorf("measured %+v, want 10 proxies evicted and admitted again: %s", report, out)
	}
}
