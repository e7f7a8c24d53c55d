package reconcile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

func generator(name, template string, labels map[string]string) resource.Any {
	return kind.HostnameGenerators.Make("", name, kind.HostnameGenerator{
		Selector: kind.HostnameSelector{MeshService: &kind.LabelSelector{MatchLabels: labels}},
		Template: template,
	})
}

// namedService returns a service that is some minutes younger than the others.
func namedService(name string, age int, labels map[string]string) resource.Any {
	o := kind.MeshServices.Make("default", name, kind.MeshService{Ports: []kind.ServicePort{{Port: 80}}})
	o.Labels, o.Created = labels, time.Date(2030, 1, 1, 0, age, 0, 0, time.UTC)
	return o
}

// names returns the host names of a service's status: "name", or "generator: reason".
func (w *world) names(service string) string {
	_, status := w.service(service)
	if status == nil {
		return ""
	}
	var said []string
	for _, a := range status.Addresses {
		said = append(said, a.Hostname)
	}
	for _, g := range status.HostnameGenerators {
		if c := g.Conditions[0]; c.Status != "True" {
			said = append(said, fmt.Sprintf("%s: %s", g.HostnameGeneratorRef.CoreName, c.Reason))
		}
	}
	return strings.Join(said, ", ")
}

func TestHostnames(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	w.put(
		generator("every", "{{ .DisplayName }}.svc.{{ .Zone }}.{{ .Mesh }}", nil),
		generator("other", "{{ .Name }}.other", map[string]string{"team": "other"}),
		generator("team", `{{ .Name }}.{{ label "team" }}`, map[string]string{"app": "web"}),
		generator("namespace", "{{ .Name }}.{{ .Namespace }}.k8s", map[string]string{"app": "web"}),
		namedService("plain", 0, nil),
		namedService("web", 0, map[string]string{"app": "web", "team": "blue", kind.DisplayName: "www",
			kind.ZoneLabel: "west"}),
		namedService("shouting", 0, map[string]string{"app": "web", "team": "BLUE"}),
		namedService("alone", 0, map[string]string{"app": "web"}),
		namedService(strings.Repeat("a", 64), 0, nil),
	)
	for service, want := range map[string]string{
		"plain":                 "plain.svc.east.default",
		"web":                   "www.svc.west.default, web.blue, namespace: TemplateError",
		"shouting":              "shouting.svc.east.default, namespace: TemplateError, team: TemplateError",
		"alone":                 "alone.svc.east.default, namespace: TemplateError, team: TemplateError",
		strings.Repeat("a", 64): "every: TemplateError",
	} {
		w.reconcile("MeshService", service)
		if got := w.names(service); got != want {
			t.Errorf("%s has %q, want %q", service, got, want)
		}
	}
}

// TestTheOlderServiceKeepsAHostname also where the younger service was evaluated first, and until the older one is
// deleted.
func TestTheOlderServiceKeepsAHostname(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	same := map[string]string{"as": "web"}
	w.put(generator("g", `{{ label "as" }}.local`, nil), namedService("younger", 2, same))
	w.reconcile("MeshService", "younger")
	w.put(namedService("older", 1, same), namedService("twin", 2, same))
	for _, name := range []string{"twin", "older", "younger", "twin"} {
		w.reconcile("MeshService", name)
	}
	for service, want := range map[string]string{"older": "web.local", "younger": "g: Collision",
		"twin": "g: Collision"} {
		if got := w.names(service); got != want {
			t.Errorf("%s has %q, want %q", service, got, want)
		}
	}
	w.remove(kind.MeshServiceStatuses.Key("default", "older"))
	w.remove(kind.MeshServices.Key("default", "older"))
	for _, name := range []string{"younger", "twin"} {
		w.reconcile("MeshService", name)
	}
	if got := w.names("twin"); got != "web.local" {
		t.Errorf("of two of one moment the first by name has %q", got)
	}
}

// A service that loses a host name to another one is reconciled, and no other service is.
func TestAHostNameReconcilesTheServiceThatLosesIt(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	same := map[string]string{"as": "web"}
	w.put(generator("g", "{{ .Name }}.local", map[string]string{}), generator("h", `{{ label "as" }}.local`, same))
	for _, service := range []resource.Any{namedService("older", 1, same), namedService("younger", 2, same),
		namedService("bystander", 0, nil)} {
		w.put(service)
		w.plan.hostnamesByService.Pin(Request(service.Key()))
	}
	w.reconcile("MeshService", "younger")
	writes := w.writes(w.reader(), "MeshService", "older").Do
	changes := w.plan.State.Tables.DB.Commit(
		func(tx *table.Tx) { w.plan.State.Tables.Put(tx, writes[len(writes)-1].Create) },
	)
	var woken []string
	for key := range table.ChangedValues(w.plan.hostnamesByService, changes) {
		woken = append(woken, key.Name)
	}
	if len(woken) != 1 || woken[0] != "younger" {
		t.Errorf("the older service's claim wakes %v, want the younger one alone", woken)
	}
}
