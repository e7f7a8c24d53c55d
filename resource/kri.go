package resource

import "strings"

// Labels that the parts of a KRI come from.
const (
	ZoneLabel      = "kuma.io/zone"
	NamespaceLabel = "k8s.kuma.io/namespace"
	DisplayName    = "kuma.io/display-name"
)

// KRI identifies one resource in every zone: kri_CODE_MESH_ZONE_NAMESPACE_NAME_, with each part empty where the
// resource has none. NAME is the name that the owner gave. (Kuma Resource Identifier.)
type KRI struct {
	Code      string // Info.ShortName of the kind
	Mesh      string
	Zone      string
	Namespace string
	Name      string
	Section   string // a port or an inbound; empty: the whole resource
}

// String returns the written form.
func (k KRI) String() string {
	return strings.Join([]string{"kri", k.Code, k.Mesh, k.Zone, k.Namespace, k.Name, k.Section}, "_")
}

// ParseKRI reads the written form. It returns false for text that has another number of parts, or lacks the code or
// the name.
func ParseKRI(text string) (KRI, bool) {
	parts := strings.Split(text, "_")
	if len(parts) != 7 || parts[0] != "kri" || parts[1] == "" || parts[5] == "" {
		return KRI{}, false
	}
	return KRI{parts[1], parts[2], parts[3], parts[4], parts[5], parts[6]}, true
}

// KRIOf returns the identifier of a resource; false for kinds that have no code.
func KRIOf(meta *Meta, info *Info) (KRI, bool) {
	name := meta.Label(DisplayName)
	if name == "" {
		name = meta.Name
	}
	return KRI{info.ShortName, meta.Mesh, meta.Label(ZoneLabel), meta.Label(NamespaceLabel), name, ""}, info.ShortName != ""
}
