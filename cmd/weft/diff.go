package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"weft/internal/preview"
	"weft/internal/rest"
	"weft/resource"
)

// errChanges is the error of a diff with changes, for --exit-code.
var errChanges = errors.New("the change changes proxies")

func newDiffCommand(r *remote) *cobra.Command {
	var from sources
	var remove, verbose, shadow, exitCode bool
	command := &cobra.Command{
		Use:   "diff -f FILE|DIR|URL|- [--delete] | KIND NAME --delete | --shadow",
		Short: "Show what a change does to the proxies, before it is applied",
		Long: `Show what applying the resources in files, or deleting them, would do to the proxies: the values of
policies that differ, with the item that sets each; the callers that become allowed or denied; the requests
that get other backends. The control plane checks the change as a write, compares the configuration of every
proxy that it concerns, and changes nothing.

Proxies with the same change are one group. With --verbose each group has its Envoy resources, and the fields
that differ, as the first proxy of the group has them. What the control plane itself would write after the change, such as the
virtual IP of a new service, is not included.

With --shadow, policies with the label kuma.io/effect: shadow take effect in the comparison.

With --exit-code the command exits with 0 if no proxy changes, with 2 if one does, and with 1 after an error.

The global control plane has each of its zones compare the proxies of the zone. The command fails with 1 where the effect
on a zone is unknown, after it has printed that of the others.`,
		Example: `  weft diff -f timeout.yaml
  weft diff -f policies/ --exit-code -o json
  weft diff -f timeout.yaml --verbose
  weft diff -f timeout.yaml --canary version=v2
  weft diff meshtimeout web --delete
  weft diff -f old/ --delete
  weft diff --shadow`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: r.completeKindAndName,
	}
	from.flags(command)
	canary := canaryFlag(command)
	flags := command.Flags()
	flags.BoolVar(&remove, "delete", false, "show the effect of deleting the resources")
	flags.BoolVar(&shadow, "shadow", false, "let shadow policies take effect in the comparison")
	flags.BoolVar(&verbose, "verbose", false, "show the Envoy resources and fields that differ")
	flags.BoolVar(&exitCode, "exit-code", false, "exit with 2 if a proxy changes")
	o := outputFlag(command, asTable, asJSON, asYAML)
	command.RunE = func(command *cobra.Command, args []string) error {
		request, err := r.diffRequest(command, &from, args, remove, *canary)
		if err != nil {
			return err
		}
		if len(request.Apply)+len(request.Delete) == 0 && !shadow {
			return errors.New("name files with -f, a KIND and a NAME with --delete, or --shadow")
		}
		c, err := r.client(command.Context())
		if err != nil {
			return err
		}
		query := url.Values{"fields": {fmt.Sprint(verbose)}, "shadow": {fmt.Sprint(shadow)}}
		var document json.RawMessage
		if err := c.Post(command.Context(), "/_diff?"+query.Encode(), request, &document); err != nil {
			return err
		}
		var diff rest.DiffResponse
		if err := json.Unmarshal(document, &diff); err != nil {
			return err
		}
		if o.form == asTable {
			err = printDiff(command, &diff, verbose)
		} else {
			err = printDocument(command.OutOrStdout(), document, o.form)
		}
		if unknown := unknownZones(&diff); err == nil && len(unknown) > 0 {
			return fmt.Errorf("the effect on %d of %d zones is unknown: %s", len(unknown), len(diff.Zones),
				strings.Join(unknown[:min(len(unknown), 10)], ", "))
		}
		if err == nil && exitCode && changesProxies(&diff) {
			return errChanges
		}
		return err
	}
	return command
}

func changesProxies(diff *rest.DiffResponse) bool {
	return slices.ContainsFunc(diff.Zones, func(zone preview.Diff) bool {
		return len(zone.Groups)+zone.More+zone.Hidden > 0
	})
}

// unknownZones returns the zones without a result.
func unknownZones(diff *rest.DiffResponse) []string {
	var names []string
	for i := range diff.Zones {
		if diff.Zones[i].Problem != "" {
			names = append(names, diff.Zones[i].Zone)
		}
	}
	return names
}

// diffRequest returns the change that the files, or the arguments KIND and NAME, name.
func (r *remote) diffRequest(command *cobra.Command, from *sources, args []string, remove bool,
	canary string) (rest.DiffRequest, error) {
	var request rest.DiffRequest
	switch {
	case len(args) == 2 && len(from.files) == 0 && remove:
		d, err := kindOf(args[0])
		if err != nil {
			return request, err
		}
		if args[1] == "" {
			return request, errNoName
		}
		request.Delete = []rest.ResourceName{{Type: d.Describe().Name, Mesh: r.meshOf(d), Name: args[1]}}
		return request, nil
	case len(args) > 0:
		return request, fmt.Errorf("name a KIND and a NAME together with --delete, or files with -f: weft diff -f %s",
			args[0])
	case len(from.files) == 0:
		return request, nil
	}
	manifests, err := readManifests(command.Context(), from, command.InOrStdin(), r.mesh)
	if err != nil {
		return request, err
	}
	if err := asCanaries(manifests, canary); err != nil {
		return request, err
	}
	inWriteOrder(manifests)
	for _, m := range manifests {
		key := m.object.Key()
		if remove {
			name := rest.ResourceName{Type: key.Kind, Mesh: key.Mesh, Name: key.Name}
			request.Delete = slices.Insert(request.Delete, 0, name)
			continue
		}
		body, err := resource.MarshalJSON(m.object, nil, m.kind, resource.Universal)
		if err != nil {
			return request, err
		}
		request.Apply = append(request.Apply, body)
	}
	return request, nil
}

