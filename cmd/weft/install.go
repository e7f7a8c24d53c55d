package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"weft/internal/kube/crd"
)

func newInstallCommand() *cobra.Command {
	command := &cobra.Command{Use: "install", Short: "Print the objects that a Kubernetes cluster needs"}
	command.AddCommand(newInstallCRDsCommand())
	return command
}

func newInstallCRDsCommand() *cobra.Command {
	var o *output
	command := &cobra.Command{
		Use:   "crds",
		Short: "Print the CustomResourceDefinitions of all kinds",
		Long: `Print the CustomResourceDefinitions of all kinds.

Apply them with --server-side: some are too large for the annotation in which kubectl otherwise stores them. Apply the
definitions of a release before its control planes start.`,
		Example: "  weft install crds | kubectl apply --server-side -f -\n  weft install crds -o json",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if o.form == asJSON {
				text, err := json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List", "items": crd.All()},
					"", "  ")
				if err == nil {
					_, err = fmt.Fprintln(command.OutOrStdout(), string(text))
				}
				return err
			}
			for _, definition := range crd.All() {
				text, err := yaml.Marshal(definition)
				if err != nil {
					return err
				}
				if _, err := fmt.Fprintf(command.OutOrStdout(), "---\n%s", text); err != nil {
					return err
				}
			}
			return nil
		},
	}
	o = outputFlag(command, asYAML, asJSON)
	return command
}
