package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"weft/internal/graph"
	"weft/internal/sni"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// SNIKind is the kind of requests for the SNIs of a mesh's services that this control plane owns.
const SNIKind = "SNIs"

const (
	// maxNamedAtOnce is the number of services that get SNIs in one turn, before other requests are reconciled.
	maxNamedAtOnce = 256
	// ingressCheckInterval is how often absent zone ingresses are checked again.
	ingressCheckInterval = time.Second
)

// observeSNIs enqueues the SNIs of a service that lacks the wanted ones, and of all meshes when the format changes.
func (rc *Reconciler) observeSNIs(o resource.Any, now time.Time) {
	r := table.Eval(rc.plan.State.DB.Snapshot())
	switch o := o.(type) {
	case *resource.Object[kind.MeshService], *resource.Object[kind.MeshMultiZoneService]:
		if _, _, changes := rc.plan.withNextSNIs(r, o); changes {
			rc.enqueue(Request{SNIKind, o.Key().Mesh, ""}, now.Add(servingDelay))
		}
	case *resource.Object[kind.SNIFormat]:
		for mesh := range rc.plan.State.Meshes.All(rc.plan.State.DB.Snapshot()) {
			rc.enqueue(Request{SNIKind, mesh.Name, ""}, now.Add(servingDelay))
		}
	}
}

// reconcileSNIs adds SNIs to ports that have none, as services of earlier releases, and migrates SNIs of another format
// in steps: the new SNI after the old one, before it, alone. Clients use the first SNI and ingresses match all of them,
// so each step but the first waits until all proxies of all zones have acked the previous one. The services store the
// progress: a restart loses nothing, and a migration can be reversed at any step. (SNI in the resource definition.)
func (p *Plan) reconcileSNIs(r *table.Reader, mesh string, now time.Time) (steps []Step, requeue time.Time) {
	s := &AckWait{Name: "SNIs of the mesh " + mesh, Mesh: mesh, AllProxies: true, AllZones: true}
	var waits []string
	for _, service := range p.ownServices(r, mesh) {
		changed, waiting, changes := p.withNextSNIs(r, service)
		switch {
		case !changes:
		case waiting:
			s.Rows, s.Then = append(s.Rows, service.Key()), append(s.Then, changed)
		case len(steps) == maxNamedAtOnce:
			return steps, now
		default:
			steps = append(steps, Step{Put: changed})
		}
	}
	if len(steps) > 0 {
		return steps, time.Time{}
	}
	if len(s.Then) > 0 {
		if waits = p.absentIngresses(r, mesh); len(waits) > 0 {
			requeue = now.Add(ingressCheckInterval)
		} else {
			steps, waits = []Step{{AckWait: s}}, p.pendingNames(s.Name)
		}
	}
	return append(p.sniWaitSteps(r, mesh, waits), steps...), requeue
}

// ownServices returns the services of a mesh that this control plane owns.
func (p *Plan) ownServices(r *table.Reader, mesh string) []resource.Any {
	var own []resource.Any
	for _, service := range p.State.MultiZoneServicesByMesh.List(r, graph.MeshKey(mesh)) {
		own = append(own, service)
	}
	if !p.Global() {
		for _, service := range p.State.ServicesByMesh.List(r, graph.MeshKey(mesh)) {
			own = append(own, service)
		}
	}
	return slices.DeleteFunc(own, func(o resource.Any) bool { return !p.owns(o) })
}

// owns returns true where this control plane owns a resource.
func (p *Plan) owns(o resource.Any) bool { return kind.OwnerOf(o.Envelope()).Zone == p.State.Zone }

