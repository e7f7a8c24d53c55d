package identity

import (
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// MaxToken is the longest token that is read, in bytes; one with a hundred tags has about 8 KB.
const MaxToken = 16 << 10

// Issue makes a token: a JWT (RFC 7519) signed with RS256. Its id and times are filled in to the claims.
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

// Verify checks a token of the kind of the empty claims, and fills them in. The signing key is looked up by
// the realm and key number that the token itself states, which are well-formed by then; what it claims is
// believed only because that realm's key signed it. Errors say what is wrong and never repeat the token.
func Verify(token string, claims Claims, keys *Keyring, now time.Time) error {
	if len(token) > MaxToken {
		return fmt.Errorf("the token has %d bytes, at most %d are read", len(token), MaxToken)
	}
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodRS256.Alg()}),
		jwt.WithExpirationRequired(),
		jwt.WithTimeFunc(func() time.Time { return now }),
	)
	var refused error
	_, err := parser.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) {
		kid, _ := t.Header["kid"].(string)
		if refused = claims.check(); refused == nil && !keyID.MatchString(kid) {
			refused = &UnknownKeyError{kind: claims.Realm().token}
		}
		if refused != nil {
			return nil, refused
		}
		key, err := keys.verifier(claims.Realm(), kid)
		if refused = err; err != nil {
			return nil, err
		}
		return key, nil
	})
	if err != nil {
		return tokenError(err, refused, claims.Realm().token)
	}
	if keys.revoked(claims.Realm(), claims.registered().ID) {
		return fmt.Errorf("the token is revoked, by %s", claims.Realm().Revocations())
	}
	return nil
}

// VerifyAgain verifies a token that was valid when these claims were read from it: whether its signing key is still
// there and its id is not revoked. Its times are not looked at.
func VerifyAgain(token string, claims Claims, keys *Keyring) error {
	fresh := claims.empty()
	return Verify(token, fresh, keys, claims.registered().ExpiresAt.Add(-time.Second))
}

// tokenError says what is wrong with a token of a kind, such as "user-token"; refused is what spoke against
// it before its signature was looked at.
func tokenError(err, refused error, kind string) error {
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed):
		return fmt.Errorf("it is not a %s (a JWT); make one with `weft generate %s`", kind, kind)
	case refused != nil:
		return refused
	case errors.Is(err, jwt.ErrTokenExpired):
		return fmt.Errorf("the token has expired; make a new one with `weft generate %s`", kind)
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return errors.New("the token is not valid yet; compare the clocks of the machines")
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return errors.New("the token has no expiry, which is required")
	}
	return errors.New("the token's signature is not by its key (RS256)")
}
