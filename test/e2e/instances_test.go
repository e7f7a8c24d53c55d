package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"weft/internal/store/sealed"
	"weft/internal/store/sql/postgrestest"
	"weft/internal/traffic"
)

// twoInstances prepares two control planes on one PostgreSQL. Agents have the addresses of both.
func twoInstances(t *testing.T) (a, b *world) {
	t.Parallel()
	settings := storedIn(t, postgrestest.Start(t))
	subnet := int(subnets.Add(1))
	a, b = newInstance(t, subnet, settings...), newInstance(t, subnet, settings...)
	both := a.cpAddress + "," + b.cpAddress
	a.cpAddress, b.cpAddress = both, both
	return a, b
}

// storedIn returns the settings of control planes that share a database of a server.
func storedIn(t *testing.T, server *postgrestest.Server) []string {
	t.Helper()
	database := server.Database(t)
	key := filepath.Join(t.TempDir(), "secrets.key")
	if _, err := sealed.MakeKeyFile(key); err != nil {
		t.Fatal(err)
	}
	return []string{
		"KUMA_STORE_TYPE=postgres",
		"KUMA_STORE_POSTGRES_HOST=" + database.Host,
		fmt.Sprintf("KUMA_STORE_POSTGRES_PORT=%d", database.Port),
		"KUMA_STORE_POSTGRES_USER=" + database.User,
		"KUMA_STORE_POSTGRES_DB_NAME=" + database.Database,
		"KUMA_STORE_ENCRYPTION_KEY_FILE=" + key,
	}
}

// serves returns an error unless a proxy is online and serves exactly these addresses.
func (w *world) serves(proxy string, addresses ...string) error {
	out, err := w.weft("inspect", "dataplanes")
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		if !strings.Contains(line, proxy) {
			continue
		}
		if strings.Contains(line, "online") && strings.Contains(line, strings.Join(addresses, " ")) &&
			strings.Count(line, w.network+".") == len(addresses) {
			return nil
		}
	}
	return fmt.Errorf("%s does not serve %s alone:\n%s", proxy, addresses, out)
}

// responder returns the server of some requests.
func responder(url string) (by string, err error) {
	for range 40 {
		body, err := fetch(url)
		if err != nil {
			return "", err
		}
		if name, _, _ := strings.Cut(body, " "); !strings.Contains(by, name) {
			by += name + " "
		}
	}
	return by, nil
}

// shownByProxies is a part of each response that a proxy's control plane alone has.
var shownByProxies = map[string]string{"--sync": "connected: true", "--certs": "cert_chain",
	"--stats": "server.live: 1", "dataplanes": "in sync", "check": "Looked at"}

// Two control planes share a mesh. The leader, which has every stream, is killed. No request fails; the proxies connect
// to the other one, which has their listener status and continues open tasks.
func TestDrillAnInstanceIsKilled(t *testing.T) {
	a, b := twoInstances(t)
	a.startPlane()
	a.apply(secured)
	for i := 1; i <= 3; i++ {
		a.service(1+i, 18080, fmt.Sprintf("web-%d", i))
	}
	a.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	a.proxy("default", "web-2", server("web-2", "web", "http", 3, 20080))
	a.proxy("default", "client", caller("client", 9, "tags: {kuma.io/service: web}"))
	url := fmt.Sprintf("http://%s:10001/", a.address(9))
	a.eventually("a request passes", func() error { return get(url) })
	b.startPlane()
	for _, query := range [][]string{
		{"inspect", "dataplane", "web-1", "--sync"}, {"inspect", "dataplane", "web-1", "--certs"},
		{"inspect", "dataplane", "web-1", "--stats"}, {"inspect", "dataplanes"}, {"check"},
	} {
		b.eventually("the other instance has the response of the proxies' instance", func() error {
			out, err := b.weft(query...)
			if want := shownByProxies[query[len(query)-1]]; err == nil && !strings.Contains(out, want) {
				err = fmt.Errorf("%v lacks %q:\n%.2000s", query, want, out)
			}
			return err
		})
	}

	d := a.drill("one of two control planes is killed, and then the other", traffic.Get(url))
	d.more(50)
	a.plane.Kill()
	b.proxy("default", "web-3", server("web-3", "web", "http", 4, 20080))
	b.eventually("a new endpoint is served by the other instance", func() error {
		by, err := responder(url)
		if err == nil && !strings.Contains(by, "web-3") {
			err = fmt.Errorf("answered by %s", by)
		}
		return err
	})
	b.apply(server("web-1", "web", "http", 2, 20081))
	b.eventually("the other instance drains an inbound that moved", func() error {
		return b.serves("web-1", b.address(2)+":20081")
	})
	for name, address := range map[string]string{"web-2": b.address(3), "web-3": b.address(4)} {
		b.eventually(name+" serves as before", func() error { return b.serves(name, address+":20080") })
	}

	a.startPlane()
	b.plane.Kill()
	a.apply(strings.Replace(server("web-2", "web", "http", 3, 20080), "protocol:", "state: NotReady, protocol:", 1))
	a.eventually("a change at the first instance, which is back, reaches the client", func() error {
		by, err := responder(url)
		if err == nil && strings.Contains(by, "web-2") {
			err = fmt.Errorf("answered by %s", by)
		}
		return err
	})
	d.more(50)
	d.end()
}
