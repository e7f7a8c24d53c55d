package reconcile

import (
	"cmp"
	"fmt"
	"slices"

	"weft/internal/barrier"
	"weft/internal/sni"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// SNIKind is the kind of requests for the SNIs of a mesh that wait for acks.
const SNIKind = "SNIs"

func sniWaitName(mesh string) string { return "SNIs of the mesh " + mesh }

// movingSNIs is the index function of services of which a port has several SNIs, by their mesh.
func movingSNIs[S any](service *resource.Object[S]) []string {
	if slices.ContainsFunc(kind.PortsOf(service), func(port kind.ServicePort) bool { return len(port.SNIs) > 1 }) {
		return []string{state.MeshKey(service.Mesh)}
	}
	return nil
}

// waitForSNIs states what the next SNIs of a mesh's services wait for, and writes the SNIWait that shows it on global.
//
// Ports that have no SNI, as those of earlier releases, get one. SNIs of another format migrate in steps: the new SNI
// after the old one, before it, alone. Clients use the first SNI and ingresses match all of them, so each step but the
// first follows once all proxies of all zones have acked the previous one. The services store the progress: a restart
// loses nothing, and a migration can be reversed at any step. (SNI in the resource definition.)
func (p *Plan) waitForSNIs(r *table.Reader, u Request) (w Writes) {
	c := &barrier.Condition{Name: sniWaitName(u.Mesh), Mesh: u.Mesh, AllProxies: true}
	for _, service := range p.movingServices(r, u.Mesh) {
		if _, waiting, _ := p.nextSNIsOf(r, service); waiting {
			c.States, c.Rows = append(c.States, rowState(service)), append(c.Rows, service.Key())
		}
	}
	var waits []string
	if len(c.States) > 0 {
		if waits = p.absentIngresses(r, u.Mesh); len(waits) == 0 {
			c.ZoneRows = p.syncedRows(c.Rows)
			w.Wait, waits = c, p.pendingNames(r, c.Name)
		}
	}
	name := cmp.Or(p.State.Tables.Zone, "global")
	switch row, ok := p.State.Tables.SNIWaits.Find(r, u.Mesh, name); {
	case len(waits) > 0:
		putIfDifferent(&w, 0, row, kind.SNIWaits.Make(u.Mesh, name, kind.SNIWait{For: waits}))
	case ok:
		w.addWrite(0, Write{Delete: row})
	}
	return w
}

// movingServices returns the services of a mesh of which a port has several SNIs.
func (p *Plan) movingServices(r *table.Reader, mesh string) (moving []resource.Any) {
	for _, service := range p.multiZoneMoving.List(r, state.MeshKey(mesh)) {
		moving = append(moving, service)
	}
	if !p.Global() {
		for _, service := range p.servicesMoving.List(r, state.MeshKey(mesh)) {
			moving = append(moving, service)
		}
	}
	return moving
}

// owns returns true where this control plane owns a resource.
func (p *Plan) owns(o resource.Any) bool {
	return kind.OwnerOf(o.Envelope()).Zone == p.State.Tables.Zone
}

// withSNIs returns a service with the next SNIs of its ports; nil where it has the wanted ones, and where its proxies
// have not acked the current ones.
func (p *Plan) withSNIs(r *table.Reader, service resource.Any) resource.Any {
	next, waiting, changes := p.nextSNIsOf(r, service)
	if !changes || waiting && !p.Acks.IsAcked(r, sniWaitName(service.Key().Mesh), rowState(service)) {
		return nil
	}
	return next
}

// nextSNIsOf returns a service with the next SNIs of its ports; changes is false where it has the wanted SNIs or
// another owner. Where waiting is true, all proxies must first ack the current SNIs. Ports that need no wait change
// first.
func (p *Plan) nextSNIsOf(r *table.Reader, service resource.Any) (changed resource.Any, waiting, changes bool) {
	if !p.owns(service) {
		return nil, false, false
	}
	format := p.State.Tables.SNIFormat(r)
	atOnce, later := slices.Clone(kind.PortsOf(service)), slices.Clone(kind.PortsOf(service))
	named := false
	for i, port := range kind.PortsOf(service) {
		of := sni.PortOf(service, port.Port)
		own := sni.Own(port.SNIs, of)
		kept := slices.DeleteFunc(slices.Clone(own), func(name kind.SNI) bool {
			return p.isFirstOfAnotherZone(r, service.Key(), name.Value)
		})
		wanted := sni.Free(format, of, func(name string) bool { return p.sniCollides(r, service.Key(), name) })
		next, wait := nextSNIs(kept, wanted)
		if slices.Equal(next, port.SNIs) || p.sniCollides(r, service.Key(), wanted) {
			continue
		}
		if wait && len(kept) == len(own) {
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

// sniCollides returns true where another service has an SNI.
func (p *Plan) sniCollides(r *table.Reader, key resource.Key, name string) bool {
	return slices.ContainsFunc(p.State.Tables.SNIOwners(r, name), func(holder resource.Key) bool {
		return holder != key
	})
}

// isFirstOfAnotherZone returns true where a service of another zone has the SNI of a MeshService of this zone. Global
// accepts the first owner of an SNI, and sends no other one: no zone knows the MeshService of this zone by the SNI, so
// it goes at once. (ADR 162)
func (p *Plan) isFirstOfAnotherZone(r *table.Reader, key resource.Key, name string) bool {
	return !p.Global() && key.Kind == kind.MeshServices.Name &&
		slices.ContainsFunc(p.State.Tables.SNIOwners(r, name), func(holder resource.Key) bool {
			other, ok := p.State.Tables.Find(r, holder)
			return ok && holder != key && p.State.Tables.InOtherZone(other.Envelope())
		})
}

// absentIngresses returns phrases about the zone ingresses that are disconnected and may still be dialed: those of this
// zone and, on global, whose services every ingress forwards, those that the zones report.
func (p *Plan) absentIngresses(r *table.Reader, mesh string) []string {
	var absent []string
	if p.Global() {
		for _, row := range p.State.Tables.ZoneAddressesByMesh.List(r, state.MeshKey(mesh)) {
			for _, ingress := range row.Spec.Ingresses {
				if !ingress.Healthy {
					absent = append(absent, fmt.Sprintf("the zone ingress %s of zone %s, which is disconnected",
						ingress.Name,
						kind.DisplayNameOf(&row.Meta)))
				}
			}
		}
	}
	ingresses := p.State.ZoneProxies.IngressProxies
	for _, d := range slices.Concat(ingresses.Get(r, mesh), ingresses.Get(r, "")) {
		listens := d.Serves || d.ServesFormer
		if listens && !(d.Instance != "" && p.lives(r, d.Instance)) {
			absent = append(absent, fmt.Sprintf("the zone ingress %s, which is disconnected", d.Proxy.Name))
		}
	}
	slices.Sort(absent)
	return absent
}

// pendingNames returns phrases about the proxies and zones that the wait of a name is waiting for.
func (p *Plan) pendingNames(r *table.Reader, wait string) []string {
	var waits []string
	progress := p.Acks.Progress(r, wait)
	if progress.Proxies.Count > 0 {
		waits = append(waits, progress.Proxies.String())
	}
	if progress.Zones != "" {
		waits = append(waits, progress.Zones)
	}
	slices.Sort(waits)
	return waits
}
