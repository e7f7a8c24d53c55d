package kube_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"weft/internal/kube/api"
	"weft/internal/kube/crd"
	"weft/internal/kube/kubetest"
	"weft/internal/mirror"
	"weft/internal/store"
	"weft/internal/store/kube"
	"weft/internal/store/storetest"
	"weft/internal/testwait"
	"weft/kind"
	"weft/resource"
)

func TestMain(m *testing.M) { kubetest.Main(m) }

// installed returns an API server that has the definitions, and a client of it.
func installed(t *testing.T) (*kubetest.Server, *api.Client) {
	t.Helper()
	server := kubetest.Start(t)
	client, err := api.New(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	if err := crd.Install(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	return server, client
}

var namespaces atomic.Int32

// namespace creates a namespace, and returns its name.
func namespace(t *testing.T, client *api.Client) string {
	t.Helper()
	name := fmt.Sprintf("n%d", namespaces.Add(1))
	if err := client.Create(t.Context(), "/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": name}}, nil); err != nil {
		t.Fatal(err)
	}
	return name
}

func open(t *testing.T, server *kubetest.Server, o kube.Options) *kube.Store {
	t.Helper()
	s, err := kube.Open(t.Context(), server.Config(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// restarted is a store whose API server loses its history when it is started again.
type restarted struct {
	*kube.Store
	server *kubetest.Server
}

// Compact implements [storetest.Compacter].
func (r restarted) Compact(t *testing.T) {
	r.server.StopAPI()
	r.server.StartAPI(t)
}

// TestStore runs the conformance suite with rows that are records, and with rows that are Secrets.
func TestStore(t *testing.T) {
	server, client := installed(t)
	for name, kinds := range map[string][]kube.Kind{
		"records": nil,
		"private": {{Name: "Thing", Private: true, Owner: "Thing"}},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T, history int) store.Store {
				return restarted{open(t, server, kube.Options{Namespace: namespace(t, client), Kinds: kinds,
					Backlog: history}), server}
			})
			t.Run("shared", func(t *testing.T) {
				storetest.RunShared(t, func(t *testing.T, stores int) []store.Store {
					o := kube.Options{Namespace: namespace(t, client), Kinds: kinds}
					var all []store.Store
					for range stores {
						all = append(all, open(t, server, o))
					}
					return all
				})
			})
			t.Run("durable", func(t *testing.T) {
				o := kube.Options{Namespace: namespace(t, client), Kinds: kinds}
				storetest.RunDurable(t, func(t *testing.T) store.Store { return open(t, server, o) })
			})
		})
	}
}

// TestFields runs the suite of unknown fields with rows that are objects of their definitions and Secrets.
func TestFields(t *testing.T) {
	s, _, _, _ := opened(t)
	storetest.RunFields(t, s)
}

// TestUnknownFieldsAreBounded: a row whose unknown fields do not fit into an annotation is rejected by name, and the
// stored row stays. The annotation gives a row no field that this release knows.
func TestUnknownFieldsAreBounded(t *testing.T) {
	s, _, client, mesh := opened(t)
	row := create(t, s, service(mesh, "web", "a"), nil)
	known := string(row.Body)
	with := func(size int) error {
		row.Body = fmt.Appendf(nil, `{"later":%q,%s`, strings.Repeat("x", size), known[1:])
		stored, err := s.Update(t.Context(), row)
		if err == nil {
			row = stored
		}
		return err
	}
	const largest = 64<<10 - len(`{"later":""}`)
	if err := with(largest); err != nil {
		t.Error(err)
	}
	version := row.Version
	if err := with(largest + 1); resource.CodeOf(err) != resource.Invalid || !strings.Contains(err.Error(), "later") {
		t.Errorf("one byte more: %v, want an error that names the field", err)
	}
	if read, err := s.Get(t.Context(), row.Key); err != nil || read.Version != version {
		t.Errorf("after the rejected update the version is %s (%v), want %s", read.Version, err, version)
	}
	var object map[string]any
	path := crd.Path(kind.MeshServices, mesh) + "/web"
	get(t, client, path, &object)
	set(object, `{"later":1,"Spec":{"ports":[]},"vouched":{"operator":["fact"]}}`, "metadata", "annotations",
		"kuma.io/unknown-fields")
	if err := client.Update(t.Context(), path, object, nil); err != nil {
		t.Fatal(err)
	}
	read, err := s.Get(t.Context(), row.Key)
	if got := string(read.Body); err != nil || !strings.HasSuffix(got, `},"later":1}`) ||
		strings.Contains(got, "Spec") || strings.Contains(got, "vouched") {
		t.Errorf("the row is %s (%v), want the field later and no other one", got, err)
	}
}

