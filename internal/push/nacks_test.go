package push

import (
	"testing"

	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

func TestANACKDelaysADrainWhereItConcernsItsEndpoint(t *testing.T) {
	const (
		web80   = "kri_msvc_default_default__web_8080"
		other80 = "kri_msvc_default_default__other_8080"
	)
	hub, _, _ := newHub(t, never{})
	other := kind.MeshServices.Make(mesh, "other", kind.MeshService{
		Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "other"}},
		Ports:    []kind.ServicePort{{Port: 8080}},
	})
	put(hub, withSNI("a.web.8080.default.ms"), other, server("web-1", "10.0.0.1", "web", 8080),
		serving("web-1", "10.0.0.1", 8080))
	put(hub, server("web-2", "10.0.0.2", "web", 8080), serving("web-2", "10.0.0.2", 8080))
	row := kind.Dataplanes.Key(mesh, "web-1")
	check := func(when string, rows []resource.Key, want map[xds.Key]bool) {
		t.Helper()
		relevantNACKs := hub.Acks.removals.relevantNACKs(rows)
		for key, concerned := range want {
			if got := relevantNACKs(xds.NACK{Type: key.Type, Name: key.Name}); got != concerned {
				t.Errorf("%s: a NACK of the %s %s concerns it: %v, want %v", when, key.Type, key.Name, got, concerned)
			}
		}
	}
	check("of which nothing is known yet", []resource.Key{row}, map[xds.Key]bool{
		{Type: xds.Endpoint, Name: web80}: true, {Type: xds.Cluster, Name: other80}: true,
		{Type: xds.Endpoint, Name: "kri_msvc_other_default__web_8080"}: false,
		{Type: xds.Listener, Name: "self_inbound_10.0.0.9_80"}:         false,
		{Type: xds.Cluster, Name: "self_inbound_10.0.0.9_80"}:          false,
	})
	put(hub, server("web-1", "10.0.0.1", "third", 8080)) // a member of another service from now on
	check("that has left the list of web", []resource.Key{row, kind.DataplaneListenerStatuses.Key(mesh, "web-1")},
		map[xds.Key]bool{
			{Type: xds.Endpoint, Name: web80}: true, {Type: xds.Cluster, Name: web80}: true,
			{Type: xds.Route, Name: web80}:      true,
			{Type: xds.Extension, Name: web80}:  true,
			{Type: xds.Endpoint, Name: other80}: false, {Type: xds.Cluster, Name: other80}: false,
			{Type: xds.Endpoint, Name: "a.web.8080.default.ms"}:            true, // of a zone ingress
			{Type: xds.Listener, Name: web80}:                              false,
			{Type: xds.Extension, Name: "self_permission_allow_http_8080"}: false,
		})
	put(hub, server("web-1", "10.0.0.1", "other", 8080))
	check("that is a member of other", []resource.Key{row}, map[xds.Key]bool{
		{Type: xds.Endpoint, Name: web80}: true, {Type: xds.Endpoint, Name: other80}: true,
	})
	if hub.Acks.removals.relevantNACKs([]resource.Key{row, kind.MeshTrusts.Key(mesh, "roots")}) != nil {
		t.Error("for rows of other kinds not every NACK counts")
	}
}
