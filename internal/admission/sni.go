package admission

import (
	"fmt"
	"slices"

	"weft/internal/sni"
	"weft/kind"
	"weft/resource"
)

// SNIs looks up the SNIs of stored services. (SNI in the resource definition.)
type SNIs interface {
	// Format is the format of new SNIs.
	Format() sni.Format
	// Owners returns the services that have an SNI, of every owner.
	Owners(name string) []resource.Key
	// IsOwn returns whether a service belongs to this control plane.
	IsOwn(service resource.Key) bool
}

// fillSNIs sets the SNIs of a service's ports. A port keeps its stored SNIs whatever a user writes, since clients and
// ingresses depend on them: only a migration changes them. A port without a stored SNI gets those that were written, or
// a generated one.
func (w *Writer) fillSNIs(o resource.Any, stored *current, controlPlane bool) resource.Problems {
	if service, ok := o.(*resource.Object[kind.MeshExternalService]); ok {
		return w.externalSNIProblems(service)
	}
	problems := w.statedSNIProblems(o, w.otherOwners)
	had := storedSNIs(stored)
	ports := kind.PortsOf(o)
	for i := range ports {
		port := &ports[i]
		switch kept := sni.Own(had[port.Port], sni.PortOf(o, port.Port)); {
		case len(kept) > 0 && (len(port.SNIs) == 0 || !controlPlane):
			port.SNIs = kept
		case len(port.SNIs) == 0:
			free := sni.Free(w.sniFormat(), sni.PortOf(o, port.Port), func(name string) bool {
				return len(w.otherOwners(o.Key(), name)) > 0
			})
			port.SNIs = []kind.SNI{{Value: free}}
			problems = append(problems, w.sniCollisions(snisField(i), o.Key(), port.SNIs[0].Value)...)
		}
	}
	return problems
}

// externalSNIProblems returns the problems of an external service's SNIs, which follow from its name.
func (w *Writer) externalSNIProblems(service *resource.Object[kind.MeshExternalService]) resource.Problems {
	var problems resource.Problems
	for _, name := range sni.InAllFormats(sni.PortOf(service, service.Spec.Match.Port)) {
		problems = append(problems, w.sniCollisions("name", service.Key(), name)...)
	}
	return problems
}

// statedSNIProblems returns the problems of the SNIs in a write. The owner must be able to generate them and no other
// service may have them, since a service gets the connections for its SNIs.
func (w *Writer) statedSNIProblems(o resource.Any,
	otherOwners func(key resource.Key, name string) []resource.Key) resource.Problems {
	var problems resource.Problems
	for i, port := range kind.PortsOf(o) {
		seen := map[string]bool{}
		for j, name := range port.SNIs {
			at := fmt.Sprintf("%s[%d].value", snisField(i), j)
			switch {
			case sni.FormatOf(name.Value, sni.PortOf(o, port.Port)) == nil:
				problems.Add(at,
					"%.300q is not an SNI of this port; leave snis out, since the control plane generates them",
					name.Value)
			case seen[name.Value]:
				problems.Add(at, "%q is listed twice; leave snis out", name.Value)
			default:
				problems = append(problems, collisions(at, name.Value, otherOwners(o.Key(), name.Value))...)
			}
			seen[name.Value] = true
		}
	}
	return problems
}

// sniCollisions returns the problem of an SNI that another service has: the hashes of both are equal.
func (w *Writer) sniCollisions(at string, key resource.Key, name string) resource.Problems {
	return collisions(at, name, w.otherOwners(key, name))
}

func collisions(at, name string, holders []resource.Key) resource.Problems {
	var problems resource.Problems
	for _, holder := range holders {
		problems.Add(at, "%q is also the SNI of %s; rename the service", name, holder)
	}
	return problems
}

// otherOwners returns the services other than one that have an SNI.
func (w *Writer) otherOwners(key resource.Key, name string) []resource.Key {
	if w.snis == nil {
		return nil
	}
	return slices.DeleteFunc(w.snis.Owners(name), func(holder resource.Key) bool { return holder == key })
}

// otherOwnersOfReceived is otherOwners for a MeshService that a zone received. Global sends only the first owner of an
// SNI, so a service of this zone with the same SNI is the second, and gets another one. (ADR 162)
func (w *Writer) otherOwnersOfReceived(key resource.Key, name string) []resource.Key {
	holders := w.otherOwners(key, name)
	if len(holders) == 0 || w.self().Global() || key.Kind != kind.MeshServices.Name {
		return holders
	}
	return slices.DeleteFunc(holders, w.snis.IsOwn)
}

func (w *Writer) sniFormat() sni.Format {
	if w.snis == nil {
		return sni.V1
	}
	return w.snis.Format()
}

func snisField(port int) string { return fmt.Sprintf("spec.ports[%d].snis", port) }

// storedSNIs are the SNIs of a stored service, by port.
func storedSNIs(stored *current) map[uint32][]kind.SNI {
	names := map[uint32][]kind.SNI{}
	if stored == nil {
		return names
	}
	for _, port := range kind.PortsOf(stored.object) {
		names[port.Port] = port.SNIs
	}
	return names
}
