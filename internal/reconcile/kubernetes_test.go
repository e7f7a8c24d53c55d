package reconcile

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"weft/internal/barrier"
	"weft/internal/golden"
	"weft/internal/graph"
	"weft/internal/kube/convert"
	"weft/internal/kube/objects"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// cluster is a store whose table also follows the objects of a Kubernetes cluster.
type cluster struct {
	*mirrored
	kubernetes *Kubernetes
	events     []string
}

func kubernetesSettings() *convert.Settings {
	return &convert.Settings{
		Zone: "east", SystemNamespace: "kuma-system", ZoneProxyNamespaces: []string{"shop"},
		IgnoredLabels: []string{"hash"}, WorkloadLabels: []string{"app"},
		RedirectInbound: 15006, RedirectOutbound: 15001, Exceptions: map[string]string{"builds": "*"},
	}
}

func newCluster(t rapid.TB, settings *convert.Settings) *cluster {
	all := netip.MustParsePrefix("241.0.0.0/24")
	w := &world{t: t, now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), stated: map[Request]string{},
		waits: map[string]*barrier.Wait{}}
	graph := graph.NewState("east")
	k := &Kubernetes{Settings: settings, Objects: objects.New(graph.Tables.DB, settings)}
	w.plan = NewPlan(graph, Ranges{all, all, all, sixRange}, k)
	graph.Tables.DB.Clock = func() time.Time { return w.now }
	c := &cluster{follow(w, false, slog.New(slog.DiscardHandler)), k, nil}
	k.WriteStatus = c.writeStatus
	c.rc.ReportTo(func(e convert.Event) {
		level := "Normal"
		if e.Warning {
			level = "Warning"
		}
		c.events = append(c.events, fmt.Sprintf("%s %s %s/%s %s: %s", level, e.On.Kind, e.On.Namespace, e.On.Name,
			e.Reason, e.Message))
	})
	c.takeOver()
	return c
}

// apply puts the objects of YAML documents into the tables. A document with `deleted: true` removes its object.
func (c *cluster) apply(text string) {
	for doc := range strings.SplitSeq(text, "\n---\n") {
		raw, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			c.t.Fatalf("%v in\n%s", err, doc)
		}
		c.object(raw)
	}
}

func (c *cluster) object(raw []byte) {
	var named struct {
		Kind     string
		Deleted  bool
		Metadata struct{ Name, Namespace string }
	}
	if err := json.Unmarshal(raw, &named); err != nil {
		c.t.Fatal(err)
	}
	o, key := c.kubernetes.Objects, named.Metadata.Name+"."+named.Metadata.Namespace
	c.commit(func(tx *table.Tx) {
		var err error
		switch named.Kind {
		case "Pod":
			err = setRow(tx, o.Pods, key, named.Deleted, raw, convert.FollowPod)
		case "Service":
			err = setRow(tx, o.Services, key, named.Deleted, raw, convert.DecodeService)
		case "EndpointSlice":
			err = setRow(tx, o.Slices, key, named.Deleted, raw, convert.DecodeEndpointSlice)
		case "Namespace":
			err = setRow(tx, o.Namespaces, named.Metadata.Name, named.Deleted, raw, convert.DecodeNamespace)
		case "Node":
			err = setRow(tx, o.Nodes, named.Metadata.Name, named.Deleted, raw,
				convert.DecodeNode([]string{"topology.kubernetes.io/zone"}))
		case convert.HTTPRoute, convert.GRPCRoute, convert.TCPRoute, convert.TLSRoute:
			err = setRow(tx, o.Routes, named.Kind+" "+key, named.Deleted, raw, convert.DecodeRoute(named.Kind))
		case "ReferenceGrant":
			err = setRow(tx, o.Grants, key, named.Deleted, raw, convert.DecodeReferenceGrant)
		default:
			err = fmt.Errorf("%q is no kind of objects", named.Kind)
		}
		if err != nil {
			c.t.Fatal(err)
		}
	})
}

