package pki

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

// Realm is a family of tokens with its own signing keys and revocations. Several keys are valid at once. The one with
// the highest number signs, among those whose private key is stored here.
type Realm struct {
	token string // "user-token"
	mesh  string // of dataplane tokens
}

// The realms of tokens without a mesh.
var (
	UserRealm = Realm{token: "user-token"}
	ZoneRealm = Realm{token: "zone-token"}
)

// DataplaneRealm returns the realm of the dataplane tokens of a mesh.
func DataplaneRealm(mesh string) Realm { return Realm{"dataplane-token", mesh} }

const (
	signingKeyBits = 2048
	// maxKeys bounds the cache of parsed signing keys; a realm has a few.
	maxKeys = 10_000
	// maxVerified bounds the cache of verified signatures, each of about 100 bytes.
	maxVerified = 50_000
)

// keyID matches a key ID: the number of an operator's key, or the control plane that generated the key and a number
// (see [KeyID]).
var keyID = regexp.MustCompile(`^(?:global-|zone-[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?-)?([1-9][0-9]{0,8})$`)

// KeyID returns the ID of a signing key that the control plane of a zone generates, or global without a zone. IDs of
// two control planes differ, so both keys can be in one store.
func KeyID(zone string, number int) string {
	if zone == "" {
		return fmt.Sprintf("global-%d", number)
	}
	return fmt.Sprintf("zone-%s-%d", zone, number)
}

// keyNumber returns the number in a key ID.
func keyNumber(kid string) int {
	match := keyID.FindStringSubmatch(kid)
	if match == nil {
		return 0
	}
	number, _ := strconv.Atoi(match[1]) // at most nine digits
	return number
}

// CompareKeyIDs orders key IDs by age. The one with the highest number signs; of those with the same number, an
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

// IsReservedKeyID reports whether only another control plane may use a key ID: a zone cannot store a key under an ID of
// global, whose public key it may receive.
func IsReservedKeyID(zone, kid string) bool { return zone != "" && strings.HasPrefix(kid, "global-") }

// MayStoreKey reports whether the control plane of a zone, or global without a zone, may store a signing key with this
// ID: its own, or an operator's.
func MayStoreKey(zone, kid string) bool {
	return !strings.Contains(kid, "-") || kid == KeyID(zone, keyNumber(kid))
}

// SigningKey returns the key of the Secret, or GlobalSecret, with the signing key of an ID.
func (r Realm) SigningKey(kid string) resource.Key { return r.secret("signing-key", kid) }

// Revocations returns the key of the Secret, or GlobalSecret, with the IDs (`jti`) of revoked tokens, separated by
// commas.
func (r Realm) Revocations() resource.Key { return r.secret("revocations", "") }

// secret returns the name "user-token-WHAT-ID" or, for a mesh, "dataplane-token-WHAT-MESH-ID".
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

// String returns the unique name of the realm: "user-token", "dataplane-token of the mesh default".
func (r Realm) String() string {
	if r.mesh == "" {
		return r.token
	}
	return r.token + " of the mesh " + r.mesh
}

// realmsOf returns the realms whose Secrets are in a mesh, or, without a mesh, the others.
func realmsOf(mesh string) []Realm {
	if mesh != "" {
		return []Realm{DataplaneRealm(mesh)}
	}
	return []Realm{UserRealm, ZoneRealm}
}

// SigningKeyOf returns the realm and the ID of the signing key in a Secret or GlobalSecret, or false for another one.
func SigningKeyOf(secret resource.Key) (realm Realm, kid string, ok bool) {
	for _, realm := range realmsOf(secret.Mesh) {
		kid, found := strings.CutPrefix(secret.Name, realm.SigningKey("").Name+"-")
		if found && keyID.MatchString(kid) && realm.SigningKey(kid) == secret {
			return realm, kid, true
		}
	}
	return Realm{}, "", false
}

// AffectsTokens reports whether a resource affects the validity of tokens: it has a signing key, or a list of revoked
// IDs.
func AffectsTokens(key resource.Key) bool {
	_, _, signs := SigningKeyOf(key)
	return signs || slices.ContainsFunc(realmsOf(key.Mesh), func(realm Realm) bool {
		return realm.Revocations() == key
	})
}

