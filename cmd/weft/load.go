package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/client"
	"weft/internal/load"
)

// loadFlags has the flags of `weft load`.
type loadFlags struct {
	proxies, services, groups, changes int
	dpServer, caFile, diagnostics      string
	idle                               time.Duration
	output                             string
}

func newLoadCommand(r *remote) *cobra.Command {
	var f loadFlags
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Measure the cost of a control plane, with simulated Envoys",
		Long: `Connect simulated Envoys to a running control plane over xDS, and measure the latency, the CPU time and the
memory of the control plane. A minimal server that sends the same bytes is measured for comparison.

The command writes and deletes its own mesh, "load". Run it on an otherwise idle machine.`,
		Example: `  weft load --proxies 200 --services 100 --ca-cert-file DIR/ca.crt
  weft load --proxies 1000 --services 300 --changes 200 --ca-cert-file DIR/ca.crt -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runLoad(cmd, r, f)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&f.proxies, "proxies", 200, "simulated Envoys, each of a Dataplane with one inbound")
	flags.IntVar(&f.services, "services", 100, "services, which the Dataplanes share evenly and all see")
	flags.IntVar(&f.groups, "proxy-groups", 0,
		"proxy groups, each of which sees other services; 0: all proxies are one group")
	flags.IntVar(&f.changes, "changes", 100, "changes of one endpoint to measure")
	flags.DurationVar(&f.idle, "idle", time.Minute, "how long to measure the idle control plane")
	flags.StringVar(&f.dpServer, "dp-server", "127.0.0.1:5678", "address of the control plane's data plane server")
	flags.StringVar(&f.caFile, "ca-cert-file", "",
		"certificate authority of the data plane server (PEM): ca.crt in the control plane's data directory")
	flags.StringVar(&f.diagnostics, "diagnostics", "http://127.0.0.1:5680",
		"address of the control plane's diagnostics")
	flags.StringVarP(&f.output, "output", "o", "table", "table or json")
	_ = cmd.MarkFlagRequired("ca-cert-file") // of a flag that is there
	cmd.AddCommand(newFloorCommand(), newLoadZonesCommand(), newLoadAcrossCommand(), newLoadMembershipCommand(),
		newLoadJoinCommand(), newLoadPoliciesCommand())
	return cmd
}

func runLoad(cmd *cobra.Command, r *remote, f loadFlags) error {
	if f.output != "table" && f.output != "json" {
		return fmt.Errorf("--output %q is not known; use table or json", f.output)
	}
	options, err := r.options(cmd.Context())
	if err != nil {
		return err
	}
	api, err := client.New(options)
	if err != nil {
		return err
	}
	metrics := client.Options{Address: f.diagnostics}
	if options.SameHost(f.diagnostics) {
		metrics.Token = options.Token
	}
	diagnostics, err := client.New(throughSocket(metrics))
	if err != nil {
		return fmt.Errorf("--diagnostics: %w", err)
	}
	roots, err := readRoots(f.caFile)
	if err != nil {
		return err
	}
	report, err := load.Run(cmd.Context(), load.Options{
		Proxies: f.proxies, Services: f.services, ProxyGroups: f.groups, Changes: f.changes, Idle: f.idle,
		Plane:      load.Plane{API: api, DataPlane: f.dpServer, Roots: roots, Diagnostics: diagnostics},
		StartFloor: startFloor,
		Progress:   cmd.ErrOrStderr(),
	})
	if err != nil {
		return err
	}
	if f.output == "json" {
		encoder := json.NewEncoder(cmd.OutOrStdout())
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	}
	return report.Print(cmd.OutOrStdout())
}

func readRoots(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--ca-cert-file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--ca-cert-file: %s holds no certificate in PEM", file)
	}
	return roots, nil
}

// newFloorCommand returns the command that runs the bare server in a process of its own. It ends with its standard
// input, so it never outlives the measurement.
func newFloorCommand() *cobra.Command {
	var config load.FloorConfig
	cmd := &cobra.Command{
		Use:    "floor",
		Short:  "Serve as the bare server of a measurement",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			go func() {
				_, _ = io.Copy(io.Discard, cmd.InOrStdin()) // waits for its end
				cancel()
			}()
			return load.ServeFloor(ctx, config, cmd.OutOrStdout())
		},
	}
	cmd.Flags().IntVar(&config.Bytes, "bytes", 0, "bytes of the first configuration")
	cmd.Flags().IntVar(&config.Messages, "messages", 1, "messages of the first configuration")
	return cmd
}

// startFloor runs this program again, as the floor.
func startFloor(ctx context.Context, config load.FloorConfig) (where load.ServerAddresses, stop func() error,
	err error) {
	self, err := os.Executable()
	if err != nil {
		return where, nil, err
	}
	cmd := exec.CommandContext(ctx, self, "load", "floor",
		"--bytes", strconv.Itoa(config.Bytes), "--messages", strconv.Itoa(config.Messages))
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return where, nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return where, nil, err
	}
	if err := cmd.Start(); err != nil {
		return where, nil, err
	}
	stop = func() error {
		_ = input.Close() // ends the process
		return cmd.Wait()
	}
	return where, stop, json.NewDecoder(output).Decode(&where)
}
