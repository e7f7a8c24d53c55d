package join

import (
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"weft/internal/admission"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

const (
	// maxStoreID is the maximum number of bytes of a store's ID.
	maxStoreID = 200
	// maxRejectedStores is the number of kept rejected stores of a zone.
	maxRejectedStores = 3
	// noteRejected is the minimum time between two records of the same rejected control plane.
	noteRejected = time.Minute
)

// StoreID returns the ID of a store, which the first call creates.
func StoreID(ctx context.Context, writer *admission.Writer) (string, error) {
	result, err := writer.Create(ctx, kind.StoreIDs.Make("", kind.TheStoreID, NewStoreID()), nil)
	if err != nil {
		return "", fmt.Errorf("the ID of the store: %w", err)
	}
	return result.Object.(*resource.Object[kind.StoreID]).Spec.ID, nil
}

// NewStoreID returns the ID of a new store.
func NewStoreID() kind.StoreID { return kind.StoreID{ID: rand.Text()} }

// checkZoneName rejects a control plane of another zone than the token's.
func checkZoneName(ctx context.Context, zone string) error {
	if values := metadata.ValueFromIncomingContext(ctx, zonesync.ZoneMetadata); len(values) == 1 && values[0] == zone {
		return nil
	} else if len(values) == 1 {
		return wrongToken(zone, values[0])
	}
	return status.Errorf(codes.InvalidArgument,
		"want one metadata `%s` with the name of the zone; upgrade the control plane of the zone to a release "+
			"that sends it", zonesync.ZoneMetadata)
}

func wrongToken(zone, said string) error {
	return status.Errorf(codes.PermissionDenied,
		"the token is for the zone %q, and the control plane says it is %.100q", zone, said)
}

// checkStore rejects a control plane whose store is not the zone's: a second control plane with the same name, whose
// digest would replace the zone's resources, or a stolen token. The store of the first control plane that connects
// becomes the zone's.
func (g *Global) checkStore(ctx context.Context, zone string) error {
	values := metadata.ValueFromIncomingContext(ctx, zonesync.StoreMetadata)
	if len(values) != 1 || values[0] == "" || len(values[0]) > maxStoreID {
		return status.Errorf(codes.InvalidArgument,
			"want one metadata `%s` with the ID of the store, which has at most %d bytes; upgrade the control plane "+
				"of the zone to a release that sends it", zonesync.StoreMetadata, maxStoreID)
	}
	fingerprint := storeOf(ctx)
	if g.logs.storeOf(zone) == fingerprint {
		return nil
	}
	var known string
	err := admission.Modify(g.ctx, g.Writer, kind.ZoneInsights, "", zone,
		func(o *resource.Object[kind.ZoneInsight]) (changed bool) {
			store := zonesync.ZoneStore{Fingerprint: o.Spec.Store, Disconnected: g.disconnectedSince(&o.Spec)}
			admitted, becomes := store.Admits(fingerprint, time.Now(), g.timeout())
			if admitted {
				known = ""
				if becomes {
					o.Spec.Store, o.Spec.StoreTime = fingerprint, &kind.Time{Time: time.Now()}
				}
				o.Spec.RejectedStores = withoutStore(o.Spec.RejectedStores, fingerprint)
				return becomes
			}
			known = o.Spec.Store
			return recordRejectedStore(&o.Spec, fingerprint, addressOf(ctx))
		})
	switch {
	case err != nil:
		return status.Error(codes.Unavailable,
			"the store of the zone can't be looked up: the store of global is not available; try again")
	case known != "":
		return status.Errorf(codes.PermissionDenied,
			"the zone %[1]q belongs to a control plane with another store (%[2]s), and this one has the store %[3]s: "+
				"if it was installed anew, or is to take the place of the other one, run `weft zone replace %[1]s "+
				"--store %[3]s` on the global control plane; else stop it, since two control planes run under one "+
				"name, or change its zone. It is accepted without that once the other one has been "+
				"disconnected for %[4]s",
			zone, known, fingerprint, g.timeout())
	}
	return nil
}

// storeOf returns the fingerprint of the store of the control plane that calls.
func storeOf(ctx context.Context) string {
	return zonesync.Fingerprint(strings.Join(metadata.ValueFromIncomingContext(ctx, zonesync.StoreMetadata), ","))
}

func (g *Global) timeout() time.Duration {
	if g.Timeout > 0 {
		return g.Timeout
	}
	return zonesync.Timeout
}

// disconnectedSince returns the time since which no control plane of a zone is connected; zero if one is. If no
// connection was recorded, it is the time when its store became the zone's.
func (g *Global) disconnectedSince(known *kind.ZoneInsight) (since time.Time) {
	if known.StoreTime != nil {
		since = known.StoreTime.Time
	}
	for _, s := range known.Subscriptions {
		end := time.Time{}
		if s.DisconnectTime != nil {
			end = s.DisconnectTime.Time
		} else if s.ControlPlaneInstanceID == g.Instance || g.Replicas == nil {
			return time.Time{}
		} else if last, ended := g.Replicas.HasExpired(s.ControlPlaneInstanceID); ended {
			end = last
		} else {
			return time.Time{}
		}
		if end.After(since) {
			since = end
		}
	}
	return since
}

// recordRejectedStore records a rejected control plane, and returns whether that is news.
func recordRejectedStore(known *kind.ZoneInsight, fingerprint, from string) (news bool) {
	now := time.Now()
	for _, r := range known.RejectedStores {
		age := now.Sub(r.Time.Time).Abs()
		if r.Store == fingerprint && r.From == from && age < noteRejected ||
			len(known.RejectedStores) == maxRejectedStores && age < rejectedBetween {
			return false
		}
	}
	all := append(withoutStore(known.RejectedStores, fingerprint),
		kind.RejectedStore{Store: fingerprint, From: from, Time: kind.Time{Time: now}})
	known.RejectedStores = all[max(0, len(all)-maxRejectedStores):]
	return true
}

func withoutStore(all []kind.RejectedStore, fingerprint string) []kind.RejectedStore {
	return slices.DeleteFunc(slices.Clone(all), func(r kind.RejectedStore) bool { return r.Store == fingerprint })
}

// addressOf returns the address of a caller without its port, which differs from call to call.
func addressOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return hostOf(p.Addr.String())
	}
	return "unknown"
}

