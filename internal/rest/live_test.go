package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weft/internal/dpserver"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// connections knows the proxies web-1, which responds, and broken-1, whose response breaks off.
type connections struct{}

func (connections) Inspect(_ context.Context, key state.ProxyKey, page dpserver.Page, w io.Writer) error {
	switch key.Name {
	case "web-1":
		_, err := fmt.Fprintf(w, "%s json=%t endpoints=%t", page.Page, page.JSON, page.Endpoints)
		return err
	case "broken-1":
		fmt.Fprint(w, strings.Repeat("half of it ", 1000))
		return errors.New("the rest is missing")
	}
	return resource.Errorf(resource.Unavailable, "the proxy %s is not connected", key)
}

func (connections) ConnectedProxies(mesh string) []state.ProxyKey {
	return []state.ProxyKey{{Mesh: mesh, Name: "web-1"}}
}

func (connections) Live(key state.ProxyKey) dpserver.Live {
	if key.Name != "web-1" {
		return dpserver.Live{Instance: "instance-1", Types: []dpserver.LiveType{}, NACKs: []kind.NACK{}}
	}
	return dpserver.Live{
		Connected: true, Instance: "instance-1", Agent: true, InSync: true,
		Types: []dpserver.LiveType{{Type: "cluster", Wanted: 3, Acknowledged: 7}},
		NACKs: []kind.NACK{{Type: "listener", Name: "self_inbound_10.0.0.1_80", Version: "5e",
			Message: "Address already in use"}},
	}
}

func TestAPageThatBreaksOffIsSeenToBeCut(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", "{type: Mesh, name: default}")
	w.put(t, "/meshes/default/dataplanes/broken-1", "{type: Dataplane, networking: {address: 10.0.0.1}}")
	server := httptest.NewServer(AsAdministrator(w.handler))
	defer server.Close()
	response, err := http.Get(server.URL + "/meshes/default/dataplanes/broken-1/xds")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("half a page of %d bytes looks like a whole one", len(body))
	}
}
