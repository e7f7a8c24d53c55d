package reconcile

import (
	"slices"
	"testing"

	"weft/kind"
	"weft/resource"
)

// externalService is one of global where origin is "global", and else one of this zone.
func externalService(name, origin string) resource.Any {
	o := kind.MeshExternalServices.Make("default", name, kind.MeshExternalService{Match: kind.ExternalMatch{Port: 443}})
	o.Labels = map[string]string{kind.OriginLabel: origin}
	if origin == kind.OriginGlobal {
		o.Labels[kind.DisplayName] = name
		o.Name = kind.SyncedName(&kind.MeshExternalServices.Info, "default", name, kind.Owner{})
	}
	return o
}

// A zone gives external services their addresses and names, those of global too, under the names that these have
// there.
func TestExternalServicesAreFound(t *testing.T) {
	w := newWorld(t, "242.0.0.0/8")
	of := &kind.LabelSelector{MatchLabels: map[string]string{}}
	w.put(
		kind.HostnameGenerators.Make("", "external", kind.HostnameGenerator{
			Selector: kind.HostnameSelector{MeshExternalService: of}, Template: "{{ .DisplayName }}.extsvc.mesh.local",
		}),
		kind.HostnameGenerators.Make("", "services", kind.HostnameGenerator{
			Selector: kind.HostnameSelector{MeshService: of}, Template: "{{ .DisplayName }}.svc.mesh.local",
		}),
	)
	for _, service := range []resource.Any{externalService("api", kind.OriginGlobal),
		externalService("db", kind.OriginZone)} {
		meta := service.Envelope()
		w.put(service)
		w.reconcile(kind.MeshExternalServices.Name, meta.Name)
		status, ok := w.plan.State.Tables.ExternalServiceStatuses.Find(w.reader(), "default", meta.Name)
		if !ok || status.Spec.VIP == nil {
			t.Fatalf("%s has no virtual IP: %+v", meta.Name, status)
		}
		var names []string
		for _, a := range status.Spec.Addresses {
			names = append(names, a.Hostname)
		}
		if want := []string{kind.DisplayNameOf(meta) + ".extsvc.mesh.local"}; !slices.Equal(names, want) {
			t.Errorf("%s has the names %v, want %v", meta.Name, names, want)
		}
	}
}

func TestAFullRangeOfExternalServicesIsACondition(t *testing.T) {
	w := newWorld(t, "242.0.0.0/30") // two addresses
	for _, name := range []string{"a", "b", "c"} {
		w.put(externalService(name, kind.OriginZone))
		w.reconcile(kind.MeshExternalServices.Name, name)
	}
	status, _ := w.plan.State.Tables.ExternalServiceStatuses.Find(w.reader(), "default", "c")
	if status.Spec.VIP != nil || len(status.Spec.Conditions) != 1 || status.Spec.Conditions[0].Reason != "RangeIsFull" {
		t.Errorf("the third of two has %+v", status.Spec)
	}
}
