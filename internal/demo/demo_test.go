package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/kind"
	"weft/resource"
)

// TestInstancesAreThoseOfTheExamples: the addresses in the code of the demo equal those of its YAML.
func TestInstancesAreThoseOfTheExamples(t *testing.T) {
	dir := t.TempDir()
	if err := writeExamples(dir); err != nil {
		t.Fatal(err)
	}
	for _, in := range newInstances() {
		content, err := os.ReadFile(filepath.Join(dir, in.zone, "dataplanes", in.name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		object, err := resource.Parse(content, kind.ByName)
		if err != nil {
			t.Fatalf("%s: %s", in.name, err)
		}
		n := resource.SpecOf(object).(*kind.Dataplane).Networking
		if in.service == "" {
			if z := n.ZoneIngress; z != nil && (z.Address != in.address || z.Port != uint32(in.port)) {
				t.Errorf("%s: its ingress is %+v", in.name, z)
			}
			if z := n.ZoneEgress; z != nil && (z.Address != in.address || z.Port != uint32(in.port)) {
				t.Errorf("%s: its egress is %+v", in.name, z)
			}
			continue
		}
		inbound := n.Effective(n.Inbound[0])
		if inbound.Address != in.address || inbound.Port != inboundPort || inbound.ServiceAddress != in.address ||
			inbound.ServicePort != applicationPort {
			t.Errorf("%s: its inbound is %+v", in.name, inbound)
		}
		if workload := object.Envelope().Labels[kind.WorkloadLabel]; workload != in.service {
			t.Errorf("%s: its workload is %q, want %q", in.name, workload, in.service)
		}
	}
}

func TestCommandsCanBePasted(t *testing.T) {
	var out strings.Builder
	c := &console{out: &out}
	c.command("curl", "-w", ` %{http_code}\n`, "http://127.0.1.11:21001", "it's", ">", "a&b", "&")
	want := `   $ curl -w ' %{http_code}\n' http://127.0.1.11:21001 'it'\''s' > 'a&b' &` + "\n"
	if out.String() != want {
		t.Errorf("got  %swant %s", out.String(), want)
	}
}

func TestResultsNameEveryFailure(t *testing.T) {
	var out strings.Builder
	c := &console{out: &out}
	c.results([]result{{"balanced", "10 and 10", nil}, {"denied", "", os.ErrDeadlineExceeded}})
	want := "\nok       balanced   10 and 10\nFAILED   denied     i/o timeout\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
