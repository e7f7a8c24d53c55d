package kind

import (
	"fmt"
	"math"
	"math/big"
	"slices"
)

// LocalityAwareness chooses which endpoints of the client's zone, and which other zones, get the traffic. By default it
// stays in the client's zone while an endpoint there is not ejected; all other zones share it after that.
type LocalityAwareness struct {
	// true to spread the traffic over the endpoints of all zones alike. It has no effect beside affinityTags and
	// failover
	Disabled *bool `json:"disabled,omitempty"`
	// the endpoints of the client's zone
	LocalZone *LocalZone `json:"localZone,omitempty"`
	// the other zones, of a MeshMultiZoneService
	CrossZone *CrossZone `json:"crossZone,omitempty" schema:"minProperties=1"`
}

// LocalZone divides the endpoints of the client's zone into groups that share its traffic by weights.
type LocalZone struct {
	// an endpoint is in the group of the first entry of which it has the client's own value, or else in a group of the
	// weight 1
	AffinityTags []AffinityTag `json:"affinityTags,omitempty" schema:"required minItems=1 maxItems=9"`
}

// AffinityTag is a label of Dataplanes, or a tag of their inbounds where the Dataplane lacks the label.
type AffinityTag struct {
	Key string `json:"key" schema:"required maxLength=253"` // the name of the label or tag
	// the share of the group, relative to the other ones; all entries have one or none. By default, of n entries the
	// first has 9 x 10^(n-1), and each further one a tenth of the one before
	Weight *uint32 `json:"weight,omitempty" schema:"min=1 max=100000000"`
}

// CrossZone chooses the zones that serve while the client's zone does not.
type CrossZone struct {
	// the zones in the order of preference; zones that no entry selects get no traffic
	Failover []Failover `json:"failover,omitempty" schema:"minItems=1 maxItems=16"`
	// when traffic leaves a zone of which some endpoints are healthy; by default it leaves with the last one
	FailoverThreshold *FailoverThreshold `json:"failoverThreshold,omitempty"`
}

// Failover selects the zones of one priority. A zone that several entries select has the priority of the first one.
type Failover struct {
	From *FromZones `json:"from,omitempty"`       // the zones of the clients; by default all
	To   ToZones    `json:"to" schema:"required"` // the zones of the endpoints
}

// FromZones are zones of clients.
type FromZones struct {
	Zones []string `json:"zones,omitempty" schema:"required minItems=1 maxItems=256 pattern=mesh" missing:"at least one zone; leave from out for clients of every zone"` // their names
}

// Types of [ToZones].
const (
	NoZone     = "None"
	OnlyZones  = "Only"
	AnyZone    = "Any"
	OtherZones = "AnyExcept"
)

// ToZones are zones of endpoints.
type ToZones struct {
	// Only for the named zones, AnyExcept for all others, Any, or None
	Type string `json:"type" schema:"required enum=None|Only|Any|AnyExcept"`
	// the names of zones, with Only and AnyExcept
	Zones []string `json:"zones,omitempty" schema:"maxItems=256 pattern=mesh"`
}

// Select returns whether the zones include one.
func (z *ToZones) Select(zone string) bool {
	switch z.Type {
	case AnyZone:
		return true
	case OnlyZones:
		return slices.Contains(z.Zones, zone)
	case OtherZones:
		return !slices.Contains(z.Zones, zone)
	}
	return false
}

// FailoverThreshold is a share of the endpoints of a zone.
type FailoverThreshold struct {
	// the percentage of healthy endpoints below which a part of the traffic leaves, in proportion
	Percentage *Decimal `json:"percentage,omitempty" schema:"required"`
}

// Locality returns the locality awareness, also where there is none.
func (c *LoadBalancingConf) Locality() LocalityAwareness {
	if c.LocalityAwareness == nil {
		return LocalityAwareness{}
	}
	return *c.LocalityAwareness
}

// AllAlike reports whether the endpoints of all zones are alike.
func (l LocalityAwareness) AllAlike() bool {
	return l.Disabled != nil && *l.Disabled && len(l.Affinity()) == 0 && l.Priorities() == nil
}

