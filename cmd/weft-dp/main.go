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

	"weft/internal/agent"
	"weft/internal/agent/nameserver"
)

// version is the version of the release, which the build sets.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
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
		Long: `Register the Dataplane, obtain its certificate, and run its Envoy.

SIGTERM or Ctrl-C starts a drain: clients stop sending requests to the proxy, the drain time of the control plane
passes, and Envoy ends when no connection is open. The exit code is 0. A drain takes 85 seconds at most. A second
signal ends weft-dp and Envoy at once. weft-dp restarts an Envoy that dies. If Envoy never becomes ready, or dies
more than 5 times in a minute, weft-dp ends with Envoy's exit code.

If the Dataplane has transparentProxying, weft-dp serves DNS on 127.0.0.1 and ::1. It resolves the mesh's host
names, and forwards all other queries to the machine's resolvers.

GET /ready on the readiness port returns 200 when all listeners serve. It returns 503 before that, while Envoy is
down, and from the beginning of a drain. The reason is in the log only, since any client can read the response.
GET /live returns 200 while weft-dp runs.`,
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
		"address of the control plane's server for proxies, https://HOST:PORT; with several replicas, one address "+
			"each, comma-separated or in several flags")
	f.StringVar(&c.CAFile, "ca-cert-file", "", "file with the CA of the control plane's certificate, PEM (required)")
	f.StringVar((*string)(&c.ProxyType), "proxy-type", string(agent.DataplaneProxy),
		"type of the proxy: dataplane, ingress (of a ZoneIngress) or egress (of a ZoneEgress); zone proxies serve all "+
			"meshes")
	f.StringVar(&c.DataplaneFile, "dataplane-file", "",
		"file with the Dataplane, ZoneIngress or ZoneEgress, YAML or JSON (required)")
	f.StringVar(&c.TokenFile, "dataplane-token-file", "",
		"file with the dataplane token, or with the zone token for a ZoneIngress or ZoneEgress; it is read for each "+
			"call, so a new token takes effect and a pipe does not work (required)")
	f.StringVar(&c.Envoy, "envoy", "",
		"path of Envoy (default: WEFT_ENVOY, then envoy on the PATH, then the Envoy of make tools)")
	f.StringVar(&memory, "envoy-max-memory", "",
		"bound of Envoy's heap, such as 512Mi or 2Gi; near it, Envoy resets requests and rejects new ones (default: "+
			"three quarters of the cgroup's limit, or half of the machine's memory)")
	f.IntVar(&c.ReadinessPort, "readiness-port", 9902, "port that serves GET /ready; 0 for none")
	f.IntVar(&c.DNSPort, "dns-port", 15053,
		"port that serves DNS, UDP and TCP, if the Dataplane has transparentProxying; 0 for none")
	f.StringSliceVar(&resolvers, "dns-resolvers", nil,
		"DNS servers for names outside of the mesh, ADDRESS or ADDRESS:PORT, comma-separated (default: those of "+
			"/etc/resolv.conf)")
	f.BoolVarP(&verbose, "verbose", "v", false, "log debug messages, and Envoy's at the level info")
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