// opened returns a store of the kinds that users know, in a namespace of its own, with a Mesh of the same name.
func opened(t *testing.T) (*kube.Store, *kubetest.Server, *api.Client, string) {
	t.Helper()
	server, client := installed(t)
	name := namespace(t, client)
	s := open(t, server, kube.Options{Namespace: name, Kinds: crd.Rows()})
	create(t, s, kind.Meshes.Make("", name, kind.Mesh{}), nil)
	return s, server, client, name
}

func create(t *testing.T, s *kube.Store, o resource.Any, owner *resource.Key) store.Row {
	t.Helper()
	row, err := s.Create(t.Context(), rowOf(t, o, owner))
	if err != nil {
		t.Fatalf("%s: %v", o.Key(), err)
	}
	return row
}

func rowOf(t *testing.T, o resource.Any, owner *resource.Key) store.Row {
	t.Helper()
	body, err := resource.Body(o)
	if err != nil {
		t.Fatal(err)
	}
	return store.Row{Key: o.Key(), Owner: owner, Body: body}
}

func service(mesh, name, proxy string) *resource.Object[kind.MeshService] {
	return kind.MeshServices.Make(mesh, name+"."+mesh, kind.MeshService{
		Ports:    []kind.ServicePort{{Port: 80, AppProtocol: "tcp"}},
		Selector: kind.ServiceSelector{DataplaneRef: &kind.NameRef{Name: proxy}},
	})
}

// next returns the next events of a watch.
func next(t *testing.T, events <-chan []store.Event) []store.Event {
	t.Helper()
	batch := testwait.Receive(t, "the watch has events", events)
	if len(batch) == 0 {
		t.Fatal("the watch was closed")
	}
	return batch
}

