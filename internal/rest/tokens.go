package rest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"weft/internal/access"
	"weft/internal/audit"
	"weft/internal/pki"
	"weft/internal/token"
	"weft/kind"
	"weft/resource"
)

// DataplaneTokenRequest requests a dataplane token. An absent field, except Mesh, does not restrict the token.
type DataplaneTokenRequest struct {
	Name   string              `json:"name,omitempty"`   // the only Dataplane of the token
	Mesh   string              `json:"mesh,omitempty"`   // default: "default"
	Tags   map[string][]string `json:"tags,omitempty"`   // that every inbound must have, with one of the values
	Labels map[string]string   `json:"labels,omitempty"` // that the Dataplane must have, beside kuma.io/workload
	// labels that the Dataplane may have
	DataplaneLabels map[string]string `json:"dataplaneLabels,omitempty"`
	// values of tags that an inbound may have
	InboundTags map[string][]string `json:"inboundTags,omitempty"`
	// IP addresses, networks and host names that inbounds may have
	Addresses []string `json:"addresses,omitempty"`
	// roles, separated by commas: dataplane (the default), egress, ingress
	Type     string        `json:"type,omitempty"`
	Workload string        `json:"workload,omitempty"` // the label kuma.io/workload that it must have
	ValidFor kind.Duration `json:"validFor"`           // required, at most ten years
}

// UserTokenRequest requests a user token.
type UserTokenRequest struct {
	Name     string        `json:"name"`             // required
	Groups   []string      `json:"groups,omitempty"` // default: none but mesh-system:authenticated
	ValidFor kind.Duration `json:"validFor"`         // required, at most ten years
}

// ZoneTokenRequest requests a zone token.
type ZoneTokenRequest struct {
	Zone     string        `json:"zone"`            // required
	Scope    []string      `json:"scope,omitempty"` // of cp, ingress, egress; default: all
	ValidFor kind.Duration `json:"validFor"`        // required, at most ten years
}

// tokenRequest is a pointer to a token request.
type tokenRequest[R any] interface {
	*R
	// example returns a valid request as JSON.
	example() string
	// claims sets defaults and returns the claims of the token, and all problems of the request.
	claims() (pki.Claims, kind.Duration, resource.Problems)
}

// issue returns the handler that issues tokens of one kind.
func issue[R any, P tokenRequest[R]](a *api) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		body, err := readBody(w, r, maxRequest)
		if err != nil {
			return err
		}
		var request R
		if err := decodeRequest(body, &request, "the token request", P(&request).example()); err != nil {
			return err
		}
		claims, validFor, problems := P(&request).claims()
		if validFor <= 0 || time.Duration(validFor) > token.MaxValidity {
			problems.Add("validFor", "is required, a duration such as \"24h\" or \"30d\" of at most ten years")
		}
		if len(problems) > 0 {
			return &resource.Error{Code: resource.Invalid, Detail: "the token request is invalid", Problems: problems}
		}
		if dataplane, ok := claims.(*pki.DataplaneClaims); ok {
			if err := a.Guard.permit(r, access.GenerateDPToken, access.MeshScope(dataplane.Mesh)); err != nil {
				return err
			}
			m, err := a.read(r.Context(), kind.Meshes)
			if err != nil {
				return err
			}
			if _, err := m.need(kind.Meshes.Key("", dataplane.Mesh)); err != nil {
				return err
			}
		}
		text, err := a.Tokens.Issue(r.Context(), claims, time.Duration(validFor))
		if err != nil {
			return err
		}
		audit.FromContext(r.Context()).SetToken(claims.Realm().String(), claims)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, text) // the client may be gone
		return nil
	}
}

func (*DataplaneTokenRequest) example() string {
	return `{"mesh": "default", "name": "web-1", "validFor": "24h"}`
}

func (req *DataplaneTokenRequest) claims() (pki.Claims, kind.Duration, resource.Problems) {
	claims := &pki.DataplaneClaims{
		Name: req.Name, Mesh: cmp.Or(req.Mesh, "default"), Tags: req.Tags, Labels: req.Labels, Workload: req.Workload,
		DataplaneLabels: req.DataplaneLabels, InboundTags: req.InboundTags, Addresses: req.Addresses,
	}
	var problems resource.Problems
	var err error
	if claims.Type, err = pki.TypeOf(pki.RolesOf(req.Type)); err != nil {
		problems.Add("type", "%v", err)
	}
	if _, twice := req.Labels[kind.WorkloadLabel]; twice {
		problems.Add("labels["+kind.WorkloadLabel+"]", "is the field workload of the request")
	}
	for i, address := range req.Addresses {
		if problem := pki.AddressProblem(address); problem != "" {
			problems.Add(fmt.Sprintf("addresses[%d]", i), "%s", problem)
		}
	}
	if problem := resource.NameProblem(req.Name); req.Name != "" && problem != "" {
		problems.Add("name", "%s", problem)
	}
	return claims, req.ValidFor, problems
}

