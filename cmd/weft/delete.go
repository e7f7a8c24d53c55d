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
	command := &cobra.Command{
		Use:   "delete KIND NAME | -f FILE|DIR|URL|-",
		Short: "Delete resources",
		Long:  "Delete one resource, or those that files name: in the opposite order of apply, without those that are gone already.",
		Example: `  weft delete meshservice web
  weft delete dataplane web-1 --mesh shop
  weft delete -f examples/demo/mesh`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: r.completeKindAndName,
		RunE: func(command *cobra.Command, args []string) error {
			c, err := r.client()
			if err != nil {
				return err
			}
			switch {
			case len(from.files) > 0 && len(args) == 0:
				return r.deleteFiles(command, c, &from)
			case len(from.files) == 0 && len(args) == 2:
				return r.deleteOne(command, c, args[0], args[1])
			}
			return errors.New("name a KIND and a NAME, or files with -f")
		},
	}
	from.flags(command)
	return command
}

func (r *remote) deleteOne(command *cobra.Command, c *client.Client, kindName, name string) error {
	d, err := kindOf(kindName)
	if err != nil {
		return err
	}
	if name == "" {
		return errNoName
	}
	mesh := r.meshOf(d)
	if err := c.Delete(command.Context(), d, mesh, name); err != nil {
		return err
	}
	_, err = fmt.Fprintf(command.OutOrStdout(), "%s deleted\n", resource.Key{Kind: d.Describe().Name, Mesh: mesh, Name: name})
	return err
}

func (r *remote) deleteFiles(command *cobra.Command, c *client.Client, from *sources) error {
	manifests, err := readManifests(command.Context(), from, command.InOrStdin(), r.mesh)
	if err != nil {
		return err
	}
	inWriteOrder(manifests)
	for _, m := range slices.Backward(manifests) {
		key, outcome := m.object.Key(), "deleted"
		err := c.Delete(command.Context(), m.kind, key.Mesh, key.Name)
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
