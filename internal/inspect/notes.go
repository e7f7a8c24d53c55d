package inspect

import (
	"fmt"

	"weft/internal/service"
	"weft/kind"
)

// notesAbout returns where an effective conf does less or more than its fields say, for one destination.
func (rs *Reports) notesAbout(conf any, d *service.Destination, secured bool) []string {
	if c, ok := conf.(*kind.CircuitBreakerConf); ok && c.OutlierDetection != nil {
		return rs.ejectionNotes(c.OutlierDetection, d, secured)
	}
	return nil
}

// ejectionNotes says which detectors a destination does not have, and how many of its endpoints may be ejected.
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
