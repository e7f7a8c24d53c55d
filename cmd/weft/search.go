package main

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/rest"
)

// searchSize is the number of results that the command shows.
const searchSize = "50"

func newSearchCommand(r *remote) *cobra.Command {
	command := &cobra.Command{
		Use:   "search TEXT",
		Short: "Find resources by a name, an address, a host name, an SNI, a SPIFFE ID, a label or a KRI",
		Long: `Find resources of every kind by a text: a name or a part of it, an address, a virtual IP, a host name, an SNI, a
SPIFFE ID, a label KEY=VALUE, or a KRI. Exact matches are first, then texts that begin with TEXT, then other ones.

The search covers all meshes, or the mesh of --mesh; on global it covers every zone. Secrets are found by users who may
read them, by their names and labels.`,
		Example: `  weft search web
  weft search 10.0.0.7
  weft search spiffe://default.east.mesh.local/web
  weft search team=payments --mesh shop -o json`,
		Args: cobra.ExactArgs(1),
	}
	o := outputFlag(command, asTable, asJSON, asYAML)
	command.RunE = func(command *cobra.Command, args []string) error {
		query := url.Values{"q": {args[0]}, "size": {searchSize}}
		if command.Flags().Changed("mesh") {
			query.Set("mesh", r.mesh)
		}
		return show(r, command, "/_search", query, o.form, printFound)
	}
	return command
}

func printFound(w io.Writer, found *rest.SearchResults) error {
	if len(found.Items) == 0 {
		fmt.Fprintln(w, "Nothing is found.")
	} else {
		var rows [][]string
		for _, item := range found.Items {
			rows = append(rows, []string{item.Kind, cmp.Or(item.Mesh, "-"), cmp.Or(item.Zone, "-"), item.Name,
				fmt.Sprintf("%s %s", item.Match.Field, item.Match.Value)})
		}
		if err := printTable(w, []string{"KIND", "MESH", "ZONE", "NAME", "MATCH"}, rows); err != nil {
			return err
		}
	}
	if found.More > 0 {
		fmt.Fprintf(w, "\n%d more match; a longer text finds fewer.\n", found.More)
	}
	var parts unknownParts
	for _, zone := range found.UnknownZones {
		reason := zone.Reason
		if zone.Since != nil {
			reason += fmt.Sprintf(" (since %s)", age(time.Since(zone.Since.Time)))
		}
		parts.add("changes in the zone "+zone.Zone, reason)
	}
	return parts.print(w)
}
