package main

import (
	"net/url"

	"github.com/spf13/cobra"

	"weft/kind"
)

// zoneFlag adds the flag --zone to a command about one object.
func (r *remote) zoneFlag(command *cobra.Command) *string {
	zone := command.Flags().String("zone", "", "on global: the zone of the object, where several zones have its name")
	completeFlag(command, "zone", r.completeName(kind.Zones))
	return zone
}

// zoneQuery returns the query of a request about an object of a zone; empty: of any.
func zoneQuery(zone string) url.Values {
	query := url.Values{}
	if zone != "" {
		query.Set("zone", zone)
	}
	return query
}
