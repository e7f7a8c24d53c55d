// Command load measures the cost of control planes, which it runs itself, with simulated Envoys and zones. It is a tool
// of the project, and in no release.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weft/test/load/scenario"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newRootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "load: %v\n", err)
		os.Exit(1)
	}
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "load",
		Short:         "Measure the cost of control planes, with simulated Envoys and zones",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	for _, entry := range scenario.All() {
		root.AddCommand(newScenarioCommand(entry))
	}
	root.AddCommand(newFloorCommand())
	return root
}

func newScenarioCommand(entry scenario.Entry) *cobra.Command {
	environment := scenario.Environment{StartFloor: startFloor}
	output := "table"
	cmd := &cobra.Command{
		Use:   entry.Name,
		Short: "Measure " + entry.Summary,
		Long: strings.TrimSpace(entry.Description) + `

Each control plane is a process with an empty store on free ports. Run it on a machine that does nothing else.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output %q is not known; use table or json", output)
			}
			environment.Progress = cmd.ErrOrStderr()
			report, err := scenario.Run(cmd.Context(), entry.Scenario, environment)
			if err != nil {
				return fmt.Errorf("measuring %s: %w", entry.Name, err)
			}
			if output == "json" {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(report)
			}
			return scenario.Print(cmd.OutOrStdout(), report)
		},
	}
	entry.Scenario.AddFlags(cmd.Flags())
	cmd.Flags().StringVar(&environment.Weft, "weft", "bin/weft", "program that runs as each control plane")
	cmd.Flags().DurationVar(&environment.Limit, "timeout", time.Hour, "how long the measurement may take")
	cmd.Flags().StringVarP(&output, "output", "o", output, "table or json")
	return cmd
}

// newFloorCommand returns the command that runs the bare server in a process of its own. It ends with its standard
// input, so it never outlives the measurement.
func newFloorCommand() *cobra.Command {
	var config scenario.FloorConfig
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
			return scenario.ServeFloor(ctx, config, cmd.OutOrStdout())
		},
	}
	cmd.Flags().IntVar(&config.Bytes, "bytes", 0, "bytes of the first configuration")
	cmd.Flags().IntVar(&config.Messages, "messages", 1, "messages of the first configuration")
	return cmd
}

// startFloor runs this program again, as the floor.
func startFloor(ctx context.Context, config scenario.FloorConfig) (where scenario.ServerAddresses, stop func() error,
	err error) {
	self, err := os.Executable()
	if err != nil {
		return where, nil, err
	}
	cmd := exec.CommandContext(ctx, self, "floor",
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
