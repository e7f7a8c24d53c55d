// Package token signs tokens. The signing key of a realm is generated for its first token, and the newest key signs.
//
// The package does not decide which caller may have which token.
package token

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"slices"
	"time"

	"weft/internal/access"
	"weft/internal/admission"
	"weft/internal/pki"
	"weft/internal/store"
	"weft/internal/store/bounded"
	"weft/kind"
	"weft/resource"
)

// MaxValidity bounds how long a token is valid.
const MaxValidity = 10 * 365 * 24 * time.Hour

// Secrets is the control plane's memory of Secrets and GlobalSecrets.
type Secrets interface {
	// SigningKeys answers those that hold signing keys of a realm.
	SigningKeys(realm pki.Realm) []resource.Key
	// AwaitSecret returns once one that was stored just now is known wherever tokens are checked.
	AwaitSecret(ctx context.Context, key resource.Key) error
}

// Issuer makes tokens. It may be used at the same time by many.
type Issuer struct {
	Writer  *admission.Writer
	Secrets Secrets
	Keys    *pki.Keyring // of the same memory
	Now     func() time.Time
}

// Issue makes a token that says what the claims do. Errors that the caller can do something about are a
// [resource.Error].
func (i *Issuer) Issue(ctx context.Context, claims pki.Claims, validFor time.Duration) (string, error) {
	kid, key, err := i.signingKey(ctx, claims.Realm())
	if err != nil {
		return "", fmt.Errorf("token signing key: %w", err)
	}
	token, err := pki.Issue(key, kid, claims, validFor, i.Now())
	if err != nil {
		return "", resource.Errorf(resource.Invalid, "%v", err)
	}
	if len(token) > pki.MaxToken {
		return "",
			resource.Errorf(resource.Invalid, "the token would have %d bytes, at most %d are read; ask for less in it",
				len(token), pki.MaxToken)
	}
	return token, nil
}

// Bootstrap stores a token of an administrator, valid for ten years, as the GlobalSecret admin-user-token,
// for callers of other machines than the control plane's.
func (i *Issuer) Bootstrap(ctx context.Context) error {
	claims := &pki.UserClaims{Name: access.AdminName, Groups: []string{access.AdminGroup}}
	token, err := i.Issue(ctx, claims, MaxValidity)
	if err != nil {
		return err
	}
	_, err = i.Writer.Create(ctx, kind.GlobalSecrets.Make("", pki.AdminTokenSecret,
		kind.Secret{Data: []byte(token)}), nil)
	return err
}

// signingKey returns the newest key of a realm that can sign here, and its id. Where there is none it makes one whose
// name no other control plane gives to its own.
func (i *Issuer) signingKey(ctx context.Context, realm pki.Realm) (kid string, key *rsa.PrivateKey, err error) {
	for _, kid := range slices.Backward(i.ids(realm)) {
		if key, err = i.Keys.Signer(realm, kid); key != nil || err != nil {
			return kid, key, err
		}
	}
	kid = pki.KeyID(i.Writer.Zone(), 1)
	if err := i.makeSigningKey(ctx, realm.SigningKey(kid)); err != nil {
		return "", nil, err
	}
	key, err = i.Keys.Signer(realm, kid)
	return kid, key, err
}

// ids are those of a realm's keys that this control plane or an operator made, the newest last.
func (i *Issuer) ids(realm pki.Realm) []string {
	var ids []string
	for _, secret := range i.Secrets.SigningKeys(realm) {
		if _, kid, _ := pki.SigningKeyOf(secret); pki.MayStoreKey(i.Writer.Zone(), kid) {
			ids = append(ids, kid)
		}
	}
	slices.SortFunc(ids, pki.CompareKeyIDs)
	return ids
}

// makeSigningKey stores a new key, unless somebody else was faster: then that one's stays.
func (i *Issuer) makeSigningKey(ctx context.Context, secret resource.Key) error {
	text, err := pki.NewSigningKey()
	if err != nil {
		return err
	}
	of := kind.Secrets
	if secret.Kind == kind.GlobalSecrets.Name {
		of = kind.GlobalSecrets
	}
	err = admission.Modify(ctx, i.Writer, of, secret.Mesh, secret.Name, func(o *resource.Object[kind.Secret]) bool {
		if len(o.Spec.Data) > 0 {
			return false
		}
		o.Spec.Data = text
		return true
	})
	if err != nil {
		return err
	}
	return i.await(ctx, secret)
}

// await waits for as long as a store may take: the key comes by its watch.
func (i *Issuer) await(ctx context.Context, secret resource.Key) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bounded.Limit, store.ErrNoResponse)
	defer cancel()
	err := i.Secrets.AwaitSecret(ctx, secret)
	if err != nil && errors.Is(context.Cause(ctx), store.ErrNoResponse) {
		return store.ErrNoResponse
	}
	return err
}
