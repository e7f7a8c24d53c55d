package identity

import (
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"weft/kind"
	"weft/resource"
)

// Realm is a family of tokens with signing keys and revocations of its own. Several keys are valid at once;
// tokens are signed with the one of the highest number whose private half is here.
type Realm struct {
	token string // "user-token"
	mesh  string // of dataplane tokens
}

// The realms of tokens that belong to no mesh.
var (
	UserRealm = Realm{token: "user-token"}
	ZoneRealm = Realm{token: "zone-token"}
)

// DataplaneRealm is the realm of the dataplane tokens of a mesh.
func DataplaneRealm(mesh string) Realm { return Realm{"dataplane-token", mesh} }

const (
	signingKeyBits = 2048
	// maxKeys bounds the parsed signing keys that are kept; a realm has a few.
	maxKeys = 10_000
	// maxVerified bounds the checked signatures that are kept, of some 100 bytes each.
	maxVerified = 50_000
)

// keyID is a key id: the number of a key that an operator stores, or, of a key that a control plane made, its maker and
// a number (see [KeyID]).
var keyID = regexp.MustCompile(`^(?:global-|zone-[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?-)?([1-9][0-9]{0,8})$`)

// KeyID returns the id of a signing key that the control plane of a zone makes, or, without a zone, global. Keys of two
// control planes never have the same name, in whatever store they meet.
func KeyID(zone string, number int) string {
	if zone == "" {
		return fmt.Sprintf("global-%d", number)
	}
	return fmt.Sprintf("zone-%s-%d", zone, number)
}

// keyNumber returns the number in a key id.
func keyNumber(kid string) int {
	match := keyID.FindStringSubmatch(kid)
	if match == nil {
		return 0
	}
	number, _ := strconv.Atoi(match[1]) // at most nine digits
	return number
}

// CompareKeyIDs orders key ids by age: the one with the highest number signs and, of those with the same number, an
// operator's.
func CompareKeyIDs(a, b string) int {
	plain := func(kid string) int {
		if strings.Contains(kid, "-") {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(keyNumber(a), keyNumber(b)), cmp.Compare(plain(a), plain(b)), strings.Compare(a, b))
}

// Reserved says whether a key id is for another control plane to give: a zone can't store a key under an id of global,
// whose public half it may get.
func Reserved(zone, kid string) bool { return zone != "" && strings.HasPrefix(kid, "global-") }

// MadeBy says whether the control plane of a zone, or global (without a zone), may store a signing key with this id:
// one of its own, or an operator's.
func MadeBy(zone, kid string) bool {
	return !strings.Contains(kid, "-") || kid == KeyID(zone, keyNumber(kid))
}

// SigningKey names the Secret, or GlobalSecret, that holds the signing key with an id.
func (r Realm) SigningKey(kid string) resource.Key { return r.secret("signing-key", kid) }

// Revocations names the Secret, or GlobalSecret, that lists the ids (`jti`) of revoked tokens, separated by commas.
func (r Realm) Revocations() resource.Key { return r.secret("revocations", "") }

// secret names "user-token-WHAT-ID" or, of a mesh, "dataplane-token-WHAT-MESH-ID".
func (r Realm) secret(what, id string) resource.Key {
	name := r.token + "-" + what
	for _, part := range []string{r.mesh, id} {
		if part != "" {
			name += "-" + part
		}
	}
	if r.mesh != "" {
		return kind.Secrets.Key(r.mesh, name)
	}
	return kind.GlobalSecrets.Key("", name)
}

// String names the realm among all: "user-token", "dataplane-token of the mesh default".
func (r Realm) String() string {
	if r.mesh == "" {
		return r.token
	}
	return r.token + " of the mesh " + r.mesh
}

// realmsOf are those whose Secrets are of a mesh, or, without one, of none.
func realmsOf(mesh string) []Realm {
	if mesh != "" {
		return []Realm{DataplaneRealm(mesh)}
	}
	return []Realm{UserRealm, ZoneRealm}
}

// SigningKeyOf returns the realm and the id of the signing key that a Secret or GlobalSecret holds, false for
// any other.
func SigningKeyOf(secret resource.Key) (realm Realm, kid string, ok bool) {
	for _, realm := range realmsOf(secret.Mesh) {
		kid, found := strings.CutPrefix(secret.Name, realm.SigningKey("").Name+"-")
		if found && keyID.MatchString(kid) && realm.SigningKey(kid) == secret {
			return realm, kid, true
		}
	}
	return Realm{}, "", false
}

// DecidesTokens says whether a resource decides which tokens are valid: it holds a signing key, or lists revoked ids.
func DecidesTokens(key resource.Key) bool {
	_, _, signs := SigningKeyOf(key)
	return signs || slices.ContainsFunc(realmsOf(key.Mesh), func(realm Realm) bool {
		return realm.Revocations() == key
	})
}

// Keyring finds the keys of tokens among the Secrets. It may be used at the same time by many.
type Keyring struct {
	secret func(resource.Key) ([]byte, bool)

	mu sync.Mutex
	// parsed by the Secret's text: parsing a key costs far more than checking a signature with it, and a
	// thousand proxies may come back at once.
	parsed map[string]*signingKey
	// verified are signatures that were checked, by the SHA-256 of the token. A proxy that connects presents its token
	// several times within a moment.
	verified map[[sha256.Size]byte]signature
}

// signature is a checked signature of a token.
type signature struct {
	realm Realm
	kid   string
	key   *signingKey
}

// signingKey is a key of tokens. Where tokens are only checked its private half is missing.
type signingKey struct {
	public  *rsa.PublicKey
	private *rsa.PrivateKey
}

// NewKeyring answers a keyring over what answers the data of a Secret or GlobalSecret.
func NewKeyring(secret func(resource.Key) ([]byte, bool)) *Keyring {
	return &Keyring{secret: secret, parsed: map[string]*signingKey{}, verified: map[[sha256.Size]byte]signature{}}
}

// UnknownKeyError says that a token is signed with a key that is not in the control plane's memory.
type UnknownKeyError struct {
	Secret resource.Key // where it would be; empty where there can be no such key
	kind   string       // of the token
}

// Error implements error.
func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("the token is signed with a key that does not exist here; make one on this control plane with "+
		"`weft generate %s`", e.kind)
}

