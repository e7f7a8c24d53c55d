package admission_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/internal/admission"
	"weft/internal/envoy"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

// newEastWriter returns a writer of the zone east and its store, which has the mesh m.
func newEastWriter(t *testing.T) (*admission.Writer, store.Store) {
	t.Helper()
	rows := memory.New(memory.Options{})
	t.Cleanup(func() { _ = rows.Close() })
	w := admission.New(rows, admission.Options{Zone: "east", Patches: envoy.TypeNames(nil)})
	put(t, w, `{type: Mesh, name: m}`)
	return w, rows
}

func parse(t *testing.T, doc string) resource.Any {
	t.Helper()
	o, err := resource.Parse([]byte(doc), kind.ByName)
	if err != nil {
		t.Fatalf("%v in %s", err, doc)
	}
	return o
}

func put(t *testing.T, w *admission.Writer, doc string) admission.Result {
	t.Helper()
	result, err := w.Put(t.Context(), parse(t, doc), admission.Change{})
	if err != nil {
		t.Fatalf("Put %s: %v", doc, err)
	}
	return result
}

// wantError fails unless the error is a user's error of a code and has a text.
func wantError(t *testing.T, err error, code resource.Code, says string) {
	t.Helper()
	if resource.CodeOf(err) != code || err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("the error is %v (code %d), want code %d and %q", err, resource.CodeOf(err), code, says)
	}
}

