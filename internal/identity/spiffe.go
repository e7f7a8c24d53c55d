package identity

import (
	"fmt"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"weft/kind"
)

// SpiffeID renders the templates of a MeshIdentity for one Dataplane and answers its SPIFFE ID and trust
// domain, in the form that the SPIFFE specification ("SPIFFE-ID") allows.
//
// A value stands for itself: in the path it is one segment or a part of one, in the trust domain a part
// of one label, so that no owner of a Dataplane reaches a name that its template was not meant to give. Any
// other value is an error that names it.
func SpiffeID(spec *kind.MeshIdentity, mesh, zone, name string, labels map[string]string, dp *kind.Dataplane) (id, trustDomain string, err error) {
	domainTemplate, pathTemplate := kind.DefaultTrustDomain, kind.DefaultPath
	if t := spec.SpiffeID; t != nil {
		domainTemplate = orDefault(t.TrustDomain, domainTemplate)
		pathTemplate = orDefault(t.Path, pathTemplate)
	}
	values := kind.Values{
		Fields: map[string]string{".Mesh": mesh, ".Zone": zone, ".Workload": kind.Workload(name, labels, dp)},
		Labels: labels,
	}
	values.Allowed, values.Names = labelCharacter, "lower case letters, digits, - and _"
	domainText, err := render(domainTemplate, values)
	if err != nil {
		return "", "", fmt.Errorf("spec.spiffeID.trustDomain: %w", err)
	}
	values.Allowed, values.Names = segmentCharacter, "letters, digits, ., - and _"
	pathText, err := render(pathTemplate, values)
	if err != nil {
		return "", "", fmt.Errorf("spec.spiffeID.path: %w", err)
	}
	domain, err := spiffeid.TrustDomainFromString(domainText)
	if err != nil {
		return "", "", fmt.Errorf("spec.spiffeID.trustDomain: %q: %w", domainText, err)
	}
	full, err := spiffeid.FromPath(domain, pathText)
	if err != nil {
		return "", "", fmt.Errorf("spec.spiffeID.path: %q: %w", pathText, err)
	}
	return full.String(), domain.Name(), nil
}

// TrustDomain renders the template of the trust domain of a MeshIdentity, which is the same for every Dataplane.
func TrustDomain(spec *kind.MeshIdentity, mesh, zone string) (string, error) {
	alone := kind.MeshIdentity{SpiffeID: &kind.SpiffeIDTemplate{Path: "/any"}}
	if spec.SpiffeID != nil {
		alone.SpiffeID.TrustDomain = spec.SpiffeID.TrustDomain
	}
	_, domain, err := SpiffeID(&alone, mesh, zone, "", nil, &kind.Dataplane{})
	return domain, err
}

// render takes any action in both templates: which one may stand where was checked when they were written.
func render(template string, values kind.Values) (string, error) {
	t, err := kind.ParseTemplate(template, kind.PathActions)
	if err != nil {
		return "", err
	}
	return t.Render(values)
}

func labelCharacter(r rune) bool {
	return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-' || r == '_'
}

func segmentCharacter(r rune) bool {
	return labelCharacter(r) || 'A' <= r && r <= 'Z' || r == '.'
}

func orDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}
