package review_test

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"weft/internal/admission"
	"weft/internal/kube/api"
	"weft/internal/kube/crd"
	"weft/internal/kube/install/installtest"
	"weft/internal/kube/kubetest"
	"weft/internal/kube/review"
	"weft/internal/kube/webhook"
	"weft/internal/pki"
	"weft/internal/store"
	"weft/internal/store/kube"
	"weft/internal/testwait"
	"weft/kind"
	"weft/resource"
)

func TestMain(m *testing.M) { kubetest.Main(m) }

const system, team = "kuma-system", "team"

// world is an API server with the webhooks of a control plane. The control plane is a service account; the user of
// kubectl is an administrator of the cluster.
type world struct {
	*testing.T
	config  *rest.Config // of the user
	user    *api.Client
	control *kube.Store
	writer  *admission.Writer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	server := kubetest.Start(t)
	w := &world{T: t, config: server.Config(), user: clientOf(t, server.Config())}
	if err := crd.Install(t.Context(), w.user); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{system, team} {
		w.create("/api/v1/namespaces", object{"apiVersion": "v1", "kind": "Namespace",
			"metadata": object{"name": name}})
	}
	config := rest.CopyConfig(server.Config())
	config.BearerToken = w.account("control-plane")
	user, err := crd.Check(t.Context(), clientOf(t, config), system, false)
	if err != nil {
		t.Fatal(err)
	}
	if w.control, err = kube.Open(t.Context(), config, kube.Options{Namespace: system, Kinds: crd.Rows()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.control.Close() })
	w.writer = admission.New(w.control, admission.Options{Zone: "east", Environment: kind.Kubernetes,
		SystemNamespace: system})
	w.serve(&review.Reviewer{Writer: w.writer, Store: w.control, User: user, Client: clientOf(t, config),
		Namespace: system})
	return w
}

type object = map[string]any

