package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/store/wholefile"
)

func newBundleCommand(r *remote) *cobra.Command {
	var file string
	command := &cobra.Command{
		Use:   "bundle",
		Short: "Pack diagnostics of a control plane into one archive, for support",
		Long: `Pack diagnostics of a control plane into one archive, for support: its settings, the stored resources without
secrets, the report of weft check, metrics and profiles, and the last lines of its log.

The archive has no key, token or password. It has names and addresses of services: review it before you send it.`,
		Example: `  weft cp bundle
  weft cp bundle --file incident.tar.gz`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := r.client(command.Context())
			if err != nil {
				return err
			}
			var packed []byte
			if err := c.Get(command.Context(), "/_bundle", nil, &packed); err != nil {
				return err
			}
			if file == "" {
				file = "weft-bundle-" + time.Now().UTC().Format("20060102-150405") + ".tar.gz"
			}
			err = wholefile.Write(file, func(w io.Writer) error {
				_, err := w.Write(packed)
				return err
			})
			if err == nil {
				command.PrintErrf("%s has %d kB.\n", file, len(packed)>>10)
			}
			return err
		},
	}
	command.Flags().StringVarP(&file, "file", "f", "", "where to write it (default weft-bundle-TIME.tar.gz, here)")
	return command
}