func read(t *testing.T, rows store.Store, key resource.Key) resource.Any {
	t.Helper()
	row, err := rows.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	o, err := admission.Decode(row)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

const web = `{type: Dataplane, mesh: m, name: web, labels: {app: web}, networking: {address: 10.0.0.1, inbound: ` +
	`[{port: 80}]}}`

var webKey = kind.Dataplanes.Key("m", "web")

func TestPut(t *testing.T) {
	w, rows := newEastWriter(t)
	first := put(t, w, web)
	if !first.Created || !first.Changed {
		t.Errorf("a new resource: created %v, changed %v", first.Created, first.Changed)
	}
	stored := read(t, rows, webKey)
	want := map[string]string{"app": "web", "kuma.io/zone": "east", "kuma.io/origin": "zone",
		"kuma.io/env": "universal", "kuma.io/display-name": "web"}
	if d := cmp.Diff(want, stored.Envelope().Labels); d != "" {
		t.Error("labels:", d)
	}
	tags := resource.SpecOf(stored).(*kind.Dataplane).Networking.Inbound[0].Tags
	if d := cmp.Diff(map[string]string{"kuma.io/zone": "east"}, tags); d != "" {
		t.Error("tags:", d)
	}

	again := put(t, w, web)
	if again.Created || again.Changed || again.Object.Envelope().Version != first.Object.Envelope().Version {
		t.Errorf("the same again: created %v, changed %v", again.Created, again.Changed)
	}
	changed := put(t, w, strings.Replace(web, "port: 80", "port: 81", 1))
	if changed.Created || !changed.Changed || changed.Object.Envelope().Version == first.Object.Envelope().Version {
		t.Errorf("an update: created %v, changed %v", changed.Created, changed.Changed)
	}
}

func TestPutDoesNotChangeTheObject(t *testing.T) {
	w, _ := newEastWriter(t)
	o := parse(t, web)
	if _, err := w.Put(t.Context(), o, admission.Change{}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(resource.SpecOf(parse(t, web)), resource.SpecOf(o)); d != "" || len(o.Envelope().Labels) != 1 {
		t.Errorf("labels %v, spec %s", o.Envelope().Labels, d)
	}
}

func TestPutRejects(t *testing.T) {
	w, _ := newEastWriter(t)
	for _, test := range []struct {
		name, doc string
		code      resource.Code
		says      string
	}{
		{"values", `{type: Dataplane, mesh: m, name: D, networking: {address: x}}`, resource.Invalid,
			"Dataplane m/D is invalid\n  name: \"D\" is not a name"},
		{"no mesh", `{type: Secret, name: s, data: eA==}`, resource.Invalid, "\n  mesh: is required"},
		{"a mesh of a mesh", `{type: Mesh, mesh: m, name: other}`, resource.Invalid, "\n  mesh: a Mesh is in no mesh"},
		{"a mesh that is not there", `{type: Secret, mesh: other, name: s, data: eA==}`, resource.NotFound,
			"\n  mesh: \"other\" does not exist; create the Mesh first"},
		{"a namespace", `{type: Secret, mesh: m, name: s, labels: {k8s.kuma.io/namespace: r}, data: eA==}`,
			resource.Invalid, "labels[k8s.kuma.io/namespace]: has no meaning outside Kubernetes"},
		{"the control plane's mark", `{type: Secret, mesh: m, name: s, labels: {kuma.io/managed-by: weft}, data: eA==}`,
			resource.Invalid, "labels[kuma.io/managed-by]"},
		{"tags", `{type: Dataplane, mesh: m, name: d, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: ` +
			`{kuma.io/zone: west}}]}}`, resource.Invalid, "\n  networking.inbound[0].tags[kuma.io/zone]: is \"west\""},
		{"a tag of the environment", `{type: Dataplane, mesh: m, name: d, networking: {address: 10.0.0.1, inbound: ` +
			`[{port: 80, tags: {kuma.io/environment: kubernetes}}]}}`, resource.Invalid, "tags[kuma.io/environment]"},
		{"a tag of a namespace", `{type: Dataplane, mesh: m, name: d, networking: {address: 10.0.0.1, inbound: ` +
			`[{port: 80, tags: {k8s.kuma.io/namespace: x}}]}}`, resource.Invalid, "tags[k8s.kuma.io/namespace]"},
		{"an ingress of another zone",
			`{type: ZoneIngress, name: zi, zone: west, networking: {address: 10.0.0.1, port: 1}}`, resource.Invalid,
			"\n  zone: is \"west\", and this control plane is of zone \"east\""},
		{"an egress of another zone",
			`{type: ZoneEgress, name: ze, zone: west, networking: {address: 10.0.0.1, port: 1}}`, resource.Invalid,
			"\n  zone: is \"west\", and this control plane is of zone \"east\""},
		{"what users only read", `{type: DataplaneInsight, mesh: m, name: d}`, resource.Forbidden,
			"written by the control plane only"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := w.Put(t.Context(), parse(t, test.doc), admission.Change{})
			wantError(t, err, test.code, test.says)
		})
	}
}

// TestComputedFieldsAreIgnored: a computed field with another value is a warning and not stored.
func TestComputedFieldsAreIgnored(t *testing.T) {
	w, rows := newEastWriter(t)
	for _, test := range []struct{ name, doc, warning string }{
		{"another zone, of a kind without a mesh", `{type: Mesh, name: other, labels: {kuma.io/zone: west}}`,
			`labels[kuma.io/zone]: "west" is ignored: the control plane sets "east"`},
		{"another zone", `{type: Secret, mesh: m, name: a, labels: {kuma.io/zone: west}, data: eA==}`,
			`labels[kuma.io/zone]: "west" is ignored: the control plane sets "east"`},
		{"another origin", `{type: Secret, mesh: m, name: b, labels: {kuma.io/origin: global}, data: eA==}`,
			`labels[kuma.io/origin]: "global" is ignored: the control plane sets "zone"`},
		{"another environment", `{type: Secret, mesh: m, name: c, labels: {kuma.io/env: kubernetes}, data: eA==}`,
			`labels[kuma.io/env]: "kubernetes" is ignored: the control plane sets "universal"`},
		{"another name", `{type: Secret, mesh: m, name: d, labels: {kuma.io/display-name: r}, data: eA==}`,
			`labels[kuma.io/display-name]: "r" is ignored: the control plane sets "d"`},
		{"a zone where there is none", `{type: Zone, name: z, labels: {kuma.io/zone: west}}`,
			`labels[kuma.io/zone]: "west" is ignored: the label has no meaning here`},
		{"another type of proxy", `{type: Dataplane, mesh: m, name: e, labels: {kuma.io/proxy-type: zoneingress}, ` +
			`networking: {address: 10.0.0.1}}`,
			`labels[kuma.io/proxy-type]: "zoneingress" is ignored: the proxy is a sidecar`},
		{"another type of zone proxy",
			`{type: ZoneEgress, name: e, labels: {kuma.io/proxy-type: sidecar}, networking: {address: ` +
				`10.0.0.1, port: 1}}`, `labels[kuma.io/proxy-type]: "sidecar" is ignored: the proxy is a zoneegress`},
		{"a state", `{type: MeshService, mesh: m, name: s, spec: {state: Available, selector: {dataplaneRef: {name: ` +
			`a}}, ports: [{port: 80}]}}`, `spec.state: "Available" is ignored: the control plane sets it`},
		{"identities", `{type: MeshService, mesh: m, name: s2, spec: {selector: {dataplaneRef: {name: a}}, ports: ` +
			`[{port: 80}], identities: [{type: SpiffeID, value: "spiffe://a/b"}]}}`,
			`spec.identities: are ignored: the control plane sets them`},
		{"the default state", `{type: MeshService, mesh: m, name: s3, spec: {state: Unavailable, selector: ` +
			`{dataplaneRef: {name: a}}, ports: [{port: 80}]}}`, ""},
		{"the right type of proxy", `{type: Dataplane, mesh: m, name: f, labels: {kuma.io/proxy-type: sidecar}, ` +
			`networking: {address: 10.0.0.1, inbound: [{port: 80}]}}`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			result := put(t, w, test.doc)
			if got := strings.Join(result.Warnings, "\n"); got != test.warning &&
				!strings.HasPrefix(got, test.warning+"\n") {
				t.Errorf("the warnings are %q, want %q", got, test.warning)
			}
			stored := read(t, rows, result.Object.Key())
			for name, wrong := range map[string]string{kind.ZoneLabel: "west", kind.OriginLabel: "global",
				kind.EnvLabel: "kubernetes", kind.DisplayName: "r"} {
				if stored.Envelope().Label(name) == wrong {
					t.Errorf("the label %s is stored as it was written", name)
				}
			}
			if service, ok := stored.(*resource.Object[kind.MeshService]); ok &&
				(service.Spec.State != "" || service.Spec.Identities != nil) {
				t.Errorf("computed fields are stored as they were written: %+v", service.Spec)
			}
		})
	}
}

