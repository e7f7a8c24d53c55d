package admission_test

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"weft/internal/admission"
	"weft/internal/store"
	"weft/kind"
	"weft/resource"
)

var (
	global = kind.Owner{}
	west   = kind.Owner{Zone: "west"}
)

// received is a resource as its owner's control plane stores it.
func received(owner kind.Owner, of resource.Descriptor, name, spec string) admission.Received {
	labels := `"kuma.io/display-name":"` + name + `","kuma.io/env":"universal",`
	if owner.Global() {
		labels += `"kuma.io/origin":"global"`
	} else {
		labels += `"kuma.io/origin":"zone","kuma.io/zone":"` + owner.Zone + `"`
	}
	r := admission.Received{Kind: of, Mesh: "m", Name: name, Owner: owner,
		Body: []byte(`{"labels":{` + labels + `},"spec":` + spec + `}`)}
	if of.Describe().Scope == resource.Global {
		r.Mesh = ""
	}
	return r
}

const webService = `{"selector":{"dataplaneRef":{"name":"a"}},"ports":[{"port":80,"targetPort":80,` +
	`"appProtocol":"tcp"}],"later":{"than":"this"}}`

// TestReceive: a received resource is stored under a name of its own, byte for byte, and can't be changed here.
func TestReceive(t *testing.T) {
	w, rows := newWriterWithMesh(t, admission.Options{Zone: "east", Joined: true})
	r := received(west, kind.MeshServices, "web", webService)
	for range 2 {
		if err := w.Receive(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	row, err := rows.Get(t.Context(), kind.MeshServices.Key("m", kind.SyncedName(&kind.MeshServices.Info, "m", "web",
		west)))
	if err != nil || string(row.Body) != string(r.Body) {
		t.Fatalf("stored is %s, %v", row.Body, err)
	}
	wantError(t, w.Delete(t.Context(), row.Key, admission.Change{}), resource.Forbidden,
		`belongs to the zone "west", where its name is "web"; change it there`)
	o := read(t, rows, row.Key)
	_, err = w.Put(t.Context(), o, admission.Change{ControlPlane: true})
	wantError(t, err, resource.Forbidden, `belongs to the zone "west"`)

	r.Owner = kind.Owner{Zone: "north"} // with another key
	if err := w.RemoveReceived(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	read(t, rows, row.Key)
	r.Owner = west
	if err := w.RemoveReceived(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	wantGone(t, rows, row.Key)
}

// TestReceiveAt: a resource that replaces the version that its receiver knows needs no read. One that another replica
// has written, deleted or taken meanwhile is stored or rejected as by Receive.
func TestReceiveAt(t *testing.T) {
	written := received(west, kind.MeshServices, "web", webService)
	newer := received(west, kind.MeshServices, "web", strings.Replace(webService, "8", "9", 1))
	for name, test := range map[string]struct {
		before func(t *testing.T, w *admission.Writer) (known string)
		reads  int
	}{
		"a new row": {func(*testing.T, *admission.Writer) string { return "" }, 0},
		"the known version": {func(t *testing.T, w *admission.Writer) string {
			return receiveAt(t, w, written, "")
		}, 0},
		"a row that is not known": {func(t *testing.T, w *admission.Writer) string {
			receiveAt(t, w, written, "")
			return ""
		}, 1},
		"another version": {func(t *testing.T, w *admission.Writer) string {
			known := receiveAt(t, w, written, "")
			receiveAt(t, w, received(west, kind.MeshServices, "web", strings.Replace(webService, "8", "7", 1)), known)
			return known
		}, 1},
		"stored meanwhile": {func(t *testing.T, w *admission.Writer) string {
			known := receiveAt(t, w, written, "")
			receiveAt(t, w, newer, known)
			return known
		}, 1},
		"deleted meanwhile": {func(t *testing.T, w *admission.Writer) string {
			known := receiveAt(t, w, written, "")
			if err := w.RemoveReceived(t.Context(), written); err != nil {
				t.Fatal(err)
			}
			return known
		}, 2}, // under both of its names
	} {
		t.Run(name, func(t *testing.T) {
			w, rows := newWriterWithMesh(t, admission.Options{Zone: "east", Joined: true})
			known := test.before(t, w)
			counting := &countingStore{Store: rows}
			w = admission.New(counting, admission.Options{Zone: "east", Joined: true})
			version := receiveAt(t, w, newer, known)
			row, err := rows.Get(t.Context(), newer.Key())
			if err != nil || string(row.Body) != string(newer.Body) || row.Version != version {
				t.Errorf("stored is %s in version %s (%v), want %s in version %s", row.Body, row.Version, err,
					newer.Body, version)
			}
			if counting.n != test.reads {
				t.Errorf("%d rows are read, want %d", counting.n, test.reads)
			}
		})
	}
	w, _ := newWriterWithMesh(t, admission.Options{Zone: "east", Joined: true})
	missing := received(west, kind.MeshServices, "web", webService)
	missing.Mesh = "other"
	_, err := w.ReceiveAt(t.Context(), missing, &admission.ReceivedRow{Key: missing.Key()})
	wantError(t, err, resource.NotFound, `the Mesh "other" does not exist`)
}

func receiveAt(t *testing.T, w *admission.Writer, r admission.Received, known string) (version string) {
	t.Helper()
	row, err := w.ReceiveAt(t.Context(), r, &admission.ReceivedRow{Key: r.Key(), Version: known})
	if err != nil {
		t.Fatal(err)
	}
	return row.Version
}

// TestReceiveOfNamespaces: resources of one name in two namespaces, and in two meshes, are different ones here.
func TestReceiveOfNamespaces(t *testing.T) {
	w, rows := newWriterWithMesh(t, admission.Options{Zone: "east", Joined: true})
	if err := w.Receive(t.Context(), received(global, kind.Meshes, "other", `{}`)); err != nil {
		t.Fatal(err)
	}
	for _, in := range []struct{ mesh, namespace string }{{"m", "blue"}, {"m", "green"}, {"other", "blue"}} {
		r := received(west, kind.MeshServices, "web", webService)
		r.Mesh, r.Name = in.mesh, "web."+in.namespace
		r.Body = bytes.Replace(r.Body, []byte(`"kuma.io/env":"universal"`),
			[]byte(`"kuma.io/env":"kubernetes","k8s.kuma.io/namespace":"`+in.namespace+`"`), 1)
		if err := w.Receive(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(r.Key().Name, ".") {
			t.Errorf("the copy has the name %s, which ends with a namespace", r.Key().Name)
		}
		wantError(t, w.Delete(t.Context(), r.Key(), admission.Change{}), resource.Forbidden,
			`belongs to the zone "west", where its name is "web.`+in.namespace+`"; change it there`)
	}
	stored, _, err := rows.List(t.Context(), kind.MeshServices.Name)
	names := map[string]bool{}
	for _, row := range stored {
		names[row.Key.Name] = true
	}
	if err != nil || len(names) != 3 {
		t.Errorf("stored are %v, %v; want 3 names, since the copies of all meshes are in one namespace", names, err)
	}
}

func TestReceiveRejects(t *testing.T) {
	w, _ := newWriterWithMesh(t, admission.Options{Zone: "east", Joined: true})
	g, _ := newWriterWithMesh(t, admission.Options{})
	claimed := received(west, kind.MeshServices, "web", webService)
	claimed.Owner = kind.Owner{Zone: "north"}
	renamed := received(west, kind.MeshServices, "web", webService)
	renamed.Name = "other"
	namespaced := received(west, kind.MeshServices, "web", webService)
	namespaced.Body = bytes.Replace(namespaced.Body, []byte(`"labels":{`),
		[]byte(`"labels":{"k8s.kuma.io/namespace":"blue",`), 1)
	otherName := namespaced
	otherName.Name = "other.blue"
	badNamespace := namespaced
	badNamespace.Body = bytes.Replace(namespaced.Body, []byte("blue"), []byte("B.c"), 1)
	inWest := received(west, kind.MeshServices, "web", webService)
	inWest.Mesh = "missing"
	for name, test := range map[string]struct {
		by   *admission.Writer
		r    admission.Received
		code resource.Code
		says string
	}{
		"no JSON": {w, admission.Received{Kind: kind.MeshServices, Mesh: "m", Name: "web", Owner: west,
			Body: []byte("{")}, resource.Invalid, "can't be read"},
		"another's": {w, claimed, resource.Invalid,
			`labels[kuma.io/zone]: is "west", want "north"`},
		"under another name": {w, renamed, resource.Invalid, `labels[kuma.io/display-name]: is "web"`},
		"invalid": {w, received(west, kind.MeshServices, "web", `{"ports":[{"port":70000}]}`),
			resource.Invalid, "port"},
		"another's server name": {w,
			received(west, kind.MeshServices, "web",
				strings.Replace(webService, `"port":80,`,
					`"port":80,"snis":[{"value":"a0123456789abcdef.api.80.m.ms"}],`, 1)), resource.Invalid,
			"is not an SNI of this port"},
		"zone ingress of another zone": {g,
			received(west, kind.ZoneIngresses, "zi", `{"zone":"north","networking":{"address":"10.0.0.1","port":1}}`),
			resource.Invalid, `zone: is "north", and the zone "west" sent it`},
		"zone egress of another zone": {g,
			received(west, kind.ZoneEgresses, "ze", `{"zone":"north","networking":{"address":"10.0.0.1","port":1}}`),
			resource.Invalid, `zone: is "north", and the zone "west" sent it`},
		"of another name in its namespace": {w, otherName, resource.Invalid,
			`labels[kuma.io/display-name]: is "web", want "other"`},
		"of a namespace on machines": {w, namespaced, resource.Invalid,
			`labels[k8s.kuma.io/namespace]: is "blue", and the label kuma.io/env is "universal", want "kubernetes"`},
		"of no namespace": {w, badNamespace, resource.Invalid, `labels[k8s.kuma.io/namespace]: "B.c" is not a namespace`},
		"no external service": {w,
			received(global, kind.MeshExternalServices, "api",
				`{"match":{"port":443},"endpoints":[{"address":"0.0.0.0","port":443}]}`), resource.Invalid,
			"0.0.0.0 means every address"},
		"no mesh": {w, inWest, resource.NotFound,
			`the Mesh "missing" does not exist in the zone "east" yet`},
		"no mesh on global": {g, inWest, resource.NotFound,
			`the Mesh "missing" does not exist on the global control plane; create it there`},
		"before its Dataplane": {g, received(west, kind.DataplaneInsights, "web-1", `{}`), resource.NotFound,
			"does not exist here yet"},
		"outside of every mesh": {w, admission.Received{Kind: kind.MeshServices, Name: "web", Owner: west,
			Body: []byte(`{"spec":{}}`)}, resource.Invalid, "mesh"},
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, test.by.Receive(t.Context(), test.r), test.code, test.says)
		})
	}
}

// TestReceivedNameConflicts: of two resources with one name, the Mesh of global wins, and for other kinds the zone's
// own, unless the specs are equal.
func TestReceivedNameConflicts(t *testing.T) {
	alone, rows := newWriterWithMesh(t, admission.Options{Zone: "east"})
	put(t, alone, secret)
	put(t, alone, multiZone)
	w := admission.New(rows, admission.Options{Zone: "east", Joined: true})

	if err := w.Receive(t.Context(),
		received(global, kind.Meshes, "m", `{"skipCreatingInitialPolicies":["*"]}`)); err != nil {
		t.Fatal(err)
	}
	_, err := w.Put(t.Context(), parse(t, `{type: Mesh, name: m}`), admission.Change{})
	wantError(t, err, resource.Forbidden, "belongs to the global control plane")

	if _, err := alone.Put(t.Context(), kind.SNIFormats.Make("", "sni", kind.SNIFormat{Format: "v1"}),
		admission.Change{ControlPlane: true}); err != nil {
		t.Fatal(err)
	}
	if err := w.Receive(t.Context(), received(global, kind.SNIFormats, "sni", `{"format":"v2"}`)); err != nil {
		t.Errorf("what no user wrote: %v", err)
	}
	wantError(t, w.Receive(t.Context(), received(global, kind.Secrets, "s", `{"data":"eQ=="}`)), resource.Conflict,
		`the zone "east" has one of the same name; delete that one, or rename one of the two`)
	if err := w.Receive(t.Context(), received(global, kind.Secrets, "s", `{"data":"eA=="}`)); err != nil {
		t.Errorf("one that says the same: %v", err)
	}
	put(t, w, web)
	wantError(t, w.RemoveReceived(t.Context(), received(global, kind.Meshes, "m", `{}`)), resource.Conflict,
		"Mesh m still has Dataplanes (1)")
}

func adopt(t *testing.T, w *admission.Writer, rows store.Store) admission.Adopted {
	t.Helper()
	var all []resource.Any
	for _, key := range slices.SortedFunc(maps.Keys(listing(t, rows)), func(a, b resource.Key) int {
		return strings.Compare(a.String(), b.String())
	}) {
		all = append(all, read(t, rows, key))
	}
	done, err := w.Adopt(t.Context(), slices.Values(all))
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// TestAZoneThatLeftGlobal keeps the resources of global as its own, and removes those of other zones.
func TestAZoneThatLeftGlobal(t *testing.T) {
	w, rows := newWriterWithMesh(t, admission.Options{Zone: "east", Joined: true})
	put(t, w, web)
	for _, r := range []admission.Received{
		received(global, kind.Meshes, "m", `{}`),
		received(global, kind.MeshTrafficPermissions, "p", `{"rules":[],"later":1}`),
		received(west, kind.MeshServices, "web", webService),
	} {
		if err := w.Receive(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if done := adopt(t, w, rows); done != (admission.Adopted{}) {
		t.Errorf("while it is joined: %+v", done)
	}
	alone := admission.New(rows, admission.Options{Zone: "east"})
	if done := adopt(t, alone, rows); done != (admission.Adopted{Taken: 2, Removed: 1}) {
		t.Errorf("alone: %+v", done)
	}
	put(t, alone, `{type: Mesh, name: m, skipCreatingInitialPolicies: ["*"]}`)
	if labels := read(t, rows, kind.Meshes.Key("", "m")).Envelope().Labels; labels["weft.io/taken-from-global"] != "" {
		t.Errorf("the Mesh that a user has written has the labels %v", labels)
	}
	name := kind.SyncedName(&kind.MeshTrafficPermissions.Info, "m", "p", global)
	row, err := rows.Get(t.Context(), kind.MeshTrafficPermissions.Key("m", name))
	if err != nil || !strings.Contains(string(row.Body), `"later":1`) {
		t.Errorf("the policy is %s, %v", row.Body, err)
	}
	put(t, alone, strings.Replace(permission, "name: p", "name: "+name, 1))
	if done := adopt(t, alone, rows); done != (admission.Adopted{}) {
		t.Errorf("a second time: %+v", done)
	}
	// After joining again, global does not replace what a user has written meanwhile. Its policy has another key.
	joined := admission.New(rows, admission.Options{Zone: "east", Joined: true})
	if done := adopt(t, joined, rows); done != (admission.Adopted{}) {
		t.Errorf("joined again: %+v", done)
	}
	again := received(global, kind.MeshTrafficPermissions, "p", `{"rules":[],"later":2}`)
	if err := joined.Receive(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	if owner := kind.OwnerOf(read(t, rows, again.Key()).Envelope()); owner.Global() {
		t.Error("global replaced what a user has written")
	}
	read(t, rows, again.LongerKey())
}

// TestAZoneGivesBackWhatItTook: a zone that joins a global control plane again, of whatever name the zone is by then,
// gives back every resource that it took from the former one and that no user has written. The new one replaces or
// deletes them, as it does its own.
func TestAZoneGivesBackWhatItTook(t *testing.T) {
	for _, zone := range []string{"east", "renamed"} {
		t.Run(zone, func(t *testing.T) {
			w, rows := newWriterWithMesh(t, admission.Options{Zone: "east", Joined: true})
			all := []admission.Received{
				received(global, kind.Meshes, "m", `{}`),
				received(global, kind.MeshTrafficPermissions, "p", `{"rules":[]}`),
				received(global, kind.MeshTrafficPermissions, "edited", `{"rules":[]}`),
				received(global, kind.Secrets, "s", `{"data":"eA=="}`),
				received(global, kind.GlobalSecrets, "s", `{"data":"eA=="}`),
			}
			for _, r := range all {
				if err := w.Receive(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			alone := admission.New(rows, admission.Options{Zone: "east"})
			if done := adopt(t, alone, rows); done != (admission.Adopted{Taken: len(all)}) {
				t.Fatalf("alone: %+v", done)
			}
			name := kind.SyncedName(&kind.MeshTrafficPermissions.Info, "m", "edited", global)
			put(t, alone, strings.Replace(permission, "name: p", "name: "+name, 1))

			joined := admission.New(rows, admission.Options{Zone: zone, Joined: true})
			adopt(t, joined, rows)
			for _, r := range all {
				meta := read(t, rows, r.Key()).Envelope()
				if r.Name == "edited" {
					if owner := kind.OwnerOf(meta); owner.Zone != zone {
						t.Errorf("what a user has written is of %s", owner)
					}
					continue
				}
				if owner, at := kind.OwnerOf(meta), kind.OwnerName(r.Kind.Describe(), meta); !owner.Global() ||
					at != r.Name {
					t.Errorf("%s is of %s, where its name is %s; want global and %s", r.Key(), owner, at, r.Name)
				}
			}
			if err := joined.Receive(t.Context(), received(global, kind.Secrets, "s", `{"data":"eQ=="}`)); err != nil {
				t.Errorf("another Secret of the same name: %v", err)
			}
			gone := received(global, kind.MeshTrafficPermissions, "p", `{}`)
			if err := joined.RemoveReceived(t.Context(), gone); err != nil {
				t.Error(err)
			}
			wantGone(t, rows, gone.Key())
		})
	}
}

// TestOnlyTheControlPlaneMarksWhatItTook: a user cannot mark a resource as taken, which would give it to global.
func TestOnlyTheControlPlaneMarksWhatItTook(t *testing.T) {
	alone, rows := newWriterWithMesh(t, admission.Options{Zone: "east"})
	put(t, alone, `{type: GlobalSecret, name: s, data: eA==, labels: {weft.io/taken-from-global: s}}`)
	if done := adopt(t, admission.New(rows, admission.Options{Zone: "east", Joined: true}),
		rows); done.Given != 0 {
		t.Errorf("%+v", done)
	}
}

// TestADeletedMeshLosesNothing: a Mesh that global has deleted, or that another global lacks, stays while users of the
// zone have resources in it.
func TestADeletedMeshLosesNothing(t *testing.T) {
	w, rows := newWriterWithMesh(t, admission.Options{Zone: "east", Joined: true})
	mesh := received(global, kind.Meshes, "m", `{}`)
	for _, r := range []admission.Received{mesh, received(global, kind.Secrets, "of-global", `{"data":"eA=="}`)} {
		if err := w.Receive(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	put(t, w, secret)
	wantError(t, w.RemoveReceived(t.Context(), mesh), resource.Conflict, `Mesh m still has resources of the zone `+
		`"east", such as Secret m/s`)
	if err := w.Delete(t.Context(), kind.Secrets.Key("m", "s"), admission.Change{}); err != nil {
		t.Fatal(err)
	}
	if err := w.RemoveReceived(t.Context(), mesh); err != nil {
		t.Error(err)
	}
	wantGone(t, rows, mesh.Key())
}

// TestAdoptUnlabeledResources: resources without an owner label, and those with a former name of the zone, become its
// own.
func TestAdoptUnlabeledResources(t *testing.T) {
	w, rows := newWriterWithMesh(t, admission.Options{Zone: "default"})
	put(t, w, web)
	old := store.Row{Key: kind.HostnameGenerators.Key("", "g"),
		Body: []byte(`{"spec":{"selector":{"meshService":{}},"template":"a.b"}}`)}
	if _, err := rows.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if done := adopt(t, admission.New(rows, admission.Options{Zone: "east"}),
		rows); done != (admission.Adopted{Labeled: 2}) {
		t.Errorf("of another name: %+v", done)
	}
	if done := adopt(t, admission.New(rows, admission.Options{Zone: "east", Joined: true}),
		rows); done != (admission.Adopted{Labeled: 1, Tagged: 1}) {
		t.Errorf("joined: %+v", done)
	}
	for _, key := range []resource.Key{old.Key, webKey} {
		if zone := read(t, rows, key).Envelope().Label(kind.ZoneLabel); zone != "east" {
			t.Errorf("%s is of the zone %q", key, zone)
		}
	}
}