func follow(t *testing.T, s *kube.Store, kind string) <-chan []store.Event {
	t.Helper()
	_, at, err := s.List(t.Context(), kind)
	if err != nil {
		t.Fatal(err)
	}
	events, err := s.Watch(t.Context(), []string{kind}, at)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// TestStatusIsARowOfItsOwn: a write of a status changes neither the version of the spec's row nor has an event of it,
// and the other way around. A write of either that meets the other is repeated.
func TestStatusIsARowOfItsOwn(t *testing.T) {
	s, _, _, mesh := opened(t)
	specs, statuses := follow(t, s, kind.MeshServices.Name), follow(t, s, kind.MeshServiceStatuses.Name)
	spec := create(t, s, service(mesh, "web", "a"), nil)
	status := create(t, s, kind.MeshServiceStatuses.Make(mesh, spec.Key.Name, kind.MeshServiceStatus{}), &spec.Key)
	if read, err := s.Get(t.Context(), spec.Key); err != nil || read.Version != spec.Version {
		t.Errorf("the row is %v (%v) after a write of the status, want the version %s", read, err, spec.Version)
	}

	const each = 20
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := range each {
			row := rowOf(t, service(mesh, "web", fmt.Sprintf("p%d", i)), nil)
			row.Version = spec.Version
			var err error
			if spec, err = s.Update(t.Context(), row); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range each {
		row := rowOf(t, kind.MeshServiceStatuses.Make(mesh, status.Key.Name, kind.MeshServiceStatus{
			DataplaneProxies: &kind.DataplaneCount{Connected: i + 1}}), nil)
		row.Version = status.Version
		var err error
		if status, err = s.Update(t.Context(), row); err != nil {
			t.Fatal(err)
		}
	}
	writing.Wait()
	for name, of := range map[string]struct {
		events <-chan []store.Event
		last   store.Row
	}{"spec": {specs, spec}, "status": {statuses, status}} {
		var got []store.Event
		for len(got) == 0 || got[len(got)-1].Row.Version != of.last.Version {
			got = append(got, next(t, of.events)...)
		}
		if len(got) != each+1 {
			t.Errorf("the %s has %d events, want %d", name, len(got), each+1)
		}
	}

	if err := s.Delete(t.Context(), status.Key, status.Version); err != nil {
		t.Fatal(err)
	}
	if e := next(t, statuses)[0]; !e.Deleted || e.Row.Key != status.Key {
		t.Errorf("the event of the deleted status is %v", e)
	}
	if _, err := s.Get(t.Context(), status.Key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the deleted status: %v", err)
	}
	if read, err := s.Get(t.Context(), spec.Key); err != nil || read.Version != spec.Version {
		t.Errorf("the row is %v (%v) after the deletion of its status", read, err)
	}
}

// TestEditedObject: a user's edit of an object is an event of its row, and keeps the row's name, mesh and vouched
// facts. What the user wrote beside the row stays after a write of the row.
func TestEditedObject(t *testing.T) {
	s, _, client, mesh := opened(t)
	o := service(mesh, "web", "a")
	o.Labels = map[string]string{"team": "blue", "long": strings.Repeat("x", 100)}
	o.Vouched.Operator = []string{"fact"}
	row := create(t, s, o, nil)
	events := follow(t, s, row.Key.Kind)

	path := crd.Path(kind.MeshServices, mesh) + "/web"
	var object map[string]any
	get(t, client, path, &object)
	delete(object["metadata"].(map[string]any), "managedFields")
	set(object, "blue-green", "metadata", "annotations", "example.com/note")
	set(object, "green", "metadata", "labels", "team")
	set(object, map[string]any{"name": "b"}, "spec", "selector", "dataplaneRef")
	if err := client.Update(t.Context(), path, object, nil); err != nil {
		t.Fatal(err)
	}
	e := next(t, events)[0]
	o.Labels["team"], o.Spec.Selector.DataplaneRef.Name = "green", "b"
	if want := rowOf(t, o, nil); e.Row.Key != row.Key || e.Row.Version == row.Version ||
		string(e.Row.Body) != string(want.Body) {
		t.Errorf("the edited row is %s\n%s\nwant\n%s", e.Row.Key, e.Row.Body, want.Body)
	}

	o.Spec.Selector.DataplaneRef.Name = "c"
	again := rowOf(t, o, nil)
	again.Version = row.Version
	if _, err := s.Update(t.Context(), again); !errors.Is(err, store.ErrStale) {
		t.Errorf("an update from before the edit: %v, want %v", err, store.ErrStale)
	}
	again.Version = e.Row.Version
	if _, err := s.Update(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	get(t, client, path, &object)
	if note := object["metadata"].(map[string]any)["annotations"].(map[string]any)["example.com/note"]; note !=
		"blue-green" {
		t.Errorf("the user's annotation is %v after a write of the row", note)
	}
	if err := client.Delete(t.Context(), path, "", ""); err != nil {
		t.Fatal(err)
	}
	next(t, events)
	if e := next(t, events)[0]; !e.Deleted || e.Row.Key != row.Key {
		t.Errorf("the event of the deleted object is %v", e)
	}
}

// TestObjectOfAUser: a row of an object that a user created with the least that kubectl accepts.
func TestObjectOfAUser(t *testing.T) {
	s, _, client, mesh := opened(t)
	if err := client.Create(t.Context(), crd.Path(kind.MeshServices, mesh), map[string]any{
		"apiVersion": resource.APIVersion, "kind": "MeshService",
		"metadata": map[string]any{"name": "web"},
		"spec": map[string]any{"selector": map[string]any{"dataplaneRef": map[string]any{"name": "a"}},
			"ports": []any{map[string]any{"port": 80}}},
	}, nil); err != nil {
		t.Fatal(err)
	}
	row, err := s.Get(t.Context(), kind.MeshServices.Key("default", "web."+mesh))
	if err != nil || row.Version == "" || row.Created.IsZero() || row.Owner != nil {
		t.Errorf("the row is %v (%v)", row, err)
	}
	if _, err := s.Get(t.Context(), kind.MeshServices.Key("other", "web."+mesh)); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the row in another mesh: %v", err)
	}
	_, err = s.Create(t.Context(), rowOf(t, kind.MeshServices.Make("other", "web."+mesh, service(mesh, "web",
		"a").Spec), nil))
	if resource.CodeOf(err) != resource.Conflict || !strings.Contains(err.Error(), "is MeshService default/web."+mesh) {
		t.Errorf("a row of that name in another mesh: %v, want a conflict that names the one that has the object", err)
	}
}

// TestSecretsOfUsers: a Secret is a Kubernetes Secret that kubectl writes and reads.
func TestSecretsOfUsers(t *testing.T) {
	s, _, client, mesh := opened(t)
	row := create(t, s, kind.Secrets.Make(mesh, "ca", kind.Secret{Data: []byte("one")}), nil)
	path := "/api/v1/namespaces/" + mesh + "/secrets/ca"
	var secret map[string]any
	get(t, client, path, &secret)
	if secret["type"] != "system.kuma.io/secret" || secret["data"].(map[string]any)["value"] != "b25l" {
		t.Errorf("the Secret is %v", secret)
	}
	set(secret, "dHdv", "data", "value")
	if err := client.Update(t.Context(), path, secret, nil); err != nil {
		t.Fatal(err)
	}
	want := rowOf(t, kind.Secrets.Make(mesh, "ca", kind.Secret{Data: []byte("two")}), nil)
	if read, err := s.Get(t.Context(), row.Key); err != nil || string(read.Body) != string(want.Body) {
		t.Errorf("the row is %s (%v), want %s", read.Body, err, want.Body)
	}
	rows, _, err := s.List(t.Context(), row.Key.Kind)
	if err != nil || len(rows) != 1 {
		t.Errorf("the rows are %v (%v), want one", rows, err)
	}
}

// TestOwnersDeletedByUsers: the rows of an owner that a user deleted with kubectl are deleted too, also where no store
// was open meanwhile, and where the owner exists again.
func TestOwnersDeletedByUsers(t *testing.T) {
	s, server, client, mesh := opened(t)
	path := crd.Path(kind.Dataplanes, "default")
	proxy := func(name string) resource.Key {
		o := kind.Dataplanes.Make(mesh, name+"-"+mesh+".default", kind.Dataplane{Networking: kind.Networking{
			Address: "10.0.0.1", Inbound: []kind.Inbound{{Port: 80}}}})
		return create(t, s, o, nil).Key
	}
	statusOf := func(owner resource.Key) resource.Key {
		status := kind.DataplaneListenerStatuses.Make(mesh, owner.Name, kind.DataplaneListenerStatus{})
		return create(t, s, status, &owner).Key
	}
	first, second, third := proxy("a"), proxy("b"), proxy("c")
	lost, missed, kept := statusOf(first), statusOf(second), statusOf(third)
	events := follow(t, s, lost.Kind)
	deleteObject := func(key resource.Key) {
		name, _, _ := strings.Cut(key.Name, ".")
		if err := client.Delete(t.Context(), path+"/"+name, "", ""); err != nil {
			t.Fatal(err)
		}
	}
	deleteObject(first)
	if e := next(t, events)[0]; !e.Deleted || e.Row.Key != lost {
		t.Errorf("the event is %v, want the deletion of %s", e, lost)
	}

	s.Close()
	deleteObject(second)
	s = open(t, server, kube.Options{Namespace: mesh, Kinds: crd.Rows()})
	testwait.UntilTrue(t, "the row of an owner is deleted that was deleted while no store was open", func() bool {
		_, err := s.Get(t.Context(), missed)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		return err != nil
	})
	if _, err := s.Get(t.Context(), kept); err != nil {
		t.Errorf("the row of an owner that exists: %v", err)
	}
	if err := s.Delete(t.Context(), third, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), kept); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the row of an owner that the store deleted: %v", err)
	}
}

