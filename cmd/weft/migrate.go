package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/migrate"
	"weft/kind"
	"weft/resource"
)

// unvouchedUntil is when translated meshes ask for vouchers: the first day of a month, so that two translations differ
// rarely.
func unvouchedUntil(now time.Time) time.Time {
	end := now.UTC().Add(kind.UnvouchedMembersTime)
	return time.Date(end.Year(), end.Month()+1, 1, 0, 0, 0, 0, time.UTC)
}

func newMigrateCommand() *cobra.Command {
	var from sources
	var dryRun bool
	var format string
	command := &cobra.Command{
		Use:   "migrate -f FILE|DIR|URL|-",
		Short: "Translate an export of Kuma into resources that apply takes",
		Long: `Translate an export of a Kuma control plane, in the Universal or the Kubernetes form, and print the resources for
weft apply. Nothing is written anywhere, and no control plane is called.

The translation never allows a client that the export denies. MeshTrafficPermissions with from become rules, and targets
of tags become labels, where the meaning is the same. A policy that denies and cannot be translated takes the policies that
it restricts with it, also where it is a zone's and the export is that of a global control plane. A policy of one namespace
never becomes one of the whole mesh. Everything else is omitted, in the smallest part, and reported on standard error: the
object, the field, the reason and what to do. Read-only resources, and those that weft makes itself, are skipped.

Translate everything at once: what a permission means depends on the others, on the Mesh and on its Dataplanes.
One page of a list is an error. A denial that restricts nothing in the input is skipped in an export of kumactl only, which
begins with "# Product: "; in any other input it is reported as omitted.
With secrets in the export, the output has them too.

With --format kubernetes the resources are for a control plane on Kubernetes, and for kubectl apply: they keep their
namespaces, and select by them. Without it they are for machines, which have no namespaces.

The exit code is 0 where nothing is omitted, 1 where something is, and 2 where the export cannot be read; nothing is
printed then. With --dry-run the report alone is printed. With -o json the resources are the items of one list,
which apply and migrate read too.`,
		Example: `  weft migrate -f export.yaml --dry-run
  (umask 077 && weft migrate -f export.yaml > weft.yaml)
  kumactl export --profile federation-with-policies | weft migrate -f -
  weft migrate -f export/ -o json
  weft migrate -f export.yaml --format kubernetes | kubectl apply -f -`,
		Args: filesByFlag,
	}
	o := outputFlag(command, asYAML, asJSON)
	command.Flags().StringArrayVarP(&from.files, "file", "f", nil,
		"file, directory, http(s) URL, or - for standard input; may be given several times")
	command.Flags().BoolVar(&dryRun, "dry-run", false, "print the report alone")
	command.Flags().StringVar(&format, "format", formatUniversal, "form of the resources: universal, for a control "+
		"plane on machines, or kubernetes")
	_ = command.MarkFlagRequired("file") // it exists
	command.RunE = func(command *cobra.Command, _ []string) error {
		if format != formatUniversal && format != formatKubernetes {
			return fmt.Errorf("--format is %q, want %s or %s", format, formatUniversal, formatKubernetes)
		}
		from.verbatim = true
		docs, err := from.read(command.Context(), command.InOrStdin())
		if err != nil {
			return checkFailed{err}
		}
		var documents []migrate.Document
		whole := false
		for _, doc := range docs {
			whole = whole || doc.whole
			documents = append(documents, migrate.Document{YAMLDocument: doc.YAMLDocument, Source: doc.at()})
		}
		result, err := migrate.Translate(documents, migrate.Options{UnvouchedUntil: unvouchedUntil(time.Now()),
			Kubernetes: format == formatKubernetes, Whole: whole})
		if err != nil {
			return checkFailed{err}
		}
		report := command.ErrOrStderr()
		if dryRun {
			report = command.OutOrStdout()
		} else if err := printTranslated(command.OutOrStdout(), &result, o.form, format); err != nil {
			return err
		}
		printMigration(report, &result)
		if !result.Complete() {
			return errFound
		}
		return nil
	}
	return command
}

// The forms of translated resources.
const (
	formatUniversal  = "universal"
	formatKubernetes = "kubernetes"
)

func printTranslated(w io.Writer, result *migrate.Result, form, format string) error {
	slices.SortStableFunc(result.Resources, func(a, b resource.Any) int {
		return writePlace(kind.ByName(a.Key().Kind)) - writePlace(kind.ByName(b.Key().Kind))
	})
	switch {
	case format == formatKubernetes:
		return printManifests(w, result, form)
	case form == asYAML:
		return printExport(w, result.Resources)
	}
	items := []json.RawMessage{}
	for _, o := range result.Resources {
		item, err := resource.MarshalJSON(o, nil, kind.ByName(o.Key().Kind), resource.Universal)
		if err != nil {
			return err
		}
		items = append(items, item)
	}
	return printValue(w, map[string]any{"items": items}, form)
}

// printManifests prints the resources as kubectl applies them.
func printManifests(w io.Writer, result *migrate.Result, form string) error {
	items := []any{}
	for i, o := range result.Resources {
		manifest := result.Manifest(o)
		items = append(items, manifest)
		if form != asYAML {
			continue
		}
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		if err := printValue(w, manifest, form); err != nil {
			return err
		}
	}
	if form == asYAML {
		return nil
	}
	return printValue(w, map[string]any{"apiVersion": "v1", "kind": "List", "items": items}, form)
}

// printMigration prints the result of a translation: the notes, and the number of translated resources of each kind.
func printMigration(w io.Writer, result *migrate.Result) {
	for _, outcome := range []migrate.Outcome{migrate.Omitted, migrate.Adapted, migrate.Skipped} {
		for _, line := range reportLines(result.Notes, outcome) {
			fmt.Fprintf(w, "%s: %s\n", outcome, line)
		}
	}
	var order []string
	counts := map[string]int{}
	for _, o := range result.Resources {
		name := o.Key().Kind
		if counts[name] == 0 {
			order = append(order, name)
		}
		counts[name]++
	}
	slices.Sort(order)
	for i, name := range order {
		order[i] = fmt.Sprintf("%s (%d)", name, counts[name])
	}
	if len(order) == 0 {
		order = []string{"nothing"}
	}
	fmt.Fprintln(w, "translated:", strings.Join(order, ", "))
}

// reportLines returns the notes of one outcome, a line each. Objects of one kind with one reason share a line.
func reportLines(notes []migrate.Note, outcome migrate.Outcome) []string {
	type group struct{ kind, field, reason, advice string }
	var order []group
	members := map[group][]migrate.Note{}
	for i, n := range notes {
		if n.Outcome != outcome {
			continue
		}
		g := group{n.Kind, n.Field, n.Reason, n.Advice}
		if n.Field != "" {
			g.kind = fmt.Sprint(i) // a line of its own
		}
		if members[g] == nil {
			order = append(order, g)
		}
		members[g] = append(members[g], n)
	}
	var lines []string
	for _, g := range order {
		of := members[g]
		line := fmt.Sprintf("%s: %s", of[0].Source, strings.TrimSpace(of[0].Object+" "+g.field))
		if len(of) > 1 {
			var names []string
			for _, n := range of {
				names = append(names, strings.TrimPrefix(n.Object, g.kind+" "))
			}
			line = fmt.Sprintf("%d of %s (%s)", len(of), g.kind, someOf(names))
		}
		line += ": " + g.reason
		if g.advice != "" {
			line += "; " + g.advice
		}
		lines = append(lines, line)
	}
	return lines
}
