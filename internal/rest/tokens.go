package rest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"weft/internal/admit"
	"weft/internal/identity"
	"weft/kind"
	"weft/resource"
)

// longestToken bounds how long a token is valid.
const longestToken = 10 * 365 * 24 * time.Hour

// TokenRequest asks for a dataplane token. What is left out does not restrict the token, but for Mesh.
type TokenRequest struct {
	Name     string              `json:"name,omitempty"`     // the one Dataplane that may use it
	Mesh     string              `json:"mesh,omitempty"`     // default: "default"
	Tags     map[string][]string `json:"tags,omitempty"`     // that every inbound must have, with one of the values
	Type     string              `json:"type,omitempty"`     // "dataplane", the default
	Workload string              `json:"workload,omitempty"` // the label kuma.io/workload that it must have
	ValidFor kind.Duration       `json:"validFor"`           // required, at most ten years
}

// dataplaneToken makes a token, and with a mesh's first token its signing key.
func (a *api) dataplaneToken(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largestBody))
	if err != nil {
		return bodyError(err)
	}
	req, err := parseTokenRequest(body)
	if err != nil {
		return err
	}
	if _, err := a.row(r.Context(), kind.Meshes.Key("", req.Mesh)); err != nil {
		return err
	}
	kid, key, err := a.signingKey(r.Context(), req.Mesh)
	if err != nil {
		return err
	}
	token, err := identity.Issue(key, kid, identity.Claims{
		Name: req.Name, Mesh: req.Mesh, Tags: req.Tags, Type: req.Type, Workload: req.Workload,
	}, time.Duration(req.ValidFor), a.Now())
	if err != nil {
		return err
	}
	if len(token) > identity.MaxToken {
		return resource.Errorf(resource.Invalid, "the token would have %d bytes, at most %d are read; ask for fewer or shorter tags", len(token), identity.MaxToken)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, token) // a client that has gone needs no answer
	return nil
}

func parseTokenRequest(body []byte) (TokenRequest, error) {
	var req TokenRequest
	if err := decodeTokenRequest(body, &req); err != nil {
		return req, err
	}
	req.Mesh = cmp.Or(req.Mesh, "default")
	req.Type = cmp.Or(req.Type, identity.DataplaneType)
	var problems resource.Problems
	if valid := time.Duration(req.ValidFor); valid <= 0 || valid > longestToken {
		problems.Add("validFor", "is required, a duration such as \"24h\" or \"30d\" of at most ten years")
	}
	if problem := kind.NameProblem(req.Name); req.Name != "" && problem != "" {
		problems.Add("name", "%s", problem)
	}
	if req.Type != identity.DataplaneType {
		problems.Add("type", "is %q; this release makes tokens of type %q only", req.Type, identity.DataplaneType)
	}
	if len(problems) > 0 {
		return req, &resource.Error{Code: resource.Invalid, Detail: "the token request is invalid", Problems: problems}
	}
	return req, nil
}

// decodeTokenRequest wants one JSON object with known fields, and nothing after it.
func decodeTokenRequest(body []byte, into *TokenRequest) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if _, end := decoder.Token(); err == nil && end != io.EOF {
		err = errors.New("something follows the object")
	}
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case err == io.EOF:
		err = errors.New(`the body is empty, want a JSON object such as {"mesh": "default", "name": "web-1", "validFor": "24h"}`)
	case errors.As(err, &wrong) && wrong.Field == "":
		err = fmt.Errorf("the body is a JSON %s, want an object", wrong.Value)
	case errors.As(err, &wrong):
		err = fmt.Errorf("%s is a JSON %s, want a %s", wrong.Field, wrong.Value, plainKind(wrong.Type))
	}
	return resource.Errorf(resource.Invalid, "the token request is invalid: %s", strings.TrimPrefix(err.Error(), "json: "))
}

// plainKind names a type of TokenRequest's fields as JSON does.
func plainKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Map:
		return "object"
	case reflect.Slice:
		return "list"
	}
	return "string"
}

// signingKey answers the newest signing key of a mesh and its number, and makes the first one.
func (a *api) signingKey(ctx context.Context, mesh string) (kid string, key *rsa.PrivateKey, err error) {
	kid, err = a.newestSigningKey(ctx, mesh)
	if err != nil {
		return "", nil, err
	}
	if kid == "" {
		kid = "1"
		if err := a.makeSigningKey(ctx, mesh, kid); err != nil {
			return "", nil, err
		}
		if err := a.AwaitSecret(ctx, mesh, identity.SigningKeyName(mesh, kid)); err != nil {
			return "", nil, err
		}
	}
	row, err := a.Store.Get(ctx, kind.Secrets.Key(mesh, identity.SigningKeyName(mesh, kid)))
	if err != nil {
		return "", nil, fmt.Errorf("token signing key: %w", err)
	}
	secret, err := admit.Decode(row)
	if err != nil {
		return "", nil, err
	}
	key, err = identity.ParseSigningKey(resource.SpecOf(secret).(*kind.Secret).Data)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", row.Key, err)
	}
	return kid, key, nil
}

// newestSigningKey answers the highest number of a mesh's signing keys, empty where it has none.
func (a *api) newestSigningKey(ctx context.Context, mesh string) (string, error) {
	rows, err := a.rows(ctx, kind.Secrets, mesh)
	if err != nil {
		return "", err
	}
	newest := 0
	for _, row := range rows {
		if kid, ok := identity.SigningKeyID(mesh, row.Key.Name); ok {
			n, _ := strconv.Atoi(kid) // digits, by SigningKeyID
			newest = max(newest, n)
		}
	}
	if newest == 0 {
		return "", nil
	}
	return strconv.Itoa(newest), nil
}

// makeSigningKey stores a new key, unless another request was faster: then that one's stays.
func (a *api) makeSigningKey(ctx context.Context, mesh, kid string) error {
	text, err := identity.NewSigningKey()
	if err != nil {
		return err
	}
	return admit.Modify(ctx, a.Writer, kind.Secrets, mesh, identity.SigningKeyName(mesh, kid),
		func(o *resource.Object[kind.Secret]) bool {
			if len(o.Spec.Data) > 0 {
				return false
			}
			o.Spec.Data = text
			return true
		})
}