// Replace makes the present resources of a zone's control plane replace its former ones, on behalf of an operator:
// after a change of its store, and for doubted deletions. The store is named by its fingerprint; empty: the only one
// that was rejected, if any.
func Replace(ctx context.Context, writer *admission.Writer, zone, store string) error {
	var problem error
	err := admission.Modify(ctx, writer, kind.ZoneInsights, "", zone, func(o *resource.Object[kind.ZoneInsight]) bool {
		problem = replace(&o.Spec, zone, store)
		return problem == nil
	})
	if problem != nil {
		return problem
	}
	return err
}

// fingerprints matches the fingerprint of a store ([zonesync.Fingerprint]).
var fingerprints = regexp.MustCompile(`^[0-9a-f]{32}$`)

func replace(known *kind.ZoneInsight, zone, store string) error {
	rejected := known.RejectedStores
	switch {
	case store != "" && !fingerprints.MatchString(store):
		return resource.Errorf(resource.Invalid,
			"%.100q is not the fingerprint of a store: want the 32 hexadecimal digits that the control plane of the "+
				"zone logs when it starts", store)
	case store == "" && len(rejected) > 1:
		return resource.Errorf(resource.Conflict,
			"several control planes with other stores came under the name of the zone %q; name the store, by "+
				"--store, of the one that is the zone's: `weft inspect zones` lists them", zone)
	case store == "" && len(rejected) == 0 && len(known.DoubtedDeletions) == 0:
		return resource.Errorf(resource.Conflict, "nothing of the zone %q waits for a confirmation", zone)
	case store == "" && len(rejected) == 1:
		store = rejected[0].Store
	}
	if store != "" {
		known.Store, known.StoreTime = store, &kind.Time{Time: time.Now()}
	}
	known.RejectedStores = nil
	known.Confirmed = &kind.Time{Time: time.Now()}
	return nil
}
