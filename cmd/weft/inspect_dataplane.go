package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/client"
	"weft/internal/inspect"
	"weft/kind"
)

// proxyView is one view of a proxy, selected by a flag.
type proxyView struct {
	flag, path, usage string
	// text is set for Envoy's own pages, which are text unless JSON is requested.
	text bool
	// facts is set for the view of the facts, which is a table by default.
	facts bool
	// only is the type of resource that is printed; empty: all.
	only string
}

// proxyViews are all views but the overview, which needs no flag. The live ones request a page of the proxy's Envoy,
// through its weft-dp.
var proxyViews = []proxyView{
	{flag: "config", path: "_snapshot", usage: "the Envoy configuration that the control plane sends it"},
	{flag: "endpoints", path: "_snapshot", usage: "the endpoints that the control plane sends it", only: "endpoint"},
	{flag: "policies", path: "_inspect", usage: "which identity and policies apply to it, and why"},
	{flag: "facts", path: "_inspect", usage: "its name, labels, tags, addresses and sections: who vouches for each, " +
		"and what rests on it", facts: true},
	{flag: "sync", path: "_sync", usage: "how far it has come with what it was sent"},
	{flag: "envoy", path: "xds", usage: "live: the configuration that its Envoy runs"},
	{flag: "clusters", path: "clusters", usage: "live: the destinations of its Envoy, with the health of each endpoint",
		text: true},
	{flag: "stats", path: "stats", usage: "live: the statistics of its Envoy", text: true},
	{flag: "certs", path: "certs", usage: "live: the certificates that its Envoy has"},
}

func newInspectDataplaneCommand(r *remote) *cobra.Command {
	command := &cobra.Command{
		Use:   "dataplane NAME",
		Short: "Show one proxy, its configuration, or a page of its Envoy",
		Long: `Show one proxy: its Dataplane, its connections, its ready listeners and its NACKs. With a flag, show its
configuration, or a page of its Envoy. "weft describe dataplane NAME" prints a summary.`,
		Example: `  weft inspect dataplane web-1
  weft inspect dataplane web-1 --config -o json
  weft inspect dataplane web-1 --policies
  weft inspect dataplane web-1 --facts
  weft inspect dataplane web-1 --stats
  weft inspect dataplane web-1 --zone east --sync`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: r.completeName(kind.Dataplanes),
	}
	o, zone := outputFlag(command, asYAML, asJSON, asTable), r.zoneFlag(command)
	chosen := make([]bool, len(proxyViews))
	var flags []string
	for i, q := range proxyViews {
		command.Flags().BoolVar(&chosen[i], q.flag, false, q.usage)
		flags = append(flags, q.flag)
	}
	command.MarkFlagsMutuallyExclusive(flags...)
	command.RunE = func(command *cobra.Command, args []string) error {
		if args[0] == "" {
			return errors.New("name a Dataplane; `weft inspect dataplanes` lists them")
		}
		view := proxyView{path: "_overview"}
		if i := slices.Index(chosen, true); i >= 0 {
			view = proxyViews[i]
		}
		form := o.form
		if view.text && !command.Flags().Changed("output") {
			form = asText
		}
		if view.facts && !command.Flags().Changed("output") {
			form = asTable
		}
		if !view.facts && form == asTable {
			return errors.New("-o table is for --facts; use yaml or json")
		}
		return r.inspect(command, args[0], *zone, view, form)
	}
	return command
}

func (r *remote) inspect(command *cobra.Command, name, zone string, view proxyView, form string) error {
	c, err := r.client(command.Context())
	if err != nil {
		return err
	}
	query := zoneQuery(zone)
	if view.text && form != asText {
		query.Set("format", "json")
	}
	var body []byte
	if err := c.Get(command.Context(), client.Path(kind.Dataplanes, r.mesh, name)+"/"+view.path, query,
		&body); err != nil {
		return err
	}
	if form == asText {
		_, err := command.OutOrStdout().Write(body)
		return err
	}
	if view.facts {
		return printFacts(command.OutOrStdout(), body, form)
	}
	if view.only != "" {
		if body, err = onlyType(body, view.only); err != nil {
			return err
		}
	}
	return printDocument(command.OutOrStdout(), body, form)
}

// proxyFacts are the facts of a proxy, a part of [inspect.Applied].
type proxyFacts struct {
	Facts     []inspect.AppliedFact `json:"facts"`
	MoreFacts int                   `json:"moreFacts,omitempty"`
}

// printFacts writes the facts of an [inspect.Applied].
func printFacts(w io.Writer, applied []byte, form string) error {
	var facts proxyFacts
	if err := json.Unmarshal(applied, &facts); err != nil {
		return err
	}
	if form != asTable {
		return printValue(w, facts, form)
	}
	table := facts.section()
	return printTable(w, table.heading, table.rows)
}

// section returns the facts as a table.
func (p *proxyFacts) section() section {
	var rows [][]string
	for i := range p.Facts {
		f := &p.Facts[i]
		voucher := string(f.Voucher)
		if f.Until != nil {
			voucher += " until " + f.Until.UTC().Format(time.DateOnly)
		}
		var rests []string
		for _, use := range f.RestsOn {
			if use.Problem != "" {
				use.Object += " (" + use.Problem + ")"
			}
			rests = append(rests, use.Object)
		}
		if f.More > 0 {
			rests = append(rests, fmt.Sprintf("%d more", f.More))
		}
		rows = append(rows, []string{f.Fact, voucher, cmp.Or(strings.Join(rests, ", "), "-")})
	}
	if p.MoreFacts > 0 {
		rows = append(rows, []string{fmt.Sprintf("%d more", p.MoreFacts), "-", "-"})
	}
	return section{[]string{"FACT", "VOUCHER", "RESTS ON"}, rows}
}

// onlyType returns a proxy's configuration with the resources of one type only.
func onlyType(document []byte, kept string) ([]byte, error) {
	var config struct {
		XDS []json.RawMessage `json:"xds"`
	}
	if err := json.Unmarshal(document, &config); err != nil {
		return nil, err
	}
	var failed error
	config.XDS = slices.DeleteFunc(config.XDS, func(entry json.RawMessage) bool {
		var head struct {
			Type string `json:"type"`
		}
		failed = errors.Join(failed, json.Unmarshal(entry, &head))
		return head.Type != kept
	})
	if failed != nil {
		return nil, failed
	}
	return json.Marshal(config)
}
