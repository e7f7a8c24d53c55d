package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/inspect"
	"weft/internal/rest"
	"weft/kind"
	"weft/resource"
)

func newInspectZonesCommand(r *remote) *cobra.Command {
	command := &cobra.Command{
		Use:   "zones",
		Short: "Show every zone: connection, lag, rejected items, and counts of its resources",
		Long: `Show every zone that the control plane knows: global knows all zones; a zone knows itself, and the services that it
receives from other zones.

LAG is the age of the oldest change that a zone has not stored yet; 0s: it is in sync. LAST ITEM is when a resource was
last sent in either direction. DATAPLANES, SERVICES and INGRESSES count the online, Available and healthy ones, and all; -/N
where the zone is not connected. With -o json, the output has the position of each kind.

A zone that has joined also shows its connection to global.`,
		Example: `  weft inspect zones
  weft inspect zones -o json`,
		Args: cobra.NoArgs,
	}
	o := outputFlag(command, asTable, asJSON, asYAML)
	command.RunE = func(command *cobra.Command, _ []string) error {
		return show(r, command, "/zones/_inspect", nil, o.form, func(w io.Writer, found *rest.Zones) error {
			return printZones(w, found, time.Now())
		})
	}
	return command
}

func printZones(w io.Writer, found *rest.Zones, now time.Time) error {
	var rows [][]string
	for i := range found.Zones {
		rows = append(rows, zoneRow(&found.Zones[i], now))
	}
	heading := []string{"NAME", "STATE", "SINCE", "VERSION", "LAG", "LAST ITEM", "REJECTED", "DATAPLANES", "SERVICES",
		"INGRESSES"}
	if err := printTable(w, heading, rows); err != nil {
		return err
	}
	for i := range found.Zones {
		z := &found.Zones[i]
		printRejected(w, "between global and "+z.Name, z.Rejected)
		printUnconfirmed(w, z, now)
	}
	if found.Global != nil {
		printGlobal(w, found.Global, now)
	}
	return missingLinks(found).print(w)
}

// missingLinks returns what is unknown, since replicas have not responded.
func missingLinks(found *rest.Zones) (missing unknownParts) {
	for i := range found.Zones {
		missing.add("LAG and LAST ITEM of "+found.Zones[i].Name, found.Zones[i].Unknown)
	}
	missing.addReplicas("connections", found.UnknownReplicas)
	return missing
}

func zoneRow(z *inspect.Zone, now time.Time) []string {
	lag := "-"
	if z.Connected != nil && *z.Connected && z.Unknown == "" {
		lag = age(time.Duration(z.Lag))
	}
	healthy := 0
	for _, ingress := range z.Ingresses {
		if ingress.Healthy {
			healthy++
		}
	}
	row := []string{z.Name, zoneState(z), agoOrNever(z.Since, now), cmp.Or(z.Version, "-"), lag,
		agoOrNever(z.LastItem, now), fmt.Sprint(len(z.Rejected))}
	if z.Connected != nil && !*z.Connected { // its states are those of its last connection
		return append(row, unknownOf(z.Dataplanes.Total), unknownOf(z.Services.Total), unknownOf(len(z.Ingresses)))
	}
	return append(row, dataplanes(z), of(z.Services.Available, z.Services.Total), of(healthy, len(z.Ingresses)))
}

// unknownOf returns an unknown part of a whole.
func unknownOf(whole int) string { return fmt.Sprintf("-/%d", whole) }

// zoneState returns the state of a zone's connection, or "-" on a zone, since only global has it.
func zoneState(z *inspect.Zone) string {
	switch {
	case z.Enabled != nil && !*z.Enabled:
		return "disabled"
	case z.Connected == nil:
		return "-"
	case *z.Connected:
		return "connected"
	case z.Since == nil:
		return "never connected"
	}
	return "away"
}

// dataplanes returns the counts of online and of all Dataplanes. For a remote zone, a zone has "-", since it does not
// receive them.
func dataplanes(z *inspect.Zone) string {
	if z.Connected == nil && z.Dataplanes.Total == 0 {
		return "-"
	}
	return of(z.Dataplanes.Online, z.Dataplanes.Total)
}

func of(part, whole int) string { return fmt.Sprintf("%d/%d", part, whole) }

func agoOrNever(at *kind.Time, now time.Time) string {
	if at == nil {
		return "-"
	}
	return age(now.Sub(at.Time)) + " ago"
}

func printRejected(w io.Writer, where string, rejected []kind.RejectedItem) {
	if len(rejected) == 0 {
		return
	}
	fmt.Fprintf(w, "\nRejected %s:\n", where)
	for _, r := range rejected {
		fmt.Fprintf(w, "  %s: %s\n", resource.Key{Kind: r.Kind, Mesh: r.Mesh, Name: r.Name}, r.Reason)
	}
}

// printUnconfirmed prints the stores and deletions of a zone that wait for an operator's confirmation.
func printUnconfirmed(w io.Writer, z *inspect.Zone, now time.Time) {
	if len(z.RejectedStores)+len(z.DoubtedDeletions) == 0 {
		return
	}
	fmt.Fprintf(w, "\nOf %s, whose store is %s, waits for `weft zone replace %s`:\n", z.Name,
		cmp.Or(z.Store, "not known"), z.Name)
	for _, r := range z.RejectedStores {
		fmt.Fprintf(w, "  a control plane at %s with the store %s, rejected %s ago\n", r.From, r.Store,
			age(now.Sub(r.Time.Time)))
	}
	for _, d := range z.DoubtedDeletions {
		fmt.Fprintf(w, "  the deletion of %d of %d resources of the kind %s, for %s\n", d.Deletions, d.Of, d.Kind,
			age(now.Sub(d.Time.Time)))
	}
}

func printGlobal(w io.Writer, g *inspect.GlobalLink, now time.Time) {
	since := age(now.Sub(g.Since.Time))
	if g.Connected {
		fmt.Fprintf(w, "\nThis zone is connected to the global control plane %s (%s) for %s, and global lacks "+
			"changes of the last %s.\n",
			g.Instance, g.Version, since, age(time.Duration(g.Lag)))
	} else {
		fmt.Fprintf(w, "\nThis zone has not been connected to the global control plane for %s: %s\n", since, g.Problem)
	}
	printRejected(w, "between this zone and global", g.Rejected)
}