func clientOf(t *testing.T, config *rest.Config) *api.Client {
	t.Helper()
	client, err := api.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (w *world) create(path string, o object) {
	w.Helper()
	if err := w.user.Create(w.Context(), path, o, nil); err != nil {
		w.Fatal(err)
	}
}

// as returns a client that is another user.
func (w *world) as(user string) *api.Client {
	w.Helper()
	config := rest.CopyConfig(w.config)
	config.Impersonate.UserName = user
	return clientOf(w.T, config)
}

// account creates a service account with all permissions, and returns its token.
func (w *world) account(name string) string {
	w.Helper()
	path := "/api/v1/namespaces/" + system + "/serviceaccounts"
	w.create(path, object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": object{"name": name}})
	w.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", object{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": object{"name": name},
		"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []object{{"kind": "ServiceAccount", "name": name, "namespace": system}}})
	var token struct{ Status struct{ Token string } }
	if err := w.user.Create(w.Context(), path+"/"+name+"/token", object{"apiVersion": "authentication.k8s.io/v1",
		"kind": "TokenRequest", "spec": object{}}, &token); err != nil {
		w.Fatal(err)
	}
	return token.Status.Token
}

// serve serves the webhooks, and registers them by URL.
func (w *world) serve(r *review.Reviewer) {
	w.Helper()
	caPEM, err := pki.NewServerCA(time.Now())
	if err != nil {
		w.Fatal(err)
	}
	signer, err := pki.ParseCA(caPEM)
	if err != nil {
		w.Fatal(err)
	}
	certificate, key, err := pki.NewTLSCertificate(signer, pki.TLSCertificate{Hosts: []string{"127.0.0.1"},
		Lifetime: time.Hour, Now: time.Now()})
	if err != nil {
		w.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		w.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(w.Output(), nil))
	kubetest.Serve(w, webhook.Listen(listener, func() *tls.Certificate { return &pair }, nil),
		webhook.NewHTTPServer(webhook.New(r.Handlers(), log), log))
	installtest.Webhooks(w, w.user, system, "https://"+listener.Addr().String(), []byte(signer.Root()))
	// The API server follows the configurations: they are in use once a Record is rejected.
	record := object{"apiVersion": "kuma.io/v1alpha1", "kind": "Record", "metadata": object{"generateName": "probe-"},
		"spec": object{"kind": "x", "name": "y"}}
	testwait.UntilTrue(w, "a Record is rejected", func() bool {
		return w.user.Create(w.Context(), "/apis/kuma.io/v1alpha1/namespaces/"+system+"/records", record, nil) != nil
	})
}

// apply creates an object of a kind in a namespace, and returns it as it is stored.
func (w *world) apply(d resource.Descriptor, namespace, name string, o object) (object, error) {
	o["apiVersion"], o["kind"] = resource.APIVersion, d.Describe().Name
	meta, _ := o["metadata"].(object)
	if meta == nil {
		meta = object{}
	}
	meta["name"], o["metadata"] = name, meta
	var stored object
	err := w.user.Create(w.Context(), crd.Path(d, namespace), o, &stored)
	return stored, err
}

// rejected fails unless an error has the code and the texts.
func (w *world) rejected(err error, code int32, texts ...string) {
	w.Helper()
	status, _ := api.Status(err)
	shown := fmt.Sprint(err)
	if status.Details != nil {
		for _, c := range status.Details.Causes {
			shown += fmt.Sprintf("\n%s: %s", c.Field, c.Message)
		}
	}
	if status.Code != code {
		w.Errorf("the code is %d, want %d: %s", status.Code, code, shown)
	}
	for _, text := range texts {
		if !strings.Contains(shown, text) {
			w.Errorf("the error lacks %q:\n%s", text, shown)
		}
	}
}

func field(o object, path ...string) any {
	var v any = o
	for _, name := range path {
		inner, _ := v.(object)
		v = inner[name]
	}
	return v
}

func TestReview(t *testing.T) {
	w := newWorld(t)
	at := func(name string, test func(*world)) {
		t.Run(name, func(t *testing.T) {
			inner := *w
			inner.T = t
			test(&inner)
		})
	}
	if _, err := w.apply(kind.Meshes, "", "default", object{"spec": object{}}); err != nil {
		t.Fatal(err)
	}
	service := func() object {
		return object{"spec": object{"selector": object{"dataplaneTags": object{"kuma.io/service": "web"}},
			"ports": []object{{"port": 80, "appProtocol": "http"}}}}
	}

	at("defaults and computed labels", func(w *world) {
		stored, err := w.apply(kind.MeshServices, team, "web", service())
		if err != nil {
			w.Fatal(err)
		}
		for name, want := range map[string]string{"kuma.io/mesh": "default", "kuma.io/origin": "zone",
			"kuma.io/zone": "east", "kuma.io/env": "kubernetes", "k8s.kuma.io/namespace": team} {
			if got := field(stored, "metadata", "labels", name); got != want {
				w.Errorf("the label %s is %v, want %s", name, got, want)
			}
		}
		if got := field(stored, "metadata", "annotations", "kuma.io/display-name"); got != "web" {
			w.Errorf("the display name is %v", got)
		}
		row, err := w.control.Get(w.Context(), kind.MeshServices.Key("default", "web."+team))
		if err != nil || !strings.Contains(string(row.Body), `"targetPort":80`) {
			w.Errorf("the row is %s, %v", row.Body, err)
		}
	})

	at("the reasons of REST", func(w *world) {
		_, err := w.apply(kind.MeshTimeouts, team, "empty", object{"spec": object{"to": []object{{
			"targetRef": object{"kind": "MeshService", "name": "web", "labels": object{"a": "b"}},
			"default":   object{"connectionTimeout": "3s"}}}}})
		w.rejected(err, 422, "spec.to[0].targetRef")
		_, err = w.apply(kind.Dataplanes, team, "bad", object{"spec": object{"networking": object{"address": "10.0.0.1",
			"inbound": []object{{"port": 80, "servicePort": 81, "tags": object{"kuma.io/zone": "west"}}}}}})
		w.rejected(err, 422, `spec.networking.inbound[0].tags[kuma.io/zone]: is "west", and the control plane sets "east"`)
		_, err = w.apply(kind.Meshes, "", "typo", object{"spec": object{"routin": object{"zoneEgress": true}}})
		w.rejected(err, 422, "routin")
		_, err = w.apply(kind.MeshTimeouts, team, "lost", object{"metadata": object{"labels": object{
			"kuma.io/mesh": "absent"}}, "spec": object{"to": []object{{"targetRef": object{"kind": "Mesh"},
			"default": object{"connectionTimeout": "3s"}}}}})
		w.rejected(err, 404, `mesh: "absent" does not exist; create the Mesh first`)
	})

	at("zone proxies of every mesh", func(w *world) {
		networking := func(port int) object {
			return object{"spec": object{"networking": object{"address": "10.0.0.1", "port": port}}}
		}
		for _, d := range []resource.Descriptor{kind.ZoneIngresses, kind.ZoneEgresses} {
			_, err := w.apply(d, team, "remote", networking(10001))
			w.rejected(err, 422, "metadata.namespace: is team", "write it in the namespace kuma-system")
			_, err = w.apply(d, system, "bad", networking(70000))
			w.rejected(err, 422, "spec.networking.port")
			stored, err := w.apply(d, system, "good", networking(10001))
			if got := field(stored, "spec", "zone"); err != nil || got != "east" {
				w.Errorf("%s is of the zone %v, %v", d.Describe().Name, got, err)
			}
		}
		half := networking(10001)
		half["spec"].(object)["networking"].(object)["advertisedAddress"] = "203.0.113.1"
		_, err := w.apply(kind.ZoneIngresses, system, "half", half)
		w.rejected(err, 422, "spec.networking.advertisedPort")
	})

	at("warnings about deletions", func(w *world) {
		derived, err := resource.Parse([]byte(`{type: MeshService, mesh: default, name: derived.`+team+`, labels: `+
			`{kuma.io/managed-by: weft}, spec: {selector: {dataplaneTags: {k8s.kuma.io/service-name: derived, `+
			`k8s.kuma.io/namespace: `+team+`}}, ports: [{port: 80}]}}`), kind.ByName)
		if err != nil {
			w.Fatal(err)
		}
		if _, err := w.writer.Put(w.Context(), derived, admission.Change{ControlPlane: true}); err != nil {
			w.Fatal(err)
		}
		r := &review.Reviewer{Writer: w.writer, Store: w.control, User: "another"}
		var stored json.RawMessage
		path := "/apis/kuma.io/v1alpha1/namespaces/" + team + "/meshservices/derived"
		if err := w.user.Get(w.Context(), path, nil, &stored); err != nil {
			w.Fatal(err)
		}
		q := &webhook.Request{Kind: metav1.GroupVersionKind{Group: "kuma.io", Version: "v1alpha1", Kind: "MeshService"},
			Operation: "DELETE", Namespace: team, Name: "derived", OldObject: runtime.RawExtension{Raw: stored}}
		response, err := r.Validate(w.Context(), q)
		if err != nil || len(response.Warnings) != 1 ||
			!strings.Contains(response.Warnings[0], "the Service "+team+"/derived") {
			w.Errorf("the deletion has the warnings %q, %v", response.Warnings, err)
		}
	})

	at("labels and annotations of the control plane", func(w *world) {
		forged := service()
		forged["metadata"] = object{
			"labels": object{"kuma.io/zone": "west", "kuma.io/origin": "global", "k8s.kuma.io/namespace": system,
				"kuma.io/owner": "x", "kuma.io/record": "Thing"},
			"annotations": object{"kuma.io/vouched": `{"operator":["label a=b"]}`, "kuma.io/owner": `{"kind":"Mesh"}`,
				"kuma.io/name": "web." + team, "kuma.io/labels": `{"kuma.io/env":"universal"}`},
		}
		stored, err := w.apply(kind.MeshServices, team, "forged", forged)
		if err != nil {
			w.Fatal(err)
		}
		labels := field(stored, "metadata", "labels").(object)
		if labels["kuma.io/zone"] != "east" || labels["kuma.io/origin"] != "zone" ||
			labels["k8s.kuma.io/namespace"] != team || labels["kuma.io/env"] != "kubernetes" ||
			labels["kuma.io/owner"] == "x" || labels["kuma.io/record"] != nil {
			w.Errorf("the labels are %v", labels)
		}
		for _, name := range []string{"kuma.io/vouched", "kuma.io/name", "kuma.io/labels"} {
			if got := field(stored, "metadata", "annotations", name); got != nil {
				w.Errorf("the annotation %s is kept: %v", name, got)
			}
		}
		row, err := w.control.Get(w.Context(), kind.MeshServices.Key("default", "forged."+team))
		if want := kind.Meshes.Key("", "default"); err != nil || row.Owner == nil || *row.Owner != want {
			w.Errorf("the owner is %v, %v; want %s", row.Owner, err, want)
		}
	})

	at("references to Secrets need the permission to read them", func(w *world) {
		w.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", object{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": object{"name": "writers"},
			"rules": []object{{"apiGroups": []string{"kuma.io"}, "resources": []string{"*"},
				"verbs": []string{"*"}}}})
		w.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", object{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": object{"name": "u"},
			"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writers"},
			"subjects": []object{{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "u"}}})
		writer := *w
		writer.user = w.as("u")
		naming := func(secret string, port int) object {
			source := func(name string) object {
				return object{"type": "Secret", "secretRef": object{"kind": "Secret", "name": name}}
			}
			return object{"spec": object{
				"match":     object{"type": "HostnameGenerator", "port": port, "protocol": "tcp"},
				"endpoints": []object{{"address": "192.0.2.1", "port": 443}},
				"tls": object{"enabled": true, "verification": object{"clientCert": source(secret),
					"clientKey": source(secret)}}}}
		}
		testwait.UntilTrue(w, "the user may write", func() bool {
			_, err := writer.apply(kind.MeshTimeouts, system, "any", object{"spec": object{"to": []object{{
				"targetRef": object{"kind": "Mesh"}, "default": object{"idleTimeout": "3s"}}}}})
			return err == nil
		})
		_, err := writer.apply(kind.MeshExternalServices, system, "bank", naming("client", 443))
		w.rejected(err, 403, `clientCert.secretRef.name`, `the user "u" may not get the Secrets of the namespace`)
		if _, err := w.apply(kind.MeshExternalServices, system, "bank", naming("client", 443)); err != nil {
			w.Errorf("an administrator: %v", err)
		}
		_, err = w.apply(kind.MeshExternalServices, system, "keys", naming("identity-ca-default", 444))
		w.rejected(err, 422, `spec.tls.verification.clientKey.secretRef.name`, "is a Secret of the control plane itself")

		// Secrets of other types and of other namespaces are no Secrets of the mesh.
		for name, at := range map[string][2]string{"other-type": {system, "Opaque"},
			"other-namespace": {team, "system.kuma.io/secret"}} {
			_ = w.user.Create(w.Context(), "/api/v1/namespaces/"+at[0]+"/secrets", object{"apiVersion": "v1",
				"kind": "Secret", "type": at[1], "metadata": object{"name": name, "labels": object{
					"kuma.io/mesh": "default"}}, "data": object{"value": "eA=="}}, nil)
			if _, err := w.control.Get(w.Context(), kind.Secrets.Key("default", name)); err == nil {
				w.Errorf("the Secret %s of the type %s in %s is one of the mesh", name, at[1], at[0])
			}
		}
	})

	at("no fact of a user is vouched for", func(w *world) {
		dp := func() object {
			return object{"metadata": object{"labels": object{"role": "admin"},
				"annotations": object{"kuma.io/vouched": `{"operator":["*","label role=admin"]}`}},
				"spec": object{"networking": object{"address": "10.0.0.1"}}}
		}
		stored, err := w.apply(kind.Dataplanes, team, "pretender", dp())
		if err != nil {
			w.Fatal(err)
		}
		vouched := func(name string) resource.Vouched {
			row, err := w.control.Get(w.Context(), kind.Dataplanes.Key("default", name))
			if err != nil {
				w.Fatal(err)
			}
			o, err := admission.Decode(row)
			if err != nil {
				w.Fatal(err)
			}
			return o.Envelope().Vouched
		}
		if v := vouched("pretender." + team); len(v.Operator)+len(v.Token) > 0 {
			w.Errorf("a created Dataplane has vouched facts: %+v", v)
		}
		path := crd.Path(kind.Dataplanes, team) + "/pretender"
		meta := stored["metadata"].(object)
		meta["annotations"].(object)["kuma.io/vouched"] = `{"token":["label role=admin"]}`
		delete(meta, "managedFields")
		if err := w.user.Update(w.Context(), path, stored, &stored); err != nil {
			w.Fatal(err)
		}
		if v := vouched("pretender." + team); len(v.Operator)+len(v.Token) > 0 {
			w.Errorf("an updated Dataplane has vouched facts: %+v", v)
		}
		// What a token vouches for stays after a write with kubectl, and what kubectl adds is not vouched for.
		o, err := kind.Parse([]byte(`{type: Dataplane, mesh: default, name: vm-1, labels: {role: web}, ` +
			`networking: {address: 10.0.0.1}}`))
		if err != nil {
			w.Fatal(err)
		}
		if _, err := w.writer.Put(w.Context(), o.Object, admission.Change{Token: &admission.Token{
			Claimed: kind.Facts, Allows: func(_, _ *resource.Object[kind.Dataplane]) error { return nil },
		}}); err != nil {
			w.Fatal(err)
		}
		path = crd.Path(kind.Dataplanes, system) + "/vm-1"
		var again object
		if err := w.user.Get(w.Context(), path, nil, &again); err != nil {
			w.Fatal(err)
		}
		meta = again["metadata"].(object)
		delete(meta, "managedFields")
		meta["labels"].(object)["tier"] = "gold"
		delete(meta["annotations"].(object), "kuma.io/vouched")
		if err := w.user.Update(w.Context(), path, again, nil); err != nil {
			w.Fatal(err)
		}
		now := vouched("vm-1")
		if v, missing := now.Partition([]string{"label role=web", "label tier=gold"}); len(missing) != 1 ||
			missing[0] != "label tier=gold" {
			w.Errorf("vouched: %v, not vouched: %v; want the label of the token alone", v, missing)
		}
		if err := w.user.Get(w.Context(), path, nil, &again); err != nil {
			w.Fatal(err)
		}
		meta = again["metadata"].(object)
		delete(meta, "managedFields")
		meta["labels"].(object)["role"] = "admin"
		w.rejected(w.user.Update(w.Context(), path, again, nil), 403, "somebody vouches for the label role: web",
			"a user of kubectl vouches for no fact", "operatorResources")
	})

	at("resources of another control plane", func(w *world) {
		body := `{"labels":{"kuma.io/origin":"zone","kuma.io/zone":"west","kuma.io/display-name":"far"},"spec":` +
			`{"selector":{"dataplaneTags":{"a":"b"}},"ports":[{"port":80,"targetPort":80,"appProtocol":"tcp"}]}}`
		row, err := w.control.Create(w.Context(), rowOf("far-1", body))
		if err != nil {
			w.Fatal(err)
		}
		path := crd.Path(kind.MeshServices, system) + "/far-1"
		var stored object
		if err := w.user.Get(w.Context(), path, nil, &stored); err != nil {
			w.Fatal(err)
		}
		delete(stored["metadata"].(object), "managedFields")
		stored["metadata"].(object)["annotations"].(object)["note"] = "mine"
		if err := w.user.Update(w.Context(), path, stored, &stored); err != nil {
			w.Errorf("an annotation of the user is rejected: %v", err)
		}
		delete(stored["metadata"].(object), "managedFields")
		stored["spec"].(object)["ports"].([]any)[0].(object)["port"] = 81
		w.rejected(w.user.Update(w.Context(), path, stored, nil), 403, `belongs to the zone "west"`)
		w.rejected(w.user.Delete(w.Context(), path, "", ""), 403, `belongs to the zone "west"`)
		if now, err := w.control.Get(w.Context(), row.Key); err != nil || string(now.Body) != string(row.Body) {
			w.Errorf("the row is %s, %v", now.Body, err)
		}
	})

	at("what the control plane alone writes", func(w *world) {
		_, err := w.apply(kind.DataplaneInsights, team, "x", object{"spec": object{}})
		w.rejected(err, 403, "written by the control plane only")
		if err := w.user.Create(w.Context(), "/api/v1/namespaces/"+system+"/secrets", object{"apiVersion": "v1",
			"kind": "Secret", "metadata": object{"name": "row"}, "type": kube.PrivateType,
			"data": object{"record": "e30="}}, nil); err == nil {
			w.Error("a row with private keys is accepted")
		}
		path := crd.Path(kind.MeshServices, team) + "/web"
		var stored object
		if err := w.user.Get(w.Context(), path, nil, &stored); err != nil {
			w.Fatal(err)
		}
		delete(stored["metadata"].(object), "managedFields")
		stored["status"] = object{"vips": []object{{"ip": "1.2.3.4"}}}
		w.rejected(w.user.Update(w.Context(), path+"/status", stored, nil), 403,
			"the status of a MeshService is written by the control plane only")
	})

	at("the mesh of a resource", func(w *world) {
		if _, err := w.apply(kind.Meshes, "", "other", object{"spec": object{}}); err != nil {
			w.Fatal(err)
		}
		path := crd.Path(kind.MeshServices, team) + "/web"
		var stored object
		if err := w.user.Get(w.Context(), path, nil, &stored); err != nil {
			w.Fatal(err)
		}
		delete(stored["metadata"].(object), "managedFields")
		stored["metadata"].(object)["labels"].(object)["kuma.io/mesh"] = "other"
		w.rejected(w.user.Update(w.Context(), path, stored, nil), 422, "the mesh of a resource cannot change")
		_, err := w.apply(kind.Dataplanes, team, "two", object{"mesh": "other", "metadata": object{"labels": object{
			"kuma.io/mesh": "default"}}, "spec": object{"networking": object{"address": "10.0.0.1"}}})
		w.rejected(err, 422, `mesh: is "other", and the label kuma.io/mesh is "default"`)
	})

	at("namespaces and roles", func(w *world) {
		_, err := w.apply(kind.MeshTrusts, team, "own-roots", object{"spec": object{"trustDomain": "x"}})
		w.rejected(err, 422, "concerns the whole mesh; write it in the namespace "+system)
		for _, d := range kind.Written() {
			info := d.Describe()
			if info.WrittenBy != resource.Operator || info.Name == kind.MeshProxyPatches.Name ||
				!strings.Contains(crd.Path(d, team), "/namespaces/") {
				continue // of the cluster, or for the Pods of its namespace
			}
			_, err := w.apply(d, team, "own", object{"spec": object{}})
			if err == nil {
				w.Errorf("a %s of another namespace than the system namespace is accepted", info.Name)
			}
			w.rejected(err, 422, "write it in the namespace "+system)
		}
		timeout := func(items ...object) object {
			var to []object
			for _, ref := range items {
				to = append(to, object{"targetRef": ref, "default": object{"connectionTimeout": "3s"}})
			}
			return object{"spec": object{"to": to},
				"metadata": object{"labels": object{"kuma.io/policy-role": "system"}}}
		}
		for name, c := range map[string]struct {
			namespace, role string
			ref             object
		}{
			"for-all": {system, "system", object{"kind": "Mesh"}}, "mine": {team, "consumer", object{"kind": "Mesh"}},
			"of-web": {team, "producer", object{"kind": "MeshService", "name": "web"}},
		} {
			stored, err := w.apply(kind.MeshTimeouts, c.namespace, name, timeout(c.ref))
			if err != nil {
				w.Error(err)
			} else if got := field(stored, "metadata", "labels", "kuma.io/policy-role"); got != c.role {
				w.Errorf("the role of %s is %v, want %s", name, got, c.role)
			}
		}
		_, err = w.apply(kind.MeshTimeouts, team, "both", timeout(object{"kind": "MeshService", "name": "web"},
			object{"kind": "Mesh"}))
		w.rejected(err, 422, "write two policies")
	})

	at("deletion", func(w *world) {
		err := w.user.Delete(w.Context(), crd.Path(kind.Meshes, "")+"/default", "", "")
		w.rejected(err, 409, "still has Dataplanes")
		if err := w.user.Delete(w.Context(), crd.Path(kind.MeshServices, team)+"/forged", "", ""); err != nil {
			w.Error(err)
		}
	})

	at("deletion of a Mesh with what it owns", deleteMesh)

	at("the validating webhook alone", validateAlone)

	at("Secrets", func(w *world) {
		secrets := "/api/v1/namespaces/" + system + "/secrets"
		var stored object
		if err := w.user.Create(w.Context(), secrets, object{"apiVersion": "v1", "kind": "Secret",
			"metadata": object{"name": "s"}, "type": "system.kuma.io/secret", "data": object{"value": "eA=="}},
			&stored); err != nil {
			w.Fatal(err)
		}
		if got := field(stored, "metadata", "labels", "kuma.io/mesh"); got != "default" {
			w.Errorf("the mesh of a Secret is %v", got)
		}
		w.rejected(w.user.Create(w.Context(), secrets, object{"apiVersion": "v1", "kind": "Secret",
			"metadata": object{"name": "none"}, "type": "system.kuma.io/secret"}, nil), 422, "data")
		w.create(secrets, object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "of-another"}})
	})
}

