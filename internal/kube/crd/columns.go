package crd

import (
	"weft/kind"
	"weft/resource"
)

// columnsOf returns what `kubectl get` shows of a kind beside the name.
func columnsOf(d resource.Descriptor) []Column {
	name := d.Describe().Name
	var columns []Column
	switch name {
	case kind.Meshes.Name:
		columns = []Column{text("MTLS", ".spec.mtls.enabledBackend")}
	case kind.Zones.Name:
		columns = []Column{{"ENABLED", "boolean", ".spec.enabled"}}
	case kind.Dataplanes.Name:
		columns = []Column{mesh, text("ADDRESS", ".spec.networking.address")}
	case kind.ZoneIngresses.Name, kind.ZoneEgresses.Name:
		columns = []Column{text("ADDRESS", ".spec.networking.address"),
			{"PORT", "integer", ".spec.networking.port"}}
		if name == kind.ZoneIngresses.Name {
			columns = append(columns, text("ADVERTISED ADDRESS", ".spec.networking.advertisedAddress"),
				Column{"ADVERTISED PORT", "integer", ".spec.networking.advertisedPort"})
		}
	case kind.MeshServices.Name:
		columns = []Column{mesh, hostname, text("STATE", ".spec.state"),
			{"HEALTHY", "integer", ".status.dataplaneProxies.healthy"}}
	case kind.MeshMultiZoneServices.Name:
		columns = []Column{mesh, hostname}
	case kind.MeshExternalServices.Name:
		columns = []Column{mesh, hostname, condition("REACHABLE", "Reachable")}
	case kind.MeshIdentities.Name:
		columns = []Column{mesh, condition("READY", "Ready"), text("TRUSTDOMAIN", ".spec.spiffeID.trustDomain")}
	case kind.MeshTrusts.Name:
		columns = []Column{mesh, condition("ACCEPTED", kind.AcceptedCondition),
			text("TRUSTDOMAIN", ".spec.trustDomain")}
	case kind.HostnameGenerators.Name:
		columns = []Column{text("TEMPLATE", ".spec.template")}
	default:
		if _, isPolicy := d.(kind.Policy); isPolicy {
			columns = []Column{mesh, text("TARGETREF KIND", ".spec.targetRef.kind"),
				text("TARGETREF NAME", ".spec.targetRef.name"), condition("ACCEPTED", kind.AcceptedCondition),
				condition("APPLIED", kind.AppliedCondition)}
		}
	}
	return append(columns, Column{"AGE", "date", ".metadata.creationTimestamp"})
}

var (
	mesh     = text("MESH", `.metadata.labels.kuma\.io/mesh`)
	hostname = text("HOSTNAME", ".status.addresses[0].hostname")
)

func text(name, path string) Column { return Column{name, "string", path} }

// condition shows the status of a condition.
func condition(name, of string) Column {
	return text(name, `.status.conditions[?(@.type=="`+of+`")].status`)
}