// TestReasonsOfRejection: a write that a namespace rejects has the API server's reason, and did not happen.
func TestReasonsOfRejection(t *testing.T) {
	s, _, client, mesh := opened(t)
	quota := map[string]any{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": map[string]any{"name": "none"},
		"spec": map[string]any{"hard": map[string]any{"count/meshservices.kuma.io": "0"}}}
	full, ending := namespace(t, client), namespace(t, client)
	if err := client.Create(t.Context(), "/api/v1/namespaces/"+full+"/resourcequotas", quota, &quota); err != nil {
		t.Fatal(err)
	}
	quota["status"] = map[string]any{"hard": map[string]any{"count/meshservices.kuma.io": "0"},
		"used": map[string]any{"count/meshservices.kuma.io": "0"}} // as a controller does
	if err := client.Update(t.Context(), "/api/v1/namespaces/"+full+"/resourcequotas/none/status", quota, nil); err !=
		nil {
		t.Fatal(err)
	}
	if err := client.Delete(t.Context(), "/api/v1/namespaces/"+ending, "", ""); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		namespace string
		want      error
		says      string
	}{
		{full, kube.ErrQuota, "exceeded quota: none"},
		{ending, kube.ErrTerminating, "is being terminated"},
		{"missing", kube.ErrNoNamespace, `namespaces "missing" not found`},
	} {
		o := kind.MeshServices.Make(mesh, "web."+test.namespace, service(mesh, "web", "a").Spec)
		_, err := s.Create(t.Context(), rowOf(t, o, nil))
		if !errors.Is(err, test.want) || !strings.Contains(fmt.Sprint(err), test.says) {
			t.Errorf("in the namespace %s: %v, want %v, %s", test.namespace, err, test.want, test.says)
		}
		if _, err := s.Get(t.Context(), o.Key()); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the rejected row: %v", err)
		}
	}
	o := service(mesh, "web", "a")
	o.Spec.State = "Gone"
	_, err := s.Create(t.Context(), rowOf(t, o, nil))
	var rejected *resource.Error
	if !errors.Is(err, kube.ErrInvalid) || !errors.As(err, &rejected) || len(rejected.Problems) == 0 ||
		rejected.Problems[0].Field != "spec.state" {
		t.Errorf("a state that the definition does not have: %v", err)
	}
}

