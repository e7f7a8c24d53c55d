package zonesync

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// The gRPC metadata of each call of a zone's control plane, beside its token: the zone's name, and the ID of its store.
const (
	ZoneMetadata  = "weft-zone"
	StoreMetadata = "weft-store"
)

// Timeout is the time for which global waits for an operator before it accepts, without confirmation, another store of
// a disconnected zone, or the deletion of most of a zone's resources.
const Timeout = 24 * time.Hour

// Fingerprint returns a public name of a store: 32 hexadecimal digits of the SHA-256 of its ID, which is secret.
func Fingerprint(storeID string) string {
	sum := sha256.Sum256([]byte(storeID))
	return hex.EncodeToString(sum[:16])
}

// ZoneStore is the store of a zone's control plane, as global has recorded it. A control plane with the zone's token
// and another store is a second one for the same zone: accepting it would delete, everywhere, the resources that it
// lacks.
type ZoneStore struct {
	Fingerprint  string    // of the zone's store; empty before the first connection
	Disconnected time.Time // the time since which no control plane with that store is connected; zero while one is
}

// Admits reports whether a control plane with a store may connect for the zone, and whether its store becomes the
// zone's by that. The timeout is usually [Timeout].
func (s ZoneStore) Admits(fingerprint string, now time.Time, timeout time.Duration) (admitted, becomes bool) {
	if s.Fingerprint == fingerprint {
		return true, false
	}
	becomes = s.Fingerprint == "" || !s.Disconnected.IsZero() && now.Sub(s.Disconnected) >= timeout
	return becomes, becomes
}