// withNextSNIs returns a service with the next SNIs of its ports; changes is false where it has the wanted SNIs or
// another owner. Where waiting is true, all proxies must first ack the current SNIs. Ports that need no wait change
// first.
func (p *Plan) withNextSNIs(r *table.Reader, service resource.Any) (changed resource.Any, waiting, changes bool) {
	if !p.owns(service) {
		return nil, false, false
	}
	format := p.State.SNIFormat(r)
	atOnce, later := slices.Clone(kind.PortsOf(service)), slices.Clone(kind.PortsOf(service))
	named := false
	for i, port := range kind.PortsOf(service) {
		of := sni.Of(service, port.Port)
		next, wait := nextSNIs(sni.Own(port.SNIs, of), format.Name(of))
		if slices.Equal(next, port.SNIs) || p.sniCollides(r, service.Key(), next) {
			continue
		}
		if wait {
			later[i].SNIs, waiting = next, true
		} else {
			atOnce[i].SNIs, named = next, true
		}
	}
	switch {
	case named:
		return kind.WithPorts(service, atOnce), false, true
	case waiting:
		return kind.WithPorts(service, later), true, true
	}
	return nil, false, false
}

// nextSNIs returns the SNIs of a port one step closer to the wanted SNI alone, and whether all proxies must first ack
// the current ones.
func nextSNIs(names []kind.SNI, wanted string) (next []kind.SNI, wait bool) {
	at := slices.IndexFunc(names, func(name kind.SNI) bool { return name.Value == wanted })
	switch {
	case at < 0:
		return append(slices.Clone(names), kind.SNI{Value: wanted}), false
	case at > 0:
		return slices.Insert(slices.Delete(slices.Clone(names), at, at+1), 0, names[at]), true
	}
	return names[:1], true
}

// sniCollides returns true where another service has one of the SNIs. A write of the service reports the collision.
func (p *Plan) sniCollides(r *table.Reader, key resource.Key, names []kind.SNI) bool {
	return slices.ContainsFunc(names, func(name kind.SNI) bool {
		return slices.ContainsFunc(p.State.SNIOwners(r, name.Value), func(holder resource.Key) bool {
			return holder != key
		})
	})
}

// absentIngresses returns phrases about the zone ingresses that are disconnected and may still be dialed: those of this
// zone and, on global, whose services every ingress forwards, those that the zones report.
func (p *Plan) absentIngresses(r *table.Reader, mesh string) []string {
	var absent []string
	if p.Global() {
		for _, row := range p.State.ZoneAddressesByMesh.List(r, graph.MeshKey(mesh)) {
			for _, ingress := range row.Spec.Ingresses {
				if !ingress.Healthy {
					absent = append(absent, fmt.Sprintf("the zone ingress %s of zone %s, which is disconnected",
						ingress.Name,
						kind.DisplayNameOf(&row.Meta)))
				}
			}
		}
	}
	for _, d := range slices.Concat(p.State.IngressProxies.Get(r, mesh), p.State.IngressProxies.Get(r, "")) {
		listens := d.Serves || d.ServesFormer
		if listens && !(d.Instance != "" && p.Lives(d.Instance)) {
			absent = append(absent, fmt.Sprintf("the zone ingress %s, which is disconnected", d.Proxy.Name))
		}
	}
	slices.Sort(absent)
	return absent
}

// pendingNames returns phrases about the proxies and zones that the wait of a name is waiting for.
func (p *Plan) pendingNames(topic string) []string {
	var waits []string
	for _, proxy := range p.PendingProxies(topic) {
		waits = append(waits, "the proxy "+proxy.String())
	}
	if zones := p.PendingZones(topic); zones != "" {
		waits = append(waits, zones)
	}
	slices.Sort(waits)
	return waits
}

// sniWaitSteps writes or deletes the SNIWait of a mesh, which shows global what a migration waits for.
func (p *Plan) sniWaitSteps(r *table.Reader, mesh string, waits []string) []Step {
	key := kind.SNIWaits.Key(mesh, cmp.Or(p.State.Zone, "global"))
	row, ok := p.State.SNIWaits.Find(r, key.Mesh, key.Name)
	switch {
	case len(waits) == 0 && ok:
		return []Step{{Delete: &key}}
	case len(waits) > 0 && !(ok && slices.Equal(row.Spec.For, waits)):
		return []Step{{Put: kind.SNIWaits.Make(key.Mesh, key.Name, kind.SNIWait{For: waits})}}
	}
	return nil
}