// TestListInChunks: a list of more objects than one response has is whole.
func TestListInChunks(t *testing.T) {
	s, _, _, mesh := opened(t)
	const rows = 1000
	var writing sync.WaitGroup
	for part := range 8 {
		writing.Go(func() {
			for i := part; i < rows; i += 8 {
				create(t, s, service(mesh, fmt.Sprintf("s%d", i), "a"), nil)
			}
		})
	}
	writing.Wait()
	all, _, err := s.List(t.Context(), kind.MeshServices.Name)
	found := 0
	for _, row := range all {
		if row.Key.Mesh == mesh {
			found++
		}
	}
	if err != nil || found != rows {
		t.Errorf("the list has %d rows (%v), want %d", found, err, rows)
	}
}

// TestLostServer: without the API server nothing is written. When it returns, a mirror of the store has every row.
func TestLostServer(t *testing.T) {
	s, server, _, mesh := opened(t)
	var mu sync.Mutex
	mirrored := map[string]bool{}
	wait, err := mirror.Start(t.Context(), mirror.Config{
		Store: s, Kinds: []string{kind.MeshServices.Name}, Log: slog.New(slog.DiscardHandler),
		Decode: func(row store.Row) (resource.Any, error) {
			return resource.FromBody(kind.MeshServices, resource.Meta{Mesh: row.Key.Mesh, Name: row.Key.Name}, row.Body)
		},
		Apply: func(b mirror.Batch) {
			mu.Lock()
			defer mu.Unlock()
			for _, o := range b.Put {
				mirrored[o.Key().Name] = true
			}
			for _, key := range b.Removed {
				delete(mirrored, key.Name)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(wait)
	before := create(t, s, service(mesh, "before", "a"), nil)
	for round := range 2 {
		server.StopAPI()
		o := service(mesh, fmt.Sprintf("lost%d", round), "a")
		// A request on a connection that was open is uncertain, on a new one it is not.
		_, err := s.Create(t.Context(), rowOf(t, o, nil))
		if !errors.Is(err, store.ErrUnreachable) && !errors.Is(err, store.ErrUncertain) {
			t.Errorf("a write without the API server: %v, want %v or %v", err, store.ErrUnreachable, store.ErrUncertain)
		}
		if _, err := s.Get(t.Context(), before.Key); !errors.Is(err, store.ErrUnreachable) {
			t.Errorf("a read without the API server: %v, want %v", err, store.ErrUnreachable)
		}
		server.StartAPI(t)
		if round == 0 {
			create(t, s, service(mesh, "after", "a"), nil)
		} else if err := s.Delete(t.Context(), before.Key, before.Version); err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "the mirror has every row", func() error {
			mu.Lock()
			defer mu.Unlock()
			if !mirrored["after."+mesh] || mirrored[before.Key.Name] != (round == 0) {
				return fmt.Errorf("it has %v", mirrored)
			}
			return nil
		})
	}
}

func get(t *testing.T, client *api.Client, path string, into any) {
	t.Helper()
	if err := client.Get(t.Context(), path, nil, into); err != nil {
		t.Fatal(err)
	}
}

// set sets a field of an object.
func set(object map[string]any, value any, path ...string) {
	for _, name := range path[:len(path)-1] {
		object = object[name].(map[string]any)
	}
	object[path[len(path)-1]] = value
}

// TestLeases: the rows of replicas and of the leadership are Leases that other readers understand. A Lease of another
// program is not taken.
func TestLeases(t *testing.T) {
	server, client := installed(t)
	name := namespace(t, client)
	s := open(t, server, kube.Options{Namespace: name, Kinds: crd.Rows(), LeaseDuration: 15 * time.Second})
	leases := "/apis/coordination.k8s.io/v1/namespaces/" + name + "/leases/"
	type lease struct {
		Spec struct {
			HolderIdentity       string
			LeaseDurationSeconds int
			RenewTime            string
			LeaseTransitions     int
		}
	}
	events := follow(t, s, kind.Instances.Name)
	row := create(t, s, kind.Instances.Make("", "a1", kind.Instance{}), nil)
	var before, after lease
	get(t, client, leases+"weft-a1", &before)
	if before.Spec.HolderIdentity != "a1" || before.Spec.LeaseDurationSeconds != 15 || before.Spec.RenewTime == "" {
		t.Errorf("the Lease of a replica is %+v", before.Spec)
	}
	renewed := rowOf(t, kind.Instances.Make("", "a1", kind.Instance{Renewals: 1}), nil)
	renewed.Version = row.Version
	if _, err := s.Update(t.Context(), renewed); err != nil {
		t.Fatal(err)
	}
	if get(t, client, leases+"weft-a1", &after); after.Spec.RenewTime <= before.Spec.RenewTime {
		t.Errorf("renewed at %s, and before at %s", after.Spec.RenewTime, before.Spec.RenewTime)
	}
	if err := s.Delete(t.Context(), row.Key, row.Version); !errors.Is(err, store.ErrStale) {
		t.Errorf("deleting the version before the renewal: %v, want %v", err, store.ErrStale)
	}
	if e := next(t, events)[0]; e.Row.Key != row.Key {
		t.Errorf("the event is of %s", e.Row.Key)
	}

	leader := rowOf(t, kind.Leaderships.Make("", kind.LeadershipName, kind.Leadership{Holder: "a1", Term: 7}), nil)
	if err := client.Create(t.Context(), strings.TrimSuffix(leases, "/"), map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": crd.LeaderLease},
	}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), leader); resource.CodeOf(err) != resource.Conflict ||
		!strings.Contains(err.Error(), leases+crd.LeaderLease+" exists, and is not of this control plane; delete it") {
		t.Errorf("with the Lease of another program: %v", err)
	}
	if err := client.Delete(t.Context(), leases+crd.LeaderLease, "", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), leader); err != nil {
		t.Fatal(err)
	}
	var led lease
	get(t, client, leases+crd.LeaderLease, &led)
	if led.Spec.HolderIdentity != "a1" || led.Spec.LeaseTransitions != 7 ||
		led.Spec.RenewTime != "" {
		t.Errorf("the Lease of the leadership is %+v", led.Spec)
	}
}