// TestReadDocumentsCanBeWritten puts every document back as a client reads it.
func TestReadDocumentsCanBeWritten(t *testing.T) {
	w, _ := newEastWriter(t)
	for _, doc := range []string{
		`{type: Mesh, name: m}`, web,
		`{type: MeshService, mesh: m, name: s, spec: {selector: {dataplaneRef: {name: a}}, ports: [{port: 80}]}}`,
		`{type: MeshIdentity, mesh: m, name: i, spec: {selector: {dataplane: {}}, provider: {type: Bundled}}}`,
		`{type: MeshTrafficPermission, mesh: m, name: p, spec: {rules: [{default: {allow: [{spiffeId: {type: Exact, ` +
			`value: "spiffe://a/b"}}]}}]}}`,
		`{type: Secret, mesh: m, name: s, data: eA==}`,
		`{type: ZoneIngress, name: zi, networking: {address: 10.0.0.1, port: 1}}`,
		zoneEgress, external,
		`{type: MeshExternalService, mesh: m, name: tls, spec: {match: {port: 443, protocol: http}, endpoints: ` +
			`[{address: a.b, port: 1}], tls: {enabled: true, verification: {subjectAltNames: [{value: a.b}]}}}}`,
		`{type: MeshIdentity, mesh: m, name: spire, spec: {provider: {type: Spire}}}`,
		`{type: Mesh, name: legacy, mtls: {enabledBackend: a, backends: [{name: a, type: builtin, dpCert: {rotation: ` +
			`{expiration: 1d}}, conf: {caCert: {expiration: 10y}}}]}, routing: {zoneEgress: true}, ` +
			`dataplaneProxyMembership: {allowed: [{tags: {team: "*"}}]}}`,
		`{type: MeshMultiZoneService, mesh: m, name: s, spec: {selector: {meshService: {}}, ports: [{port: 80}]}}`,
		`{type: Dataplane, mesh: m, name: exit, networking: {zoneEgress: {address: 10.0.0.1, port: 1}}}`,
		`{type: Dataplane, mesh: m, name: zi, networking: {zoneIngress: {address: 10.0.0.1, port: 1, ` +
			`advertisedAddress: 10.0.0.2, advertisedPort: 1}}}`,
	} {
		stored := put(t, w, doc).Object
		for _, form := range []resource.Form{resource.Universal, resource.Kubernetes} {
			written, err := resource.MarshalJSON(stored, nil, kind.ByName(stored.Key().Kind), form)
			if err != nil {
				t.Fatal(err)
			}
			if put(t, w, string(written)).Changed {
				t.Errorf("%s changed by writing back what was read", stored.Key())
			}
		}
	}
}

