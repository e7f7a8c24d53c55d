package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// build is the version of this program.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersionCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Example: `  weft version
  weft version -o json`,
		Args: cobra.NoArgs,
	}
	o := outputFlag(command, asText, asJSON, asYAML)
	command.RunE = func(command *cobra.Command, _ []string) error {
		b := build{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
		if o.form == asText {
			_, err := fmt.Fprintf(command.OutOrStdout(), "weft %s (%s, %s)\n", b.Version, b.Go, b.Platform)
			return err
		}
		return printValue(command.OutOrStdout(), b, o.form)
	}
	return command
}