func rowOf(name, body string) store.Row {
	return store.Row{Key: kind.MeshServices.Key("default", name), Body: []byte(body)}
}

// deleteMesh deletes a Mesh with kubectl. The resources that users wrote with kubectl are deleted with it, as by the
// REST API. A Mesh with Dataplanes is not deleted.
func deleteMesh(w *world) {
	in := object{"labels": object{"kuma.io/mesh": "brief"}}
	policy := func() object {
		return object{"metadata": maps.Clone(in), "spec": object{"to": []object{{"targetRef": object{"kind": "Mesh"},
			"default": object{"connectionTimeout": "3s"}}}}}
	}
	proxy := object{"metadata": maps.Clone(in), "spec": object{"networking": object{"address": "10.0.0.1"}}}
	_, err := w.apply(kind.Meshes, "", "brief", object{"spec": object{}})
	for _, write := range []func() error{
		func() error { _, err := w.apply(kind.MeshTimeouts, team, "of-brief", policy()); return err },
		func() error { _, err := w.apply(kind.MeshTimeouts, system, "of-brief", policy()); return err },
		func() error { _, err := w.apply(kind.Dataplanes, team, "of-brief", proxy); return err },
	} {
		if err = cmp.Or(err, write()); err != nil {
			w.Fatal(err)
		}
	}
	w.create("/api/v1/namespaces/"+system+"/secrets", object{"apiVersion": "v1", "kind": "Secret",
		"metadata": object{"name": "of-brief", "labels": object{"kuma.io/mesh": "brief"}},
		"type":     "system.kuma.io/secret", "data": object{"value": "eA=="}})
	mesh := crd.Path(kind.Meshes, "") + "/brief"
	w.rejected(w.user.Delete(w.Context(), mesh, "", ""), 409, "Mesh brief still has Dataplanes (1); delete them first")
	if err := w.user.Delete(w.Context(), crd.Path(kind.Dataplanes, team)+"/of-brief", "", ""); err != nil {
		w.Fatal(err)
	}
	owned := []resource.Key{kind.MeshTimeouts.Key("brief", "of-brief."+team),
		kind.MeshTimeouts.Key("brief", "of-brief."+system), kind.Secrets.Key("brief", "of-brief")}
	for _, key := range owned {
		if _, err := w.control.Get(w.Context(), key); err != nil {
			w.Errorf("%s went before its Mesh: %v", key, err)
		}
	}
	if err := w.user.Delete(w.Context(), mesh, "", ""); err != nil {
		w.Fatal(err)
	}
	for _, key := range owned {
		testwait.UntilTrue(w, key.String()+" is deleted after its Mesh", func() bool {
			_, err := w.control.Get(w.Context(), key)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				w.Fatal(err)
			}
			return err != nil
		})
	}
	if _, err := w.control.Get(w.Context(), kind.MeshTimeouts.Key("default", "mine."+team)); err != nil {
		w.Errorf("a policy of another mesh: %v", err)
	}
}