// TestNameOfAnotherRow: an annotation of a user gives no object the row of another object.
func TestNameOfAnotherRow(t *testing.T) {
	s, _, client, mesh := opened(t)
	row := create(t, s, service(mesh, "web", "a"), nil)
	path := crd.Path(kind.MeshServices, mesh)
	if err := client.Create(t.Context(), path, map[string]any{
		"apiVersion": "kuma.io/v1alpha1", "kind": "MeshService", "metadata": map[string]any{"name": "fake",
			"labels":      map[string]any{"kuma.io/mesh": mesh},
			"annotations": map[string]any{"kuma.io/name": row.Key.Name}},
		"spec": map[string]any{"selector": map[string]any{"dataplaneRef": map[string]any{"name": "a"}},
			"ports": []any{map[string]any{"port": 80}}},
	}, nil); err != nil {
		t.Fatal(err)
	}
	rows, _, err := s.List(t.Context(), kind.MeshServices.Name)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range rows {
		if row.Key.Mesh == mesh {
			names = append(names, row.Key.Name)
		}
	}
	if want := []string{"fake." + mesh, "web." + mesh}; !slices.Equal(names, want) {
		t.Errorf("the rows are %q, want %q", names, want)
	}
}

// TestRowsWithoutANamespace: a row whose name has no namespace is an object of the system namespace. Rows of several
// meshes with one name are several objects. A row that an earlier release has stored under the name alone is found
// there.
func TestRowsWithoutANamespace(t *testing.T) {
	s, _, client, mesh := opened(t)
	trusts := crd.Path(kind.MeshTrusts, mesh) + "/"
	trust := func(mesh, name string) *resource.Object[kind.MeshTrust] {
		return kind.MeshTrusts.Make(mesh, name, kind.MeshTrust{TrustDomain: mesh,
			CABundles: []kind.CABundle{{Type: "Pem", PEM: &kind.PEMBundle{Value: "root of " + mesh}}}})
	}
	stored := map[string]resource.Key{}
	for object, o := range map[string]*resource.Object[kind.MeshTrust]{
		kind.MTLSIdentity:                              trust("default", kind.MTLSIdentity),
		kind.MTLSIdentity + "." + mesh:                 trust(mesh, kind.MTLSIdentity),
		"of-users":                                     trust(mesh, "of-users."+mesh),
		"copy-0123456789abcdef":                        trust(mesh, "copy-0123456789abcdef"),
		kind.LongerSyncedName(mesh, "a", kind.Owner{}): trust(mesh, kind.LongerSyncedName(mesh, "a", kind.Owner{})),
	} {
		row := create(t, s, o, nil)
		var found struct{ Spec kind.MeshTrust }
		get(t, client, trusts+object, &found)
		if found.Spec.TrustDomain != o.Mesh {
			t.Errorf("the object %s is of the trust domain %q, want %q", object, found.Spec.TrustDomain, o.Mesh)
		}
		stored[object] = row.Key
	}
	former := trust(mesh, "former")
	if err := client.Create(t.Context(), strings.TrimSuffix(trusts, "/"), map[string]any{
		"apiVersion": "kuma.io/v1alpha1", "kind": "MeshTrust", "metadata": map[string]any{"name": "former",
			"labels":      map[string]any{"kuma.io/mesh": mesh},
			"annotations": map[string]any{"kuma.io/name": "former"}}, "spec": former.Spec,
	}, nil); err != nil {
		t.Fatal(err)
	}
	stored["former"] = former.Key()
	if _, err := s.Create(t.Context(), rowOf(t, former, nil)); !errors.Is(err, store.ErrExists) {
		t.Errorf("a row that is stored under its name alone is created again: %v", err)
	}
	for object, key := range stored {
		row, err := s.Get(t.Context(), key)
		if err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		row.Body = rowOf(t, trust(key.Mesh, "changed"), nil).Body
		if row, err = s.Update(t.Context(), row); err != nil {
			t.Errorf("%s is not updated: %v", key, err)
		}
		if err := s.Delete(t.Context(), key, row.Version); err != nil {
			t.Errorf("%s is not deleted: %v", key, err)
		}
		if err := client.Get(t.Context(), trusts+object, nil, nil); !apierrors.IsNotFound(err) {
			t.Errorf("the object of %s is still there: %v", key, err)
		}
	}
}

