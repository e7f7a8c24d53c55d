package identity

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"weft/kind"
	"weft/resource"
)

// Claims say for which proxies a dataplane token speaks. An empty field does not restrict, except Mesh,
// which is required.
type Claims struct {
	Name     string              // of the Dataplane
	Mesh     string              // of the Dataplane
	Tags     map[string][]string // every inbound has each tag, with one of the values
	Type     string              // "dataplane"; empty means the same
	Workload string              // the label kuma.io/workload
}

type tokenClaims struct {
	Name     string              `json:"Name,omitempty"`
	Mesh     string              `json:"Mesh"`
	Tags     map[string][]string `json:"Tags,omitempty"`
	Type     string              `json:"Type,omitempty"`
	Workload string              `json:"Workload,omitempty"`
	jwt.RegisteredClaims
}

const (
	// DataplaneType is the one value of Claims.Type that this release knows.
	DataplaneType = "dataplane"

	signingKeyBits = 2048
	// MaxToken is the longest token that is read, in bytes; one with a hundred tags has about 8 KB.
	MaxToken = 16 << 10
)

var (
	meshName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	keyID    = regexp.MustCompile(`^[1-9][0-9]{0,8}$`)
)

// SigningKeyName names the Secret of a mesh that holds its token signing key of number kid. Several are
// valid at once; tokens are signed with the highest.
func SigningKeyName(mesh, kid string) string {
	return "dataplane-token-signing-key-" + mesh + "-" + kid
}

// SigningKeyID answers the number of the signing key that a Secret of the mesh holds, false for any other
// Secret.
func SigningKeyID(mesh, secret string) (kid string, ok bool) {
	kid, ok = strings.CutPrefix(secret, SigningKeyName(mesh, ""))
	return kid, ok && keyID.MatchString(kid)
}

// NewSigningKey makes an RSA key of 2048 bits, in PEM as its Secret holds it.
func NewSigningKey() ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, signingKeyBits)
	if err != nil {
		return nil, fmt.Errorf("making a token signing key: %w", err)
	}
	return encodeKey(key)
}

// ParseSigningKey reads what [NewSigningKey] made, or an RSA key in PEM from elsewhere (PKCS #8 or #1).
func ParseSigningKey(text []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("the token signing key is not PEM")
	}
	signer, err := parseKey(block)
	if err != nil {
		return nil, fmt.Errorf("the token signing key: %w", err)
	}
	key, ok := signer.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the token signing key is a %T, want RSA", signer)
	}
	return key, nil
}

// Issue makes a dataplane token: a JWT (RFC 7519) signed with RS256.
func Issue(key *rsa.PrivateKey, kid string, claims Claims, validFor time.Duration, now time.Time) (string, error) {
	switch {
	case claims.Mesh == "":
		return "", errors.New("a dataplane token needs a mesh")
	case claims.Type != "" && claims.Type != DataplaneType:
		return "", fmt.Errorf("a token of type %q can't be made, only %q", claims.Type, DataplaneType)
	case validFor <= 0:
		return "", fmt.Errorf("a token can't be valid for %s", validFor)
	}
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, tokenClaims{
		Name: claims.Name, Mesh: claims.Mesh, Tags: claims.Tags, Type: claims.Type, Workload: claims.Workload,
		RegisteredClaims: jwt.RegisteredClaims{
			ID:        rand.Text(),
			IssuedAt:  jwt.NewNumericDate(now),
			NotBefore: jwt.NewNumericDate(now.Add(-backdating)),
			ExpiresAt: jwt.NewNumericDate(now.Add(validFor)),
		},
	})
	token.Header["kid"] = kid
	return token.SignedString(key)
}

// Verify checks a dataplane token and answers its claims. The signing key is looked up by the mesh and
// key number that the token itself states, which are well-formed by then; what it claims is believed only
// because that mesh's key signed it. Errors say what is wrong and never repeat the token.
func Verify(token string, keys func(mesh, kid string) (*rsa.PublicKey, bool), now time.Time) (*Claims, error) {
	if len(token) > MaxToken {
		return nil, fmt.Errorf("the token has %d bytes, at most %d are read", len(token), MaxToken)
	}
	var claims tokenClaims
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodRS256.Alg()}),
		jwt.WithExpirationRequired(),
		jwt.WithTimeFunc(func() time.Time { return now }),
	)
	_, err := parser.ParseWithClaims(token, &claims, func(t *jwt.Token) (any, error) {
		kid, _ := t.Header["kid"].(string)
		if !meshName.MatchString(claims.Mesh) || !keyID.MatchString(kid) {
			return nil, errUnknownKey
		}
		key, ok := keys(claims.Mesh, kid)
		if !ok {
			return nil, errUnknownKey
		}
		return key, nil
	})
	if err != nil {
		return nil, tokenError(err)
	}
	if claims.Type != "" && claims.Type != DataplaneType {
		return nil, fmt.Errorf("the token is of type %q, want %q", claims.Type, DataplaneType)
	}
	return &Claims{Name: claims.Name, Mesh: claims.Mesh, Tags: claims.Tags, Type: claims.Type, Workload: claims.Workload}, nil
}

var errUnknownKey = errors.New("no such signing key")

func tokenError(err error) error {
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed):
		return errors.New("it is not a dataplane token (a JWT); make one with `weft generate dataplane-token`")
	case errors.Is(err, errUnknownKey):
		return errors.New("the token's mesh does not exist here or has no such signing key; make a token for the proxy's mesh on this control plane with `weft generate dataplane-token`")
	case errors.Is(err, jwt.ErrTokenExpired):
		return errors.New("the token has expired; make a new one with `weft generate dataplane-token`")
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return errors.New("the token is not valid yet; compare the clocks of the machines")
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return errors.New("the token has no expiry, which is required")
	}
	return errors.New("the token's signature is not its mesh's (RS256)")
}

// Names says whether the token speaks for a proxy of this mesh and name, whatever else it asks of it.
func (c *Claims) Names(mesh, name string) error {
	if c.Mesh != mesh {
		return fmt.Errorf("the token is for the mesh %q, and the proxy says it is of %q", c.Mesh, mesh)
	}
	if c.Name != "" && c.Name != name {
		return fmt.Errorf("the token is for the Dataplane %q, and the proxy says it is %q", c.Name, name)
	}
	return nil
}

// Permits says whether the token speaks for the Dataplane. A tag that the token asks for has to stand on
// every inbound, since one inbound without it would be served on the others' behalf.
func (c *Claims) Permits(o *resource.Object[kind.Dataplane]) error {
	if err := c.Names(o.Mesh, o.Name); err != nil {
		return err
	}
	if c.Workload != "" && c.Workload != o.Label(kind.WorkloadLabel) {
		return fmt.Errorf("the token is for the workload %q, and the Dataplane's label %s is %q", c.Workload, kind.WorkloadLabel, o.Label(kind.WorkloadLabel))
	}
	if len(c.Tags) > 0 && len(o.Spec.Networking.Inbound) == 0 {
		return errors.New("the token asks for tags, and the Dataplane has no inbound that could have them")
	}
	for i, in := range o.Spec.Networking.Inbound {
		for tag, values := range c.Tags {
			if got, ok := in.Tags[tag]; !ok || !slices.Contains(values, got) {
				return fmt.Errorf("the token asks for the tag %s: %s on every inbound, and networking.inbound[%d] has %q", tag, strings.Join(values, "|"), i, got)
			}
		}
	}
	return nil
}