// Affinity returns the affinity tags with their weights.
func (l LocalityAwareness) Affinity() []AffinityTag {
	if l.LocalZone == nil {
		return nil
	}
	tags := slices.Clone(l.LocalZone.AffinityTags)
	weight := uint32(9)
	for i := len(tags) - 1; i >= 0; i-- {
		if tags[i].Weight == nil {
			tags[i].Weight = &[]uint32{weight}[0]
		}
		weight *= 10
	}
	return tags
}

// Priorities returns the entries of the failover; nil where no policy has a failover.
func (l LocalityAwareness) Priorities() []Failover {
	if l.CrossZone == nil {
		return nil
	}
	return l.CrossZone.Failover
}

// IsFrom returns whether an entry is for clients of a zone.
func (f *Failover) IsFrom(zone string) bool {
	return f.From == nil || slices.Contains(f.From.Zones, zone)
}

// Overprovisioning returns the factor, in percent, by which the healthy share of a zone's endpoints is multiplied to
// get the share of the traffic that stays: 10,000 divided by the threshold, rounded up. It is 0 without a threshold.
func (l LocalityAwareness) Overprovisioning() uint32 {
	if l.CrossZone == nil || l.CrossZone.FailoverThreshold == nil || l.CrossZone.FailoverThreshold.Percentage == nil {
		return 0
	}
	// The text of the number is exact, which its binary fraction is not.
	percentage, ok := new(big.Rat).SetString(l.CrossZone.FailoverThreshold.Percentage.String())
	if !ok || percentage.Sign() <= 0 {
		return 0
	}
	factor := new(big.Rat).Quo(big.NewRat(10_000, 1), percentage)
	up := new(big.Int).Add(factor.Num(), new(big.Int).Sub(factor.Denom(), big.NewInt(1)))
	up.Quo(up, factor.Denom())
	if !up.IsInt64() || up.Int64() > math.MaxUint32 {
		return math.MaxUint32
	}
	return uint32(up.Int64())
}

func (c *checks) localityAwareness(at string, l *LocalityAwareness) {
	if l.LocalZone != nil {
		c.affinityTags(at+".localZone.affinityTags", l.LocalZone.AffinityTags)
	}
	if l.CrossZone != nil {
		c.crossZone(at+".crossZone", l.CrossZone)
	}
}

func (c *checks) affinityTags(at string, tags []AffinityTag) {
	if len(tags) == 0 {
		c.instead(at, "is required: at least one tag; without any, leave localZone out. To keep all traffic in the "+
			"zone, as Kuma does then, write crossZone: {failover: [{to: {type: None}}]}")
	}
	seen, weighted := map[string]bool{}, 0
	for i, tag := range tags {
		at := fmt.Sprintf("%s[%d]", at, i)
		if c.text(at+".key", tag.Key) && seen[tag.Key] {
			c.add(at+".key", "is %q again; an endpoint is in the group of the first entry", tag.Key)
		}
		seen[tag.Key] = true
		if tag.Weight != nil {
			weighted++
		}
	}
	if weighted > 0 && weighted < len(tags) {
		c.add(at, "has weights for %d of %d entries; all or none have a weight", weighted, len(tags))
	}
}

func (c *checks) crossZone(at string, z *CrossZone) {
	if z.Failover == nil && z.FailoverThreshold == nil {
		c.add(at, "has no field; to keep all traffic in the zone, as Kuma does then, write failover: [{to: {type: "+
			"None}}]")
	}
	if z.Failover != nil && len(z.Failover) == 0 {
		c.add(at+".failover", "has no entry; to leave all other zones out, write one with `to: {type: None}`")
	}
	for i := range z.Failover {
		c.toZones(fmt.Sprintf("%s.failover[%d].to", at, i), &z.Failover[i].To)
	}
	if t := z.FailoverThreshold; t != nil && t.Percentage != nil && (*t.Percentage <= 0 || *t.Percentage > 100) {
		c.add(at+".failoverThreshold.percentage", "is %s, want a percentage above 0 and up to 100", *t.Percentage)
	}
}

func (c *checks) toZones(at string, to *ToZones) {
	named := to.Type == OnlyZones || to.Type == OtherZones
	switch {
	case !c.valid(at + ".type"):
	case named && len(to.Zones) == 0:
		c.add(at+".zones", "is required with the type %s: at least one zone", to.Type)
	case !named && to.Zones != nil:
		c.add(at+".zones", "is given with the type %s; leave it out", to.Type)
	}
}
