package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// clientSecrets is the TLS of an external service with the client certificate and key of two Secrets.
func clientSecrets(cert, key string) string {
	return fmt.Sprintf(`  tls:
    enabled: true
    verification:
      mode: SkipAll
      clientCert: {type: Secret, secretRef: {kind: Secret, name: %q}}
      clientKey: {type: Secret, secretRef: {kind: Secret, name: %q}}
`, cert, key)
}

// A user, an administrator or not, makes no egress receive the key of a CA: neither of the zone's own, nor of an
// operator's, by its Secret or by its certificate. A user who may not read Secrets names none of another kind either.
func TestHostileExternalServicesNameTheKeysOfAuthorities(t *testing.T) {
	a := newAttack(t, "a user makes an egress receive the key of a CA")
	t.Parallel()
	w := newInstance(t, int(subnets.Add(1)), "KUMA_ACCESS_STATIC_OPERATOR_RESOURCES_GROUPS=writers,mesh-system:admin")
	w.startPlane()
	ca := newOutsideCA(t)
	secrets, _ := ca.vault()
	w.apply(withIdentity + secret("authority", append(inPEM(ca.cert), keyInPEM(t, ca.key)...)) + secrets)
	const generated = "identity-ca-identity"
	w.eventually("the CA of the MeshIdentity is generated", func() error {
		_, err := w.api("/meshes/default/secrets/" + generated)
		return err
	})
	egressDocument := zoneProxyOf("egress-1", "zoneEgress: {address: NET.40, port: 20300}")
	token := w.token("default", "egress-1", "--proxy-type", "egress", "--workload", "egress")
	egress := w.thief("egress-1", token)
	if err := egress.register(egressDocument); err != nil {
		t.Fatal(err)
	}

	user, err := w.weft("generate", "user-token", "--name", "u", "--group", "writers", "--valid-for", "1h")
	if err != nil {
		t.Fatal(err)
	}
	asUser := func(document string) (string, error) {
		status := w.putAs(user, "/meshes/default/meshexternalservices/stolen", document)
		if status < 300 {
			return "", nil
		}
		return "", fmt.Errorf("status %d", status)
	}
	asAdministrator := func(document string) (string, error) {
		return w.weftWith(w.expand(document), "apply", "-f", "-")
	}
	writers := map[string]func(string) (string, error){"a user": asUser, "an administrator": asAdministrator}
	for by, write := range writers {
		for _, pair := range [][2]string{
			{generated, generated}, {"client-cert", generated}, {generated, "client-key"},
			{"client-cert", "dataplane-token-signing-key-default-1"}, {"client-cert", "default.ca-builtin-key-ca-1"},
			{"authority", "authority"},
		} {
			document := strings.TrimPrefix(external("stolen", "http", 82, "{address: localhost, port: 82}",
				clientSecrets(pair[0], pair[1])), "\n---\n")
			if said, err := write(document); err == nil {
				a.fellTo("%s names the Secrets %s: %s", by, pair, said)
				continue
			}
			a.repelled()
		}
	}
	document := strings.TrimPrefix(external("stolen", "http", 82, "{address: localhost, port: 82}",
		clientSecrets("client-cert", "client-key")), "\n---\n")
	if said, err := asUser(document); err == nil {
		a.fellTo("a user without the permission of Secrets names one: %s", said)
	} else {
		a.repelled()
	}

	// An egress receives the key of a service of its own, so the attack has a target.
	if said, err := asAdministrator(document); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	w.eventually("the egress has the key of the service", func() error {
		found, err := egress.finds("default", "egress-1", "BEGIN PRIVATE KEY")
		if !found && status.Code(err) != codes.NotFound { // it needs a moment to propagate
			t.Fatalf("the egress finds no key of the external service: %v", err)
		}
		return err
	})
}

// putAs writes a resource through the API with a user token, and returns the status.
func (w *world) putAs(user, path, document string) int {
	w.t.Helper()
	request, err := http.NewRequest(http.MethodPut, fmt.Sprintf("http://127.0.0.1:%d%s", w.plane.Ports.API, path),
		strings.NewReader(document))
	if err != nil {
		w.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(user))
	response, err := client.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}