func TestIfMatch(t *testing.T) {
	w, _ := newEastWriter(t)
	first := put(t, w, web).Object.Envelope().Version
	second, err := w.Put(t.Context(), parse(t, strings.Replace(web, "80", "81", 1)), admission.Change{IfMatch: first})
	if err != nil {
		t.Fatalf("Put on the current version: %v", err)
	}
	_, err = w.Put(t.Context(), parse(t, web), admission.Change{IfMatch: first})
	wantError(t, err, resource.Stale, "Dataplane m/web was changed since")
	wantError(t, w.Delete(t.Context(), webKey, admission.Change{IfMatch: first}), resource.Stale,
		"Dataplane m/web was changed since")
	if err := w.Delete(t.Context(), webKey, admission.Change{IfMatch: second.Object.Envelope().Version}); err != nil {
		t.Fatal(err)
	}
	_, err = w.Put(t.Context(), parse(t, web), admission.Change{IfMatch: first})
	wantError(t, err, resource.Stale, "Dataplane m/web does not exist any more")
}

func TestDelete(t *testing.T) {
	w, rows := newEastWriter(t)
	wantError(t, w.Delete(t.Context(), webKey, admission.Change{}), resource.NotFound, "Dataplane m/web does not exist")
	wantError(t, w.Delete(t.Context(), kind.DataplaneListenerStatuses.Key("m", "web"), admission.Change{}),
		resource.Forbidden, "by the control plane only")
	put(t, w, web)
	put(t, w, `{type: Secret, mesh: m, name: s, data: eA==}`)
	serve(t, w, "web")
	mesh := kind.Meshes.Key("", "m")
	wantError(t, w.Delete(t.Context(), mesh, admission.Change{}), resource.Conflict, "Mesh m still has Dataplanes (1)")

	if err := w.Delete(t.Context(), webKey, admission.Change{}); err != nil {
		t.Fatal(err)
	}
	wantGone(t, rows, kind.DataplaneListenerStatuses.Key("m", "web"))
	if err := w.Delete(t.Context(), mesh, admission.Change{}); err != nil {
		t.Fatal(err)
	}
	wantGone(t, rows, kind.Secrets.Key("m", "s"))
}

func wantGone(t *testing.T, rows store.Store, key resource.Key) {
	t.Helper()
	if _, err := rows.Get(t.Context(), key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("%s is still there (%v)", key, err)
	}
}

func serve(t *testing.T, w *admission.Writer, name string) {
	t.Helper()
	err := admission.Modify(t.Context(), w, kind.DataplaneListenerStatuses, "m", name,
		func(o *resource.Object[kind.DataplaneListenerStatus]) bool {
			o.Spec.Run = "run"
			return true
		})
	if err != nil {
		t.Fatal(err)
	}
}

