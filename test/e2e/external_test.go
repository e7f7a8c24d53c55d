package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// The credentials for an external service are Secrets. A missing or invalid one is reported, the egress keeps the last
// valid one, and no response contains the key.
func TestASecretThatIsWrongCostsNoRequest(t *testing.T) {
	w := newWorld(t)
	secrets, port := newOutsideCA(t).vault()
	w.apply(withIdentity + external("vault", "http", 81, fmt.Sprintf("{address: localhost, port: %d}", port),
		vaultTLS) + lettingOut("client"))
	w.proxy("default", "egress-1", egress("egress-1", 20))
	w.proxy("default", "client", externalCaller("client", 8))
	tells := func(what string) {
		t.Helper()
		w.told(what, "get", "meshexternalservice", "vault", "-o", "json")
	}
	tells(`there is no Secret \"outside-ca\" in the mesh; create it; no zone egress serves it until then`)
	w.apply(secrets)
	w.responds(fetch, w.out(8, 10002), "vault for outside at localhost")

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

// Services that are added and removed do not disturb requests and TCP connections to other external services.
func TestDrillServicesComeAndGoAtAnEgress(t *testing.T) {
	w := externalMesh(t)
	w.proxy("default", "egress-1", egress("egress-1", 20))
	w.proxy("default", "client", externalCaller("client", 8))
	for _, port := range []int{10001, 10002} {
		w.eventually("a request goes out", func() error { return get(w.out(8, port)) })
	}
	d := w.drill("services that no client uses come and go at an egress", w.sendsOut(8))
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
