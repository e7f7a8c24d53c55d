package e2e

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"weft/internal/store/sql/postgrestest"
	"weft/internal/traffic"
)

// While the database hangs, the API reports it in time and proxies serve. Afterwards everything continues.
func TestHostileADatabaseThatHangs(t *testing.T) {
	t.Parallel()
	a := newAttack(t, "who can make the database hang hangs the API, or costs requests")
	server := postgrestest.Start(t)
	w := newInstance(t, int(subnets.Add(1)), storedIn(t, server)...)
	w.startPlane()
	w.service(2, 18080, "web-1")
	w.service(4, 18080, "web-2")
	_, url := w.pair()
	d := w.drill("the database hangs, and goes on", traffic.Get(url))
	d.more(20)

	thaw := server.Freeze(t)
	administrator := w.administrator()
	var calls sync.WaitGroup
	for _, request := range []struct{ method, path, body, says string }{
		{"PUT", "/meshes/late", `{"type": "Mesh", "name": "late"}`, "does not respond"},
		{"DELETE", "/meshes/default/dataplanes/absent", "", "does not respond"},
		{"GET", "/meshes/default/dataplanes/web-1", "", ""},
		{"GET", "/dataplanes", "", ""},
		{"GET", "/_check", "", ""},
	} {
		calls.Go(func() {
			r, err := http.NewRequest(request.method, "http://localhost"+request.path, strings.NewReader(request.body))
			if err != nil {
				t.Error(err)
				return
			}
			response, err := administrator.Do(r)
			if err != nil {
				a.fellTo("%s %s: %v", request.method, request.path, err)
				return
			}
			text, _ := io.ReadAll(response.Body)
			response.Body.Close()
			switch {
			case request.says == "" && response.StatusCode != http.StatusOK,
				request.says != "" && (response.StatusCode != http.StatusServiceUnavailable ||
					!strings.Contains(string(text), request.says)):
				a.fellTo("%s %s: %s %s", request.method, request.path, response.Status, text)
			default:
				a.repelled()
			}
		})
	}
	calls.Wait() // while the database still hangs
	d.more(20)
	thaw()
	w.eventually("writes are stored again", func() error {
		_, err := w.weftWith("type: Mesh\nname: after\n", "apply", "-f", "-")
		return err
	})
	w.proxy("default", "later", caller("later", 9, "backendRef: {kind: MeshService, name: web, port: 20080}"))
	d.more(20)
	d.end()
}
