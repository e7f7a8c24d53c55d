package resource

import "strings"

// Labels from which the parts of a KRI are taken.
const (
	ZoneLabel      = "kuma.io/zone"
	NamespaceLabel = "k8s.kuma.io/namespace"
	DisplayName    = "kuma.io/display-name"
)

// KRI identifies one resource in every zone: kri_CODE_MESH_ZONE_NAMESPACE_NAME_. A part that the resource lacks is
// empty. NAME is the name on its owner. (Kuma Resource Identifier.)
type KRI struct {
	Code      string // Info.ShortName of the kind
	Mesh      string
	Zone      string
	Namespace string
	Name      string
	Section   string // a port or an inbound; empty: the whole resource
}

// String returns the text form.
func (k KRI) String() string {
	return strings.Join([]string{"kri", k.Code, k.Mesh, k.Zone, k.Namespace, k.Name, k.Section}, "_")
}

// ParseKRI parses the text form. It returns false for a text with another number of parts, or without the code or the
// name.
func ParseKRI(text string) (KRI, bool) {
	parts := strings.Split(text, "_")
	if len(parts) != 7 || parts[0] != "kri" || parts[1] == "" || parts[5] == "" {
		return KRI{}, false
	}
	return KRI{parts[1], parts[2], parts[3], parts[4], parts[5], parts[6]}, true
}

// KRIOf returns the KRI of a resource, or false for a kind without a code.
func KRIOf(meta *Meta, info *Info) (KRI, bool) {
	name := meta.Label(DisplayName)
	if name == "" {
		name = meta.Name
	}
	return KRI{info.ShortName, meta.Mesh, meta.Label(ZoneLabel), meta.Label(NamespaceLabel), name, ""},
		info.ShortName != ""
}
