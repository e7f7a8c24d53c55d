package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"pgregory.net/rapid"

	"weft/kind"
	"weft/resource"
)

// addresses is a store of services and their statuses, a table that is behind it, and the Reconciler that
// reads the one and writes the other.
type addresses struct {
	t     *rapid.T
	rows  map[resource.Key]resource.Any
	table *world
	late  []func(*world) // what the table has not heard of yet
	rc    *Reconciler
	had   map[string]string // the virtual IP of each service that lives
}

// restart makes a control plane of what is stored.
func (a *addresses) restart() {
	a.table = newWorld(a.t, "241.0.0.0/29") // six addresses
	a.late = nil
	for _, row := range a.rows {
		a.table.put(row)
	}
	a.rc = New(a.table.plan, a, nil, slog.New(slog.DiscardHandler))
}

// Put implements Writer.
func (a *addresses) Put(_ context.Context, row resource.Any) error {
	a.rows[row.Key()] = row
	a.late = append(a.late, func(w *world) { w.put(row) })
	return nil
}

// Create implements Writer.
func (a *addresses) Create(ctx context.Context, row resource.Any) error { return a.Put(ctx, row) }

// Delete implements Writer.
func (a *addresses) Delete(_ context.Context, key resource.Key) error {
	if _, there := a.rows[key]; there {
		delete(a.rows, key)
		a.late = append(a.late, func(w *world) { w.remove(key) })
	}
	return nil
}

func (a *addresses) hear() {
	if len(a.late) > 0 {
		a.late[0](a.table)
		a.late = a.late[1:]
	}
}

func (a *addresses) check() {
	owners := map[string]string{}
	for _, row := range a.rows {
		service, vips := givenBy(Step{Put: row})
		if _, lives := a.rows[service]; !lives || len(vips) == 0 {
			continue
		}
		ip, name := vips[0].IP, service.String()
		if other, taken := owners[ip]; taken {
			a.t.Fatalf("%s and %s both have %s", other, name, ip)
		}
		owners[ip] = name
		if had := a.had[name]; had != "" && had != ip {
			a.t.Fatalf("%s had %s and has %s", name, had, ip)
		}
		a.had[name] = ip
	}
}

func TestNoTwoServicesHaveAVirtualIPAndNoneLosesIts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := &addresses{t: t, rows: map[resource.Key]resource.Any{}, had: map[string]string{}}
		a.restart()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			name := fmt.Sprintf("service-%d", rapid.IntRange(0, 3).Draw(t, "service"))
			service, status := kind.MeshServices.Key("default", name), kind.MeshServiceStatuses.Key("default", name)
			var made resource.Any = kind.MeshServices.Make("default", name, kind.MeshService{Ports: []kind.ServicePort{{Port: 80}}})
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 1:
				service, status = kind.MeshMultiZoneServices.Key("default", name), kind.MeshMultiZoneServiceStatuses.Key("default", name)
				made = kind.MeshMultiZoneServices.Make("default", name, kind.MeshMultiZoneService{})
			case 2:
				service, status = kind.MeshExternalServices.Key("default", name), kind.MeshExternalServiceStatuses.Key("default", name)
				made = kind.MeshExternalServices.Make("default", name, kind.MeshExternalService{})
			}
			switch rapid.SampledFrom([]string{"create", "reconcile", "reconcile", "hear", "hear", "delete", "restart"}).Draw(t, "step") {
			case "create":
				a.Put(t.Context(), made)
			case "reconcile":
				a.rc.reconcile(t.Context(), []Unit{Unit(service)})
			case "hear":
				a.hear()
			case "delete":
				a.Delete(t.Context(), service)
				a.Delete(t.Context(), status)
				delete(a.had, service.String())
			case "restart":
				a.restart()
			}
			a.check()
		}
	})
}
