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

// SNIUnit is the kind of units that stand for the server names of a mesh's services that are this control
// plane's own.
const SNIUnit = "server names"

const (
	// namesAtOnce is how many services are named before other units have their turn.
	namesAtOnce = 256
	// lookForIngresses is how soon it is looked again for zone ingresses that were away.
	lookForIngresses = time.Second
)

// observeNames asks for the server names of whatever has not those that it is to have.
func (rc *Reconciler) observeNames(o resource.Any, now time.Time) {
	r := table.Eval(rc.plan.State.DB.Snapshot())
	switch o := o.(type) {
	case *resource.Object[kind.MeshService], *resource.Object[kind.MeshMultiZoneService]:
		if _, _, changes := rc.plan.renamed(r, o); changes {
			rc.ask(Unit{SNIUnit, o.Key().Mesh, ""}, now.Add(soon))
		}
	case *resource.Object[kind.SNIFormat]:
		for mesh := range rc.plan.State.Meshes.All(rc.plan.State.DB.Snapshot()) {
			rc.ask(Unit{SNIUnit, mesh.Name, ""}, now.Add(soon))
		}
	}
}

// serverNames gives names to ports that have none, as services of earlier releases do, and walks those of
// another format to the wanted one: the new name behind the old one, in front of it, and alone. Clients use the
// first and ingresses answer all, so that each step but the first waits until all proxies of all zones run
// with the one before. The step stands in the services themselves: nothing is lost with a restart, and who
// changes their mind on the way walks back from there. (SNI in the resource definition.)
func (p *Plan) serverNames(r *table.Reader, mesh string, now time.Time) (steps []Step, again time.Time) {
	s := &Settle{Topic: "server names of the mesh " + mesh, Mesh: mesh, Everybody: true, Zones: true}
	var waits []string
	for _, service := range p.ownServices(r, mesh) {
		changed, waiting, changes := p.renamed(r, service)
		switch {
		case !changes:
		case waiting:
			s.Rows, s.Then = append(s.Rows, service.Key()), append(s.Then, changed)
		case len(steps) == namesAtOnce:
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
			again = now.Add(lookForIngresses)
		} else {
			steps, waits = []Step{{Settle: s}}, p.waitsFor(s.Topic)
		}
	}
	return append(p.toldToWait(r, mesh, waits), steps...), again
}

// ownServices are the services of a mesh that are this control plane's to name.
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

// owns says whether a resource is this control plane's to change.
func (p *Plan) owns(o resource.Any) bool { return kind.OwnerOf(o.Envelope()).Zone == p.State.Zone }

// renamed is a service with the next names of its ports; false: it has the right ones, or belongs to somebody
// else. Where it is waiting, everybody must run with the names that it has first; ports that need not wait
// come before those that do.
func (p *Plan) renamed(r *table.Reader, service resource.Any) (changed resource.Any, waiting, changes bool) {
	if !p.owns(service) {
		return nil, false, false
	}
	format := p.State.SNIFormat(r)
	atOnce, later := slices.Clone(kind.PortsOf(service)), slices.Clone(kind.PortsOf(service))
	named := false
	for i, port := range kind.PortsOf(service) {
		of := sni.Of(service, port.Port)
		next, wait := nextNames(sni.Own(port.SNIs, of), format.Name(of))
		if slices.Equal(next, port.SNIs) || p.taken(r, service.Key(), next) {
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

// nextNames are the names of a port one step closer to the wanted one alone, and whether everybody must run with
// those that it has before.
func nextNames(names []kind.SNI, wanted string) (next []kind.SNI, wait bool) {
	at := slices.IndexFunc(names, func(name kind.SNI) bool { return name.Value == wanted })
	switch {
	case at < 0:
		return append(slices.Clone(names), kind.SNI{Value: wanted}), false
	case at > 0:
		return slices.Insert(slices.Delete(slices.Clone(names), at, at+1), 0, names[at]), true
	}
	return names[:1], true
}

// taken says whether another service has one of the names: that is found when it is written, by whoever does.
func (p *Plan) taken(r *table.Reader, key resource.Key, names []kind.SNI) bool {
	return slices.ContainsFunc(names, func(name kind.SNI) bool {
		return slices.ContainsFunc(p.State.SNIOwners(r, name.Value), func(holder resource.Key) bool { return holder != key })
	})
}

// absentIngresses are the zone ingresses that are away and may be dialled all the same: those of this zone, and
// on global, whose services all of them pass on, those that their zones tell of.
func (p *Plan) absentIngresses(r *table.Reader, mesh string) []string {
	var absent []string
	if p.Global() {
		for _, row := range p.State.ZoneAddressesByMesh.List(r, graph.MeshKey(mesh)) {
			for _, ingress := range row.Spec.Ingresses {
				if !ingress.Healthy {
					absent = append(absent, fmt.Sprintf("the zone ingress %s of zone %s, which is away", ingress.Name, kind.DisplayNameOf(&row.Meta)))
				}
			}
		}
	}
	for _, d := range slices.Concat(p.State.IngressProxies.Get(r, mesh), p.State.IngressProxies.Get(r, "")) {
		listens := d.Serves || d.ServesFormer
		if listens && !(d.Instance != "" && p.Lives(d.Instance)) {
			absent = append(absent, fmt.Sprintf("the zone ingress %s, which is away", d.Proxy.Name))
		}
	}
	slices.Sort(absent)
	return absent
}

// waitsFor says whom a topic waits for, as far as it is known.
func (p *Plan) waitsFor(topic string) []string {
	var waits []string
	for _, proxy := range p.Behind(topic) {
		waits = append(waits, "the proxy "+proxy.String())
	}
	if zones := p.Unconfirmed(topic); zones != "" {
		waits = append(waits, zones)
	}
	slices.Sort(waits)
	return waits
}

// toldToWait keeps the row that says so where it lasts, for global to see.
func (p *Plan) toldToWait(r *table.Reader, mesh string, waits []string) []Step {
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
