package sealed

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"weft/resource"
)

// keySize is that of AES-256, in bytes.
const keySize = 32

// NewKey returns a new key in the form of a key file's line.
func NewKey() string {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return base64.StdEncoding.EncodeToString(key)
}

// Keys encrypt bodies with the first key, and decrypt bodies of any key.
type Keys struct {
	first key
	all   map[keyID]key
}

// keyID identifies a key without revealing it.
type keyID [8]byte

func (id keyID) String() string { return hex.EncodeToString(id[:]) }

type key struct {
	id   keyID
	aead cipher.AEAD
}

// ParseKeys reads a key file: a key on each line, 32 bytes in base64. Empty lines, and those that begin
// with "#", mean nothing. Its errors have numbers of lines and nothing of what is in them.
func ParseKeys(text []byte) (*Keys, error) {
	keys := &Keys{all: map[keyID]key{}}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		secret, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(secret) != keySize {
			return nil, fmt.Errorf("line %d is not a key, 32 bytes in base64; `weft generate encryption-key` makes one",
				number)
		}
		k, err := newKey(secret)
		if err != nil {
			return nil, err
		}
		if len(keys.all) == 0 {
			keys.first = k
		}
		keys.all[k.id] = k
	}
	if len(keys.all) == 0 {
		return nil, errors.New("there is no key; `weft generate encryption-key` makes one")
	}
	return keys, nil
}

func newKey(secret []byte) (key, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return key{}, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return key{}, err
	}
	sum := sha256.Sum256(append([]byte("weft key id\x00"), secret...))
	return key{id: keyID(sum[:8]), aead: aead}, nil
}

// magic begins every sealed body, and no body in JSON. Its last byte is the version of what follows: the
// key's id, the nonce, and what AES-256-GCM makes of the body with the row's key as additional data.
var magic = []byte("\x00weft\x01")

// sealed says whether a stored body is a sealed one.
func sealed(body []byte) bool { return bytes.HasPrefix(body, magic) }

// sealedUnder answers the id of the key of a sealed body.
func sealedUnder(body []byte) (id keyID, rest []byte, err error) {
	if len(body) < len(magic)+len(id) {
		return id, nil, errors.New("is cut off")
	}
	body = body[len(magic):]
	return keyID(body[:len(id)]), body[len(id):], nil
}

func (k *Keys) seal(row resource.Key, body []byte) []byte {
	out := append(bytes.Clone(magic), k.first.id[:]...)
	return k.first.aead.Seal(out, nil, body, additional(row))
}

// open answers the body that was sealed for a row. Its error continues a sentence that begins with the row.
func (k *Keys) open(row resource.Key, body []byte) ([]byte, error) {
	if !sealed(body) {
		return nil, errors.New("is stored in plain text, and a store that was encrypted has no such row")
	}
	id, rest, err := sealedUnder(body)
	if err != nil {
		return nil, err
	}
	with, ok := k.all[id]
	if !ok {
		return nil, &missingKeyError{id}
	}
	plain, err := with.aead.Open(nil, nil, rest, additional(row))
	if err != nil {
		return nil, fmt.Errorf("was changed in the database, or moved there from another row (key %s)", id)
	}
	return plain, nil
}

// additional binds a body to its row, so that it is good in no other. No part has a zero byte.
func additional(row resource.Key) []byte {
	return []byte(row.Kind + "\x00" + row.Mesh + "\x00" + row.Name)
}

type missingKeyError struct{ id keyID }

func (e *missingKeyError) Error() string {
	return fmt.Sprintf("is encrypted under the key %s, which is not in the key file; add that key's line to it, from "+
		"where it was kept", e.id)
}
