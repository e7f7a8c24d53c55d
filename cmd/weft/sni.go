package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/inspect"
	"weft/internal/rest"
	"weft/internal/sni"
	"weft/internal/wait"
)

func newSNICommand(r *remote) *cobra.Command {
	command := &cobra.Command{
		Use:   "sni",
		Short: "Show and migrate the SNIs with which zones reach each other's services",
	}
	command.AddCommand(newSNIStatusCommand(r), newSNIMigrateCommand(r))
	return command
}

func newSNIStatusCommand(r *remote) *cobra.Command {
	command := &cobra.Command{
		Use:   "status",
		Short: "Show the format of SNIs, and the progress of a migration in each zone",
		Long: `Show the wanted format of all SNIs, and how many ports of each owner are at which step: BEFORE have SNIs of
other formats only, APPENDED have the new SNI last, FIRST have it first, DONE have it only. WAITS FOR lists the clients
whose ACK of the former step is pending for long.

Global knows all zones; a zone knows only its own SNIs and those that it receives.`,
		Example: `  weft sni status
  weft sni status -o json`,
		Args: cobra.NoArgs,
	}
	o := outputFlag(command, asTable, asJSON, asYAML)
	command.RunE = func(command *cobra.Command, _ []string) error {
		return show(r, command, "/_sni", nil, o.form, printSNIReport)
	}
	return command
}

func newSNIMigrateCommand(r *remote) *cobra.Command {
	var to string
	var wait bool
	command := &cobra.Command{
		Use:   "migrate --to FORMAT",
		Short: "Migrate the SNIs of all services to another format, without a lost request",
		Long: `Migrate the SNIs of all services to another format. Every control plane migrates its own services: it appends the
new SNI, puts it first, and removes the old SNIs. Each step starts when the zone ingresses and the clients of all
zones have acked the step before. A disconnected zone delays its last step until it reconnects. A migration in the
opposite direction is possible at any time.

Run the command on global, or in a zone that has not joined a global control plane. All control planes must be of a
release that supports the format.`,
		Example: `  weft sni migrate --to v2
  weft sni migrate --to v2 --wait`,
		Args: cobra.NoArgs,
	}
	command.Flags().StringVar(&to, "to", "", "the format: "+strings.Join(sniFormats(), ", "))
	command.Flags().BoolVar(&wait, "wait", false, "wait until all ports are done, and print each step")
	_ = command.MarkFlagRequired("to") // the flag is there
	r.noteFlag(command)
	completeFlag(command, "to", cobra.FixedCompletions(sniFormats(), cobra.ShellCompDirectiveNoFileComp))
	command.RunE = func(command *cobra.Command, _ []string) error {
		c, err := r.client(command.Context())
		if err != nil {
			return err
		}
		var report inspect.SNIReport
		if err := c.Post(command.Context(), "/_sni", rest.SNIRequest{Format: to}, &report); err != nil {
			return err
		}
		if err := printSNIReport(command.OutOrStdout(), &report); err != nil || !wait {
			return err
		}
		return followSNI(command.Context(), command.OutOrStdout(), &report, func(into *inspect.SNIReport) error {
			return c.Get(command.Context(), "/_sni", nil, into)
		})
	}
	return command
}

func sniFormats() []string {
	var names []string
	for _, format := range sni.Formats() {
		names = append(names, format.String())
	}
	return names
}

// sniPollInterval is the interval at which a migration is read.
const sniPollInterval = 500 * time.Millisecond

// followSNI prints the progress of a migration whenever it changes, until the migration is done.
func followSNI(ctx context.Context, w io.Writer, seen *inspect.SNIReport, read func(*inspect.SNIReport) error) error {
	for !seen.Done {
		if err := wait.Sleep(ctx, sniPollInterval); err != nil {
			return err
		}
		var now inspect.SNIReport
		if err := read(&now); err != nil {
			return err
		}
		if now.Format != seen.Format {
			return fmt.Errorf("somebody asks for server names of the format %s meanwhile", now.Format)
		}
		if !slices.EqualFunc(now.Owners, seen.Owners, equalProgress) {
			fmt.Fprintln(w)
			if err := printSNIReport(w, &now); err != nil {
				return err
			}
		}
		seen = &now
	}
	return nil
}

func equalProgress(a, b inspect.SNIProgress) bool {
	return a.Owner == b.Owner && a.Ports == b.Ports && a.Before == b.Before && a.Appended == b.Appended &&
		a.First == b.First &&
		slices.Equal(a.WaitsFor, b.WaitsFor)
}

func printSNIReport(w io.Writer, report *inspect.SNIReport) error {
	state := "on the way"
	if report.Done {
		state = "done"
	}
	fmt.Fprintf(w, "server names of the format %s: %s\n", report.Format, state)
	if len(report.Owners) == 0 {
		return nil
	}
	var rows [][]string
	for _, p := range report.Owners {
		rows = append(rows, []string{
			p.Owner, fmt.Sprint(p.Ports), fmt.Sprint(p.Before), fmt.Sprint(p.Appended), fmt.Sprint(p.First),
			fmt.Sprint(p.Done),
			cmp.Or(someOf(p.WaitsFor), "-"),
		})
	}
	return printTable(w, []string{"OWNER", "PORTS", "BEFORE", "APPENDED", "FIRST", "DONE", "WAITS FOR"}, rows)
}
