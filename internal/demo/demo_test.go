package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/internal/demo/console"
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

// TestPrintedCurlProvesItself: the curl command for an administrator's socket sends the header without which the
// control plane responds with 401.
func TestPrintedCurlProvesItself(t *testing.T) {
	var out strings.Builder
	w := &world{console: &console.Console{Out: &out}, global: &plane{name: "global"}, east: &plane{name: east},
		west: &plane{name: west}}
	w.printCommands()
	want := "curl --unix-socket west/data/admin.sock -H @west/data/admin.header http://west/meshes"
	if !strings.Contains(out.String(), want) {
		t.Errorf("%s\nlacks %s", out.String(), want)
	}
}
