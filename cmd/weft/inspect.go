package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/client"
	"weft/internal/dpserver"
	"weft/internal/inspect"
	"weft/internal/rest"
	"weft/kind"
	"weft/resource"
)

func newInspectCommand(r *remote) *cobra.Command {
	command := &cobra.Command{
		Use:   "inspect",
		Short: "Show the status and the configuration of proxies, services and zones",
	}
	command.AddCommand(
		newInspectDataplanesCommand(r), newInspectDataplaneCommand(r), newInspectMeshesCommand(r),
		newInspectServicesCommand(r),
		newInspectServiceCommand(r), newInspectZonesCommand(r), newInspectPoliciesCommand(r),
	)
	return command
}

func newInspectDataplanesCommand(r *remote) *cobra.Command {
	command := &cobra.Command{
		Use:   "dataplanes",
		Short: "Show every proxy of a mesh: connection, ready listeners, NACKs",
		Long: `Show every proxy of a mesh.

STATE is online where the proxy is connected and serves, "not serving" where it is connected and has
inbounds but none of them serves (its application does not respond, or its Envoy is not ready), offline where it
is not connected, unknown on global where the zone of the proxy is not connected. CONFIG is "in sync" where the proxy has ACKed or NACKed its whole configuration, else the age
of the oldest pending ACK; "-" where it is not connected to the replica that responds, of its zone.
On global, LISTENERS is "-": the zone of a proxy alone knows which serve.`,
		Example: `  weft inspect dataplanes
  weft inspect dataplanes --mesh shop -o json`,
		Args: cobra.NoArgs,
	}
	o := outputFlag(command, asTable, asJSON, asYAML)
	command.RunE = func(command *cobra.Command, _ []string) error {
		c, err := r.client(command.Context())
		if err != nil {
			return err
		}
		items, err := c.List(command.Context(), client.Path(kind.Dataplanes, r.mesh, "")+"/_overview", nil)
		if err != nil {
			return err
		}
		if o.form != asTable || len(items) == 0 {
			return printItems(command.OutOrStdout(), items, o.form, kind.Dataplanes)
		}
		var syncs rest.Syncs
		if err := c.Get(command.Context(), client.Path(kind.Dataplanes, r.mesh, "")+"/_sync", nil, &syncs); err != nil {
			return err
		}
		missing, err := printOverviews(command.OutOrStdout(), items, syncs.Dataplanes)
		if err != nil {
			return err
		}
		missing.addZones("CONFIG of the proxies", syncs.MissingZones)
		missing.addReplicas("CONFIG of the proxies", syncs.UnknownReplicas)
		return missing.print(command.OutOrStdout())
	}
	return command
}

// printOverviews writes the overviews of proxies, and returns what they lack.
func printOverviews(w io.Writer, items []json.RawMessage, syncs map[string]dpserver.Live) (missing unknownParts,
	err error) {
	var rows [][]string
	var rejections []string
	var unknown []*inspect.Unknown
	for _, item := range items {
		var o rest.Overview
		if err := json.Unmarshal(item, &o); err != nil {
			return nil, err
		}
		rows = append(rows, overviewRow(&o, syncs[o.Name], time.Now()))
		if unknown = append(unknown, o.Unknown); o.Unknown != nil {
			continue
		}
		for _, rejected := range o.DataplaneInsight.NACKs {
			rejections = append(rejections, fmt.Sprintf("%s NACKed the %s %s: %s", o.Name, rejected.Type, rejected.Name,
				rejected.Message))
		}
	}
	if err := printTable(w, overviewHeading, rows); err != nil {
		return nil, err
	}
	if len(rejections) > 0 {
		fmt.Fprintf(w, "\n%s\n", strings.Join(rejections, "\n"))
	}
	missing.addStates("STATE, CERTIFICATE EXPIRES and NACKS of the proxies", unknown, time.Now())
	return missing, nil
}

// isCopy reports whether a Dataplane is the copy of its zone's, on global. The zone alone knows the listeners that
// serve.
func isCopy(o *rest.Overview) bool {
	return o.Name != kind.OwnerName(&kind.Dataplanes.Info, &resource.Meta{Name: o.Name, Labels: o.Labels})
}

var overviewHeading = []string{"NAME", "STATE", "LISTENERS", "CONNECTED", "CONFIG", "CERTIFICATE EXPIRES", "NACKS"}

func overviewRow(o *rest.Overview, sync dpserver.Live, now time.Time) []string {
	insight := o.DataplaneInsight
	if o.Unknown != nil {
		return []string{o.Name, string(inspect.NotKnown), "-", "-", "-", "-", "-"}
	}
	state, connected := "offline", "-"
	since, ok := connectedSince(insight)
	if !ok && sync.Connected && sync.ConnectedSince != nil { // the insight is stored a moment later
		since, ok = sync.ConnectedSince.Time, true
	}
	if ok {
		state, connected = "online", age(now.Sub(since))+" ago"
		if !isCopy(o) && len(insight.ReadyListeners) == 0 && len(o.Dataplane.Networking.Inbound) > 0 {
			state = "not serving"
		}
	}
	certificate := "-"
	if c := insight.Certificate; c != nil {
		certificate = c.Expiration.UTC().Format("2006-01-02 15:04 UTC")
	}
	serving := cmp.Or(strings.Join(insight.ReadyListeners, " "), "-")
	return []string{o.Name, state, serving, connected, configState(sync, now), certificate,
		fmt.Sprint(len(insight.NACKs))}
}

// configState returns "in sync", or the time since when the proxy is not.
func configState(sync dpserver.Live, now time.Time) string {
	switch {
	case !sync.Connected:
		return "-"
	case sync.InSync || sync.PendingSince == nil:
		return "in sync"
	}
	return "pending " + age(now.Sub(sync.PendingSince.Time))
}

// connectedSince returns the time since which a proxy is connected: its oldest open connection.
func connectedSince(insight *kind.DataplaneInsight) (since time.Time, ok bool) {
	for _, s := range insight.Subscriptions {
		if s.DisconnectTime == nil && (!ok || s.ConnectTime.Before(since)) {
			since, ok = s.ConnectTime.Time, true
		}
	}
	return since, ok
}
