package graph

import (
	"weft/internal/sni"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

func sniKeys[S any](service *resource.Object[S]) []string {
	var keys []string
	for _, port := range kind.PortsOf(service) {
		for _, name := range port.SNIs {
			keys = append(keys, name.Value)
		}
	}
	return keys
}

// externalSNIKeys returns the SNIs of an external service in every format: the resource has no SNI itself.
func externalSNIKeys(service *resource.Object[kind.MeshExternalService]) []string {
	return sni.All(sni.Of(service, service.Spec.Match.Port))
}

// SNIs are the SNIs of all services of a state, at the time of each call.
type SNIs struct{ State *State }

// Format returns the format of new SNIs.
func (n SNIs) Format() sni.Format {
	return n.State.SNIFormat(table.Eval(n.State.DB.Snapshot()))
}

// Owners returns the services that have an SNI, of any owner.
func (n SNIs) Owners(name string) []resource.Key {
	return n.State.SNIOwners(table.Eval(n.State.DB.Snapshot()), name)
}

// SNIOwners returns the services that have an SNI, of any owner.
func (s *State) SNIOwners(r *table.Reader, name string) []resource.Key {
	var holders []resource.Key
	for _, service := range s.ServicesBySNI.List(r, name) {
		holders = append(holders, service.Key())
	}
	for _, service := range s.MultiZoneServicesBySNI.List(r, name) {
		holders = append(holders, service.Key())
	}
	for _, service := range s.ExternalServicesBySNI.List(r, name) {
		holders = append(holders, service.Key())
	}
	return holders
}

// SNIFormat returns the format that SNIs are to have: the first one before any migration, and where the stored format
// is one of a later release.
func (s *State) SNIFormat(r *table.Reader) sni.Format {
	if row, ok := s.SNIFormats.Find(r, "", kind.TheSNIFormat); ok {
		if format := sni.FormatNamed(row.Spec.Format); format != nil {
			return format
		}
	}
	return sni.V1
}