func setRow[V any](tx *table.Tx, t table.Input[*V], key string, deleted bool, raw []byte,
	decode func([]byte) (*V, error)) error {
	row, err := decode(raw)
	if deleted || row == nil {
		t.Delete(tx, key)
		return err
	}
	t.Put(tx, row)
	return err
}

func (c *cluster) synced(synced bool) {
	c.commit(func(tx *table.Tx) { c.kubernetes.Objects.SetSynced(tx, synced) })
}

// writeStatus has the status of a route among the events.
func (c *cluster) writeStatus(_ context.Context, status *convert.RouteStatus) error {
	for _, p := range status.Parents {
		for _, condition := range p.Conditions {
			c.events = append(c.events, fmt.Sprintf("status of %s %s/%s at %s: %s %s %s: %s", status.Kind,
				status.Namespace, status.Name, p.ParentRef.Name, condition.Type, condition.Status, condition.Reason,
				condition.Message))
		}
	}
	return nil
}

// serveAll has the proxies of some Dataplanes report that they serve all of their inbounds.
func (c *cluster) serveAll(names ...string) {
	for key, o := range c.rows {
		dp, ok := o.(*resource.Object[kind.Dataplane])
		if !ok || !slices.Contains(names, key.Name) {
			continue
		}
		var serving kind.DataplaneListenerStatus
		for _, in := range state.CurrentInbounds(&dp.Spec.Networking) {
			serving.Inbounds = append(serving.Inbounds, kind.ServedInbound{Inbound: in})
		}
		c.user(kind.DataplaneListenerStatuses.Make(key.Mesh, key.Name, serving))
	}
}

// TestKubernetes writes the resources that follow from the objects of each scenario. The sections that end with .yaml
// are applied one after the other: objects of Kubernetes, and resources of the mesh with `type`. A section "serving"
// names Dataplanes whose proxies serve from then on.
func TestKubernetes(t *testing.T) {
	golden.Run(t, "testdata/kubernetes/*.txtar", func(t *testing.T, scenario *txtar.Archive) {
		c := newCluster(t, kubernetesSettings())
		c.user(kind.Meshes.Make("", "default", kind.Mesh{}))
		c.synced(true)
		var results []txtar.File
		for _, f := range scenario.Files {
			step, isStep := strings.CutSuffix(f.Name, ".yaml")
			switch {
			case f.Name == "serving":
				c.serveAll(strings.Fields(string(f.Data))...)
			case isStep:
				for doc := range strings.SplitSeq(string(f.Data), "\n---\n") {
					c.applyAny(doc)
				}
			default:
				continue
			}
			c.drain()
			results = append(results, f, txtar.File{Name: step + ".result", Data: []byte(c.shown())})
		}
		scenario.Files = results
	})
}

// TestARouteWaitsForTheProtocolsOfItsServices: the MeshHTTPRoute of a route that makes ports HTTP is written after the
// MeshServices have the protocol. A backend that is TCP would respond with 500.
func TestARouteWaitsForTheProtocolsOfItsServices(t *testing.T) {
	c := newCluster(t, kubernetesSettings())
	c.user(kind.Meshes.Make("", "default", kind.Mesh{}))
	c.synced(true)
	scenario, err := txtar.ParseFile("testdata/kubernetes/gateway-api-protocol.txtar")
	if err != nil {
		t.Fatal(err)
	}
	c.apply(string(scenario.Files[0].Data))
	c.drain()
	c.lags = true
	c.apply(string(scenario.Files[2].Data))
	c.now = c.now.Add(servingDelay)
	for c.step() {
	}
	routes := func() int {
		return len(slices.DeleteFunc(c.made(), func(o resource.Any) bool {
			return o.Key().Kind != kind.MeshHTTPRoutes.Name
		}))
	}
	web, ok := c.rows[kind.MeshServices.Key("default", "web.shop")].(*resource.Object[kind.MeshService])
	if !ok || web.Spec.Ports[0].AppProtocol != kind.HTTP {
		t.Fatalf("the MeshService is %+v, want an HTTP port", web)
	}
	if n := routes(); n != 0 {
		t.Errorf("%d MeshHTTPRoutes are stored before the table has the protocol of the MeshService, want none", n)
	}
	c.drain()
	if n := routes(); n != 1 {
		t.Errorf("%d MeshHTTPRoutes are stored afterwards, want 1", n)
	}
}

