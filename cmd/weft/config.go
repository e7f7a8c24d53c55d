package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"weft/internal/client"
	"weft/resource"
)

func newConfigCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "config",
		Short: "Name control planes, and choose the one that commands speak to",
	}
	planes := &cobra.Command{
		Use:     "control-planes",
		Aliases: []string{"cp"},
		Short:   "Add, remove, list and choose control planes",
	}
	planes.AddCommand(newContextAddCommand(), newContextListCommand(), newContextRemoveCommand(),
		newContextSwitchCommand())
	command.AddCommand(planes, newConfigViewCommand())
	return command
}

func newContextAddCommand() *cobra.Command {
	var plane controlPlane
	var tokenFile string
	var overwrite bool
	command := &cobra.Command{
		Use:   "add --name NAME --address URL",
		Short: "Give a control plane a name, and choose it",
		Long: `Give a control plane a name, and choose it for the commands that follow.

What is given is kept in $WEFT_CONFIG, else in .weft/config of the home directory, which its owner alone may
read. The token is copied into it; of certificates the paths are.

The address kubernetes:[CONTEXT][/NAMESPACE] is the control plane in a Kubernetes cluster: the kubeconfig has
the cluster, the API server forwards the connection to a Pod, and the administrator's token is read from the
Secret admin-user-token for each command, unless you give a token. The namespace is kuma-system by default.`,
		Example: `  weft config control-planes add --name local --address http://127.0.0.1:5681
  weft config control-planes add --name system --address unix:/var/lib/weft/admin.sock
  weft config control-planes add --name cluster --address kubernetes:
  weft config control-planes add --name east --address kubernetes:east-admin/mesh-system
  weft config control-planes add --name prod --address https://cp.example.com:5682 --ca-cert-file ca.crt --token-file ann.token`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := plane.resolve(tokenFile, command.InOrStdin()); err != nil {
				return err
			}
			return addContext(command, plane, overwrite)
		},
	}
	flags := command.Flags()
	flags.StringVar(&plane.Name, "name", "", "name of the control plane here")
	flags.StringVar(&plane.Address, "address", "",
		"address of its HTTP API, such as https://cp.example.com:5682, unix:DIR/admin.sock or "+
			"kubernetes:[CONTEXT][/NAMESPACE]")
	flags.StringVar(&plane.CACertFile, "ca-cert-file", "",
		"certificate of the CA that signed its certificate (PEM); default: the CAs that the system trusts")
	flags.StringVar(&plane.ClientCertFile, "client-cert-file", "", "your certificate (PEM)")
	flags.StringVar(&plane.ClientKeyFile, "client-key-file", "", "your certificate's private key (PEM)")
	flags.BoolVar(&plane.SkipVerify, "skip-verify", false, "skip TLS verification (insecure)")
	flags.StringVar(&tokenFile, "token-file", "", "your user token: a file, or - for standard input")
	flags.BoolVar(&overwrite, "overwrite", false, "replace the one of the same name")
	_ = command.MarkFlagRequired("name") // both exist
	_ = command.MarkFlagRequired("address")
	return command
}

// resolve reads the token and makes paths absolute, so that they are valid in every directory.
func (p *controlPlane) resolve(tokenFile string, in io.Reader) error {
	if tokenFile != "" {
		text, err := readFileOr(tokenFile, in)
		if err != nil {
			return err
		}
		p.Token = strings.TrimSpace(string(text))
	}
	if socket, ok := strings.CutPrefix(p.Address, client.UnixScheme); ok && socket != "" &&
		!strings.HasPrefix(socket, "/") {
		absolute, err := filepath.Abs(socket)
		if err != nil {
			return err
		}
		p.Address = client.UnixScheme + absolute
	}
	for _, path := range []*string{&p.CACertFile, &p.ClientCertFile, &p.ClientKeyFile} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
	}
	return nil
}

// readFileOr reads a file, or in for "-".
func readFileOr(file string, in io.Reader) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(file)
}

// longestContextName is the maximum length of the name of a control plane, in bytes: one of DNS.
const longestContextName = 253

