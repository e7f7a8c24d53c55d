// Package tokentest signs tokens for tests that have a store only.
package tokentest

import (
	"context"
	"time"

	"weft/internal/admission"
	"weft/internal/pki"
	"weft/internal/store"
	"weft/internal/token"
	"weft/kind"
	"weft/resource"
)

// New answers an issuer that writes to a store, and the keyring of what is in it.
func New(rows store.Store, writer *admission.Writer) (*token.Issuer, *pki.Keyring) {
	secrets := stored{rows}
	keys := pki.NewKeyring(secrets.secret)
	return &token.Issuer{Writer: writer, Secrets: secrets, Keys: keys, Now: time.Now}, keys
}

// stored reads the store where a control plane asks its memory.
type stored struct{ rows store.Store }

func (s stored) secret(key resource.Key) ([]byte, bool) {
	row, err := s.rows.Get(context.Background(), key)
	if err != nil {
		return nil, false
	}
	o, err := admission.Decode(row)
	if err != nil {
		return nil, false
	}
	return resource.SpecOf(o).(*kind.Secret).Data, true
}

// SigningKeys implements token.Secrets.
func (s stored) SigningKeys(realm pki.Realm) (keys []resource.Key) {
	for _, name := range []string{kind.Secrets.Name, kind.GlobalSecrets.Name} {
		rows, _, _ := s.rows.List(context.Background(), name) // of a closed store: none
		for _, row := range rows {
			if of, _, ok := pki.SigningKeyOf(row.Key); ok && of == realm {
				keys = append(keys, row.Key)
			}
		}
	}
	return keys
}

// AwaitSecret implements token.Secrets.
func (s stored) AwaitSecret(context.Context, resource.Key) error { return nil }
