package service

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"weft/internal/table"
	"weft/resource"
)

// VirtualAddress is the address of a destination at one of its virtual IPs. The virtual IP of a Pod behind a headless
// Service is its own address, so several services may have one, and it may be the address of an inbound.
type VirtualAddress struct {
	VIP         string
	Destination DestinationKey
}

// Service returns the kind and the name of the service, such as "MeshService web".
func (v *VirtualAddress) Service() string {
	return fmt.Sprintf("%s %s", v.Destination.Kind, v.Destination.Service)
}

// VirtualOf returns the destinations of a mesh that have a virtual IP, one for each port: those of older services
// first.
func (s *Stage) VirtualOf(r *table.Reader, mesh, vip string) []VirtualAddress {
	var all []VirtualAddress
	for of := range s.kinds {
		for _, row := range s.kinds[of].vipOwners(r, vip) {
			key := s.Named.Get(r, NameQuery{DestinationKind(of), row})
			if row.Mesh != mesh || key == (DestinationKey{}) {
				continue
			}
			for _, port := range s.Ports.Get(r, key) {
				all = append(all, VirtualAddress{vip, key.WithPort(port)})
			}
		}
	}
	if len(all) > 1 { // few are, and the age of no other service is read
		slices.SortFunc(all, func(a, b VirtualAddress) int {
			return cmp.Or(s.created(r, a.Destination).Compare(s.created(r, b.Destination)),
				CompareDestinations(a.Destination, b.Destination))
		})
	}
	return all
}

// VirtualAt returns those that also have a port.
func (s *Stage) VirtualAt(r *table.Reader, mesh, vip string, port uint32) []VirtualAddress {
	return slices.DeleteFunc(s.VirtualOf(r, mesh, vip), func(v VirtualAddress) bool {
		return v.Destination.Port != port
	})
}

// created returns the time at which the service of a destination was written.
func (s *Stage) created(r *table.Reader, key DestinationKey) time.Time {
	row := s.Row(key)
	o, ok := s.state.Find(r, resource.Key{Kind: key.Kind.String(), Mesh: row.Mesh, Name: row.Name})
	if !ok {
		return time.Time{}
	}
	return o.Envelope().Created
}

// preceding returns the destinations that precede another one at its virtual IPs.
func (s *Stage) preceding(r *table.Reader, key DestinationKey) []VirtualAddress {
	var all []VirtualAddress
	for _, vip := range s.vipsOf(r, key) {
		for _, other := range s.VirtualAt(r, key.Mesh, vip, key.Port) {
			if other.Destination == key {
				break
			}
			all = append(all, other)
		}
	}
	return all
}
