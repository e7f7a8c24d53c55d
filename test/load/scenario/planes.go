package scenario

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"weft/test/mesh"
)

// deployment has the control planes of a scenario, each with an empty store. close ends them.
type deployment struct {
	Environment
	dir     string
	running []*mesh.Plane
}

// close ends all control planes.
func (d *deployment) close() error {
	for _, p := range d.running {
		p.Kill()
	}
	return os.RemoveAll(d.dir)
}

// startGlobal starts the global control plane.
func (d *deployment) startGlobal() (*mesh.Plane, error) { return d.start("global", "KUMA_MODE=global") }

// startZone starts a zone of a global control plane.
func (d *deployment) startZone(ctx context.Context, global *mesh.Plane, zone string) (*mesh.Plane, error) {
	settings, err := global.Zone(ctx, zone)
	if err != nil {
		return nil, err
	}
	return d.start(zone, settings...)
}

// startTimeout is how long a control plane may take to be ready.
const startTimeout = 30 * time.Second

// start runs a control plane and waits until it is ready.
func (d *deployment) start(name string, settings ...string) (*mesh.Plane, error) {
	p, err := mesh.NewPlane(d.Weft, filepath.Join(d.dir, name), name, settings...)
	if err != nil {
		return nil, err
	}
	d.running = append(d.running, p)
	return p, p.Run(startTimeout)
}
