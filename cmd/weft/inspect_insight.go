package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/client"
	"weft/internal/inspect"
	"weft/internal/rest"
	"weft/kind"
)

func newInspectMeshesCommand(r *remote) *cobra.Command {
	command := &cobra.Command{
		Use:   "meshes",
		Short: "Show every mesh: proxies by state, services, policies",
		Long:  `Show every mesh. UNKNOWN counts the proxies whose zone is not connected to this global control plane.`,
		Example: `  weft inspect meshes
  weft inspect meshes -o yaml`,
		Args: cobra.NoArgs,
	}
	o := outputFlag(command, asTable, asJSON, asYAML)
	command.RunE = func(command *cobra.Command, _ []string) error {
		items, err := r.insights(command, "/mesh-insights")
		if err != nil {
			return err
		}
		if o.form != asTable || len(items) == 0 {
			return printItems(command.OutOrStdout(), items, o.form, kind.Meshes)
		}
		heading := []string{"NAME", "DATAPLANES", "ONLINE", "DEGRADED", "OFFLINE", "UNKNOWN", "SERVICES", "POLICIES"}
		rows, err := rowsOf(items, meshRow)
		if err != nil {
			return err
		}
		return printTable(command.OutOrStdout(), heading, rows)
	}
	return command
}

func meshRow(m *rest.MeshInsight) []string {
	policies := 0
	for _, total := range m.Policies {
		policies += total.Total
	}
	row := []string{m.Name}
	for _, n := range []int{m.Dataplanes.Total, m.Dataplanes.Online, m.Dataplanes.PartiallyDegraded,
		m.Dataplanes.Offline, m.Dataplanes.Unknown, m.Services.Total, policies} {
		row = append(row, fmt.Sprint(n))
	}
	return row
}

func newInspectServicesCommand(r *remote) *cobra.Command {
	var allMeshes bool
	command := &cobra.Command{
		Use:   "services",
		Short: "Show the status and the addresses of the services of a mesh",
		Long: `Show the status and the addresses of the services of a mesh.

STATUS is online if all proxies of a service are ready, offline if none is, partially_degraded if some are, and
not_available if the service has no proxy, and unknown on global if its zone is not connected. "weft describe meshservice NAME" shows the reason.`,
		Example: `  weft inspect services
  weft inspect services --all-meshes -o json`,
		Args: cobra.NoArgs,
	}
	o := outputFlag(command, asTable, asJSON, asYAML)
	command.Flags().BoolVarP(&allMeshes, "all-meshes", "A", false, "of every mesh, not of --mesh alone")
	command.RunE = func(command *cobra.Command, _ []string) error {
		path := client.Path(kind.Meshes, "", r.mesh) + "/service-insights"
		if allMeshes {
			path = "/service-insights"
		}
		items, err := r.insights(command, path)
		if err != nil {
			return err
		}
		if o.form != asTable || len(items) == 0 {
			return printItems(command.OutOrStdout(), items, o.form, kind.MeshServices)
		}
		rows, err := rowsOf(items, serviceRow)
		if err != nil {
			return err
		}
		if err := printTable(command.OutOrStdout(), []string{"MESH", "NAME", "STATUS", "DATAPLANES", "ONLINE",
			"ADDRESS"}, rows); err != nil {
			return err
		}
		var missing unknownParts
		unknown, err := rowsOf(items, func(s *rest.ServiceInsight) *inspect.Unknown { return s.Unknown })
		if err != nil {
			return err
		}
		missing.addStates("STATUS and ONLINE of the services", unknown, time.Now())
		return missing.print(command.OutOrStdout())
	}
	return command
}

func serviceRow(s *rest.ServiceInsight) []string {
	if s.Unknown != nil {
		return []string{s.Mesh, s.Name, string(inspect.NotKnown), fmt.Sprint(s.Dataplanes.Total), "-",
			cmp.Or(s.AddressPort, "-")}
	}
	return []string{
		s.Mesh, s.Name, string(s.Status),
		fmt.Sprint(s.Dataplanes.Total), fmt.Sprint(s.Dataplanes.Online), cmp.Or(s.AddressPort, "-"),
	}
}

func (r *remote) insights(command *cobra.Command, path string) ([]json.RawMessage, error) {
	c, err := r.client(command.Context())
	if err != nil {
		return nil, err
	}
	return c.List(command.Context(), path, nil)
}

// rowsOf makes a row of each item.
func rowsOf[T, R any](items []json.RawMessage, row func(*T) R) ([]R, error) {
	var rows []R
	for _, item := range items {
		var value T
		if err := json.Unmarshal(item, &value); err != nil {
			return nil, err
		}
		rows = append(rows, row(&value))
	}
	return rows, nil
}
