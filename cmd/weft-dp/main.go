// Command weft-dp runs beside one Envoy: it proves whose the proxy is, gets its certificate, relays its
// configuration and reports what it serves.
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

	"weft/internal/agent"
	"weft/internal/agent/nameserver"
)

// version is set when a release is built.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	err := newCommand().ExecuteContext(ctx)
	var ended *agent.ExitError
	switch {
	case err == nil, ctx.Err() != nil && errors.Is(err, context.Canceled):
	case errors.As(err, &ended) && ended.Code != 0:
		fmt.Fprintln(os.Stderr, "weft-dp:", err)
		os.Exit(ended.Code)
	default:
		fmt.Fprintln(os.Stderr, "weft-dp:", err)
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
	root.AddCommand(newRunCommand(), newInstallCommand(), newUninstallCommand())
	return root
}

func newRunCommand() *cobra.Command {
	var c agent.Config
	var verbose bool
	var resolvers []string
	var memory string
	command := &cobra.Command{
		Use:   "run",
		Short: "Register a Dataplane and run its Envoy",
		Long: `Registers the Dataplane, gets its certificate, starts Envoy and stays with it.

SIGTERM or Ctrl-C drains: no client is sent here any more, then the drain time of the control plane passes, then
Envoy ends once no connection is open, and the exit code is 0. That takes 85 seconds at most. A second signal ends
both at once. An Envoy that dies is started again; one that never became ready, or dies more than 5 times in a
minute, ends weft-dp with its exit code.

Where the Dataplane has transparentProxying, weft-dp answers DNS on 127.0.0.1 and ::1: the mesh's host names
itself, all others by asking the machine's resolvers.

GET /ready on the readiness port answers 200 once everything serves, and 503 before that, while Envoy is down, and
from the beginning of a drain. The reason is in the log and not in the response, which strangers read.
GET /live answers 200 for as long as weft-dp runs.`,
		Example: `  weft generate dataplane-token --dataplane-file web-1.yaml > token
  weft-dp run --cp-address https://127.0.0.1:5678 --ca-cert-file ca.crt \
    --dataplane-file web-1.yaml --dataplane-token-file token`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			if c.DNSResolvers, err = parseResolvers(resolvers); err != nil {
				return err
			}
			if memory != "" {
				if c.EnvoyMaxMemory, err = agent.ParseMemory(memory); err != nil {
					return fmt.Errorf("--envoy-max-memory: %w", err)
				}
			}
			level := slog.LevelInfo
			if verbose {
				level, c.EnvoyLogLevel = slog.LevelDebug, "info"
			}
			c.EnvoyOutput = os.Stderr
			c.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
			return agent.Run(command.Context(), c)
		},
	}
	c.EnvoyLogLevel, c.Version = "warning", version
	f := command.Flags()
	f.StringSliceVar(&c.ControlPlane, "cp-address", []string{"https://127.0.0.1:5678"},
		"the control plane's data plane server, https://HOST:PORT; of several instances each, comma-separated or "+
			"given again")
	f.StringVar(&c.CAFile, "ca-cert-file", "", "the CA of the control plane's certificate, PEM (required)")
	f.StringVar((*string)(&c.ProxyType), "proxy-type", string(agent.DataplaneProxy),
		"dataplane; or ingress for a ZoneIngress, egress for a ZoneEgress, which serve every mesh")
	f.StringVar(&c.DataplaneFile, "dataplane-file", "",
		"the Dataplane, ZoneIngress or ZoneEgress, YAML or JSON (required)")
	f.StringVar(&c.TokenFile, "dataplane-token-file", "",
		"the token of the Dataplane, or of the zone for a ZoneIngress or ZoneEgress, read for each call, so that it "+
			"may be replaced and can be no pipe (required)")
	f.StringVar(&c.Envoy, "envoy", "",
		"the Envoy to run (default: WEFT_ENVOY, then envoy on the PATH, then what make tools unpacked)")
	f.StringVar(&memory, "envoy-max-memory", "",
		"the bound of Envoy's heap, such as 512Mi or 2Gi; near it, Envoy resets requests and takes no new ones "+
			"(default: three quarters of the cgroup's limit, or half of the machine's memory)")
	f.IntVar(&c.ReadinessPort, "readiness-port", 9902, "port that serves GET /ready; 0 for none")
	f.IntVar(&c.DNSPort, "dns-port", 15053,
		"port that serves DNS, UDP and TCP, where the Dataplane has transparentProxying; 0 for none")
	f.StringSliceVar(&resolvers, "dns-resolvers", nil,
		"who is asked for names that are not the mesh's, ADDRESS or ADDRESS:PORT, comma-separated (default: those of "+
			"/etc/resolv.conf)")
	f.BoolVarP(&verbose, "verbose", "v", false, "log details, Envoy's too")
	for _, name := range []string{"ca-cert-file", "dataplane-file", "dataplane-token-file"} {
		command.MarkFlagRequired(name)
	}
	return command
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
