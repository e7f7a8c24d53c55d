package main

import (
	"fmt"
	"io"
	"time"

	"weft/internal/check"
	"weft/internal/inspect"
	"weft/internal/rest"
	"weft/resource"
)

// unknown is what an output lacks, since a zone or a replica has not responded.
type unknown struct{ what, reason string }

// unknownParts are what an output lacks.
type unknownParts []unknown

// add adds what an output lacks for a reason; none where the reason is empty.
func (u *unknownParts) add(what, reason string) {
	if reason != "" {
		*u = append(*u, unknown{what, reason})
	}
}

// addError adds what an output lacks where an error is that of a zone or a replica that has not responded. It returns
// any other error.
func (u *unknownParts) addError(what string, err error) error {
	if resource.CodeOf(err) != resource.Unavailable {
		return err
	}
	u.add(what, err.Error())
	return nil
}

// addZones adds what an output lacks of each zone that has not responded, or is not asked.
func (u *unknownParts) addZones(what string, zones rest.MissingZones) {
	for _, zone := range zones.UnknownZones {
		u.add(what+" of the zone "+zone.Zone, zone.Reason)
	}
	for _, zone := range zones.DisabledZones {
		u.add(what+" of the zone "+zone, "the zone is disabled")
	}
}

// addReplicas adds what an output lacks of each replica that has not responded.
func (u *unknownParts) addReplicas(what string, replicas []rest.UnknownReplica) {
	for _, replica := range replicas {
		u.add(what+" of the replica "+replica.Instance, replica.Reason)
	}
}

// addStates adds the states that an output lacks, once for each zone.
func (u *unknownParts) addStates(what string, of []*inspect.Unknown, now time.Time) {
	seen := map[string]bool{}
	for _, of := range of {
		if of == nil || seen[of.Zone] {
			continue
		}
		seen[of.Zone] = true
		reason := of.Reason
		if of.Since != nil {
			reason += ", its last connection ended " + age(now.Sub(of.Since.Time)) + " ago"
		}
		u.add(what+" of the zone "+of.Zone, reason)
	}
}

// addFindings adds the findings that a report lacks.
func (u *unknownParts) addFindings(report *check.Report) {
	for i := range report.Findings {
		if f := &report.Findings[i]; f.IsUnknownSource() {
			u.add("findings of "+f.Object.String(), f.Detail)
		}
	}
}

// print writes the parts under a heading after an empty line; nothing if there are none.
func (u unknownParts) print(w io.Writer) error {
	if len(u) == 0 {
		return nil
	}
	fmt.Fprint(w, "\nUnknown:\n")
	for _, part := range u {
		if _, err := fmt.Fprintf(w, "  %s: %s\n", part.what, part.reason); err != nil {
			return err
		}
	}
	return nil
}
