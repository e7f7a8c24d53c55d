// Command weft-dp runs beside one Envoy. It authenticates the proxy to the control plane, obtains its certificate,
// relays its configuration and reports the status of its listeners.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weft/cmd/internal/subcommand"
	"weft/internal/agent"
	"weft/internal/agent/nameserver"
	"weft/internal/terminal"
)

// version is the version of the release, which the build sets.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	root := newCommand()
	err := subcommand.Check(root, os.Args[1:])
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	var ended *agent.ExitError
	switch {
	case err == nil, ctx.Err() != nil && errors.Is(err, context.Canceled):
	case errors.As(err, &ended) && ended.Code != 0:
		fmt.Fprintln(terminal.NewWriter(os.Stderr), "weft-dp:", err)
		os.Exit(ended.Code)
	default:
		fmt.Fprintln(terminal.NewWriter(os.Stderr), "weft-dp:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "weft-dp",
		Short:         "The agent beside each Envoy of a weft mesh",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(explainFlag)
	root.AddCommand(newRunCommand(), newDrainCommand(), newWaitCommand(), newInstallCommand(),
		newValidateCommand(), newUninstallCommand())
	return root
}

func newRunCommand() *cobra.Command {
	var c agent.Config
	var verbose bool
	var resolvers []string
	var memory string
	var warnings []string
	command := &cobra.Command{
		Use:   "run",
		Short: "Register a Dataplane and run its Envoy",
		Long: `Register the Dataplane, obtain its certificate, and run its Envoy.

SIGTERM or Ctrl-C starts a drain: clients stop sending requests to the proxy, the drain time of the control plane
passes, and Envoy ends when no connection is open. The exit code is 0. A drain takes 85 seconds at most. A second
signal ends weft-dp and Envoy at once; the next weft-dp of this user removes the folder weft-dp-* that it leaves in
TMPDIR. weft-dp restarts an Envoy that dies. If Envoy never becomes ready, or dies
more than 5 times in a minute, weft-dp ends with Envoy's exit code.

If the Dataplane has transparentProxying, weft-dp serves DNS on 127.0.0.1 and ::1. It resolves the mesh's host
names, and forwards all other queries to the machine's resolvers.

GET /ready on the readiness port returns 200 when all listeners serve. It returns 503 before that, while Envoy is
down, and from the beginning of a drain. The reason is in the log only, since any client can read the response.
GET /live returns 200 while weft-dp runs.

A variable of kuma-dp such as KUMA_CONTROL_PLANE_URL or KUMA_READINESS_PORT is the default of its flag. A variable
without a meaning here produces a warning with the reason.`,
		Example: `  weft generate dataplane-token --dataplane-file web-1.yaml > token
  weft-dp run --cp-address https://127.0.0.1:5678 --ca-cert-file ca.crt \
    --dataplane-file web-1.yaml --dataplane-token-file token`,
		Args: noArgs,
		PreRunE: func(command *cobra.Command, _ []string) (err error) { // before the required flags are checked
			warnings, err = readVariables(command.Flags(), os.Environ())
			return err
		},
		RunE: func(command *cobra.Command, _ []string) (err error) {
			if c.DNSResolvers, err = parseResolvers(resolvers); err != nil {
				return err
			}
			if memory != "" {
				if c.EnvoyMaxMemory, err = agent.ParseMemory(memory); err != nil {
					return fmt.Errorf("--envoy-max-memory: %w", err)
				}
			}
			if c.ProbeProxy.Port != 0 && c.ProbeProxy.Application == "" {
				return errors.New("--probe-proxy-port needs --probe-address, the address of the application")
			}
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
				if !command.Flags().Changed("envoy-log-level") {
					c.EnvoyLogLevel = "info"
				}
			}
			c.EnvoyOutput = os.Stderr
			c.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
			for _, warning := range warnings {
				c.Log.Warn(warning)
			}
			return agent.Run(command.Context(), c)
		},
	}
	c.Version = version
	f := command.Flags()
	addIdentity(f, &c)
	f.StringVar(&c.Envoy, "envoy", "",
		"path of Envoy (default: WEFT_ENVOY, then envoy on the PATH, then the Envoy of make tools)")
	f.StringVar(&memory, "envoy-max-memory", "",
		"bound of Envoy's heap, such as 512Mi or 2Gi; near it, Envoy resets requests and rejects new ones (default: "+
			"three quarters of the cgroup's limit, or half of the machine's memory)")
	f.IntVar(&c.ReadinessPort, "readiness-port", 9902, "port that serves GET /ready; 0 for none")
	f.StringVar(&c.ControlSocket, "control-socket", "",
		"path of the unix socket of weft-dp drain and weft-dp wait (default: none)")
	f.BoolVar(&c.EndsLast, "ends-last", false, "the applications end before weft-dp gets SIGTERM, as in a Pod with a "+
		"native sidecar: a proxy without inbounds does not drain")
	f.IntVar(&c.ProbeProxy.Port, "probe-proxy-port", 0,
		"port that forwards the probes of --probe to the application, for the kubelet; 0 for none")
	f.StringVar(&c.ProbeProxy.Application, "probe-address", "", "IP address of the application for these probes")
	f.StringArrayVar(&c.ProbeProxy.Declared, "probe", nil,
		"probe that is forwarded: the digest of its headers and /PORT/PATH, /tcp/PORT or /grpc/PORT; repeatable")
	f.IntVar(&c.Concurrency, "concurrency", 0, "number of Envoy's worker threads; 0 for the number of CPUs")
	f.StringVar(&c.EnvoyLogLevel, "envoy-log-level", "warning", "Envoy's log level")
	f.StringVar(&c.EnvoyLogLevels, "envoy-component-log-level", "",
		"Envoy's log levels by component, such as upstream:debug,connection:trace")
	f.IntVar(&c.DNSPort, "dns-port", 15053,
		"port that serves DNS, UDP and TCP, if the Dataplane has transparentProxying; 0 for none")
	f.StringSliceVar(&resolvers, "dns-resolvers", nil,
		"DNS servers for names outside of the mesh, ADDRESS or ADDRESS:PORT, comma-separated (default: those of "+
			"/etc/resolv.conf)")
	f.BoolVarP(&verbose, "verbose", "v", false, "log debug messages, and Envoy's at the level info")
	for _, name := range []string{"ca-cert-file", "dataplane-token-file"} {
		command.MarkFlagRequired(name)
	}
	command.MarkFlagsOneRequired("dataplane-file", "name")
	return command
}

