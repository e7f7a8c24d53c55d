package state

import (
	"weft/internal/sni"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// SNIFormatTables are the format of SNIs, and the waits of zones for a new one.
type SNIFormatTables struct {
	SNIFormats Rows[kind.SNIFormat]
	SNIWaits   Rows[kind.SNIWait]
}

func (t *Tables) addSNIFormat() {
	t.SNIFormats = addRows(t, kind.SNIFormats)
	t.SNIWaits = addRows(t, kind.SNIWaits)
}

// SNIs are the SNIs of all services, at the time of each call.
type SNIs struct{ Tables *Tables }

// Format returns the format of new SNIs.
func (n SNIs) Format() sni.Format {
	return n.Tables.SNIFormat(table.Eval(n.Tables.DB.Snapshot()))
}

// Owners returns the services that have an SNI, of any owner.
func (n SNIs) Owners(name string) []resource.Key {
	return n.Tables.SNIOwners(table.Eval(n.Tables.DB.Snapshot()), name)
}

// IsOwn returns whether a service belongs to this control plane.
func (n SNIs) IsOwn(service resource.Key) bool {
	o, ok := n.Tables.Find(table.Eval(n.Tables.DB.Snapshot()), service)
	return ok && n.Tables.IsOwn(o.Envelope())
}

// SNIOwners returns the services that have an SNI, of any owner.
func (t *Tables) SNIOwners(r *table.Reader, name string) []resource.Key {
	var holders []resource.Key
	for _, service := range t.ServicesBySNI.List(r, name) {
		holders = append(holders, service.Key())
	}
	for _, service := range t.MultiZoneServicesBySNI.List(r, name) {
		holders = append(holders, service.Key())
	}
	for _, service := range t.ExternalServicesBySNI.List(r, name) {
		holders = append(holders, service.Key())
	}
	return holders
}

// TakenSNI returns the SNI of a service's port in the format of new SNIs where another service has it, and that
// service; empty where none has it.
func (t *Tables) TakenSNI(r *table.Reader, service resource.Any, port uint32) (name string, holder resource.Key) {
	name = t.SNIFormat(r).Name(sni.PortOf(service, port))
	for _, holder := range t.SNIOwners(r, name) {
		if holder != service.Key() {
			return name, holder
		}
	}
	return "", resource.Key{}
}

// SNIFormat returns the format that SNIs are to have: the first one before any migration, and where the stored format
// is one of a later release.
func (t *Tables) SNIFormat(r *table.Reader) sni.Format {
	if row, ok := t.SNIFormats.Find(r, "", kind.TheSNIFormat); ok {
		if format := sni.FormatNamed(row.Spec.Format); format != nil {
			return format
		}
	}
	return sni.V1
}