// TestOperatorsNamespace: a kind that concerns whole meshes has rows in the system namespace alone.
func TestOperatorsNamespace(t *testing.T) {
	s, _, client, mesh := opened(t)
	misplaced := namespace(t, client)
	body := map[string]any{"apiVersion": "kuma.io/v1alpha1", "kind": "MeshTrust",
		"metadata": map[string]any{"name": "mesh", "labels": map[string]any{"kuma.io/mesh": mesh}},
		"spec": map[string]any{"trustDomain": "a", "caBundles": []any{map[string]any{"type": "Pem",
			"pem": map[string]any{"value": "a"}}}}}
	if err := client.Create(t.Context(), crd.Path(kind.MeshTrusts, misplaced), body, nil); err != nil {
		t.Fatal(err)
	}
	rows, _, err := s.List(t.Context(), kind.MeshTrusts.Name)
	if err != nil || len(rows) > 0 {
		t.Errorf("the rows are %v, %v", rows, err)
	}
	body["metadata"].(map[string]any)["namespace"] = misplaced
	raw, _ := json.Marshal(body)
	sent, err := s.Sent(t.Context(), kind.MeshTrusts.Name, raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sent.Row(); err == nil || !strings.Contains(err.Error(), "write it in the namespace "+mesh) {
		t.Errorf("the object of another namespace: %v", err)
	}
}

// TestCopy: an import has the rows of the export, in place of those that the store has.
func TestCopy(t *testing.T) {
	s, server, _, mesh := opened(t)
	exported := func() (rows []store.Row, bodies map[resource.Key]string) {
		t.Helper()
		bodies = map[resource.Key]string{}
		if err := s.Export(t.Context(), func(row store.Row) error {
			rows = append(rows, row)
			bodies[row.Key] = string(row.Body)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return rows, bodies
	}
	owner := kind.Meshes.Key("", mesh)
	web := create(t, s, service(mesh, "web", "a"), &owner)
	create(t, s, kind.MeshServiceStatuses.Make(mesh, web.Key.Name, kind.MeshServiceStatus{
		DataplaneProxies: &kind.DataplaneCount{Connected: 1}}), &web.Key)
	create(t, s, kind.Secrets.Make(mesh, "secret-"+mesh, kind.Secret{Data: []byte("x")}), &owner)
	create(t, s, kind.StoreIDs.Make("", kind.TheStoreID, kind.StoreID{ID: "1"}), nil)
	create(t, s, kind.AckRequests.Make("", "r", kind.AckRequest{Requester: "a"}), nil)
	replica := open(t, server, kube.Options{Namespace: mesh, Kinds: crd.Rows(), LeaseDuration: time.Hour})
	create(t, replica, kind.Instances.Make("", "a2", kind.Instance{}), nil)
	rows, before := exported()
	if len(before) < 6 || before[web.Key] == "" || before[kind.Instances.Key("", "a2")] != "" {
		t.Errorf("%d rows are exported", len(before))
	}

	changed := rowOf(t, service(mesh, "web", "b"), nil)
	changed.Version = web.Version
	if _, err := s.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	create(t, s, service(mesh, "later", "a"), &owner)
	if err := s.Delete(t.Context(), kind.StoreIDs.Key("", kind.TheStoreID), ""); err != nil {
		t.Fatal(err)
	}
	if err := s.Import(t.Context(), true, rows); err == nil || !strings.Contains(err.Error(), "in use by another "+
		"control plane, whose Lease weft-a2") {
		t.Errorf("while a replica runs: %v", err)
	}
	if err := s.Delete(t.Context(), kind.Instances.Key("", "a2"), ""); err != nil {
		t.Fatal(err)
	}
	if err := s.Import(t.Context(), false, rows); !errors.Is(err, store.ErrNotEmpty) {
		t.Errorf("into a store with rows: %v, want %v", err, store.ErrNotEmpty)
	}
	if err := s.Import(t.Context(), true, rows); err != nil {
		t.Fatal(err)
	}
	if _, after := exported(); !maps.Equal(before, after) {
		t.Errorf("the rows are\n%v\nand were\n%v", after, before)
	}
	if err := s.Delete(t.Context(), owner, ""); err != nil {
		t.Fatal(err)
	}
	if _, after := exported(); after[web.Key] != "" {
		t.Error("the imported row is not deleted with its Mesh")
	}
}
