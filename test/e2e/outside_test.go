package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// What an external service is spoken to with stands in Secrets: one that is missing or wrong is told, the egress goes
// on with what was right last, and the key is shown to nobody.
func TestASecretThatIsWrongCostsNoRequest(t *testing.T) {
	w := newWorld(t)
	port := freePorts(t, 1)[0]
	secrets := newOutsideCA(t).vault(port)
	w.apply(withIdentity + external("vault", "http", 81, fmt.Sprintf("{address: localhost, port: %d}", port), vaultTLS) + lettingOut("client"))
	w.proxy("default", "egress-1", egress("egress-1", 20))
	w.proxy("default", "client", outsideCaller("client", 8))
	tells := func(what string) {
		t.Helper()
		w.told(what, "get", "meshexternalservice", "vault", "-o", "json")
	}
	tells(`there is no Secret \"outside-ca\" in the mesh; create it; no zone egress serves it until then`)
	w.apply(secrets)
	w.answers(fetch, w.out(8, 10002), "vault for outside at localhost")

	w.apply(secret("outside-ca", []byte("x")))
	tells("zone egresses go on with what they had")
	if err := get(w.out(8, 10002)); err != nil {
		t.Errorf("while a Secret is wrong: %v", err)
	}
	config, err := w.api("/meshes/default/dataplanes/egress-1/_snapshot")
	if err != nil || !strings.Contains(config, "system_external_cert_") || strings.Contains(config, "privateKey") {
		t.Errorf("the egress's configuration lacks the certificate, or shows the key: %v", err)
	}
}

// Services that come and go beside those that are used fail nothing of what goes out, bytes included.
func TestDrillServicesComeAndGoAtAnEgress(t *testing.T) {
	w := goingOut(t)
	w.proxy("default", "egress-1", egress("egress-1", 20))
	w.proxy("default", "client", outsideCaller("client", 8))
	for _, port := range []int{10001, 10002} {
		w.eventually("a request goes out", func() error { return get(w.out(8, port)) })
	}
	d := w.drill("services beside those that are used come and go at an egress", w.asksOut(8))
	for range 3 {
		w.apply(external("beside", "http", 90, "{address: localhost, port: 1}", ""))
		d.more(20)
		if _, err := w.weft("delete", "meshexternalservice", "beside"); err != nil {
			t.Fatal(err)
		}
		d.more(20)
	}
	d.end()
}
