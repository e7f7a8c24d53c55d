package rest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, token) // a client that has gone needs no answer
	return nil
}

func parseTokenRequest(body []byte) (TokenRequest, error) {
	var req TokenRequest
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&req); err != nil {
		return req, resource.Errorf(resource.Invalid, "the token request is invalid: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	req.Mesh = cmp.Or(req.Mesh, "default")
	req.Type = cmp.Or(req.Type, identity.DataplaneType)
	var problems resource.Problems
	if valid := time.Duration(req.ValidFor); valid <= 0 || valid > longestToken {
		problems.Add("validFor", "is required, a duration such as \"24h\" or \"30d\" of at most ten years")
	}
	if req.Type != identity.DataplaneType {
		problems.Add("type", "is %q; this release makes tokens of type %q only", req.Type, identity.DataplaneType)
	}
	if len(problems) > 0 {
		return req, &resource.Error{Code: resource.Invalid, Detail: "the token request is invalid", Problems: problems}
	}
	return req, nil
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
