package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"weft/internal/traffic"
	"weft/test/mesh"
)

// admitting returns the mesh with a rule that admits only a team, or every Dataplane for an empty team.
func admitting(team string) string {
	if team == "" {
		return "type: Mesh\nname: default\n"
	}
	return fmt.Sprintf("type: Mesh\nname: default\ndataplaneProxyMembership: {allowed: [{tags: {team: %s}}]}\n", team)
}

// inTeam returns a Dataplane whose inbounds or, without any, whose labels have its team.
func inTeam(dataplane, team string) string {
	return strings.NewReplacer("protocol: http, tags: {", "protocol: http, tags: {team: "+team+", ",
		"labels: {", "labels: {team: "+team+", ").Replace(dataplane)
}

// TestDrillAMeshEvictsProxies: an evicted server leaves the endpoint lists, and servers deny an evicted client. Neither
// is admitted again, no other client loses a request; then back.
func TestDrillAMeshEvictsProxies(t *testing.T) {
	w := newWorld(t)
	w.apply(secured)
	w.service(2, 18080, "web-1")
	w.service(4, 18080, "web-2")
	w.proxy("default", "web-1", inTeam(server("web-1", "web", "http", 2, 20080), "a"))
	leaving := w.proxy("default", "web-2", inTeam(server("web-2", "web", "http", 4, 20080), "b"))
	w.proxy("default", "client", inTeam(caller("client", 3, "tags: {kuma.io/service: web}"), "a"))
	w.proxy("default", "rogue", inTeam(caller("rogue", 5, "tags: {kuma.io/service: web}"), "b"))
	url, rogue := fmt.Sprintf("http://%s:10001/", w.address(3)), fmt.Sprintf("http://%s:10001/", w.address(5))
	w.eventually("both servers answer", func() error { return w.respondedBy(url, "web-1", "web-2") })
	w.eventually("the client that is to go gets through", func() error { return get(rogue) })

	d := w.drill("a mesh evicts a server and a client, and readmits them", traffic.Get(url))
	w.apply(admitting("a"))
	w.eventually("the evicted server gets no request", func() error { return w.respondedBy(url, "web-1") })
	w.eventually("the other proxies deny the evicted client", func() error {
		body, err := fetch(rogue)
		if err == nil || !strings.Contains(body, "RBAC: access denied") {
			return fmt.Errorf("answered %q, %v", body, err)
		}
		return nil
	})
	const reason = "mesh default does not admit Dataplane web-2: networking.inbound[0] is allowed by none of " +
		"dataplaneProxyMembership.allowed: {team: a}"
	w.eventually("its agent says why", func() error { return wrote(leaving, reason) })
	w.notAdmittedAnywhere(reason)
	d.more(50)
	w.apply(admitting(""))
	w.eventually("both servers answer again", func() error { return w.respondedBy(url, "web-1", "web-2") })
	w.eventually("the client gets through again", func() error { return get(rogue) })
	w.eventually("both are back", func() error {
		out, err := w.weft("inspect", "dataplanes")
		if err == nil && strings.Count(out, "online") != 4 {
			err = errors.New(out)
		}
		return err
	})
	d.end()
}

// notAdmittedAnywhere checks that web-2 can neither be written nor registered, and that inspect and check report the
// reason.
func (w *world) notAdmittedAnywhere(words string) {
	w.t.Helper()
	dataplane := w.file("web-2.yaml", w.expand(inTeam(server("web-2", "web", "http", 4, 20081), "b")))
	_, err := w.weft("apply", "-f", dataplane)
	inspected, _ := w.weft("inspect", "dataplane", "web-2")
	checked, _ := w.weft("check")
	flags := mesh.AgentFlags{Address: w.cpAddress, CA: w.plane.CA(), Dataplane: dataplane,
		Token: filepath.Join(w.dir, "web-2.token"), Envoy: envoy}
	again := w.start("web-2-again", "weft-dp", flags.Args()...)
	w.exits(again)
	for where, said := range map[string]string{"a write": fmt.Sprint(err), "inspect": inspected, "check": checked} {
		if !strings.Contains(strings.Join(strings.Fields(said), " "), words) {
			w.t.Errorf("%s says\n%s\nwant %q", where, said, words)
		}
	}
	if err := wrote(again, words); err != nil || again.State().ExitCode() == 0 {
		w.t.Errorf("a proxy that is not admitted at its start exits with %d: %v", again.State().ExitCode(), err)
	}
}
