package identity

import (
	"fmt"
	"strings"

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
	values := templateValues{
		fields: map[string]string{".Mesh": mesh, ".Zone": zone, ".Workload": kind.Workload(name, labels, dp)},
		labels: labels,
	}
	domainText, err := values.render(domainTemplate, labelCharacter, "lower case letters, digits, - and _")
	if err != nil {
		return "", "", fmt.Errorf("spec.spiffeID.trustDomain: %w", err)
	}
	pathText, err := values.render(pathTemplate, segmentCharacter, "letters, digits, ., - and _")
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

// templateValues are what a template may name.
type templateValues struct {
	fields map[string]string
	labels map[string]string
}

// render fills in a template. The language is {{ .Field }} and {{ label "key" }} and nothing else: users
// write these templates, so that a language with loops would be a way to stop the control plane.
func (v *templateValues) render(template string, allowed func(rune) bool, allowedNames string) (string, error) {
	var out strings.Builder
	for rest := template; ; {
		text, after, found := strings.Cut(rest, "{{")
		out.WriteString(text)
		if !found {
			return out.String(), nil
		}
		expression, tail, closed := strings.Cut(after, "}}")
		if !closed {
			return "", fmt.Errorf("the template %q has a {{ without }}", template)
		}
		value, err := v.lookup(strings.TrimSpace(expression))
		if err != nil {
			return "", err
		}
		if strings.ContainsFunc(value, func(r rune) bool { return !allowed(r) }) {
			return "", fmt.Errorf("{{%s}} is %q here, and only %s can stand there", expression, value, allowedNames)
		}
		out.WriteString(value)
		rest = tail
	}
}

func (v *templateValues) lookup(expression string) (string, error) {
	if key, ok := strings.CutPrefix(expression, "label "); ok {
		key = strings.Trim(strings.TrimSpace(key), "\"`")
		if value := v.labels[key]; value != "" {
			return value, nil
		}
		return "", fmt.Errorf("the Dataplane has no label %q, which the template names", key)
	}
	value, ok := v.fields[expression]
	if !ok {
		return "", fmt.Errorf("{{ %s }} is not known here: use .Mesh, .Zone, .Workload or label \"key\"", expression)
	}
	return value, nil
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