func (*UserTokenRequest) example() string {
	return `{"name": "ann", "groups": ["ops"], "validFor": "24h"}`
}

func (req *UserTokenRequest) claims() (pki.Claims, kind.Duration, resource.Problems) {
	var problems resource.Problems
	if !isPrincipal(req.Name) {
		problems.Add("name", "is required: 1 to 253 printable characters without comma")
	}
	for i, group := range req.Groups {
		if !isPrincipal(group) {
			problems.Add(fmt.Sprintf("groups[%d]", i),
				"is not the name of a group: 1 to 253 printable characters without comma")
		}
	}
	return &pki.UserClaims{Name: req.Name, Groups: req.Groups}, req.ValidFor, problems
}

// isPrincipal reports whether the settings can contain the name of a user or group: commas separate names there.
func isPrincipal(name string) bool {
	bad := func(r rune) bool { return r == ',' || !unicode.IsPrint(r) }
	return strings.TrimSpace(name) == name && name != "" && len(name) <= 253 && !strings.ContainsFunc(name, bad)
}

func (*ZoneTokenRequest) example() string {
	return `{"zone": "east", "scope": ["cp"], "validFor": "30d"}`
}

func (req *ZoneTokenRequest) claims() (pki.Claims, kind.Duration, resource.Problems) {
	var problems resource.Problems
	if problem := resource.MeshNameProblem(req.Zone); problem != "" { // the names of zones have the rules of mesh names
		problems.Add("zone", "%s", problem)
	}
	for i, scope := range req.Scope {
		if !slices.Contains(pki.ZoneScopes, scope) {
			problems.Add(fmt.Sprintf("scope[%d]", i), "is %q, want one of %s", scope,
				strings.Join(pki.ZoneScopes, ", "))
		}
	}
	claims := &pki.ZoneClaims{Zone: req.Zone, Scope: req.Scope}
	if len(claims.Scope) == 0 {
		claims.Scope = pki.ZoneScopes
	}
	return claims, req.ValidFor, problems
}

// decodeRequest decodes one JSON object with known fields, each once, and nothing after it.
func decodeRequest(body []byte, into any, what, example string) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if _, end := decoder.Token(); err == nil && end != io.EOF {
		err = errors.New("something follows the object")
	}
	if err == nil {
		err = repeatedKey(body)
	}
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case err == io.EOF:
		err = errors.New("the body is empty, want a JSON object such as " + example)
	case errors.As(err, &wrong) && wrong.Field == "":
		err = fmt.Errorf("the body is a JSON %s, want an object", wrong.Value)
	case errors.As(err, &wrong):
		err = fmt.Errorf("%s is a JSON %s, want a %s", wrong.Field, wrong.Value, plainKind(wrong.Type))
	}
	return resource.Errorf(resource.Invalid, "%s is invalid: %s", what, strings.TrimPrefix(err.Error(), "json: "))
}

// repeatedKey returns an error for the first key that an object of a JSON document has twice. A reader of JSON takes
// the last one, and may take the fields of the document in any case.
func repeatedKey(document []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(document))
	var open []map[string]bool // the keys of each open object so far; nil for a list
	isKey := false             // whether the next token is a key of the last of open
	for {
		token, err := decoder.Token()
		if err != nil {
			return nil // it ends, since it could be decoded
		}
		last := len(open) - 1
		switch token {
		case json.Delim('{'):
			open, isKey = append(open, map[string]bool{}), true
			continue
		case json.Delim('['):
			open, isKey = append(open, nil), false
			continue
		case json.Delim('}'), json.Delim(']'):
			open = open[:last]
		default:
			if !isKey {
				break
			}
			key := token.(string)
			if last == 0 {
				key = strings.ToLower(key)
			}
			if open[last][key] {
				return fmt.Errorf("an object has %q twice", token)
			}
			open[last][key], isKey = true, false
			continue
		}
		isKey = len(open) > 0 && open[len(open)-1] != nil
	}
}

// plainKind returns the JSON type of a request's field.
func plainKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Map:
		return "object"
	case reflect.Slice:
		return "list"
	}
	return "string"
}
