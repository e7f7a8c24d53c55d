package dpserver

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	"weft/internal/golden"
	"weft/internal/wire"
	"weft/kind"
)

func inbound(port uint32, name string) kind.Inbound {
	return kind.Inbound{Port: port, Address: "10.0.0.1", Name: name}
}

func servedInbound(port uint32, name, serial string) kind.ServedInbound {
	n := kind.Networking{Address: "10.0.0.1"}
	return kind.ServedInbound{Inbound: n.Effective(inbound(port, name)), Serial: serial}
}

// firstReportTime is the time of the first report of a scenario; each later one is a second after.
var firstReportTime = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// TestReported runs the scenarios of a proxy's reports. Each section of a file is a step: "networking" is the
// Dataplane's, "configured" has the generations of the listeners that the agent was sent, "stored" is a status.
// "report" is a report of the agent, and "status" the status after it; a proxy "with pending rules" does not have its
// rules yet.
func TestReported(t *testing.T) {
	golden.Run(t, "testdata/reported/*.txtar", func(t *testing.T, scenario *txtar.Archive) {
		var status kind.DataplaneListenerStatus
		var networking kind.Networking
		var configured generations
		now, waits := firstReportTime, false
		for i, step := range scenario.Files {
			switch step.Name {
			case "networking":
				networking = kind.Networking{}
				readYAML(t, step.Data, &networking)
			case "configured":
				configured = nil
				readYAML(t, step.Data, &configured)
			case "stored":
				status = kind.DataplaneListenerStatus{}
				readYAML(t, step.Data, &status)
			case "report", "report with pending rules":
				report, runs := readReport(t, step.Data), step.Name == "report"
				status, waits = reported(status, report, configured, &networking, runs, now)
				if again, _ := reported(status, report, configured, &networking, runs, now); !equalServing(status,
					again) {
					t.Errorf("the same report again changes the status:\n%s", cmp.Diff(status, again))
				}
				now = now.Add(time.Second)
			case "status":
				scenario.Files[i].Data = statusYAML(t, status, waits)
			default:
				t.Fatalf("%q is not a step", step.Name)
			}
		}
	})
}

func readYAML(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
}

func readReport(t *testing.T, text []byte) *wire.Report {
	t.Helper()
	report := &wire.Report{}
	fields, err := yaml.YAMLToJSON(text)
	if err == nil {
		err = protojson.Unmarshal(fields, report)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return report
}

// statusYAML returns the status, and whether an inbound waits for its rules.
func statusYAML(t *testing.T, status kind.DataplaneListenerStatus, waits bool) []byte {
	t.Helper()
	text, err := yaml.Marshal(struct {
		kind.DataplaneListenerStatus
		Waits bool `json:"waits,omitempty"`
	}{status, waits})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestAcknowledgedKeepsDrainingInbounds(t *testing.T) {
	before := kind.DataplaneListenerStatus{Inbounds: []kind.ServedInbound{servedInbound(80, "http", ""),
		servedInbound(82, "gone", "")}}
	got := acknowledged(before, &kind.Networking{Address: "10.0.0.1", Inbound: []kind.Inbound{
		inbound(80, "http"), inbound(81, "new"), {Port: 83, State: kind.Ignored},
	}})
	want := kind.DataplaneListenerStatus{Inbounds: []kind.ServedInbound{
		servedInbound(80, "http", ""), servedInbound(81, "new", ""), servedInbound(82, "gone", ""),
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
