package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"weft/internal/client"
	"weft/internal/rest"
	"weft/kind"
	"weft/resource"
)

// servicesByZone are the kinds whose status each zone has of its own, and global has none.
var servicesByZone = []resource.Descriptor{kind.MeshServices, kind.MeshMultiZoneServices, kind.MeshExternalServices}

// zoneStatus is the status of a service of any kind in a zone.
type zoneStatus struct {
	Zone       string              `json:"zone"`
	VIPs       []kind.VIP          `json:"vips"`
	Addresses  []kind.Address      `json:"addresses"`
	ZoneEgress *kind.ServiceEgress `json:"zoneEgress"`
	Conditions []kind.Condition    `json:"conditions"`
}

// isReachable reports whether the condition Reachable is true.
func (s *zoneStatus) isReachable() bool {
	return slices.ContainsFunc(s.Conditions, func(c kind.Condition) bool {
		return c.Type == "Reachable" && c.Status == "True"
	})
}

// zoneStatuses prints the status of a service in each zone.
func (d *description) zoneStatuses() error {
	var statuses rest.ZoneStatuses
	if err := d.get(d.path()+"/_status", &statuses); err != nil {
		return err
	}
	places := section{heading: []string{"ZONE", "HOST NAMES", "VIRTUAL IPS", "ZONE EGRESS"}}
	conditions := section{heading: append([]string{"ZONE"}, conditionHeading...)}
	for i := range statuses.Statuses {
		var s zoneStatus
		if err := json.Unmarshal(statuses.Statuses[i].Status, &s); err != nil {
			return err
		}
		s.Zone = statuses.Statuses[i].Zone
		places.rows = append(places.rows, s.place())
		for _, row := range conditionTable(s.Conditions).rows {
			conditions.rows = append(conditions.rows, append([]string{s.Zone}, row...))
		}
	}
	d.unknown.addZones("status", statuses.MissingZones)
	if err := places.print(d.out); err != nil {
		return err
	}
	return conditions.print(d.out)
}

// place returns the places at which clients of the zone reach the service.
func (s *zoneStatus) place() []string {
	var hosts, ips []string
	for _, address := range s.Addresses {
		hosts = append(hosts, address.Hostname)
	}
	for _, ip := range s.VIPs {
		ips = append(ips, ip.IP)
	}
	egress := "-"
	if e := s.ZoneEgress; e != nil {
		egress = kind.HostPort(e.Address, e.Port)
	}
	return []string{s.Zone, cmp.Or(strings.Join(hosts, ", "), "-"), cmp.Or(strings.Join(ips, ", "), "-"), egress}
}

// withZoneStatuses returns the MeshExternalServices of a list with the status of each zone, `status.zones`, where the
// control plane has no status of its own, as global. It returns others, and those of an earlier release, unchanged.
func withZoneStatuses(ctx context.Context, c *client.Client, items []json.RawMessage) ([]json.RawMessage, error) {
	byMesh := map[string]*rest.ZoneStatuses{}
	with := slices.Clone(items)
	for i, item := range items {
		var head struct {
			Mesh, Name string
			Status     json.RawMessage
		}
		if err := json.Unmarshal(item, &head); err != nil {
			return nil, err
		}
		if head.Status != nil {
			continue
		}
		if byMesh[head.Mesh] == nil {
			byMesh[head.Mesh] = &rest.ZoneStatuses{}
			err := c.Get(ctx, client.Path(kind.MeshExternalServices, head.Mesh, "")+"/_status", nil, byMesh[head.Mesh])
			if err != nil && resource.CodeOf(err) != resource.NotFound {
				return nil, err
			}
		}
		var err error
		if with[i], err = withStatuses(item, head.Name, byMesh[head.Mesh]); err != nil {
			return nil, err
		}
	}
	return with, nil
}

// withStatuses returns the document of a service with its status in each zone.
func withStatuses(document json.RawMessage, name string, all *rest.ZoneStatuses) (json.RawMessage, error) {
	status := struct {
		Zones []map[string]any `json:"zones"`
		rest.MissingZones
	}{[]map[string]any{}, all.MissingZones}
	for _, s := range all.Statuses {
		if s.Name != name {
			continue
		}
		fields := map[string]any{}
		if err := json.Unmarshal(s.Status, &fields); err != nil {
			return nil, err
		}
		fields["zone"] = s.Zone
		status.Zones = append(status.Zones, fields)
	}
	if len(status.Zones)+len(status.UnknownZones)+len(status.DisabledZones) == 0 {
		return document, nil
	}
	text, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	begun, _ := bytes.CutSuffix(bytes.TrimSpace(document), []byte("}"))
	return fmt.Appendf(nil, `%s,"status":%s}`, begun, text), nil
}

// externalState returns the number of zones in which an external service is reachable, of those with a status, "1/2".
func externalState(document json.RawMessage) (reachable string, missing rest.MissingZones, err error) {
	var of struct {
		Status *struct {
			zoneStatus
			Zones []zoneStatus `json:"zones"`
			rest.MissingZones
		} `json:"status"`
	}
	if err := json.Unmarshal(document, &of); err != nil {
		return "", missing, err
	}
	if of.Status == nil {
		return "-", missing, nil
	}
	zones := of.Status.Zones
	if zones == nil {
		zones = []zoneStatus{of.Status.zoneStatus}
	}
	n := 0
	for i := range zones {
		if zones[i].isReachable() {
			n++
		}
	}
	return fmt.Sprintf("%d/%d", n, len(zones)), of.Status.MissingZones, nil
}
