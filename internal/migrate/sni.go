package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"weft/internal/sni"
	"weft/kind"
)

// externalService is a MeshExternalService of the export that has an SNI.
type externalService struct {
	object *object
	zone   string // the zone that owns it; empty: global
}

// externalSNIs returns the external services of the export by mesh and by the SNIs that weft gives them, in each
// format. No SNI of Kuma is among them: its hash is of other fields.
func (t *translation) externalSNIs() map[[2]string]externalService {
	snis := map[[2]string]externalService{}
	for _, o := range t.objects {
		number, err := strconv.ParseUint(fmt.Sprint(mapping(o.spec()["match"])["port"]), 10, 16)
		if o.kind != kind.MeshExternalServices.Name || err != nil {
			continue
		}
		zone := o.label(kind.ZoneLabel)
		if o.label(kind.OriginLabel) == kind.OriginGlobal {
			zone = ""
		}
		port := sni.Port{Kind: o.kind, Mesh: o.mesh, Zone: zone, Namespace: o.label(kind.NamespaceLabel),
			Name: cmp.Or(o.label(kind.DisplayName), o.name), Number: uint32(number)}
		for _, value := range sni.InAllFormats(port) {
			snis[[2]string{o.mesh, value}] = externalService{o, zone}
		}
	}
	return snis
}

// keepsSNIs returns whether weft gives each SNI in the rules of a permission to a service of the export. Otherwise it
// omits the permission.
func (o *object) keepsSNIs(snis map[[2]string]externalService) bool {
	zones := map[string]bool{}
	for field, value := range sniFields(o.spec()["rules"]) {
		service, ok := snis[[2]string{o.mesh, value}]
		if !ok {
			o.omit("", field+" is no SNI that weft gives a MeshExternalService of the export",
				"write it anew, with the SNI in status.zoneEgress.sni of the MeshExternalService, once that is applied")
			return false
		}
		if service.zone != "" && !zones[service.zone] {
			zones[service.zone] = true
			o.note(Adapted, field, fmt.Sprintf("is the SNI of %s in the zone %s, and another zone gives it another one",
				service.object, service.zone), "apply it where that zone has its name still")
		}
	}
	return true
}

// sniFields yields the fields of rules that have an SNI, with their values, in the order of the rules.
func sniFields(rules any) func(yield func(field, value string) bool) {
	return func(yield func(field, value string) bool) {
		for i, item := range list(rules) {
			rule := mapping(item)
			clients := map[string]any{"matches": rule["matches"]}
			for name, list := range mapping(rule["default"]) {
				clients["default."+name] = list
			}
			for _, name := range slices.Sorted(maps.Keys(clients)) {
				for j, match := range list(clients[name]) {
					sni := mapping(match)["sni"]
					if sni == nil {
						continue
					}
					if !yield(fmt.Sprintf("spec.rules[%d].%s[%d].sni", i, name, j), text(mapping(sni)["value"])) {
						return
					}
				}
			}
		}
	}
}
