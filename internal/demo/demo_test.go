package demo

import (
	"os"
	"path/filepath"
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