// validateAlone: an object that the mutating webhook did not complete is rejected.
func validateAlone(w *world) {
	raw, err := json.Marshal(object{"apiVersion": resource.APIVersion, "kind": "MeshService", "metadata": object{
		"name": "bare", "namespace": team, "annotations": object{"kuma.io/vouched": "{}"}},
		"spec": object{"selector": object{"dataplaneTags": object{"a": "b"}}, "ports": []object{{"port": 80}}}})
	if err != nil {
		w.Fatal(err)
	}
	var q webhook.Request
	q.Operation, q.Kind.Group, q.Kind.Kind, q.Object.Raw = "CREATE", "kuma.io", "MeshService", raw
	q.Namespace, q.Name = team, "bare"
	reviewer := review.Reviewer{Writer: w.writer, Store: w.control, User: "control-plane"}
	if _, err := reviewer.Validate(w.Context(), &q); resource.CodeOf(err) != resource.Forbidden ||
		!strings.Contains(err.Error(), "metadata.labels and metadata.annotations") {
		w.Errorf("it is %v", err)
	}
	q.UserInfo.Username = "control-plane"
	if response, err := reviewer.Default(w.Context(), &q); err != nil || response.Patch != nil {
		w.Errorf("a write of the control plane: %v, patch %s", err, response.Patch)
	}
}
