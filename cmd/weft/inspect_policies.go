package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"weft/internal/client"
	"weft/internal/inspect"
	"weft/kind"
)

func newInspectPoliciesCommand(r *remote) *cobra.Command {
	command := &cobra.Command{
		Use:   "policies --for NAME",
		Short: "Show the effective policies of a proxy's outbound traffic, field by field",
		Long: `Show the effective policies of the traffic that a proxy sends: for each destination, each field that a policy sets,
its value, the item of the policy that sets it, and the items that it overrides. A field that is absent has its
default; docs/defaults.md lists the defaults.`,
		Example: `  weft inspect policies --for web-1
  weft inspect policies --for web-1 --to backend -o json`,
		Args: cobra.NoArgs,
	}
	var proxy, to string
	command.Flags().StringVar(&proxy, "for", "", "the Dataplane")
	command.Flags().StringVar(&to, "to", "", "the name of a service; by default every destination")
	if err := command.MarkFlagRequired("for"); err != nil {
		panic(err)
	}
	o := outputFlag(command, asTable, asJSON, asYAML)
	command.RunE = func(command *cobra.Command, _ []string) error {
		c, err := r.client()
		if err != nil {
			return err
		}
		var applied struct{ Outbounds []policiesTo }
		path := client.Path(kind.Dataplanes, r.mesh, proxy) + "/_inspect"
		if err := c.Get(command.Context(), path, nil, &applied); err != nil {
			return err
		}
		outbounds := slices.DeleteFunc(applied.Outbounds, func(out policiesTo) bool {
			return len(out.Confs) == 0 || to != "" && out.service() != to
		})
		if o.form != asTable {
			return printValue(command.OutOrStdout(), outbounds, o.form)
		}
		var rows [][]string
		for i := range outbounds {
			rows = append(rows, outbounds[i].rows()...)
		}
		if len(rows) == 0 {
			fmt.Fprintln(command.ErrOrStderr(), "no policy sets a field: the defaults apply (docs/defaults.md)")
			return nil
		}
		header := []string{"TO", "KIND", "FIELD", "VALUE", "SET BY", "MERGED FROM"}
		if err := printTable(command.OutOrStdout(), header, rows); err != nil {
			return err
		}
		for i := range outbounds {
			outbounds[i].printNotes(command.OutOrStdout())
		}
		return nil
	}
	return command
}

// policiesTo are the effective policies of one destination.
type policiesTo struct {
	MeshService      string        `json:"meshService,omitempty"`
	MultiZoneService string        `json:"meshMultiZoneService,omitempty"`
	ExternalService  string        `json:"meshExternalService,omitempty"`
	Port             uint32        `json:"port"`
	Confs            []appliedConf `json:"confs,omitempty"`
}

// appliedConf is an [inspect.AppliedConf] with the conf as JSON.
type appliedConf struct {
	Kind    string                         `json:"kind"`
	Conf    json.RawMessage                `json:"conf"`
	Origins map[string]inspect.AppliedItem `json:"origins"`
	Items   []inspect.AppliedItem          `json:"items"`
	Notes   []string                       `json:"notes,omitempty"`
}

func (p *policiesTo) service() string {
	return p.MeshService + p.MultiZoneService + p.ExternalService // one of them
}

// rows returns a row for each field that a policy sets.
func (p *policiesTo) rows() [][]string {
	var rows [][]string
	for _, conf := range p.Confs {
		var merged []string
		for _, item := range conf.Items {
			merged = append(merged, item.String())
		}
		for _, path := range slices.Sorted(maps.Keys(conf.Origins)) {
			rows = append(rows, []string{fmt.Sprintf("%s:%d", p.service(), p.Port), conf.Kind, path,
				valueAt(conf.Conf, path), conf.Origins[path].String(), strings.Join(merged, ", ")})
		}
	}
	return rows
}

// printNotes writes a line for each note about the destination.
func (p *policiesTo) printNotes(to io.Writer) {
	for _, conf := range p.Confs {
		for _, note := range conf.Notes {
			fmt.Fprintf(to, "note: %s:%d %s: %s\n", p.service(), p.Port, conf.Kind, note)
		}
	}
}

// valueAt returns a field of an object as text. A path that leads into a list shows the whole list.
func valueAt(object json.RawMessage, path string) string {
	for name := range strings.SplitSeq(path, ".") {
		var fields map[string]json.RawMessage
		name, _, inList := strings.Cut(name, "[")
		if json.Unmarshal(object, &fields) != nil || fields[name] == nil {
			return string(object)
		}
		if object = fields[name]; inList {
			break
		}
	}
	var text string
	if json.Unmarshal(object, &text) == nil {
		return text
	}
	return string(object)
}
