package pki

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// MaxToken is the largest accepted token in bytes; a token with a hundred tags has about 8 KB.
const MaxToken = 16 << 10

// Issue creates a token: a JWT (RFC 7519) signed with RS256. It sets the ID and the times of the claims.
func Issue(key *rsa.PrivateKey, kid string, claims Claims, validFor time.Duration, now time.Time) (string, error) {
	if err := claims.check(); err != nil {
		return "", err
	}
	if validFor <= 0 {
		return "", fmt.Errorf("a token can't be valid for %s", validFor)
	}
	*claims.registered() = jwt.RegisteredClaims{
		ID:        rand.Text(),
		IssuedAt:  jwt.NewNumericDate(now),
		NotBefore: jwt.NewNumericDate(now.Add(-backdating)),
		ExpiresAt: jwt.NewNumericDate(now.Add(validFor)),
	}
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	token.Header["kid"] = kid
	return token.SignedString(key)
}

// Verify verifies a token and decodes its claims; the empty claims select its kind. The token itself states its realm
// and key number, which are well-formed when the key is looked up. The claims are trusted only because that realm's key
// signed them. A signature is verified once for each key. Errors never contain the token.
func Verify(token string, claims Claims, keys *Keyring, now time.Time) error {
	if len(token) > MaxToken {
		return fmt.Errorf("the token has %d bytes, at most %d are read", len(token), MaxToken)
	}
	options := []jwt.ParserOption{
		jwt.WithValidMethods([]string{jwt.SigningMethodRS256.Alg()}),
		jwt.WithExpirationRequired(),
		jwt.WithTimeFunc(func() time.Time { return now }),
	}
	parser := jwt.NewParser(options...)
	sum := sha256.Sum256([]byte(token))
	var rejected error
	_, _, err := parser.ParseUnverified(token, claims)
	switch {
	case err != nil:
	case keys.checked(sum, claims.Realm()):
		err = jwt.NewValidator(options...).Validate(claims)
	default:
		var by signature
		_, err = parser.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) {
			if by, rejected = signatureBy(t, claims, keys); rejected != nil {
				return nil, rejected
			}
			return by.key.public, nil
		})
		if err == nil {
			keys.noteChecked(sum, by)
		}
	}
	if err != nil {
		return tokenError(err, rejected, claims.Realm().token)
	}
	return keys.unrevoked(claims)
}

// signatureBy returns the signature that a token of these claims must have.
func signatureBy(t *jwt.Token, claims Claims, keys *Keyring) (signature, error) {
	if err := claims.check(); err != nil {
		return signature{}, err
	}
	kid, _ := t.Header["kid"].(string)
	if !keyID.MatchString(kid) {
		return signature{}, &UnknownKeyError{kind: claims.Realm().token}
	}
	key, err := keys.key(claims.Realm(), kid)
	return signature{claims.Realm(), kid, key}, err
}

// Reverify returns nil if the token of these claims is still valid: its signing key exists and its ID is not revoked.
// It does not check the times.
func Reverify(token string, claims Claims, keys *Keyring) error {
	if keys.checked(sha256.Sum256([]byte(token)), claims.Realm()) {
		return keys.unrevoked(claims)
	}
	fresh := claims.empty()
	return Verify(token, fresh, keys, claims.registered().ExpiresAt.Add(-time.Second))
}

// The errors of a token that was valid before, for errors.Is.
var (
	ErrExpired = errors.New("the token has expired")
	ErrRevoked = errors.New("the token is revoked")
)

// ClaimedDataplane returns the mesh and the name of the Dataplane in a token that was not verified; empty where it has
// none.
func ClaimedDataplane(token string) (mesh, name string) {
	var claims DataplaneClaims
	if len(token) > MaxToken {
		return "", ""
	}
	if _, _, err := jwt.NewParser().ParseUnverified(token, &claims); err != nil {
		return "", ""
	}
	return claims.Mesh, claims.Name
}

// ZoneTokenValidity returns the times between which a zone token that was not verified is valid; zero for another text.
func ZoneTokenValidity(token string) (notBefore, expires time.Time) {
	var claims ZoneClaims
	if _, _, err := jwt.NewParser().ParseUnverified(token, &claims); err != nil {
		return time.Time{}, time.Time{}
	}
	return Validity(&claims)
}

// tokenError returns the error for a token of a kind, such as "user-token". rejected is an error from before the
// verification of its signature.
func tokenError(err, rejected error, kind string) error {
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed):
		return fmt.Errorf("it is not a %s (a JWT); make one with `weft generate %s`", kind, kind)
	case rejected != nil:
		return rejected
	case errors.Is(err, jwt.ErrTokenExpired):
		return fmt.Errorf("%w; make a new one with `weft generate %s`", ErrExpired, kind)
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return errors.New("the token is not valid yet; compare the clocks of the machines")
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return errors.New("the token has no expiry, which is required")
	}
	return errors.New("the token's signature is not by its key (RS256)")
}
