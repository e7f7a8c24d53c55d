package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"weft/internal/client"
	"weft/resource"
)

func newDeleteCommand(r *remote) *cobra.Command {
	var from sources
	var dryRun bool
	var zone *string
	command := &cobra.Command{
		Use:   "delete KIND NAME | -f FILE|DIR|URL|-",
		Short: "Delete resources",
		Long: "Delete one resource, or those that files name: in the opposite order of apply, without those that " +
			"are gone already. All are checked before the first is deleted.",
		Example: `  weft delete meshservice web
  weft delete dataplane web-1 --mesh shop
  weft delete mesh shop --dry-run
  weft delete -f examples/demo/mesh`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: r.completeKindAndName,
		RunE: func(command *cobra.Command, args []string) error {
			c, err := r.client(command.Context())
			if err != nil {
				return err
			}
			switch {
			case len(from.files) > 0 && len(args) == 0:
				return r.deleteFiles(command, removal(c, dryRun), &from)
			case len(from.files) == 0 && len(args) == 2:
				return r.deleteOne(command, removal(c, dryRun), args[0], args[1], *zone)
			}
			if len(args) == 1 {
				return fmt.Errorf("name a KIND and a NAME, or files with -f: %s -f %s", command.CommandPath(), args[0])
			}
			return errors.New("name a KIND and a NAME, or files with -f")
		},
	}
	from.flags(command)
	zone = r.zoneFlag(command)
	command.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be deleted, and delete nothing")
	r.noteFlag(command)
	return command
}

// remover removes a resource; in a dry run it only checks whether it could.
type remover struct {
	client *client.Client
	dryRun bool
	done   string
}

// remove removes a resource, and prints the warnings about it.
func (by remover) remove(command *cobra.Command, d resource.Descriptor, mesh, name, zone string) error {
	warnings, err := by.client.Remove(command.Context(), d, mesh, name, zone, by.dryRun)
	printWarnings(command, warnings)
	return err
}

func printWarnings(command *cobra.Command, warnings []string) {
	for _, warning := range warnings {
		fmt.Fprintln(command.ErrOrStderr(), "Warning:", warning)
	}
}

func removal(c *client.Client, dryRun bool) remover {
	if dryRun {
		return remover{c, true, "would be deleted"}
	}
	return remover{c, false, "deleted"}
}

func (r *remote) deleteOne(command *cobra.Command, by remover, kindName, name, zone string) error {
	d, err := kindOf(kindName)
	if err != nil {
		return err
	}
	if name == "" {
		return errNoName
	}
	mesh := r.meshOf(d)
	if err := by.remove(command, d, mesh, name, zone); err != nil {
		return err
	}
	_, err = fmt.Fprintf(command.OutOrStdout(), "%s %s\n",
		resource.Key{Kind: d.Describe().Name, Mesh: mesh, Name: name}, by.done)
	return err
}

// deleteFiles removes the resources of files. All deletions are checked before the first one.
func (r *remote) deleteFiles(command *cobra.Command, by remover, from *sources) error {
	manifests, err := readManifests(command.Context(), from, command.InOrStdin(), r.mesh)
	if err != nil {
		return err
	}
	inWriteOrder(manifests)
	slices.Reverse(manifests)
	would, err := tryRemovals(command.Context(), by.client, manifests)
	if !by.dryRun {
		err = warnOfEarlierRelease(command, err)
	}
	if err != nil {
		return err
	}
	for i, m := range manifests {
		key, outcome := m.object.Key(), by.done
		switch {
		case would != nil && would[i].Outcome == "absent":
			err = resource.Errorf(resource.NotFound, "%s does not exist", key)
		case by.dryRun:
			printWarnings(command, would[i].Warnings)
		default:
			err = by.remove(command, m.kind, key.Mesh, key.Name, "")
		}
		if resource.CodeOf(err) == resource.NotFound {
			err, outcome = nil, "is gone already"
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(command.OutOrStdout(), key, outcome)
	}
	return nil
}