// addIdentity adds the flags of the proxy's identity and of its control plane.
func addIdentity(f *pflag.FlagSet, c *agent.Config) {
	f.StringSliceVar(&c.ControlPlane, "cp-address", []string{"https://127.0.0.1:5678"},
		"address of the control plane's server for proxies, https://HOST:PORT; with several replicas, one address "+
			"each, comma-separated or in several flags")
	f.StringVar(&c.CAFile, "ca-cert-file", "",
		"file with the CA of the control plane's certificate, PEM; it is read for each connection, so a new CA takes "+
			"effect (required)")
	f.StringVar((*string)(&c.ProxyType), "proxy-type", string(agent.DataplaneProxy),
		"type of the proxy: dataplane, ingress (of a ZoneIngress) or egress (of a ZoneEgress); zone proxies serve all "+
			"meshes")
	f.StringVar(&c.DataplaneFile, "dataplane-file", "",
		"file with the Dataplane, ZoneIngress or ZoneEgress, YAML or JSON (required without --name)")
	f.StringToStringVar(&c.Variables, "dataplane-var", nil,
		"NAME=VALUE, which replaces {{ NAME }} in --dataplane-file; repeatable")
	f.StringVar(&c.Mesh, "mesh", "", "mesh of a Dataplane that the control plane writes, as it does for a Pod")
	f.StringVar(&c.Name, "name", "",
		"name of this Dataplane or, with --proxy-type, of a ZoneIngress or ZoneEgress that the control plane writes; "+
			"weft-dp waits until it exists")
	f.StringVar(&c.TokenFile, "dataplane-token-file", "",
		"file with the dataplane token, or with the zone token for a ZoneIngress or ZoneEgress; it is read for each "+
			"call, so a new token takes effect and a pipe does not work (required)")
}

func newDrainCommand() *cobra.Command {
	var socket string
	command := &cobra.Command{
		Use:   "drain",
		Short: "Make clients stop sending requests to the proxy",
		Long: `Make clients stop sending requests to the proxy of this machine, and wait until they do, for 50 seconds at
most. Envoy goes on serving until weft-dp run gets SIGTERM. This is the preStop hook of the sidecar in a Pod.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			said, err := agent.Drain(command.Context(), socket)
			fmt.Fprint(command.OutOrStdout(), said)
			return err
		},
	}
	addSocket(command, &socket)
	return command
}

func newWaitCommand() *cobra.Command {
	var socket string
	command := &cobra.Command{
		Use:   "wait",
		Short: "Wait until the proxy is ready",
		Long: `Wait until weft-dp run on this machine is ready. This is the postStart hook of a sidecar that is not native, so
that the other containers of the Pod start after it.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return agent.WaitReady(command.Context(), socket)
		},
	}
	addSocket(command, &socket)
	return command
}

func addSocket(command *cobra.Command, socket *string) {
	command.Flags().StringVar(socket, "control-socket", "", "--control-socket of weft-dp run (required)")
	command.MarkFlagRequired("control-socket")
}

func parseResolvers(texts []string) ([]netip.AddrPort, error) {
	var resolvers []netip.AddrPort
	for _, text := range texts {
		resolver, err := nameserver.ParseResolver(text)
		if err != nil {
			return nil, fmt.Errorf("--dns-resolvers: %w", err)
		}
		resolvers = append(resolvers, resolver)
	}
	return resolvers, nil
}
