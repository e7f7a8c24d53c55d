package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"weft/internal/store/sealed"
)

func newGenerateCommand(r *remote) *cobra.Command {
	command := &cobra.Command{
		Use:   "generate",
		Short: "Make tokens, keys and certificates",
	}
	command.AddCommand(
		newDataplaneTokenCommand(r), newUserTokenCommand(r), newZoneTokenCommand(r),
		newSigningKeyCommand(r), newEncryptionKeyCommand(), newTLSCertificateCommand(),
	)
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
