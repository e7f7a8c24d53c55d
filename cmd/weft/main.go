// Command weft is a service mesh control plane for Envoy, its command line, its demo and its load tool.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"weft/cmd/internal/subcommand"
	"weft/internal/audit"
	"weft/internal/client"
	"weft/internal/terminal"
	"weft/kind"
	"weft/resource"
)

// version is set when weft is built (-ldflags "-X main.version=...").
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line and returns its exit code. What it prints acts on no terminal.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	toOut, toErrs := terminal.NewWriter(out), terminal.NewWriter(errs)
	code := execute(ctx, args, in, toOut, toErrs)
	if errors.Join(toOut.Flush(), toErrs.Flush()) != nil {
		return 1
	}
	return code
}

func execute(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	command, err := root, subcommand.Check(root, args)
	if err == nil {
		command, err = root.ExecuteContextC(ctx)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFound):
		return 1
	case errors.Is(err, errChanges):
		return 2
	case errors.Is(err, errUnknown):
		return 3
	}
	fmt.Fprintln(errs, "Error:", withRemedy(command, args, err))
	if errors.As(err, &checkFailed{}) {
		return 2
	}
	return 1
}

func newRootCommand() *cobra.Command {
	r := &remote{}
	root := &cobra.Command{
		Use:           "weft",
		Short:         "A service mesh control plane for Envoy",
		SilenceUsage:  true, // an error has its own remedy
		SilenceErrors: true, // run prints them
	}
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return r.check() }
	root.PersistentFlags().StringVar(&r.api, "api", "",
		"address of the control plane's HTTP API, unix:DIR/admin.sock, or kubernetes:[CONTEXT][/NAMESPACE] by the "+
			"kubeconfig (default: WEFT_API, else that of the context, else "+defaultAddress+")")
	root.PersistentFlags().StringVar(&r.context, "context", "",
		"name of the control plane, as weft config knows it (default: WEFT_CONTEXT, else the chosen one)")
	root.PersistentFlags().StringVarP(&r.mesh, "mesh", "m", "default", "mesh of the resources")
	root.AddCommand(
		newControlPlaneCommand(r),
		newDemoCommand(),
		newApplyCommand(r),
		newDiffCommand(r),
		newPromoteCommand(r),
		newGetCommand(r),
		newDescribeCommand(r),
		newExportCommand(r),
		newMigrateCommand(),
		newDeleteCommand(r),
		newGenerateCommand(r),
		newInspectCommand(r),
		newInstallCommand(),
		newExplainCommand(r),
		newCheckCommand(r),
		newSearchCommand(r),
		newSNICommand(r),
		newZoneCommand(r),
		newConfigCommand(),
		newVersionCommand(),
	)
	completeFlag(root, "mesh", func(command *cobra.Command, _ []string, begun string) ([]string,
		cobra.ShellCompDirective) {
		return r.resourceNames(command.Context(), kind.Meshes, begun), cobra.ShellCompDirectiveNoFileComp
	})
	completeFlag(root, "context", completeContext)
	addCompletionCommand(root)
	return root
}

// remote is the control plane that a command connects to, the mesh of the command, and the note of its writes.
type remote struct{ api, context, mesh, note string }

func (r *remote) check() error {
	if r.mesh == "" {
		return errors.New("--mesh is empty; name a mesh, or leave it out for the mesh default")
	}
	return nil
}

func (r *remote) client(ctx context.Context) (*client.Client, error) {
	options, err := r.options(ctx)
	if err != nil {
		return nil, err
	}
	options.Note = r.note
	return client.New(options)
}

// noteFlag adds --note to a command that writes.
func (r *remote) noteFlag(command *cobra.Command) {
	command.Flags().StringVar(&r.note, "note", "",
		"the reason of the change, which the audit log of the control plane keeps: one line of at most "+
			strconv.Itoa(audit.MaxNote)+" bytes")
}

// withRemedy adds the remedy to an error of a command with args.
func withRemedy(command *cobra.Command, args []string, err error) string {
	var unreachable *client.Unreachable
	var dial *net.OpError
	switch {
	case errors.As(err, &unreachable) && errors.As(err, &dial) && dial.Op == "dial":
		// no process listens at the address
		return err.Error() + "\nStart one with `weft cp run --data-dir DIR`, or name another with --api or WEFT_API, " +
			"or for good with `weft config control-planes add`."
	case strings.HasPrefix(err.Error(), "unknown command") && replacement(args) != "":
		return err.Error() + "\n" + replacement(args)
	case strings.HasPrefix(err.Error(), "unknown command"), strings.HasPrefix(err.Error(), "unknown flag"):
		return err.Error() + "\n`weft --help` lists the commands, and each has --help with examples."
	case strings.HasPrefix(err.Error(), "accepts "): // the number of arguments is wrong
		return "want `" + command.UseLine() + "`; --help has examples"
	}
	return err.Error()
}

// kindOf returns the kind with a name, plural or alias. Case and hyphens do not matter.
func kindOf(name string) (resource.Descriptor, error) {
	plain := func(spelling string) string { return strings.ToLower(strings.ReplaceAll(spelling, "-", "")) }
	for _, d := range kind.All() {
		info := d.Describe()
		if info.Hidden {
			continue
		}
		for _, spelling := range append(info.Segments(), info.Name) {
			if plain(spelling) == plain(name) {
				return d, nil
			}
		}
	}
	if lacking := kind.LackingKind(name); lacking != "" {
		return nil, errors.New(kind.LackingText(lacking))
	}
	return nil, fmt.Errorf("%q is not a kind; there are %s", name, strings.Join(kindNames(), ", "))
}

// errNoName is the error for an empty name, as from a script: without it the path would have another meaning.
var errNoName = errors.New("NAME is empty")

// meshOf returns the mesh of a kind's resources; empty for kinds of global scope.
func (r *remote) meshOf(d resource.Descriptor) string {
	if d.Describe().Scope == resource.Global {
		return ""
	}
	return r.mesh
}
