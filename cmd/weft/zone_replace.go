package main

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"weft/internal/rest"
)

func newZoneCommand(r *remote) *cobra.Command {
	command := &cobra.Command{
		Use:   "zone",
		Short: "Manage the zones of a global control plane",
	}
	command.AddCommand(newZoneReplaceCommand(r))
	return command
}

func newZoneReplaceCommand(r *remote) *cobra.Command {
	var store string
	command := &cobra.Command{
		Use:   "replace NAME",
		Short: "Confirm that a zone's present resources replace its former ones",
		Long: `Confirm that the present resources of a zone's control plane replace its former ones. Global waits for this in
two cases, which ` + "`weft check` and `weft inspect zones`" + ` name:

- A control plane with another store connected with the zone's name. It was reinstalled, or it is a second one of the
  same name, or the zone token was stolen. From now on its store is the zone's, and the former one is rejected.
- The zone's control plane lacks most of the resources that global has of the zone, as after its store was restored
  from an old backup. They are deleted, on global and in all other zones.

If several other stores were rejected, --store selects one. The zone's control plane logs its own when it
starts.`,
		Example: `  weft zone replace east
  weft zone replace east --store 0123456789abcdef0123456789abcdef`,
		Args: cobra.ExactArgs(1),
	}
	command.Flags().StringVar(&store, "store", "", "the fingerprint of the store that is the zone's from now on")
	r.noteFlag(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		c, err := r.client(command.Context())
		if err != nil {
			return err
		}
		var known rest.ZoneOverview
		if err := c.Post(command.Context(), "/zones/"+url.PathEscape(args[0])+"/_replace",
			rest.ReplaceRequest{Store: store}, &known); err != nil {
			return err
		}
		fmt.Fprintf(command.OutOrStdout(),
			"confirmed: what the control plane of the zone %s with the store %s has replaces what the zone had\n",
			args[0], known.ZoneInsight.Store)
		return nil
	}
	return command
}