func (c *cluster) applyAny(doc string) {
	var named struct{ Type string }
	if err := yaml.Unmarshal([]byte(doc), &named); err != nil {
		c.t.Fatal(err)
	}
	if named.Type == "" {
		c.apply(doc)
		return
	}
	o, err := resource.Parse([]byte(doc), kind.ByName)
	if err != nil {
		c.t.Fatal(err)
	}
	c.user(o)
}

// shown returns the Dataplanes and MeshServices, and the events since the last call.
func (c *cluster) shown() string {
	var text strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	of := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			c.t.Fatal(err)
		}
		return string(raw)
	}
	for _, o := range c.made() {
		line("%s", o.Key())
		line("  labels %s", of(o.Envelope().Labels))
		switch o := o.(type) {
		case *resource.Object[kind.Dataplane]:
			n := o.Spec.Networking
			for _, in := range n.Inbound {
				line("  inbound %s", of(in))
			}
			n.Inbound = nil
			line("  networking %s", of(n))
		case *resource.Object[kind.ZoneIngress]:
			line("  %s", of(o.Spec))
		case *resource.Object[kind.ZoneEgress]:
			line("  %s", of(o.Spec))
		case *resource.Object[kind.PodReport]:
			line("  %s", of(o.Spec))
		case *resource.Object[kind.MeshService]:
			line("  spec %s", of(o.Spec))
			if status, ok := c.rows[kind.MeshServiceStatuses.Key(o.Mesh, o.Name)]; ok {
				line("  vips %s", of(vipsIn(status)))
				for _, c := range status.(*resource.Object[kind.MeshServiceStatus]).Spec.Conditions {
					line("  condition %s", of(c))
				}
			}
		case *resource.Object[kind.MeshHTTPRoute]:
			line("  spec %s", of(o.Spec))
		case *resource.Object[kind.MeshTCPRoute]:
			line("  spec %s", of(o.Spec))
		}
	}
	slices.Sort(c.events)
	for _, event := range c.events {
		line("%s", event)
	}
	c.events = nil
	return text.String()
}

// made returns the Dataplanes, MeshServices, routes and reports about Pods that are stored.
func (c *cluster) made() []resource.Any {
	var all []resource.Any
	for key, o := range c.rows {
		switch key.Kind {
		case kind.Dataplanes.Name, kind.MeshServices.Name, kind.MeshHTTPRoutes.Name, kind.MeshTCPRoutes.Name,
			kind.PodReports.Name, kind.ZoneIngresses.Name, kind.ZoneEgresses.Name:
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b resource.Any) int { return cmp.Compare(a.Key().String(), b.Key().String()) })
	return all
}

// stale returns the writes that a new plan of the stored resources and the objects still has.
func (c *cluster) stale() []string {
	fresh := newCluster(c.t, c.kubernetes.Settings)
	fresh.now = c.now
	changes := fresh.plan.State.Tables.DB.Commit(func(tx *table.Tx) {
		fresh.copyObjects(tx, c)
		for key, o := range c.rows {
			if fresh.plan.State.Tables.HasRows(key.Kind) {
				fresh.plan.State.Tables.Put(tx, o)
			}
		}
	})
	var all []string
	for _, f := range fresh.plan.families {
		for u, writes := range table.ChangedValues(f.Derived, changes) {
			for _, w := range writes.Do {
				all = append(all, fmt.Sprintf("%s: %+v", u, w))
			}
		}
	}
	return all
}

