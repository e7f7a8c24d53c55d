package inspect

import (
	"fmt"
	"strings"

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
		return append(hashNotes(c, d.Protocol), rs.localityNotes(c, d, secured)...)
	case *kind.HealthCheckConf:
		return checkNotes(c, d, secured)
	}
	return nil
}

// checkNotes says which endpoints of a destination are not checked, and where a check is another than the protocol's.
func checkNotes(c *kind.HealthCheckConf, d *service.Destination, secured bool) []string {
	var notes []string
	for _, list := range d.Lists(secured) {
		if throughZoneProxies(d, list.DestinationKey) {
			notes = append(notes, fmt.Sprintf("%s: its endpoints are zone proxies, which are not checked: any server "+
				"behind them would respond", list.DestinationKey))
			continue
		}
		text := !d.Protocol.IsHTTP() || d.Protocol == kind.HTTP && d.HasTCPInbound()
		notes = append(notes, checkerNotes(list.String(), c, d.Protocol, checkedBy{text: text})...)
	}
	return notes
}

// checkedBy is what a check of an endpoint can do.
type checkedBy struct {
	text    bool // it can send the application a text
	forward bool // it is sent by a zone ingress, which has no request to send
}

// noCheckerReason returns why no checker is left for ports with a protocol.
func noCheckerReason(protocol kind.Protocol, by checkedBy) string {
	switch {
	case by.forward:
		return "a zone ingress checks connections only, and tcp is absent or disabled"
	case protocol.IsHTTP():
		return fmt.Sprintf("the checker for %s is absent or disabled, and so is tcp", protocol)
	}
	return "tcp is absent or disabled"
}

// checkerNotes says where a list of endpoints is not checked, or not as its protocol suggests.
func checkerNotes(list string, c *kind.HealthCheckConf, protocol kind.Protocol, by checkedBy) []string {
	switch c.CheckerOf(protocol, by.forward) {
	case kind.NoChecker:
		return []string{list + ": its endpoints are not checked: " + noCheckerReason(protocol, by)}
	case kind.TCPChecker:
		var notes []string
		if protocol.IsHTTP() {
			notes = append(notes, fmt.Sprintf("%s: its endpoints are checked by connections: the checker for %s is "+
				"absent, disabled, or can't be used here", list, protocol))
		}
		if by.text {
			return notes
		}
		if c.TCP.Send != "" || len(c.TCP.Receive) > 0 {
			notes = append(notes, list+": tcp.send and tcp.receive have no effect: the bytes of such a check do not "+
				"reach the application as they are")
		}
		return notes
	case kind.HTTPChecker, kind.GRPCChecker:
	}
	return nil
}

// hashNotes says where nothing is hashed, or what is to be hashed has no effect.
func hashNotes(c *kind.LoadBalancingConf, protocol kind.Protocol) []string {
	const field = "hashPolicies"
	reason := kind.MeshLoadBalancingStrategies.NoEffectReason(c, field,
		&kind.Place{Direction: kind.Sent, Protocol: protocol})
	switch {
	case len(c.HashPolicies) == 0 && c.Hashes():
		return []string{c.Balancer().Type + " without hashPolicies: each request gets a random endpoint"}
	case len(c.HashPolicies) > 0 && reason != "":
		return []string{field + " have no effect: " + reason}
	}
	return nil
}

// localityNotes says which parts of a locality awareness have no effect on a destination.
func (rs *Reports) localityNotes(c *kind.LoadBalancingConf, d *service.Destination, secured bool) []string {
	l := c.Locality()
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	switch {
	case l == (kind.LocalityAwareness{}):
		return nil
	case d.External():
		return []string{"localityAwareness has no effect: zone egresses dial the servers of a MeshExternalService"}
	case !d.HasLocalities() && d.Servers.Zone != "":
		return []string{"localityAwareness has no effect: all servers are in the zone " + d.Servers.Zone}
	case !d.HasLocalities() && l.CrossZone != nil:
		add("localityAwareness.crossZone has no effect: a MeshService is in one zone")
	}
	if l.Disabled != nil && *l.Disabled && !l.AllAlike() {
		add("localityAwareness.disabled has no effect beside affinityTags and failover")
	}
	if !d.HasLocalities() {
		return notes
	}
	if l.AllAlike() && d.Local != nil && len(d.Zones) > 0 && !d.MixesZones(secured) {
		add("localityAwareness.disabled has no effect: servers of this zone, or the client, are plaintext, so that " +
			"the zones are not in one list")
	}
	var priorities []string
	for _, remote := range d.Remotes(secured) {
		if !remote.All && remote.Zones[0].ByEgress() {
			priorities = append(priorities, remote.Zones[0].Zone)
		}
	}
	if len(priorities) > 0 {
		add("localityAwareness.crossZone.failover: through zone egresses, the services of the zones follow each "+
			"other: %s", strings.Join(priorities, ", "))
	}
	return notes
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
		if throughZoneProxies(d, list.DestinationKey) && detectors != (kind.Detectors{}) {
			notes = append(notes, fmt.Sprintf("%s: its endpoints are zone proxies, which are ejected by "+
				"localOriginFailures only", list.DestinationKey))
		}
		if o.MaxEjectionPercent != nil {
			n := uint32(len(rs.State.Services.EndpointsOfList(rs.r, list).Endpoints))
			notes = append(notes, fmt.Sprintf("%s: maxEjectionPercent %d allows %d of %d endpoints to be ejected",
				list.DestinationKey, *o.MaxEjectionPercent, n**o.MaxEjectionPercent/100, n))
		}
	}
	return notes
}

// throughZoneProxies reports whether the endpoints of a list are zone proxies.
func throughZoneProxies(d *service.Destination, list service.DestinationKey) bool {
	return list.Locality.IsRemote() || !d.HasLocalities() && (d.Servers.Zone != "" || d.External())
}
