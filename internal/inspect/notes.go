package inspect

import (
	"cmp"
	"fmt"
	"slices"

	"weft/internal/service"
	"weft/kind"
)

// notesAbout returns where an effective conf does less or more than its fields say, for one destination.
func (rs *Reports) notesAbout(conf any, d *service.Destination, secured bool) []string {
	switch c := conf.(type) {
	case *kind.CircuitBreakerConf:
		if c.OutlierDetection != nil {
			return rs.ejectionNotes(c.OutlierDetection, d, secured)
		}
	case *kind.LoadBalancingConf:
		return hashNotes(c, d.Protocol)
	}
	return nil
}

// hashNotes says where nothing is hashed, or what is to be hashed has no effect.
func hashNotes(c *kind.LoadBalancingConf, protocol kind.Protocol) []string {
	hashable := slices.ContainsFunc(c.HashPolicies, func(p kind.HashPolicy) bool {
		return protocol.IsHTTP() || p.Connection != nil || p.FilterState != nil
	})
	switch of := c.Balancer().Type; {
	case !c.Hashes() && len(c.HashPolicies) > 0:
		return []string{"hashPolicies have no effect: the type of the load balancer is " +
			cmp.Or(of, kind.RoundRobin) + ", not RingHash or Maglev"}
	case c.Hashes() && !hashable && len(c.HashPolicies) > 0:
		return []string{"hashPolicies have no effect on TCP, which has Connection and FilterState only: each " +
			"connection gets a random endpoint"}
	case c.Hashes() && !hashable:
		return []string{of + " without hashPolicies: each request gets a random endpoint"}
	}
	return nil
}

// ejectionNotes returns the detectors that a destination lacks, and how many of its endpoints may be ejected, as texts.
func (rs *Reports) ejectionNotes(o *kind.OutlierDetection, d *service.Destination, secured bool) []string {
	if o.Disabled != nil && *o.Disabled {
		return nil
	}
	var notes []string
	detectors := o.Detection()
	if split := o.SplitExternalAndLocalErrors; split != nil && !*split && detectors.LocalOriginFailures != nil {
		notes = append(notes, "splitExternalAndLocalErrors is true: localOriginFailures implies it")
	}
	detectors.LocalOriginFailures = nil
	for _, list := range d.Lists(secured) {
		if throughZoneProxies(d, list) && detectors != (kind.Detectors{}) {
			notes = append(notes, fmt.Sprintf("%s: its endpoints are zone proxies, which are ejected by "+
				"localOriginFailures only", list))
		}
		if o.MaxEjectionPercent != nil {
			n := uint32(len(rs.State.Services.EndpointsOf(rs.r, list).Endpoints))
			notes = append(notes, fmt.Sprintf("%s: maxEjectionPercent %d allows %d of %d endpoints to be ejected", list,
				*o.MaxEjectionPercent, n**o.MaxEjectionPercent/100, n))
		}
	}
	return notes
}

// throughZoneProxies reports whether the endpoints of a list are zone proxies.
func throughZoneProxies(d *service.Destination, list service.DestinationKey) bool {
	return list.Locality == service.RemoteLocality || !d.HasLocalities() && (d.Servers.Zone != "" || d.External())
}
