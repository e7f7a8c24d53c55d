package rest

import (
	"context"
	"net/http"
	"testing"

	"weft/internal/admission"
	"weft/internal/inspect"
	"weft/internal/state"
	"weft/internal/zonequery"
	"weft/kind"
)

// queriedZones records the service that a zone is queried for.
type queriedZones struct {
	*zonequery.Zone
	queried *state.ServiceKey
}

func (z queriedZones) Backends(_ context.Context, _ string, key state.ServiceKey) (*inspect.Backends, error) {
	*z.queried = key
	return &inspect.Backends{}, nil
}

// TestAZoneIsQueriedForTheNameOfItsService: the zone of a service on Kubernetes has it under NAME.NAMESPACE.
func TestAZoneIsQueriedForTheNameOfItsService(t *testing.T) {
	w := newWorldOf(t, newStore(t), "")
	var queried state.ServiceKey
	config := w.config()
	config.Zone, config.RemoteZones = "", queriedZones{zonequery.NewZone("east", nil, nil), &queried}
	w.handler = New(config)
	w.put(t, "/meshes/default", `{"type": "Mesh", "name": "default"}`)
	err := w.writer.Receive(t.Context(), admission.Received{Kind: kind.MeshServices, Mesh: "default", Name: "web.shop",
		Owner: kind.Owner{Zone: "east"}, Body: []byte(`{"labels": {"kuma.io/origin": "zone",
			"kuma.io/zone": "east", "kuma.io/env": "kubernetes", "kuma.io/display-name": "web",
			"k8s.kuma.io/namespace": "shop"},
			"spec": {"selector": {"dataplaneTags": {"app": "web"}}, "ports": [{"port": 80}]}}`)})
	if err != nil {
		t.Fatal(err)
	}
	w.do(http.MethodGet, "/meshes/default/services/web.shop/_inspect", "", nil).Body.Close()
	if want := (state.ServiceKey{Mesh: "default", Name: "web.shop"}); queried != want {
		t.Errorf("the zone is queried for %+v, want %+v", queried, want)
	}
}
