package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// TestARenamedZoneKeepsItsVirtualIPs: another name of the zone is another name of all that a service is made of, and
// the clients go on calling it at its virtual IP.
func TestARenamedZoneKeepsItsVirtualIPs(t *testing.T) {
	wantRoot(t)
	w := newWorld(t)
	w.apply(secured)
	w.apply(webService)
	router := newRouter(t)
	server, client := w.redirected(router, "server", "2"), w.redirected(router, "client", "3")
	w.serveWeb(server)
	w.proxyOn(client, "default", "client", transparent("client", clientAddress, ""))
	url := "http://" + w.virtualIP("web") + "/"
	w.responds(client.fetch, url, "web ")

	d := w.drillUnder(load(500, 50), "the zone is renamed", func(context.Context) (string, error) {
		return client.fetch(url)
	})
	for _, zone := range []string{"west", "north"} {
		w.stops(w.plane.Process)
		w.env = append(w.env, "KUMA_MULTIZONE_ZONE_NAME="+zone)
		w.startPlane()
		w.eventually("requests take the service of zone "+zone, func() error {
			if w.counter("client", fmt.Sprintf(`cluster\.kri_msvc_default_%s__web_80\.upstream_rq_total`, zone)) == 0 {
				return errors.New("none does")
			}
			return nil
		})
		d.more(200)
	}
	d.end()
}