func addContext(command *cobra.Command, plane controlPlane, overwrite bool) error {
	known, err := loadContexts()
	if err != nil {
		return err
	}
	i := known.index(plane.Name)
	switch {
	case plane.Name == "":
		return errors.New("--name is empty")
	case plane.Name != resource.PrintableLine(plane.Name, longestContextName):
		return fmt.Errorf("--name is %q, want one line of printable characters, at most %d bytes", plane.Name,
			longestContextName)
	case i >= 0 && !overwrite:
		return fmt.Errorf("there is a control plane %q already; replace it with --overwrite, or choose another --name",
			plane.Name)
	}
	options, err := reached(command.Context(), plane.options())
	if err != nil {
		return err
	}
	c, err := client.New(options)
	if err != nil {
		return err
	}
	if i >= 0 {
		known.ControlPlanes[i] = plane
	} else {
		known.ControlPlanes = append(known.ControlPlanes, plane)
	}
	known.Current = plane.Name
	if err := known.save(); err != nil {
		return err
	}
	fmt.Fprintf(command.OutOrStdout(), "control plane %q added and chosen\n", plane.Name)
	who, err := whoAmI(command.Context(), c)
	if err != nil {
		fmt.Fprintln(command.ErrOrStderr(), "Warning:", err)
		return nil
	}
	_, err = fmt.Fprintf(command.OutOrStdout(), "it knows you as %s\n", who)
	return err
}

func whoAmI(ctx context.Context, c *client.Client) (string, error) {
	var me struct {
		Name string `json:"name"`
	}
	err := c.Get(ctx, "/who-am-i", nil, &me)
	return me.Name, err
}

func newContextListCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "list",
		Short:   "List the control planes",
		Example: `  weft config control-planes list`,
		Args:    cobra.NoArgs,
	}
	o := outputFlag(command, asTable, asJSON, asYAML)
	command.RunE = func(command *cobra.Command, _ []string) error {
		known, err := loadContexts()
		if err != nil {
			return err
		}
		if o.form != asTable {
			return printValue(command.OutOrStdout(), known.withoutTokens(), o.form)
		}
		var rows [][]string
		for _, p := range known.ControlPlanes {
			mark := ""
			if p.Name == known.Current {
				mark = "*"
			}
			rows = append(rows, []string{mark, p.Name, p.Address})
		}
		return printTable(command.OutOrStdout(), []string{"CURRENT", "NAME", "ADDRESS"}, rows)
	}
	return command
}

// withoutTokens returns the contexts without their tokens.
func (c *contexts) withoutTokens() *contexts {
	shown := &contexts{c.Current, slices.Clone(c.ControlPlanes)}
	for i := range shown.ControlPlanes {
		if p := &shown.ControlPlanes[i]; p.Token != "" {
			p.Token = "***"
		}
	}
	return shown
}

func newContextRemoveCommand() *cobra.Command {
	return newContextCommand("remove", "Remove a control plane from the configuration",
		func(known *contexts, plane *controlPlane) string {
			name := plane.Name
			i := known.index(name)
			known.ControlPlanes = slices.Delete(known.ControlPlanes, i, i+1)
			if known.Current == name {
				known.Current = ""
			}
			return fmt.Sprintf("control plane %q removed", name)
		})
}

func newContextSwitchCommand() *cobra.Command {
	return newContextCommand("switch", "Choose the control plane that commands speak to",
		func(known *contexts, plane *controlPlane) string {
			known.Current = plane.Name
			return fmt.Sprintf("commands speak to control plane %q at %s", plane.Name, plane.Address)
		})
}

// newContextCommand returns a command that changes one context.
func newContextCommand(use, short string, change func(*contexts, *controlPlane) string) *cobra.Command {
	var name string
	command := &cobra.Command{
		Use:     use + " --name NAME",
		Short:   short,
		Example: "  weft config control-planes " + use + " --name prod",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			known, err := loadContexts()
			if err != nil {
				return err
			}
			plane, err := known.find(name)
			if err != nil {
				return err
			}
			said := change(known, plane)
			if err := known.save(); err != nil {
				return err
			}
			_, err = fmt.Fprintln(command.OutOrStdout(), said)
			return err
		},
	}
	command.Flags().StringVar(&name, "name", "", "name of the control plane")
	_ = command.MarkFlagRequired("name") // it exists
	completeFlag(command, "name", completeContext)
	return command
}

func completeContext(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	known, err := loadContexts()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return beginning(known.names(), begun), cobra.ShellCompDirectiveNoFileComp
}

func newConfigViewCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "view",
		Short:   "Print the file of the control planes, without the tokens",
		Example: `  weft config view`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			known, err := loadContexts()
			if err != nil {
				return err
			}
			text, err := yaml.Marshal(known.withoutTokens())
			if err != nil {
				return err
			}
			_, err = command.OutOrStdout().Write(text)
			return err
		},
	}
}
