package scale_test

import (
	"os"
	"slices"
	"testing"

	"weft/internal/diag"
	"weft/internal/testwait"
	"weft/test/mesh"
)

// plane is a control plane, in a process of its own.
type plane struct {
	*mesh.Plane
	t *testing.T
}

// newPlane returns a control plane with an environment and ports of its own, which is not started.
func newPlane(t *testing.T, env map[string]string) *plane {
	t.Helper()
	of, err := mesh.NewPlane(repository("bin", "weft"), t.TempDir(), "weft")
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range env { // before its own ports, which count
		of.Env = slices.Insert(of.Env, len(os.Environ()), name+"="+value)
	}
	t.Cleanup(func() {
		of.Kill()
		if t.Failed() && !reported {
			t.Logf("the control plane of %s:\n%s", of.Data, of.LastLines(40))
		}
	})
	return &plane{of, t}
}

// start starts the control plane, again once it has ended, and returns when it is ready.
func (p *plane) start() {
	p.t.Helper()
	if err := p.Run(testwait.Timeout); err != nil {
		p.t.Fatalf("`make build` builds weft: %v", err)
	}
}

// usage is the usage of the process.
func (p *plane) usage() (used diag.Process) {
	p.t.Helper()
	if err := p.Admin.Get(p.t.Context(), "/debug/process", nil, &used); err != nil {
		p.t.Fatal(err)
	}
	return used
}

// collectGarbage is usage after a collection.
func (p *plane) collectGarbage() (used diag.Process) {
	p.t.Helper()
	if err := p.Admin.Post(p.t.Context(), "/debug/gc", nil, &used); err != nil {
		p.t.Fatal(err)
	}
	return used
}

// cpu is the CPU time between two usages, in seconds.
func cpu(before, after diag.Process) float64 {
	return float64(after.CPUNanoseconds-before.CPUNanoseconds) / 1e9
}
