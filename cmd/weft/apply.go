package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"weft/internal/client"
)

func newApplyCommand(r *remote) *cobra.Command {
	var from sources
	var dryRun bool
	command := &cobra.Command{
		Use:   "apply -f FILE|DIR|URL|-",
		Short: "Create or update resources",
		Long: `Create or update the resources in YAML or JSON files, in the Universal or the Kubernetes form. A document
with items and no type is a list of resources.

All documents are read and checked before the first is written; a resource without a mesh belongs
to --mesh. Meshes are written first, then identities, policies, services and Dataplanes. {{ KEY }} stands
for the value of --var KEY=VALUE; one without a value is an error.

With --dry-run the control plane checks everything as if it were written, and returns the changes.`,
		Example: `  weft apply -f mesh.yaml
  weft apply -f examples/demo/mesh --dry-run
  weft apply -f web.yaml --var version=v2 --var replicas=3
  weft apply -f https://example.com/mesh.yaml
  cat web.yaml | weft apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			manifests, err := readManifests(command.Context(), &from, command.InOrStdin(), r.mesh)
			if err != nil {
				return err
			}
			inWriteOrder(manifests)
			c, err := r.client()
			if err != nil {
				return err
			}
			if dryRun {
				return preview(command, c, manifests)
			}
			for _, m := range manifests {
				if err := apply(command, c, m); err != nil {
					return err
				}
			}
			return nil
		},
	}
	from.flags(command)
	command.Flags().BoolVar(&dryRun, "dry-run", false, "show what would change, and change nothing")
	_ = command.MarkFlagRequired("file") // it exists
	return command
}

func apply(command *cobra.Command, c *client.Client, m manifest) error {
	result, err := c.Put(command.Context(), m.object, m.kind)
	if err != nil {
		return err
	}
	outcome := "unchanged"
	switch {
	case result.Created:
		outcome = "created"
	case result.Changed:
		outcome = "updated"
	}
	fmt.Fprintf(command.OutOrStdout(), "%s %s\n", m.object.Key(), outcome)
	for _, warning := range result.Warnings {
		fmt.Fprintln(command.ErrOrStderr(), "Warning:", warning)
	}
	return nil
}
