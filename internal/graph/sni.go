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

// externalSNIKeys are the names of an external service in every format: it carries none.
func externalSNIKeys(service *resource.Object[kind.MeshExternalService]) []string {
	return sni.All(sni.Of(service, service.Spec.Match.Port))
}

// SNIs are those of all services of a state, as it is whenever it is asked.
type SNIs struct{ State *State }

// Format is that of names which are given now.
func (n SNIs) Format() sni.Format {
	return n.State.SNIFormat(table.Eval(n.State.DB.Snapshot()))
}

// Owners are the services that have a name, whoever owns them.
func (n SNIs) Owners(name string) []resource.Key {
	return n.State.SNIOwners(table.Eval(n.State.DB.Snapshot()), name)
}

// SNIOwners are the services that have a server name, whoever owns them.
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

// SNIFormat is the format that server names are to have: the first one until somebody migrates, and where a
// later release was told of one that this one does not know.
func (s *State) SNIFormat(r *table.Reader) sni.Format {
	if row, ok := s.SNIFormats.Find(r, "", kind.TheSNIFormat); ok {
		if format := sni.FormatNamed(row.Spec.Format); format != nil {
			return format
		}
	}
	return sni.V1
}