func printDiff(command *cobra.Command, diff *rest.DiffResponse, verbose bool) error {
	out := command.OutOrStdout()
	for _, changed := range diff.Resources {
		fmt.Fprintf(out, "%s %s\n", resource.Key{Kind: changed.Type, Mesh: changed.Mesh, Name: changed.Name},
			changed.Outcome)
		for _, warning := range changed.Warnings {
			fmt.Fprintln(command.ErrOrStderr(), "Warning:", warning)
		}
	}
	for i := range diff.Zones {
		zone := &diff.Zones[i]
		if zone.Pending != "" {
			fmt.Fprintf(command.ErrOrStderr(), "Warning: zone %s: %s; repeat the command\n", zone.Zone, zone.Pending)
		}
		switch {
		case zone.Problem != "":
			fmt.Fprintf(out, "zone %s: unknown: %s\n", zone.Zone, zone.Problem)
		case len(zone.Groups)+zone.More+zone.Hidden == 0:
			fmt.Fprintf(out, "zone %s: no proxy changes\n", zone.Zone)
		}
		for j := range zone.Groups {
			fmt.Fprintln(out)
			if err := printDiffGroup(out, zone.Zone, &zone.Groups[j], verbose); err != nil {
				return err
			}
		}
		if zone.More > 0 {
			fmt.Fprintf(out, "\nzone %s: %d more groups of proxies change\n", zone.Zone, zone.More)
		}
		if zone.Hidden > 0 {
			fmt.Fprintf(out, "\nzone %s: %d more groups of proxies change, which are not of your meshes\n", zone.Zone,
				zone.Hidden)
		}
	}
	return nil
}

func printDiffGroup(out io.Writer, zone string, g *preview.Group, verbose bool) error {
	outcome := [2]string{"1 proxy changes", "%d proxies change"}
	switch {
	case g.Added:
		outcome = [2]string{"1 proxy is added", "%d proxies are added"}
	case g.Removed:
		outcome = [2]string{"1 proxy is removed", "%d proxies are removed"}
	}
	counted := outcome[0]
	if g.Proxies > 1 {
		counted = fmt.Sprintf(outcome[1], g.Proxies)
	}
	names := strings.Join(g.Names, ", ")
	if more := g.Proxies - len(g.Names); more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	fmt.Fprintf(out, "zone %s, mesh %s: %s: %s\n", zone, g.Mesh, counted, names)
	var values, callers, requests, resources [][]string
	for _, v := range g.Values {
		values = append(values, []string{v.To + v.Section, v.Match, v.Kind, v.Field, settingText(v.Before),
			settingText(v.After)})
	}
	for _, c := range g.Callers {
		callers = append(callers, []string{c.Section, c.SpiffeID, c.Before, c.After})
	}
	for _, q := range g.Requests {
		requests = append(requests, []string{q.To, q.Match, backendsText(q.Before), backendsText(q.After)})
	}
	if verbose {
		resources = resourceRows(g.Resources)
	}
	for _, table := range []struct {
		heading []string
		rows    [][]string
	}{
		{[]string{"AT", "CALLERS", "KIND", "FIELD", "BEFORE", "AFTER"}, values},
		{[]string{"SECTION", "CALLER", "BEFORE", "AFTER"}, callers},
		{[]string{"TO", "REQUESTS", "BEFORE", "AFTER"}, requests},
		{[]string{"RESOURCE", "NAME", "CHANGE", "FIELD", "BEFORE", "AFTER"}, resources},
	} {
		if len(table.rows) == 0 {
			continue
		}
		if err := printTable(out, table.heading, table.rows); err != nil {
			return err
		}
	}
	switch listed := len(values) + len(callers) + len(requests); {
	case g.More > 0:
		fmt.Fprintf(out, "%d more entries\n", g.More)
	case listed == 0 && !verbose:
		fmt.Fprintf(out, "%d Envoy resources differ; --verbose lists them\n", len(g.Resources))
	}
	return nil
}

// settingText reads as "9s (MeshTimeout default/web to[0])".
func settingText(s *preview.Setting) string {
	if s == nil {
		return "(default)"
	}
	return jsonText(s.Value) + " (" + s.SetBy + ")"
}

func backendsText(backends []string) string {
	if len(backends) == 0 {
		return "-"
	}
	return strings.Join(backends, ", ")
}

func resourceRows(resources []preview.Resource) [][]string {
	var rows [][]string
	for _, res := range resources {
		if len(res.Fields) == 0 {
			rows = append(rows, []string{res.Type, res.Name, res.Change, "", "", ""})
		}
		for _, f := range res.Fields {
			rows = append(rows, []string{res.Type, res.Name, res.Change, f.Path, fieldText(f.Before),
				fieldText(f.Value)})
		}
	}
	return rows
}

func fieldText(value json.RawMessage) string {
	if value == nil {
		return "-"
	}
	return jsonText(value)
}

// jsonText returns a JSON value as text: a string without its quotes.
func jsonText(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}
