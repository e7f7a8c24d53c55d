package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/spf13/cobra"

	"weft/internal/client"
	"weft/kind"
	"weft/resource"
)

// canaryFlag adds --canary to a command.
func canaryFlag(command *cobra.Command) *string {
	return command.Flags().String("canary", "",
		"apply the policies only to the Dataplanes with these labels, such as version=v2,team=web")
}

// asCanaries gives policies a canary selector. Without one it changes nothing.
func asCanaries(manifests []manifest, selector string) error {
	if selector == "" {
		return nil
	}
	if _, err := kind.ParseCanarySelector(selector); err != nil {
		return fmt.Errorf("--canary: %w", err)
	}
	for _, m := range manifests {
		if _, policy := m.kind.(kind.Policy); !policy {
			return fmt.Errorf("%s: %s is not a policy; --canary is for policies alone", m.at, m.object.Key())
		}
		meta := m.object.Envelope()
		meta.Labels = maps.Clone(meta.Labels)
		if meta.Labels == nil {
			meta.Labels = map[string]string{}
		}
		meta.Labels[kind.CanarySelector] = selector
	}
	return nil
}

func newPromoteCommand(r *remote) *cobra.Command {
	command := &cobra.Command{
		Use:   "promote KIND NAME",
		Short: "Apply a canary policy to all proxies of its targetRef",
		Long: `Remove the label ` + kind.CanarySelector + ` from a policy that was written with
` + "`weft apply --canary`" + `. The policy then applies to every proxy that its targetRef selects.`,
		Example: `  weft promote meshtimeout web
  weft promote meshtrafficpermission web --mesh shop`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: r.completeKindAndName,
		RunE: func(command *cobra.Command, args []string) error {
			d, err := kindOf(args[0])
			if err != nil {
				return err
			}
			if _, policy := d.(kind.Policy); !policy {
				return fmt.Errorf("a %s is not a policy; policies alone have canaries", d.Describe().Name)
			}
			if args[1] == "" {
				return errNoName
			}
			c, err := r.client(command.Context())
			if err != nil {
				return err
			}
			return promote(command, c, d, r.mesh, args[1])
		},
	}
	r.noteFlag(command)
	return command
}

// promote removes the canary selector of the stored policy, unless the policy changes meanwhile.
func promote(command *cobra.Command, c *client.Client, d resource.Descriptor, mesh, name string) error {
	var stored json.RawMessage
	etag, err := c.Read(command.Context(), client.Path(d, mesh, name), nil, &stored)
	if err != nil {
		return err
	}
	written, err := kind.Parse(stored)
	if err != nil {
		return err
	}
	meta := written.Object.Envelope()
	if meta.Labels[kind.CanarySelector] == "" {
		return errors.New(written.Object.Key().String() + " is not a canary: it has no label " + kind.CanarySelector)
	}
	delete(meta.Labels, kind.CanarySelector)
	if _, err := c.PutIfMatch(command.Context(), written.Object, d, etag); err != nil {
		return err
	}
	_, err = fmt.Fprintln(command.OutOrStdout(), written.Object.Key(), "promoted")
	return err
}