func (c *cluster) copyObjects(tx *table.Tx, of *cluster) {
	from, to, snapshot := of.kubernetes.Objects, c.kubernetes.Objects, of.plan.State.Tables.DB.Snapshot()
	copyRows(tx, snapshot, from.Pods, to.Pods)
	copyRows(tx, snapshot, from.Services, to.Services)
	copyRows(tx, snapshot, from.Slices, to.Slices)
	copyRows(tx, snapshot, from.Namespaces, to.Namespaces)
	copyRows(tx, snapshot, from.Nodes, to.Nodes)
	copyRows(tx, snapshot, from.Routes, to.Routes)
	copyRows(tx, snapshot, from.Grants, to.Grants)
	to.SetSynced(tx, true)
}

func copyRows[V any](tx *table.Tx, s *table.Snapshot, from, to table.Input[V]) {
	for row := range from.All(s) {
		to.Put(tx, row)
	}
}

// After any changes of objects, in any order, with a table that hears late of what is stored and a store that fails,
// the stored resources are those that follow from the objects alone. Before the objects are complete, nothing is
// deleted.
func TestResourcesFollowFromObjectsAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(t, kubernetesSettings())
		c.now, c.lags = time.Now(), true
		c.user(kind.Meshes.Make("", "default", kind.Mesh{}), kind.Meshes.Make("", "other", kind.Mesh{}))
		c.synced(true)
		oneOf := func(of ...string) string { return rapid.SampledFrom(of).Draw(t, "of") }
		object := func() string {
			name, deleted := oneOf("a", "b", "c"), oneOf("false", "false", "true")
			meta := fmt.Sprintf("deleted: %s\nmetadata: {name: %s, namespace: shop, uid: %s, ", deleted, name,
				name+oneOf("1", "2"))
			switch oneOf("Pod", "Pod", "Pod", "Service", "Service", "EndpointSlice", "Namespace", "Node") {
			case "Service":
				return "kind: Service\n" + meta + fmt.Sprintf("labels: {kuma.io/mesh: %s}}\nspec: {clusterIP: %s, "+
					"selector: %s, ports: [{port: 80, targetPort: %s}]}", oneOf("default", "other"),
					oneOf("10.0.0.1", "None"), oneOf("{app: a}", "{app: a, hash: one}", "{hash: two}", "{}"),
					oneOf("http", "8080", "9000"))
			case "EndpointSlice":
				return "kind: EndpointSlice\n" + meta + fmt.Sprintf("labels: {kubernetes.io/service-name: %s}}\n"+
					"ports: [{port: %s}]\nendpoints: [{conditions: {ready: %s}, targetRef: {kind: Pod, uid: %s}}]",
					oneOf("a", "b"), oneOf("8080", "9090"), oneOf("true", "false"), oneOf("a1", "b1", "c2"))
			case "Namespace":
				return fmt.Sprintf("kind: Namespace\nmetadata: {name: shop, labels: {team: %s}}", oneOf("one", "two"))
			case "Node":
				return fmt.Sprintf("kind: Node\ndeleted: %s\nmetadata: {name: n1, labels: "+
					"{topology.kubernetes.io/zone: %s}}",
					deleted, oneOf("z1", "z2"))
			}
			return "kind: Pod\n" + meta + fmt.Sprintf("labels: {app: %s, hash: %s}, annotations: "+
				"{kuma.io/sidecar-injected: 'true'}}\nspec: {nodeName: n1, restartPolicy: %s, containers: [{name: "+
				"app, ports: [{name: http, containerPort: 8080}]}, {name: kuma-sidecar, env: [{name: "+
				"KUMA_DATAPLANE_MESH, value: %s}]}]}\nstatus: {podIP: '%s', phase: Running, containerStatuses: "+
				"[{name: app, ready: %s, state: %s}, {name: kuma-sidecar, ready: true}]}",
				oneOf("a", "b"), oneOf("one", "two"), oneOf("Always", "Never"), oneOf("default", "other"),
				oneOf("10.1.0.1", "10.1.0.2", ""), oneOf("true", "false"),
				oneOf("{running: {}}", "{terminated: {exitCode: 1}}"))
		}
		step := map[string]func(){
			"object": func() { c.apply(object()) },
			"serve":  func() { c.serveAll(oneOf("a", "b", "c") + ".shop") },
			"step":   func() { c.step() },
			"hear":   func() { c.deliver(rapid.IntRange(1, 5).Draw(t, "rows")) },
			"list":   func() { c.list() },
			"fail":   func() { c.fails = !c.fails },
			"remove": func() {
				key := kind.Dataplanes.Key(oneOf("default", "other"), oneOf("a", "b", "c")+".shop")
				c.removes(key)
			},
			"lose": func() {
				before := len(c.made())
				c.synced(false)
				c.drain()
				c.step()
				if len(c.made()) < before {
					t.Fatal("resources were deleted while the objects were not known")
				}
				c.synced(true)
			},
		}
		c.apply("kind: Namespace\nmetadata: {name: shop}")
		names := []string{"object", "object", "object", "object", "serve", "step", "hear", "list", "fail", "remove",
			"lose"}
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			for range rapid.IntRange(1, 10).Draw(t, "steps") {
				step[rapid.SampledFrom(names).Draw(t, "step")]()
			}
			c.drain()
			if left := c.stale(); len(left) > 0 {
				t.Fatalf("drained, and from nothing there is to write: %v", left)
			}
			anew := newCluster(t, kubernetesSettings())
			anew.user(kind.Meshes.Make("", "default", kind.Mesh{}), kind.Meshes.Make("", "other", kind.Mesh{}))
			anew.commit(func(tx *table.Tx) { anew.copyObjects(tx, c) })
			anew.drain()
			if got, want := c.specs(), anew.specs(); got != want {
				t.Fatalf("the resources are\n%s, and from the objects alone they are\n%s", got, want)
			}
		}
	})
}

