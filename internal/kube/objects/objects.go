// Package objects has the tables of the Kubernetes objects from which resources are derived, and fills them from the
// API server.
//
// The rows are of this replica alone and in no store. They follow the API server while this replica leads. Before the
// first complete list of every kind there is no row, and [Tables.IsSynced] is false: a derived value that deletes must
// read it first.
package objects

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"weft/internal/kube/convert"
	"weft/internal/table"
)

// Tables are the objects by kind.
type Tables struct {
	// Pods are the Pods that have a proxy, or might have one, by NAME.NAMESPACE, as are Services and Slices.
	Pods     table.Input[*convert.Pod]
	Services table.Input[*convert.Service]
	// Slices are the EndpointSlices that the controller of Kubernetes does not manage.
	Slices     table.Input[*convert.EndpointSlice]
	Namespaces table.Input[*convert.Namespace] // by their name, as are Nodes
	Nodes      table.Input[*convert.Node]
	// Routes are the routes of the Gateway API, by [convert.Route.RowKey]. Without its definitions there is none.
	Routes table.Input[*convert.Route]
	// Grants are its ReferenceGrants, by NAME.NAMESPACE.
	Grants table.Input[*convert.ReferenceGrant]

	settings           *convert.Settings
	servicesBySelector table.Index[*convert.Service]
	slicesByPod        table.Index[*convert.EndpointSlice]
	slicesByService    table.Index[*convert.EndpointSlice]
	readyNodes         table.Index[*convert.Node]
	grantsByNamespace  table.Index[*convert.ReferenceGrant]
	routesByService    table.Index[*convert.Route]
	synced             table.Input[string]
	// routed are the protocols that routes give the ports of a Service, NAME.NAMESPACE.
	routed table.Derived[string, convert.RoutedProtocols]
	// selecting are the Services that select Pods with a set of labels, by [convert.Pod.LabelSet]: the Pods of a
	// ReplicaSet have one value in common.
	selecting table.Derived[string, []convert.Serves]
	// listed are the Services without a selector, NAME.NAMESPACE, as their EndpointSlices complete them.
	listed table.Derived[string, *convert.Service]
}

// New adds the tables to a DB, before its first commit.
func New(db *table.DB, settings *convert.Settings) *Tables {
	t := &Tables{
		Pods:       table.NewInput(db, func(o *convert.Pod) string { return o.Key() }),
		Services:   table.NewInput(db, func(o *convert.Service) string { return o.Key() }),
		Slices:     table.NewInput(db, func(o *convert.EndpointSlice) string { return o.Key() }),
		Namespaces: table.NewInput(db, func(o *convert.Namespace) string { return o.Name }),
		Nodes:      table.NewInput(db, func(o *convert.Node) string { return o.Name }),
		Routes:     table.NewInput(db, func(o *convert.Route) string { return o.RowKey() }),
		Grants:     table.NewInput(db, func(o *convert.ReferenceGrant) string { return o.Key() }),
		synced:     table.NewInput(db, func(string) string { return "" }),
		settings:   settings,
	}
	t.servicesBySelector = table.NewIndex(t.Services, func(o *convert.Service) []string {
		key := settings.SelectorKey(o)
		if key == "" {
			return nil
		}
		return []string{o.Namespace + "," + key}
	})
	t.slicesByPod = table.NewIndex(t.Slices, (*convert.EndpointSlice).Pods)
	t.slicesByService = table.NewIndex(t.Slices, func(o *convert.EndpointSlice) []string {
		return []string{o.Service + "." + o.Namespace}
	})
	t.grantsByNamespace = table.NewIndex(t.Grants, func(o *convert.ReferenceGrant) []string {
		return []string{o.Namespace, everyNamespace}
	})
	t.routesByService = table.NewIndex(t.Routes, (*convert.Route).Services)
	t.routed = table.NewDerived(db, "protocols of routed ports", t.routedProtocols, maps.Equal)
	t.readyNodes = table.NewIndex(t.Nodes, func(o *convert.Node) []string {
		if !o.Ready {
			return nil
		}
		return []string{""}
	})
	t.selecting = table.NewDerived(db, "Services of a set of labels", t.selectingPods,
		func(a, b []convert.Serves) bool { return slices.EqualFunc(a, b, sameSelection) })
	t.listed = table.NewDerived(db, "Services of EndpointSlices", t.listedService,
		func(a, b *convert.Service) bool { return reflect.DeepEqual(a, b) })
	return t
}

// IsSynced reports whether the rows are what the API server has, or had before a failure.
func (t *Tables) IsSynced(r *table.Reader) bool {
	_, ok := t.synced.Get(r, "")
	return ok
}

// SetSynced states that the rows are complete, or that they are not.
func (t *Tables) SetSynced(tx *table.Tx, synced bool) {
	if synced {
		t.synced.Put(tx, "synced")
	} else {
		t.synced.Delete(tx, "")
	}
}

