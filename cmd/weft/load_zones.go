package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/load"
)

func newLoadZonesCommand() *cobra.Command {
	var o load.ZonesOptions
	cmd := &cobra.Command{
		Use:   "zones",
		Short: "Measure what a global control plane costs with many zones, which are simulated",
		Long: `Runs a global control plane of its own on an empty store, connects simulated zones to it over the real
protocol, and measures its time, CPU and memory: when all zones join, at rest, when one more joins, and while
every zone changes a service each second. Run it on a machine that does nothing else.`,
		Example: `  weft load zones
  weft load zones --zones 20 --services 100 --pods 1000
  weft load zones --zones 100 --services 50 --during 10s -o json`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Zones, "zones", 500, "simulated zones")
	flags.IntVar(&o.Services, "services", 200, "services of each zone")
	flags.IntVar(&o.Pods, "pods", 0, "Pods of each zone, whose Dataplanes global gets")
	flags.DurationVar(&o.Idle, "idle", 30*time.Second, "how long to measure the idle control plane")
	flags.DurationVar(&o.During, "during", 30*time.Second, "how long every zone changes a service each second")
	setMeasurement(cmd, func(ctx context.Context, self string, progress io.Writer) (measurementReport, error) {
		o.Weft, o.Progress = self, progress
		return load.RunZones(ctx, o)
	})
	return cmd
}

// measurementReport is the report of a measurement.
type measurementReport interface{ Print(io.Writer) error }

// setMeasurement makes a command run a measurement, with control planes that run this program, and print its report.
func setMeasurement(cmd *cobra.Command,
	measure func(ctx context.Context, self string, progress io.Writer) (measurementReport, error)) {
	o := outputFlag(cmd, asTable, asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		report, err := measure(cmd.Context(), self, cmd.ErrOrStderr())
		if err != nil {
			return fmt.Errorf("measuring: %w", err)
		}
		if o.form == asJSON {
			return printValue(cmd.OutOrStdout(), report, o.form)
		}
		return report.Print(cmd.OutOrStdout())
	}
}

func newLoadMembershipCommand() *cobra.Command {
	var o load.MembershipOptions
	cmd := &cobra.Command{
		Use:   "membership",
		Short: "Measure the cost of evicting half of a mesh's connected proxies, and of admitting them again",
		Long: `Runs a control plane of its own on an empty store, connects simulated Envoys to it, and changes who may join
their mesh, so that every other one loses its stream and leaves every endpoint list; and back. Run it on a machine
that does nothing else.`,
		Example: `  weft load membership
  weft load membership --proxies 200 --services 20 -o json`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Proxies, "proxies", 2000, "simulated Envoys, of which half are evicted")
	flags.IntVar(&o.Services, "services", 100, "services, which they share evenly and all see")
	setMeasurement(cmd, func(ctx context.Context, self string, progress io.Writer) (measurementReport, error) {
		o.Weft, o.Progress = self, progress
		return load.RunMembership(ctx, o)
	})
	return cmd
}

func newLoadPoliciesCommand() *cobra.Command {
	var o load.PoliciesOptions
	cmd := &cobra.Command{
		Use:   "policies",
		Short: "Measure the cost of policies: endpoint changes, edits, shared resources and memory",
		Long: `Runs a control plane of its own on an empty store and connects simulated Envoys to it. Measures changes of an
endpoint, writes policies, of which four are about the whole mesh and each other one about a team of proxies, and
measures the same changes again, edits of a policy, the number of resources that are encoded for all proxy groups, and
the memory for each proxy. Run it on a machine that does nothing else.`,
		Example: `  weft load policies
  weft load policies --proxies 500 --policies 50 --services 30 --changes 10 -o json`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Proxies, "proxies", 10_000, "simulated Envoys, each of a Dataplane with one inbound")
	flags.IntVar(&o.Policies, "policies", 500, "policies, of which all but four are of one team of proxies each")
	flags.IntVar(&o.Services, "services", 300, "services, which the Dataplanes share evenly and all reach")
	flags.IntVar(&o.Changes, "changes", 20, "changes of an endpoint, and edits of a policy")
	flags.DurationVar(&o.Limit, "timeout", 20*time.Minute, "how long the measurement may take")
	setMeasurement(cmd, func(ctx context.Context, self string, progress io.Writer) (measurementReport, error) {
		o.Weft, o.Progress = self, progress
		return load.RunPolicies(ctx, o)
	})
	return cmd
}

func newLoadJoinCommand() *cobra.Command {
	var o load.JoinOptions
	cmd := &cobra.Command{
		Use:   "join",
		Short: "Measure many proxies that connect at once, and a restart of their control plane",
		Long: `Runs a control plane of its own on an empty store and connects simulated Envoys to it at once. No endpoint is ready
before: each proxy makes its endpoint ready when it acks its listeners. Measures the bytes to each proxy beside one full
configuration, the time and the CPU until every proxy has everything, and the memory of the control plane for each proxy
as the operating system counts it. A bare server that sends one full configuration to as many clients is the floor.

Then kills the control plane and starts it again: every proxy comes back and states the versions that it has. Run it on
a machine that does nothing else.`,
		Example: `  weft load join
  weft load join --proxies 5000 --services 300
  weft load join --proxies 200 --services 100 -o json`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Proxies, "proxies", 1000, "simulated Envoys, each of a Dataplane with one inbound")
	flags.IntVar(&o.Services, "services", 300, "services, which the Dataplanes share evenly and all reach")
	setMeasurement(cmd, func(ctx context.Context, self string, progress io.Writer) (measurementReport, error) {
		o.Weft, o.Progress, o.StartFloor = self, progress, startFloor
		return load.RunJoin(ctx, o)
	})
	return cmd
}

func newLoadAcrossCommand() *cobra.Command {
	var o load.AcrossOptions
	cmd := &cobra.Command{
		Use:   "across",
		Short: "Measure how long a change in one zone takes until it is in the Envoys of another",
		Long: `Runs a global control plane and two zones of its own on empty stores, connects simulated Envoys to one zone,
and measures how long a change in the other zone takes until the last of them has it, and what one zone costs
another. Run it on a machine that does nothing else.`,
		Example: `  weft load across
  weft load across --proxies 500 --services 200 --changes 200 -o json`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Proxies, "proxies", 100, "simulated Envoys in the zone that hears of changes")
	flags.IntVar(&o.Services, "services", 100, "services of the zone in which changes are made")
	flags.IntVar(&o.Changes, "changes", 100, "changes of each sort")
	setMeasurement(cmd, func(ctx context.Context, self string, progress io.Writer) (measurementReport, error) {
		o.Weft, o.Progress = self, progress
		return load.RunAcross(ctx, o)
	})
	return cmd
}