// specs are the resources made from objects, without the state of MeshServices, which follows from proxies that serve.
func (c *cluster) specs() string {
	var text strings.Builder
	for _, o := range c.made() {
		if service, ok := o.(*resource.Object[kind.MeshService]); ok {
			copied := *service
			copied.Spec.State = ""
			o = &copied
		}
		body, err := resource.Body(o)
		if err != nil {
			c.t.Fatal(err)
		}
		fmt.Fprintf(&text, "%s %s\n", o.Key(), body)
	}
	return text.String()
}

// TestZoneProxyGrace: a namespace that had a zone proxy before the list keeps it, in its mesh and role, until the end.
func TestZoneProxyGrace(t *testing.T) {
	c := newCluster(t, kubernetesSettings())
	c.user(kind.Meshes.Make("", "default", kind.Mesh{}))
	until := c.now.Add(time.Hour)
	c.user(kind.Graces.Make("", kind.GraceOfZoneProxies, kind.Grace{Until: kind.Time{Time: until},
		Proxies: []kind.GraceZoneProxy{{Namespace: "tenant", Mesh: "default", Role: kind.EgressRole}}}))
	c.synced(true)
	scenario, err := txtar.ParseFile("testdata/kubernetes/zone-proxies-unlisted.txtar")
	if err != nil {
		t.Fatal(err)
	}
	c.apply(strings.TrimSpace(string(scenario.Files[0].Data)))
	c.drain()
	sections := func() string {
		o, ok := c.rows[kind.Dataplanes.Key("default", "out.tenant")]
		if !ok {
			return "none"
		}
		n := &o.(*resource.Object[kind.Dataplane]).Spec.Networking
		return fmt.Sprintf("egress %v, ingress %v", n.ZoneEgress != nil, n.ZoneIngress != nil)
	}
	if got, want := sections(), "egress true, ingress false"; got != want {
		t.Errorf("before the end the Pod is %s, want %s", got, want)
	}
	c.now = until.Add(time.Second)
	c.commit(func(*table.Tx) {})
	c.drain()
	if got := sections(); got != "none" {
		t.Errorf("after the end the Pod is %s", got)
	}
}
