package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/rest"
	"weft/internal/store/sealed"
	"weft/kind"
)

func newGenerateCommand(r *remote) *cobra.Command {
	command := &cobra.Command{
		Use:   "generate",
		Short: "Make tokens and keys",
	}
	command.AddCommand(newDataplaneTokenCommand(r), newEncryptionKeyCommand())
	return command
}

func newEncryptionKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "encryption-key",
		Short: "Print a new key under which a control plane stores secrets",
		Long: `Print a new key under which a control plane stores secrets: a line of the file that the setting
store.encryption.keyFile names. The first line encrypts; older keys stay below it until every instance
was started with the new one.`,
		Example: `  (umask 077 && weft generate encryption-key > secrets.key)`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(command.OutOrStdout(), sealed.NewKey())
			return err
		},
	}
}

func newDataplaneTokenCommand(r *remote) *cobra.Command {
	var req rest.DataplaneTokenRequest
	var validFor string
	var tags []string
	command := &cobra.Command{
		Use:   "dataplane-token",
		Short: "Print a token with which a proxy proves itself",
		Long: `Print a token with which a proxy proves itself to the control plane.

It is good for the proxies of --mesh that agree with everything it names: without --name, --tag and
--workload for each of them. Whoever has it can run a proxy under such a name, so keep it like a password.`,
		Example: `  weft generate dataplane-token --name web-1 --valid-for 30d > web-1.token
  weft generate dataplane-token --mesh shop --tag kuma.io/service=web --valid-for 24h`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			var err error
			req.Mesh = r.mesh
			if req.Tags, err = parseTags(tags); err != nil {
				return err
			}
			if req.ValidFor, err = parseValidity(validFor); err != nil {
				return err
			}
			return r.printToken(command, req)
		},
	}
	command.Flags().StringVar(&req.Name, "name", "", "the one Dataplane that may use it")
	command.Flags().StringVar(&req.Workload, "workload", "", "the label kuma.io/workload that the Dataplane must have")
	command.Flags().StringArrayVar(&tags, "tag", nil, "KEY=VALUE that every inbound must have; a key given again allows one more value")
	command.Flags().StringVar(&validFor, "valid-for", "30d", "how long it is good, such as 24h or 30d; a proxy needs it whenever it connects")
	return command
}

func (r *remote) printToken(command *cobra.Command, req rest.DataplaneTokenRequest) error {
	c, err := r.client()
	if err != nil {
		return err
	}
	var token []byte
	if err := c.Post(command.Context(), "/tokens/dataplane", req, &token); err != nil {
		return err
	}
	_, err = fmt.Fprintln(command.OutOrStdout(), string(token))
	return err
}

func parseTags(pairs []string) (map[string][]string, error) {
	tags := map[string][]string{}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" || value == "" {
			return nil, fmt.Errorf("--tag %q is not KEY=VALUE", pair)
		}
		tags[key] = append(tags[key], value)
	}
	return tags, nil
}

func parseValidity(text string) (kind.Duration, error) {
	d, err := kind.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("--valid-for %q is not a duration such as 24h or 30d", text)
	}
	return kind.Duration(d.Round(time.Second)), nil
}
