package reconcile

import (
	"slices"
	"strings"
	"time"

	"weft/internal/sni"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// UnnamedUnit is the kind of units that stand for a service of which a port has no server name: one that an
// earlier release stored, or a zone that had another name. The name is "KIND/NAME".
const UnnamedUnit = "unnamed service"

// observeNames asks for the server names that a service of this control plane's own lacks.
func (rc *Reconciler) observeNames(o resource.Any, now time.Time) {
	if key := o.Key(); rc.plan.owns(o) && slices.ContainsFunc(ownPorts(o), unnamedPort) {
		rc.ask(Unit{UnnamedUnit, key.Mesh, key.Kind + "/" + key.Name}, now.Add(soon))
	}
}

// owns says whether the resource is this control plane's to change.
func (p *Plan) owns(o resource.Any) bool { return kind.OwnerOf(o.Envelope()).Zone == p.State.Zone }

func unnamedPort(port kind.ServicePort) bool { return len(port.SNIs) == 0 }

// ownPorts are the ports of a service with the server names that they can have.
func ownPorts(service resource.Any) []kind.ServicePort {
	ports := slices.Clone(kind.PortsOf(service))
	for i := range ports {
		ports[i].SNIs = sni.Own(ports[i].SNIs, sni.Of(service, ports[i].Port))
	}
	return ports
}

// unnamed writes a service as it is: whatever is written gets its server names.
func (p *Plan) unnamed(r *table.Reader, u Unit) []Step {
	of, name, _ := strings.Cut(u.Name, "/")
	service, ok := p.State.Find(r, resource.Key{Kind: of, Mesh: u.Mesh, Name: name})
	if !ok || !slices.ContainsFunc(ownPorts(service), unnamedPort) {
		return nil
	}
	return []Step{{Put: kind.WithPorts(service, ownPorts(service))}}
}
