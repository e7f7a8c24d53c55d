package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"weft/internal/check"
	"weft/resource"
)

// errFound ends a check that found errors. They have been printed.
var errFound = errors.New("errors were found")

// errUnknown ends a check that found no error but zones or replicas that have not responded. They have been printed.
var errUnknown = errors.New("zones or replicas have not responded")

// checkFailed is the error of a check that no control plane has performed.
type checkFailed struct{ error }

func (c checkFailed) Unwrap() error { return c.error }

// shownOfEach is the number of findings of one problem that the text form shows.
const shownOfEach = 10

func newCheckCommand(r *remote) *cobra.Command {
	command := &cobra.Command{
		Use:   "check",
		Short: "Find problems of the running system, with advice for each",
		Long: `Find problems of the running system, with advice for each: certificates that expire, proxies that are
offline, NACK configuration or have pending acks, services without endpoints, permissions that allow no client, and
more. docs/troubleshooting.md has a section for each.

The check covers all meshes, or the mesh of --mesh; on global it covers every zone. A zone or a replica that does not
respond is a finding.

The exit code is 0 if it found no error (warnings are possible), 1 if it found an error or the control plane rejects
the request (no such mesh, no permission), 2 if no control plane has responded, and 3 if the only errors are that
zones or replicas have not responded.`,
		Example: `  weft check
  weft check --mesh shop
  weft check -o json`,
		Args: cobra.NoArgs,
	}
	o := outputFlag(command, asText, asJSON, asYAML)
	command.RunE = func(command *cobra.Command, _ []string) error {
		mesh := ""
		if command.Flags().Changed("mesh") {
			mesh = r.mesh
		}
		report, err := r.look(command, mesh)
		if err != nil {
			return checkError(err)
		}
		if other := report.version; other != version {
			fmt.Fprintf(command.ErrOrStderr(), "Warning: this program is weft %s, the control plane is weft %s\n",
				version, other)
		}
		if err := printReport(command.OutOrStdout(), &report.Report, o.form); err != nil {
			return err
		}
		if report.MissesOnly() {
			return errUnknown
		}
		for _, f := range report.Findings {
			if f.Severity == check.Error {
				return errFound
			}
		}
		return nil
	}
	return command
}

// checkError returns the error of a check without a report: as [checkFailed], unless a control plane rejects the
// request.
func checkError(err error) error {
	switch resource.CodeOf(err) {
	case resource.Invalid, resource.Unauthorized, resource.Forbidden, resource.NotFound:
		return err
	}
	return checkFailed{err}
}

// checkResult is the report of a control plane, and the control plane's version.
type checkResult struct {
	check.Report
	version string
}

// look checks one mesh, or all without a name.
func (r *remote) look(command *cobra.Command, mesh string) (*checkResult, error) {
	c, err := r.client(command.Context())
	if err != nil {
		return nil, err
	}
	var index struct {
		Version string `json:"version"`
	}
	if err := c.Get(command.Context(), "/", nil, &index); err != nil {
		return nil, err
	}
	query := url.Values{}
	if mesh != "" {
		query.Set("mesh", mesh)
	}
	a := &checkResult{version: index.Version}
	return a, c.Get(command.Context(), "/_check", query, &a.Report)
}

func printReport(w io.Writer, report *check.Report, form string) error {
	if form != asText {
		return printValue(w, report, form)
	}
	left := report.Findings
	for len(left) > 0 {
		n := 1
		for n < len(left) && left[n].Problem == left[0].Problem && left[n].Severity == left[0].Severity {
			n++
		}
		printProblem(w, left[:n])
		left = left[n:]
	}
	if report.More > 0 {
		fmt.Fprintf(w, "%d more findings of zones are left out; their control planes have them\n\n", report.More)
	}
	_, err := fmt.Fprintf(w, "Looked at %s and %s%s: %s.\n", count(report.Dataplanes, "Dataplane"),
		count(report.Services, "MeshService"), inMeshes(report.Meshes), tally(report.Findings))
	return err
}

// inMeshes names the meshes of a report that is limited to some.
func inMeshes(meshes []string) string {
	if len(meshes) == 0 {
		return ""
	}
	return " of the meshes that you may read (" + someOf(meshes) + ")"
}

// printProblem prints the findings of one problem under its name, with the remedy below them.
func printProblem(w io.Writer, findings []check.Finding) {
	first := findings[0]
	color := map[check.Severity]string{check.Error: red, check.Warning: yellow}[first.Severity]
	fmt.Fprintf(w, "%s  %s\n", paletteOf(w).paint(color, string(first.Severity)), first.Problem)
	for _, f := range findings[:min(len(findings), shownOfEach)] {
		fmt.Fprintf(w, "  %s: %s%s\n", f.Object, f.Detail, inZones(f.Zones))
	}
	if more := len(findings) - shownOfEach; more > 0 {
		fmt.Fprintf(w, "  and %d more; -o json lists all\n", more)
	}
	fmt.Fprintf(w, "  -> %s\n     %s\n\n", first.Advice, first.Docs)
}

// inZones returns the zones of a finding, as the end of its line.
func inZones(zones []string) string {
	switch len(zones) {
	case 0:
		return ""
	case 1:
		return " (zone " + zones[0] + ")"
	}
	return " (zones " + someOf(zones) + ")"
}

func tally(findings []check.Finding) string {
	if len(findings) == 0 {
		return "nothing is wrong"
	}
	counts := map[check.Severity]int{}
	for _, f := range findings {
		counts[f.Severity]++
	}
	return fmt.Sprintf("%s, %s", count(counts[check.Error], "error"), count(counts[check.Warning], "warning"))
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
