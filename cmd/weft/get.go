package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/client"
	"weft/internal/rest"
	"weft/kind"
	"weft/resource"
)

func newGetCommand(r *remote) *cobra.Command {
	var allMeshes bool
	var labels []string
	command := &cobra.Command{
		Use:   "get KIND [NAME]",
		Short: "Show resources",
		Long: `Show the resources of a kind, or one of them with its status. A kind is named as in YAML or by its plural.

Each zone has a status of its own of a MeshExternalService: REACHABLE is the number of zones whose clients reach it, of
those with a status. Global has the statuses from its zones, in "status.zones".`,
		Example: `  weft get meshes
  weft get meshservices --all-meshes
  weft get dataplanes -l app=web -l version=v2
  weft get meshservice web -o yaml
  weft get meshtimeout web --zone east`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: r.completeKindAndName,
	}
	o, zone := outputFlag(command, asTable, asJSON, asYAML), r.zoneFlag(command)
	command.Flags().BoolVarP(&allMeshes, "all-meshes", "A", false, "of every mesh, not of --mesh alone")
	command.Flags().StringArrayVarP(&labels, "label", "l", nil,
		"KEY=VALUE, a label that they have; may be given several times")
	command.RunE = func(command *cobra.Command, args []string) error {
		d, err := kindOf(args[0])
		if err != nil {
			return err
		}
		mesh := r.meshOf(d)
		if allMeshes {
			mesh = ""
		}
		switch {
		case len(args) == 2 && args[1] == "":
			return errNoName
		case len(args) == 2 && allMeshes:
			return errors.New("a NAME is of one mesh: leave out --all-meshes, or the name")
		case len(args) == 2 && len(labels) > 0:
			return errors.New("a NAME is one resource: leave out --label, or the name")
		case len(args) == 2:
			return r.getOne(command, d, client.Path(d, mesh, args[1]), *zone, o.form)
		case *zone != "":
			return errors.New("--zone is of one resource: name it, or leave out --zone")
		}
		filter, err := labelFilter(labels)
		if err != nil {
			return err
		}
		return r.getAll(command, d, mesh, filter, o.form)
	}
	return command
}

// labelFilter returns the API's query for resources with labels.
func labelFilter(pairs []string) (url.Values, error) {
	filter := url.Values{}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--label %q is not KEY=VALUE", pair)
		}
		filter.Set("filter[labels."+key+"]", value)
	}
	return filter, nil
}

func (r *remote) getOne(command *cobra.Command, d resource.Descriptor, path, zone, form string) error {
	c, err := r.client(command.Context())
	if err != nil {
		return err
	}
	var document json.RawMessage
	if err := c.Get(command.Context(), path, zoneQuery(zone), &document); err != nil {
		return err
	}
	items := []json.RawMessage{document}
	if d == resource.Descriptor(kind.MeshExternalServices) {
		if items, err = withZoneStatuses(command.Context(), c, items); err != nil {
			return err
		}
	}
	if form == asTable {
		return printResources(command.OutOrStdout(), items, d)
	}
	return printDocument(command.OutOrStdout(), items[0], form)
}

func (r *remote) getAll(command *cobra.Command, d resource.Descriptor, mesh string, filter url.Values,
	form string) error {
	c, err := r.client(command.Context())
	if err != nil {
		return err
	}
	items, err := c.List(command.Context(), client.Path(d, mesh, ""), filter)
	if err == nil && d == resource.Descriptor(kind.MeshExternalServices) {
		items, err = withZoneStatuses(command.Context(), c, items)
	}
	if err != nil {
		return err
	}
	return printItems(command.OutOrStdout(), items, form, d)
}

// printItems prints a list: as a table, as one JSON array, or as YAML documents that `weft apply` accepts.
func printItems(w io.Writer, items []json.RawMessage, form string, d resource.Descriptor) error {
	switch form {
	case asTable:
		if len(items) == 0 {
			_, err := fmt.Fprintf(w, "There are no %s.\n", d.Describe().Plural)
			return err
		}
		return printResources(w, items, d)
	case asJSON:
		document, err := json.Marshal(append([]json.RawMessage{}, items...))
		if err != nil {
			return err
		}
		return printDocument(w, document, form)
	}
	for i, item := range items {
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		if err := printDocument(w, item, form); err != nil {
			return err
		}
	}
	return nil
}

func printResources(w io.Writer, items []json.RawMessage, d resource.Descriptor) error {
	var rows [][]string
	var missing rest.MissingZones
	heading, isExternal := []string{"NAME", "AGE"}, d == resource.Descriptor(kind.MeshExternalServices)
	for _, item := range items {
		var head struct {
			Mesh    string    `json:"mesh"`
			Name    string    `json:"name"`
			Created time.Time `json:"creationTime"`
		}
		if err := json.Unmarshal(item, &head); err != nil {
			return err
		}
		row := []string{head.Name, age(time.Since(head.Created))}
		if head.Mesh != "" {
			heading = []string{"MESH", "NAME", "AGE"}
			row = append([]string{head.Mesh}, row...)
		}
		if isExternal {
			reachable, without, err := externalState(item)
			if err != nil {
				return err
			}
			row, missing = append(row, reachable), without
		}
		rows = append(rows, row)
	}
	if isExternal {
		heading = append(heading, "REACHABLE")
	}
	if err := printTable(w, heading, rows); err != nil {
		return err
	}
	var unknown unknownParts
	unknown.addZones("status", missing)
	return unknown.print(w)
}