// Signer answers the key that signs tokens of a number; nil where only its public half is here, as in a zone of
// keys of the global control plane.
func (k *Keyring) Signer(realm Realm, kid string) (*rsa.PrivateKey, error) {
	key, err := k.key(realm, kid)
	if err != nil {
		return nil, err
	}
	return key.private, nil
}

// checked says whether the signature of a token was checked before, with a key that the realm still has.
func (k *Keyring) checked(sum [sha256.Size]byte, realm Realm) bool {
	k.mu.Lock()
	s, known := k.verified[sum]
	k.mu.Unlock()
	if !known || s.realm != realm {
		return false
	}
	key, err := k.key(realm, s.kid)
	return err == nil && key == s.key
}

// noteChecked keeps a signature that was checked.
func (k *Keyring) noteChecked(sum [sha256.Size]byte, s signature) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.verified) >= maxVerified {
		clear(k.verified)
	}
	k.verified[sum] = s
}

func (k *Keyring) key(realm Realm, kid string) (*signingKey, error) {
	name := realm.SigningKey(kid)
	text, ok := k.secret(name)
	if !ok {
		return nil, &UnknownKeyError{name, realm.token}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if key := k.parsed[string(text)]; key != nil {
		return key, nil
	}
	key, err := parseHalves(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(k.parsed) >= maxKeys {
		clear(k.parsed)
	}
	k.parsed[string(text)] = key
	return key, nil
}

// unrevoked returns an error for claims whose token is revoked.
func (k *Keyring) unrevoked(claims Claims) error {
	if k.revoked(claims.Realm(), claims.registered().ID) {
		return fmt.Errorf("the token is revoked, by %s", claims.Realm().Revocations())
	}
	return nil
}

// revoked says whether the id of a token is on its realm's list. A token without an id is on no list.
func (k *Keyring) revoked(realm Realm, id string) bool {
	text, _ := k.secret(realm.Revocations())
	for listed := range strings.SplitSeq(string(text), ",") {
		if listed = strings.TrimSpace(listed); listed != "" && listed == id {
			return true
		}
	}
	return false
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

const publicBlock = "PUBLIC KEY"

// parseHalves reads a signing key, or its public half alone.
func parseHalves(text []byte) (*signingKey, error) {
	if block, _ := pem.Decode(text); block != nil && block.Type == publicBlock {
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("the public half of a token signing key: %w", err)
		}
		public, ok := parsed.(*rsa.PublicKey)
		if !ok {
			return nil, fmt.Errorf("the public half of a token signing key is a %T, want RSA", parsed)
		}
		return &signingKey{public: public}, nil
	}
	private, err := ParseSigningKey(text)
	if err != nil {
		return nil, err
	}
	return &signingKey{&private.PublicKey, private}, nil
}

// The GlobalSecrets of a control plane's own, which never leave it.
const (
	// AdminTokenSecret is the token of an administrator that the first start makes.
	AdminTokenSecret = "admin-user-token"
	// ServerCASecret is the CA of the certificates of the control planes of one store.
	ServerCASecret = "control-plane-ca"
)

// ForZones answers what zones are told of a Secret or GlobalSecret of the global control plane, false where
// that is nothing: of the keys of tokens that zones check their public half, and nothing of what makes its
// users and its servers who they are.
func ForZones(secret resource.Key, data []byte) ([]byte, bool) {
	if slices.Contains([]string{AdminTokenSecret, ServerCASecret, UserRealm.Revocations().Name}, secret.Name) {
		return nil, false
	}
	realm, kid, signs := SigningKeyOf(secret)
	if !signs {
		return data, true
	}
	key, err := parseHalves(data)
	if err != nil || realm == UserRealm || !MadeBy("", kid) {
		return nil, false
	}
	der, err := x509.MarshalPKIXPublicKey(key.public)
	if err != nil {
		return nil, false
	}
	return pem.EncodeToMemory(&pem.Block{Type: publicBlock, Bytes: der}), true
}
