package zonesync

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// Metadata of each call of a zone's control plane, beside its token: the name of its zone, and the ID of its store.
const (
	ZoneMetadata  = "weft-zone"
	StoreMetadata = "weft-store"
)

// Timeout is how long global waits for an operator before it takes a zone at its word: that another store is the
// zone's from now on, while the former one is away, or that most of what the zone had is gone.
const Timeout = 24 * time.Hour

// Fingerprint names a store by its ID, which is secret: 32 hexadecimal digits of the SHA-256 of the ID.
func Fingerprint(storeID string) string {
	sum := sha256.Sum256([]byte(storeID))
	return hex.EncodeToString(sum[:16])
}

// ZoneStore is what global knows of the store of a zone's control plane. A control plane that has the zone's token and
// another store is a second one of the same name: what it lacks would be deleted everywhere.
type ZoneStore struct {
	Fingerprint  string    // of the store that is the zone's; empty: none has connected yet
	Disconnected time.Time // since when no control plane with that store is connected; zero: one is
}

// Admits says whether a control plane with a store may speak for the zone, and whether its store becomes the zone's by
// that. Patience is usually [Patience].
func (s ZoneStore) Admits(fingerprint string, now time.Time, patience time.Duration) (admitted, becomes bool) {
	if s.Fingerprint == fingerprint {
		return true, false
	}
	becomes = s.Fingerprint == "" || !s.Disconnected.IsZero() && now.Sub(s.Disconnected) >= patience
	return becomes, becomes
}