func TestModify(t *testing.T) {
	w, rows := newEastWriter(t)
	err := admission.Modify(t.Context(), w, kind.DataplaneListenerStatuses, "m", "web",
		func(*resource.Object[kind.DataplaneListenerStatus]) bool { return true })
	wantError(t, err, resource.NotFound, "Dataplane m/web does not exist")

	put(t, w, web)
	key := kind.DataplaneListenerStatuses.Key("m", "web")
	err = admission.Modify(t.Context(), w, kind.DataplaneListenerStatuses, "m", "web",
		func(*resource.Object[kind.DataplaneListenerStatus]) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	wantGone(t, rows, key) // change returned false, so nothing was created
	serve(t, w, "web")
	first := read(t, rows, key)
	if labels := first.Envelope().Labels; len(labels) > 0 {
		t.Errorf("a row of the control plane's own has the labels %v", labels)
	}
	serve(t, w, "web")
	if read(t, rows, key).Envelope().Version != first.Envelope().Version {
		t.Error("an equal row was written")
	}
}

// countingStore counts the rows that are read.
type countingStore struct {
	store.Store
	n int
}

func (r *countingStore) Get(ctx context.Context, key resource.Key) (store.Row, error) {
	r.n++
	return r.Store.Get(ctx, key)
}

func TestModifyKnown(t *testing.T) {
	type secret = resource.Object[kind.Secret]
	_, rows := newEastWriter(t)
	counted := &countingStore{Store: rows}
	w := admission.New(counted, admission.Options{Zone: "east"})
	stored := func() *secret { return read(t, rows, kind.Secrets.Key("m", "s")).(*secret) }
	var first *secret
	for _, step := range []struct {
		what   string
		known  func() *secret
		change string // appended to the name; empty: change returns false
		want   string
		reads  int
	}{
		{"none, as it is", func() *secret { return nil }, "a", "a", 0},
		{"none, and there is one", func() *secret { return nil }, "b", "ab", 1},
		{"the stored one", stored, "c", "abc", 0},
		{"an older one", func() *secret { return first }, "d", "abcd", 1},
		{"an older one, nothing to change", func() *secret { return first }, "", "abcd", 1},
	} {
		known := step.known()
		before := counted.n
		err := admission.ModifyKnown(t.Context(), w, known, kind.Secrets, "m", "s", func(o *secret) bool {
			o.Spec.Data = append(bytes.Clone(o.Spec.Data), step.change...)
			return step.change != ""
		})
		if err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if got := string(stored().Spec.Data); got != step.want {
			t.Errorf("%s: %q is stored, want %q", step.what, got, step.want)
		}
		if got := counted.n - before; got != step.reads {
			t.Errorf("%s: %d rows are read, want %d", step.what, got, step.reads)
		}
		if first == nil {
			first = stored()
		}
	}
	if got := string(first.Spec.Data); got != "a" {
		t.Errorf("the known resource became %q", got)
	}
}

func TestReplaceReadsNothing(t *testing.T) {
	_, rows := newEastWriter(t)
	counted := &countingStore{Store: rows}
	w := admission.New(counted, admission.Options{Zone: "east"})
	secret := func(data string) *resource.Object[kind.Secret] {
		return kind.Secrets.Make("m", "s", kind.Secret{Data: []byte(data)})
	}
	first, err := w.Create(t.Context(), secret("a"), nil)
	if err != nil {
		t.Fatal(err)
	}
	counted.n = 0
	second, err := w.Replace(t.Context(), first.Object, secret("b"))
	if err != nil || counted.n > 0 {
		t.Fatalf("replacing a known resource reads %d rows: %v", counted.n, err)
	}
	_, err = w.Replace(t.Context(), first.Object, secret("c"))
	wantError(t, err, resource.Stale, "changed since")
	stored := read(t, rows, kind.Secrets.Key("m", "s")).(*resource.Object[kind.Secret])
	if string(stored.Spec.Data) != "b" || stored.Version != second.Object.Envelope().Version {
		t.Errorf("%q is stored in version %s, want b in %s", stored.Spec.Data, stored.Version,
			second.Object.Envelope().Version)
	}
}

// TestModifyAtTheSameTime counts in one row from several goroutines.
func TestModifyAtTheSameTime(t *testing.T) {
	const writers, each = 8, 20
	w, rows := newEastWriter(t)
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			for range each {
				err := admission.Modify(t.Context(), w, kind.Secrets, "m", "counter",
					func(o *resource.Object[kind.Secret]) bool {
						o.Spec.Data = append(o.Spec.Data, '1')
						return true
					})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	if got :=
		len(resource.SpecOf(read(t, rows, kind.Secrets.Key("m", "counter"))).(*kind.Secret).Data); got != writers*each {
		t.Errorf("counted %d of %d", got, writers*each)
	}
}

func TestCreate(t *testing.T) {
	w, rows := newEastWriter(t)
	put(t, w, `{type: MeshIdentity, mesh: m, name: i, spec: {provider: {type: Bundled}}}`)
	owner := kind.MeshIdentities.Key("m", "i")
	first, err := w.Create(t.Context(), kind.Secrets.Make("m", "ca", kind.Secret{Data: []byte("one")}), &owner)
	if err != nil || !first.Created {
		t.Fatalf("created %v: %v", first.Created, err)
	}
	second, err := w.Create(t.Context(), kind.Secrets.Make("m", "ca", kind.Secret{Data: []byte("two")}), &owner)
	if err != nil || second.Created || string(resource.SpecOf(second.Object).(*kind.Secret).Data) != "one" {
		t.Errorf("the second one: created %v, %v", second.Created, err)
	}
	if err := w.Delete(t.Context(), owner, admission.Change{}); err != nil {
		t.Fatal(err)
	}
	wantGone(t, rows, kind.Secrets.Key("m", "ca"))
	_, err = w.Create(t.Context(), kind.Secrets.Make("m", "ca", kind.Secret{Data: []byte("one")}), &owner)
	wantError(t, err, resource.NotFound, "MeshIdentity m/i does not exist")
}

const service = `{type: MeshService, mesh: m, name: s, spec: {selector: {dataplaneRef: {name: a}}, ports: ` +
	`[{port: %d}]}}`

// TestServiceIdentitiesAreKept updates a service without its computed identities.
func TestServiceIdentitiesAreKept(t *testing.T) {
	w, _ := newEastWriter(t)
	put(t, w, fmt.Sprintf(service, 80))
	identities := []kind.ServiceIdentity{{Type: kind.SpiffeIdentity, Value: "spiffe://a/b"}}
	err := admission.Modify(t.Context(), w, kind.MeshServices, "m", "s",
		func(o *resource.Object[kind.MeshService]) bool {
			o.Spec.State, o.Spec.Identities = "Available", identities
			return true
		})
	if err != nil {
		t.Fatal(err)
	}
	got := resource.SpecOf(put(t, w, fmt.Sprintf(service, 81)).Object).(*kind.MeshService)
	if got.Ports[0].Port != 81 || got.State != "Available" || !cmp.Equal(got.Identities, identities) {
		t.Errorf("after an update that leaves them out: %+v", got)
	}
}

// TestEditingAGeneratedService writes a generated service back with and without the control plane's label.
func TestEditingAGeneratedService(t *testing.T) {
	w, _ := newEastWriter(t)
	o := parse(t, fmt.Sprintf(service, 80))
	o.Envelope().Labels = map[string]string{kind.ManagedBy: kind.GeneratedBy}
	if _, err := w.Put(t.Context(), o, admission.Change{ControlPlane: true}); err != nil {
		t.Fatal(err)
	}
	marked, err := w.Put(t.Context(), o, admission.Change{})
	if err != nil || marked.Changed {
		t.Errorf("writing back what was read: changed %v, %v", marked.Changed, err)
	}
	taken := put(t, w, fmt.Sprintf(service, 80))
	if _, still := taken.Object.Envelope().Labels[kind.ManagedBy]; still || !taken.Changed {
		t.Error("a service that was written without the mark is still marked")
	}
}

// racingStore makes another write before each of the first few updates.
type racingStore struct {
	store.Store
	left int
}

func (r *racingStore) Update(ctx context.Context, row store.Row) (store.Row, error) {
	if r.left > 0 {
		r.left--
		other := row
		other.Body = fmt.Appendf(nil, `{"spec":{"data":"eA==","n":%d}}`, r.left)
		if _, err := r.Store.Update(ctx, other); err != nil {
			return store.Row{}, err
		}
	}
	return r.Store.Update(ctx, row)
}

func TestPutRetriesOnConflict(t *testing.T) {
	_, rows := newEastWriter(t)
	w := admission.New(&racingStore{Store: rows, left: 3}, admission.Options{Zone: "east"})
	put(t, w, `{type: Secret, mesh: m, name: s, data: YQ==}`)
	put(t, w, `{type: Secret, mesh: m, name: s, data: Yg==}`)
	if got := resource.SpecOf(read(t, rows, kind.Secrets.Key("m", "s"))).(*kind.Secret).Data; string(got) != "b" {
		t.Errorf("stored is %q, want what was put last", got)
	}
}

// brokenStore fails every write as a full disk does.
type brokenStore struct{ store.Store }

func (brokenStore) Create(context.Context, store.Row) (store.Row, error) {
	return store.Row{}, fmt.Errorf("%w: /var/lib/weft.db: disk full", store.ErrUnavailable)
}

func TestUnavailable(t *testing.T) {
	_, rows := newEastWriter(t)
	w := admission.New(brokenStore{rows}, admission.Options{Zone: "east"})
	_, err := w.Put(t.Context(), parse(t, web), admission.Change{})
	wantError(t, err, resource.Unavailable, "Dataplane m/web: the store is not available; try again")
	if strings.Contains(err.Error(), "/var") {
		t.Errorf("the error shows what is below: %v", err)
	}
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the error hides its cause from the log: %v", err)
	}
}

func TestDecode(t *testing.T) {
	_, rows := newEastWriter(t)
	mesh := read(t, rows, kind.Meshes.Key("", "m")).Envelope()
	if mesh.Version == "" || mesh.Created.IsZero() || mesh.Modified.IsZero() {
		t.Errorf("the envelope is %+v", mesh)
	}
	if d := cmp.Diff(map[string]string{kind.DisplayName: "m", kind.OriginLabel: "zone", kind.ZoneLabel: "east",
		kind.EnvLabel: "universal"}, maps.Clone(mesh.Labels)); d != "" {
		t.Error(d)
	}
	if _, err := admission.Decode(store.Row{Key: resource.Key{Kind: "Later", Name: "x"}}); err == nil {
		t.Error("an unknown kind is decoded")
	}
	if _, err := admission.Decode(store.Row{Key: webKey, Body: []byte("{")}); err == nil {
		t.Error("a broken body is decoded")
	}
}

// listing returns the version of every row.
func listing(t *testing.T, rows store.Store) map[resource.Key]string {
	t.Helper()
	all := map[resource.Key]string{}
	for _, d := range kind.All() {
		of, _, err := rows.List(t.Context(), d.Describe().Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range of {
			all[row.Key] = row.Version
		}
	}
	return all
}

// TestDryRun: a dry run returns the same as the write, and leaves the store as it was.
func TestDryRun(t *testing.T) {
	w, rows := newEastWriter(t)
	version := put(t, w, web).Object.Envelope().Version
	before := listing(t, rows)
	dry := admission.Change{DryRun: true}

	for name, test := range map[string]struct {
		doc              string
		created, changed bool
	}{
		"new":     {strings.Replace(web, "name: web", "name: new", 1), true, true},
		"changed": {strings.Replace(web, "80", "81", 1), false, true},
		"same":    {web, false, false},
	} {
		result, err := w.Put(t.Context(), parse(t, test.doc), dry)
		if err != nil || result.Created != test.created || result.Changed != test.changed {
			t.Errorf("%s: created %v, changed %v, %v", name, result.Created, result.Changed, err)
			continue
		}
		if zone := result.Object.Envelope().Label(kind.ZoneLabel); zone != "east" {
			t.Errorf("%s: the answer is not what would be stored: its zone is %q", name, zone)
		}
	}
	policy, err := w.Put(t.Context(), parse(t, `{type: MeshTrafficPermission, mesh: m, name: p, spec: {rules: []}}`),
		dry)
	if err != nil || len(policy.Warnings) != 2 {
		t.Errorf("a policy in a mesh without identities: %v, warnings %q", err, policy.Warnings)
	}

	_, err = w.Put(t.Context(), parse(t, strings.Replace(web, "80", "70000", 1)), dry)
	wantError(t, err, resource.Invalid, "Dataplane m/web is invalid")
	_, err = w.Put(t.Context(), parse(t, strings.Replace(web, "mesh: m", "mesh: other", 1)), dry)
	wantError(t, err, resource.NotFound, "Mesh other does not exist")
	_, err = w.Put(t.Context(), parse(t, web), admission.Change{DryRun: true, IfMatch: version + "0"})
	wantError(t, err, resource.Stale, "Dataplane m/web was changed since")

	wantError(t, w.Delete(t.Context(), kind.Meshes.Key("", "m"), dry), resource.Conflict,
		"Mesh m still has Dataplanes (1)")
	wantError(t, w.Delete(t.Context(), kind.Dataplanes.Key("m", "none"), dry), resource.NotFound, "does not exist")
	wantError(t, w.Delete(t.Context(), webKey, admission.Change{DryRun: true, IfMatch: version + "0"}), resource.Stale,
		"was changed since")
	if err := w.Delete(t.Context(), webKey, dry); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(before, listing(t, rows)); d != "" {
		t.Errorf("a dry run wrote:\n%s", d)
	}
}