// Keyring finds the keys of tokens among the Secrets. It is safe for concurrent use.
type Keyring struct {
	secret func(resource.Key) ([]byte, bool)

	mu sync.Mutex
	// parsed is a cache by the Secret's text. Parsing a key costs far more than verifying a signature, and a thousand
	// proxies may reconnect at once.
	parsed map[string]*signingKey
	// verified is a cache of verified signatures by the SHA-256 of the token. A connecting proxy presents its token
	// several times within a moment.
	verified map[[sha256.Size]byte]signature
}

// signature is a verified signature of a token.
type signature struct {
	realm Realm
	kid   string
	key   *signingKey
}

// signingKey is a key of tokens. Its private key is missing where tokens are only verified.
type signingKey struct {
	public  *rsa.PublicKey
	private *rsa.PrivateKey
}

// NewKeyring returns a keyring. secret returns the data of a Secret or GlobalSecret.
func NewKeyring(secret func(resource.Key) ([]byte, bool)) *Keyring {
	return &Keyring{secret: secret, parsed: map[string]*signingKey{}, verified: map[[sha256.Size]byte]signature{}}
}

// UnknownKeyError is the error for a token signed with a key that the control plane does not have in memory.
type UnknownKeyError struct {
	Secret resource.Key // the key's Secret; empty if no such key can exist
	kind   string       // of the token
}

// Error implements error.
func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("the token is signed with a key that does not exist here; make one on this control plane with "+
		"`weft generate %s`", e.kind)
}

// Signer returns the private key with an ID, or nil if only its public key is stored here, as for a key of global in a
// zone.
func (k *Keyring) Signer(realm Realm, kid string) (*rsa.PrivateKey, error) {
	key, err := k.key(realm, kid)
	if err != nil {
		return nil, err
	}
	return key.private, nil
}

// checked reports whether the signature of a token was verified before, with a key that the realm still has.
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

// noteChecked stores a verified signature.
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
		return fmt.Errorf("%w, by %s", ErrRevoked, claims.Realm().Revocations())
	}
	return nil
}

// revoked reports whether the ID of a token is in its realm's list. A token without an ID is in no list.
func (k *Keyring) revoked(realm Realm, id string) bool {
	text, _ := k.secret(realm.Revocations())
	for listed := range strings.SplitSeq(string(text), ",") {
		if listed = strings.TrimSpace(listed); listed != "" && listed == id {
			return true
		}
	}
	return false
}

// NewSigningKey generates an RSA key of 2048 bits, in PEM for its Secret.
func NewSigningKey() ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, signingKeyBits)
	if err != nil {
		return nil, fmt.Errorf("making a token signing key: %w", err)
	}
	return encodeKey(key)
}

// ParseSigningKey parses an RSA key in PEM (PKCS #8 or #1), of [NewSigningKey] or an operator.
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

// parseHalves parses a signing key, or its public key alone.
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

// The GlobalSecrets that never leave their control plane.
const (
	// AdminTokenSecret is the administrator's token that the first start generates.
	AdminTokenSecret = "admin-user-token"
	// ServerCASecret is the CA of the certificates of all control planes of one store.
	ServerCASecret = "control-plane-ca"
)

// ForZones returns the form of a Secret or GlobalSecret of global that zones receive, or false for none: the public
// keys of the tokens that zones verify. Zones receive nothing that proves the identity of global's users and servers.
func ForZones(secret resource.Key, data []byte) ([]byte, bool) {
	if slices.Contains([]string{AdminTokenSecret, ServerCASecret, UserRealm.Revocations().Name}, secret.Name) {
		return nil, false
	}
	realm, kid, signs := SigningKeyOf(secret)
	if !signs {
		return data, true
	}
	key, err := parseHalves(data)
	if err != nil || realm == UserRealm || !MayStoreKey("", kid) {
		return nil, false
	}
	der, err := x509.MarshalPKIXPublicKey(key.public)
	if err != nil {
		return nil, false
	}
	return pem.EncodeToMemory(&pem.Block{Type: publicBlock, Bytes: der}), true
}
