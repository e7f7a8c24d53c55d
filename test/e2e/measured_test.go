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
		Out                                        int
		StreamsSeconds, OutCPUSeconds, BackSeconds float64
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if report.Out != 10 || report.StreamsSeconds <= 0 || report.OutCPUSeconds <= 0 || report.BackSeconds <= 0 {
		t.Errorf("measured %+v, want 10 proxies put out and let in again: %s", report, out)
	}
}
