package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"weft/internal/kube/api"
	"weft/internal/kube/crd"
	"weft/internal/kube/install"
)

func newInstallCommand() *cobra.Command {
	command := &cobra.Command{Use: "install", Short: "Print the objects that a Kubernetes cluster needs"}
	command.AddCommand(newInstallControlPlaneCommand(), newInstallCRDsCommand(), newInstallTransparentProxyCommand())
	return command
}

func newInstallControlPlaneCommand() *cobra.Command {
	var namespace, mode, zone, global string
	var files, assignments []string
	var skipCRDs bool
	command := &cobra.Command{
		Use:   "control-plane",
		Short: "Print the objects of a control plane and of zone proxies, for kubectl apply",
		Long: `Print the objects of a control plane: the definitions of all kinds, the Namespace, the permissions, the Deployment,
its Services and its webhooks, and zone proxies if there are values of them. No cluster is read, and the same values
print the same text. It is what "helm template" prints for the chart in deploy/chart.

docs/kubernetes.md lists the values. An unknown value is an error.`,
		Example: `  weft install control-plane | kubectl apply --server-side -f -
  weft install control-plane --zone east --set controlPlane.replicas=2 | kubectl apply --server-side -f -
  weft install control-plane --mode global | kubectl apply --server-side -f -
  weft install control-plane --values values.yaml | kubectl diff --server-side -f -`,
		Args: filesByFlag,
		RunE: func(command *cobra.Command, _ []string) error {
			flags := map[string]any{"createNamespace": true}
			for _, flag := range []struct{ name, path, text string }{
				{"mode", "controlPlane.mode", mode}, {"zone", "controlPlane.zone", zone},
				{"kds-global-address", "controlPlane.kdsGlobalAddress", global},
			} {
				if command.Flags().Changed(flag.name) {
					flags[flag.path] = flag.text
				}
			}
			values, err := install.ReadValues(files, flags, assignments)
			if err != nil {
				return err
			}
			text, err := install.Render(install.Options{Namespace: namespace, Values: values, CRDs: !skipCRDs})
			if err == nil {
				_, err = command.OutOrStdout().Write(text)
			}
			return err
		},
	}
	f := command.Flags()
	f.StringVarP(&namespace, "namespace", "n", install.SystemNamespace, "system namespace of the control plane")
	f.StringVar(&mode, "mode", "zone", "mode of the control plane: zone or global")
	f.StringVar(&zone, "zone", "default", "name of the zone")
	f.StringVar(&global, "kds-global-address", "", "global control plane that the zone joins, grpcs://HOST:PORT")
	f.StringArrayVarP(&files, "values", "f", nil, "file with values of the chart, YAML; repeatable, the last one wins")
	f.StringArrayVar(&assignments, "set", nil, "value of the chart, NAME=VALUE, comma-separated; repeatable")
	f.BoolVar(&skipCRDs, "skip-crds", false, "print no definitions")
	return command
}

func newInstallCRDsCommand() *cobra.Command {
	var o *output
	var onlyMissing bool
	command := &cobra.Command{
		Use:   "crds",
		Short: "Print the CustomResourceDefinitions of all kinds",
		Long: `Print the CustomResourceDefinitions of all kinds.

Apply them with --server-side: some are too large for the annotation in which kubectl otherwise stores them. Apply the
definitions of a release before its control planes start.`,
		Example: `  weft install crds | kubectl apply --server-side -f -
  weft install crds --only-missing | kubectl create -f -
  weft install crds -o json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			definitions := crd.All()
			if onlyMissing {
				var err error
				if definitions, err = missingDefinitions(command.Context()); err != nil {
					return err
				}
			}
			if o.form == asJSON {
				text, err := json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List",
					"items": definitions}, "", "  ")
				if err == nil {
					_, err = fmt.Fprintln(command.OutOrStdout(), string(text))
				}
				return err
			}
			for _, definition := range definitions {
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
	command.Flags().BoolVar(&onlyMissing, "only-missing", false,
		"print the definitions that the cluster of the kubeconfig does not have")
	return command
}

// missingDefinitions returns the definitions that the API server does not have.
func missingDefinitions(ctx context.Context) ([]crd.Definition, error) {
	server, err := api.Find()
	if err != nil {
		return nil, fmt.Errorf("--only-missing: %w", err)
	}
	client, err := api.New(server.Config)
	if err != nil {
		return nil, fmt.Errorf("--only-missing: %w", err)
	}
	missing, err := crd.MissingDefinitions(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("--only-missing: the API server %s (%s): %w", server.Config.Host, server.Source, err)
	}
	return missing, nil
}

// newInstallTransparentProxyCommand refers to weft-dp, which has the redirection of a machine.
func newInstallTransparentProxyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "transparent-proxy",
		Short: "Redirect the connections of this machine: run weft-dp install transparent-proxy",
		Long: `Redirect the connections of this machine through its proxy. The program beside the proxy does it:
run "weft-dp install transparent-proxy", with the same flags. In Pods, the injector runs it.`,
		Example:            `  weft install transparent-proxy --help`,
		DisableFlagParsing: true,
		RunE: func(command *cobra.Command, args []string) error {
			if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
				return command.Help()
			}
			return errors.New("the redirection is a part of weft-dp: run `weft-dp install transparent-proxy` as " +
				"root, with the same flags")
		},
	}
}