// selectingPods returns the Services whose selectors match a set of labels, in the order of their names.
func (t *Tables) selectingPods(r *table.Reader, labelSet string) []convert.Serves {
	parts := strings.Split(labelSet, ",")
	namespace, labels := parts[0], map[string]string{}
	var services []convert.Serves
	for _, pair := range parts[1:] {
		name, value, _ := strings.Cut(pair, "=")
		labels[name] = value
	}
	for _, pair := range parts[1:] {
		for _, service := range t.servicesBySelector.List(r, namespace+","+pair) {
			switch t.settings.Selects(service, labels) {
			case convert.Selected:
				services = append(services, convert.Serves{Service: service})
			case convert.SelectedButIgnored:
				services = append(services, convert.Serves{Service: service, Ignored: true})
			}
		}
	}
	return inOrder(services)
}

func sameSelection(a, b convert.Serves) bool { return a.Service == b.Service && a.Ignored == b.Ignored }

func inOrder(services []convert.Serves) []convert.Serves {
	slices.SortFunc(services, func(a, b convert.Serves) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(services, func(a, b convert.Serves) bool { return a.Name == b.Name })
}

// Service returns a Service, NAME.NAMESPACE. One without a selector is as its EndpointSlices complete it.
func (t *Tables) Service(r *table.Reader, key string) (*convert.Service, bool) {
	service, ok := t.Services.Get(r, key)
	if ok && len(service.Selector) == 0 {
		service = t.listed.Get(r, key)
	}
	return service, ok
}

func (t *Tables) listedService(r *table.Reader, key string) *convert.Service {
	service, ok := t.Services.Get(r, key)
	if !ok {
		return nil
	}
	return service.WithEndpointSlices(t.SlicesOf(r, service))
}

// SlicesOf returns the EndpointSlices of a Service without a selector, in the order of their names; none for every
// other Service.
func (t *Tables) SlicesOf(r *table.Reader, service *convert.Service) []*convert.EndpointSlice {
	if len(service.Selector) > 0 {
		return nil
	}
	return t.slicesByService.List(r, service.Key())
}

// ServicesOf returns the Services that have a Pod among their servers: by their selectors or, without a selector, by
// their EndpointSlices. They are in the order of their names.
func (t *Tables) ServicesOf(r *table.Reader, pod *convert.Pod) []convert.Serves {
	services := t.selecting.Get(r, pod.LabelSet)
	listed := slices.Concat(t.slicesByPod.List(r, pod.UID), t.slicesByPod.List(r, pod.Key()))
	if len(listed) == 0 {
		return services
	}
	services = slices.Clone(services)
	for _, slice := range listed {
		service, ok := t.Service(r, slice.Service+"."+slice.Namespace)
		if ok && len(service.Selector) == 0 && slice.Namespace == pod.Namespace {
			at := convert.ListedAt(pod, t.SlicesOf(r, service))
			services = append(services, convert.Serves{Service: service, Listed: at})
		}
	}
	return inOrder(services)
}

// MissingSidecar returns the reason for which a Pod lacks its sidecar; empty for every other Pod.
func (t *Tables) MissingSidecar(r *table.Reader, pod *convert.Pod) string {
	return t.settings.MissingSidecar(pod, t.Namespace(r, pod.Namespace))
}

// Namespace returns a Namespace; nil where there is none.
func (t *Tables) Namespace(r *table.Reader, name string) *convert.Namespace {
	o, _ := t.Namespaces.Get(r, name)
	return o
}

// Around returns what the Dataplane of a Pod follows from beside the Pod, except resources of the mesh.
func (t *Tables) Around(r *table.Reader, pod *convert.Pod) *convert.Around {
	node, _ := t.Nodes.Get(r, pod.Node)
	return &convert.Around{
		Namespace: t.Namespace(r, pod.Namespace), Node: node, Services: t.ServicesOf(r, pod),
		ReadyNodes: func() []*convert.Node { return t.readyNodes.List(r, "") },
		Routed:     func(service string) convert.RoutedProtocols { return t.RoutedProtocols(r, service) },
	}
}

// RoutedProtocols returns the protocols that routes of the Gateway API give the ports of a Service, NAME.NAMESPACE.
func (t *Tables) RoutedProtocols(r *table.Reader, service string) convert.RoutedProtocols {
	return t.routed.Get(r, service)
}

func (t *Tables) routedProtocols(r *table.Reader, key string) convert.RoutedProtocols {
	routes := t.routesByService.List(r, key)
	if len(routes) == 0 {
		return nil
	}
	service, ok := t.Service(r, key)
	if !ok {
		return nil
	}
	return convert.RoutedProtocolsOf(service, routes, t.GrantsOf(r, service.Namespace))
}

// everyNamespace is the key of the ReferenceGrants of all namespaces.
const everyNamespace = ""

// AllGrants returns the ReferenceGrants of all namespaces.
func (t *Tables) AllGrants(r *table.Reader) []*convert.ReferenceGrant {
	return t.GrantsOf(r, everyNamespace)
}

// GrantsOf returns the ReferenceGrants of a namespace.
func (t *Tables) GrantsOf(r *table.Reader, namespace string) []*convert.ReferenceGrant {
	return t.grantsByNamespace.List(r, namespace)
}
