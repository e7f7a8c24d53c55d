package scenario

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// TestSizesThatCannotBeMeasured: each scenario rejects them with their values, before it starts a control plane.
func TestSizesThatCannotBeMeasured(t *testing.T) {
	wrong := map[string][]string{
		"proxies": {"--proxies=3", "--services=4", "--changes=1"}, "join": {"--proxies=3", "--services=4"},
		"policies":   {"--proxies=3", "--services=4", "--policies=5", "--changes=1"},
		"membership": {"--proxies=3", "--services=4"}, "zones": {"--zones=3", "--services=0", "--pods=4"},
		"across": {"--proxies=3", "--services=4", "--changes=0"}, "reads": {"--proxies=3", "--services=4"},
	}
	for _, e := range All() {
		flags := pflag.NewFlagSet(e.Name, pflag.ContinueOnError)
		e.Scenario.AddFlags(flags)
		if err := e.Scenario.check(); err != nil {
			t.Errorf("%s rejects its default sizes: %v", e.Name, err)
		}
		if err := flags.Parse(wrong[e.Name]); err != nil {
			t.Fatal(err)
		}
		_, err := Run(t.Context(), e.Scenario, Environment{Weft: "/no/program", Progress: io.Discard})
		if err == nil || !strings.Contains(err.Error(), "got 3") || !strings.Contains(err.Error(), "4") {
			t.Errorf("%s with %v: %v", e.Name, wrong[e.Name], err)
		}
	}
}

// waiting is a scenario that waits for the end of its context.
type waiting struct{ dir string }

func (*waiting) AddFlags(*pflag.FlagSet) {}
func (*waiting) check() error            { return nil }

func (w *waiting) measure(ctx context.Context, d *deployment) (Report, error) {
	w.dir = d.dir
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestAMeasurementHasALimit: it ends with the reason, and without a trace on the disk.
func TestAMeasurementHasALimit(t *testing.T) {
	s := &waiting{}
	_, err := Run(t.Context(), s, Environment{Progress: io.Discard, Limit: time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "longer than 1ms") {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", s.dir, err)
	}
}

// TestEachReportIsPrinted: no row has the name of another one, and a report has only the columns that it fills.
func TestEachReportIsPrinted(t *testing.T) {
	for columns, report := range map[string]Report{
		"measured floor budget": &JoinReport{Floor: JoinCost{Seconds: 1}}, "measured budget": &AcrossReport{},
		"measured": &ZonesReport{},
	} {
		var table bytes.Buffer
		if err := Print(&table, report); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(table.String(), "\n")
		if got := strings.Join(strings.Fields(lines[2]), " "); lines[0] != report.Title() || got != columns {
			t.Errorf("the columns are %q, want %q, of:\n%s", got, columns, &table)
		}
	}
	for _, report := range []Report{&ProxiesReport{}, &JoinReport{}, &PoliciesReport{MeshEdit: ChangeCost{Proxies: 1}},
		&MembershipReport{}, &ZonesReport{}, &AcrossReport{}, readsReport()} {
		seen := map[string]bool{}
		for _, m := range report.Metrics() {
			if m.Name == "" || seen[m.Name] {
				t.Errorf("%T has two rows %q", report, m.Name)
			}
			seen[m.Name] = true
		}
	}
}

func readsReport() *ReadsReport {
	report := &ReadsReport{}
	for _, r := range reads {
		report.Reads = append(report.Reads, ReadCost{Name: r.name})
	}
	return report
}
