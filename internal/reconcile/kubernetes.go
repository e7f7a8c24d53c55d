package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/internal/kube/convert"
	"weft/internal/kube/objects"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Kinds of requests for objects of Kubernetes, whose names are NAME.NAMESPACE. They have no mesh.
const (
	PodKind     = "Pod"
	ServiceKind = "Service"
)

// Kubernetes derives resources from objects of Kubernetes.
type Kubernetes struct {
	Settings *convert.Settings
	Objects  *objects.Tables
	// WriteStatus stores the status of a route of the Gateway API.
	WriteStatus func(context.Context, *convert.RouteStatus) error

	// dataplanes finds the Dataplanes of Pods, and services the MeshServices of Services, in all meshes by their names.
	dataplanes table.Index[*resource.Object[kind.Dataplane]]
	services   table.Index[*resource.Object[kind.MeshService]]
	gateway    gatewayRoutes
}

// addKubernetes adds the writes for Pods and Services. A Pod, and the Dataplane of a Pod that is gone, keep the Pod's.
func (p *Plan) addKubernetes() {
	k, s := p.kubernetes, p.State
	k.dataplanes = table.NewIndex(s.Tables.Dataplanes, podOf)
	k.services = table.NewIndex(s.Tables.Services, func(o *resource.Object[kind.MeshService]) []string {
		if !madeFromService(o) || s.Tables.IsRemote(o) {
			return nil
		}
		return []string{o.Name}
	})
	p.addReferenceGrants()
	pods := p.addFamily(PodKind, p.pod, kind.Dataplanes.Name, kind.ZoneIngresses.Name, kind.ZoneEgresses.Name,
		kind.PodReports.Name)
	table.KeepFor(k.Objects.Pods, pods.Derived, func(o *convert.Pod) []Request {
		return []Request{{Kind: PodKind, Name: o.Key()}}
	})
	table.KeepFor(s.Tables.Dataplanes, pods.Derived, requestOfPod)
	table.KeepFor(s.Tables.ZoneIngresses, pods.Derived, requestOfPod)
	table.KeepFor(s.Tables.ZoneEgresses, pods.Derived, requestOfPod)
	table.KeepFor(s.Tables.PodReports, pods.Derived, func(o *resource.Object[kind.PodReport]) []Request {
		return []Request{{Kind: PodKind, Name: o.Name}}
	})
	services := p.addFamily(ServiceKind, p.kubernetesService)
	table.KeepFor(k.Objects.Services, services.Derived, func(o *convert.Service) []Request {
		return []Request{{Kind: ServiceKind, Name: o.Key()}}
	})
	p.addGatewayRoutes()
}

// requestOfPod returns the Request of the Pod of a proxy's resource, none for another one.
func requestOfPod[S any](o *resource.Object[S]) []Request {
	if len(podOf(o)) == 0 {
		return nil
	}
	return []Request{{Kind: PodKind, Name: o.Name}}
}

// podOf returns the name of the Pod of a Dataplane, a ZoneIngress or a ZoneEgress, none for another one.
func podOf[S any](o *resource.Object[S]) []string {
	if o.Label(kind.PodUIDLabel) == "" {
		return nil
	}
	return []string{o.Name}
}

// madeFromService reports whether a MeshService was made from a Service of Kubernetes.
func madeFromService(o *resource.Object[kind.MeshService]) bool {
	return o.Label(kind.ManagedBy) == kind.GeneratedBy && o.Spec.Selector.DataplaneTags[kind.ServiceNameTag] != ""
}

// pod writes the Dataplane, ZoneIngress or ZoneEgress of a Pod, its MeshServices of headless Services, and the report
// about it. It deletes those of a Pod that is gone, and of one whose name another Pod has now.
func (p *Plan) pod(r *table.Reader, u Request) (w Writes) {
	k := p.kubernetes
	if !k.Objects.IsSynced(r) {
		return w
	}
	stored := p.storedOf(r, u.Name)
	pod, _ := k.Objects.Pods.Get(r, u.Name)
	w = p.podWrites(r, pod, stored)
	p.reportPod(r, &w, u.Name, pod, stored)
	return w
}

// ofPod are the stored resources of the Pods of a name: several while one replaces the other.
type ofPod struct {
	dataplanes []*resource.Object[kind.Dataplane]
	ingress    *resource.Object[kind.ZoneIngress] // nil without one
	all        []resource.Any
}

func (p *Plan) storedOf(r *table.Reader, name string) (of ofPod) {
	of.dataplanes = p.kubernetes.dataplanes.List(r, name)
	for _, o := range of.dataplanes {
		of.all = append(of.all, o)
	}
	if o, ok := p.State.Tables.ZoneIngresses.Find(r, "", name); ok && len(podOf(o)) > 0 {
		of.ingress, of.all = o, append(of.all, o)
	}
	if o, ok := p.State.Tables.ZoneEgresses.Find(r, "", name); ok && len(podOf(o)) > 0 {
		of.all = append(of.all, o)
	}
	return of
}

// reportPod writes what the other replicas have to know of a Pod, once nothing else is to be written for it; pod is nil
// where it is gone.
func (p *Plan) reportPod(r *table.Reader, w *Writes, name string, pod *convert.Pod, of ofPod) {
	stored, _ := p.State.Tables.PodReports.Find(r, "", name)
	if pod != nil && len(w.Do) > 0 {
		return
	}
	var report kind.PodReport
	switch {
	case pod == nil:
	case len(of.all) == 0:
		about := func(e convert.Event) bool {
			return e.Warning && e.On == pod.Ref() && e.Reason != convert.InjectionWarning
		}
		if i := slices.IndexFunc(w.Events, about); i >= 0 {
			report = kind.PodReport{UID: pod.UID, Reason: w.Events[i].Reason, Message: w.Events[i].Message}
		}
	case pod.Completed && len(of.dataplanes) > 0 && of.dataplanes[0].Label(kind.PodUIDLabel) == pod.UID:
		report = kind.PodReport{UID: pod.UID, Mesh: of.dataplanes[0].Mesh, CompletedContainers: true}
	}
	switch {
	case report != kind.PodReport{}:
		putIfDifferent(w, servingDelay, stored, kind.PodReports.Make("", name, report))
	case stored != nil:
		w.addWrite(servingDelay, Write{Delete: stored})
	}
}

// podWrites returns the writes of a Pod without its report; pod is nil where it is gone.
func (p *Plan) podWrites(r *table.Reader, pod *convert.Pod, stored ofPod) (w Writes) {
	k := p.kubernetes
	if pod != nil {
		if reason := k.Objects.MissingSidecar(r, pod); reason != "" {
			w.Events = append(w.Events, convert.Event{On: pod.Ref(), Warning: true, Reason: convert.MissingSidecar,
				Message: reason})
		}
	}
	var result convert.Result
	var around *convert.Around
	if pod != nil && !pod.Proxyless {
		around = k.Objects.Around(r, pod)
		around.HasMesh = func(name string) bool {
			_, ok := p.State.Tables.Meshes.Find(r, "", name)
			return ok
		}
		around.Exempt = func(mesh, role string) bool {
			return p.State.Tables.ZoneProxyExempt(r, pod.Namespace, mesh, role)
		}
		if len(stored.dataplanes) > 0 {
			around.Stored = stored.dataplanes[0]
		}
		around.StoredIngress = stored.ingress
		result = k.Settings.Proxy(pod, around)
	}
	wanted, wants := result.Key()
	for _, o := range stored.all {
		if stays := result.Keep || wants && o.Key() == wanted; !stays ||
			o.Envelope().Label(kind.PodUIDLabel) != pod.UID {
			w.addWrite(servingDelay, Write{Delete: o})
		}
	}
	w.Events = append(w.Events, result.Events...)
	if len(w.Do) > 0 {
		return w // the name is free once the rows are gone
	}
	switch {
	case result.ZoneIngress != nil:
		putZoneProxy(r, &w, p.State.Tables.ZoneIngresses, pod, result.ZoneIngress)
	case result.ZoneEgress != nil:
		putZoneProxy(r, &w, p.State.Tables.ZoneEgresses, pod, result.ZoneEgress)
	}
	if result.Dataplane == nil {
		return w
	}
	p.putDataplane(r, &w, pod, stored.dataplanes, result.Dataplane)
	if rejection := p.rejected.Get(r, state.ProxyKey{Mesh: wanted.Mesh, Name: wanted.Name}); rejection != "" {
		w.Events = append(w.Events, convert.Event{On: pod.Ref(), Warning: true, Reason: convert.RejectedListener,
			Message: rejection})
	}
	for _, service := range around.Services {
		if service.Headless && !service.Ignored {
			p.createService(r, &w, service.Service, around.Namespace, pod)
		}
	}
	return w
}

// rejectedListener returns what the Envoy of a Dataplane rejects of one of its listeners, and what it means for the
// listener; empty: nothing.
func (p *Plan) rejectedListener(r *table.Reader, key state.ProxyKey) string {
	insight, ok := p.State.Tables.Insights.Find(r, key.Mesh, key.Name)
	if !ok {
		return ""
	}
	for i := range insight.Spec.NACKs {
		nack := &insight.Spec.NACKs[i]
		if nack.Listener == "" {
			continue
		}
		serving, ok := p.State.Tables.ListenerStatus(r, key)
		if ok && serving.Spec.Has(nack.Listener) {
			return fmt.Sprintf("Envoy rejects the newest version of the listener %s, and serves an earlier one: %s",
				nack.Listener, nack.Message)
		}
		return fmt.Sprintf("Envoy rejects the listener %s, and has no earlier version, so the Pod is not Ready: %s",
			nack.Listener, nack.Message)
	}
	return ""
}

// putDataplane writes a Dataplane that its mesh admits, unless it is stored in this form. A stored one is written in
// any case: its labels evict it where its mesh no longer admits it.
func (p *Plan) putDataplane(r *table.Reader, w *Writes, pod *convert.Pod, stored []*resource.Object[kind.Dataplane],
	wanted *resource.Object[kind.Dataplane]) {
	mesh, ok := p.State.Tables.Meshes.Find(r, "", wanted.Mesh)
	if !ok {
		return
	}
	wanted.Vouched = resource.Vouched{Operator: kind.Facts(wanted), Complete: true} // each follows from the Pod
	reason := mesh.Spec.DataplaneProxyMembership.NotAdmittedReason(wanted, p.State.Tables.Zone, kind.Exemption{})
	if reason != "" {
		w.Events = append(w.Events, convert.Event{On: pod.Ref(), Warning: true, Reason: convert.NotAdmitted,
			Message: reason})
		if len(stored) == 0 {
			return
		}
	}
	var of *resource.Object[kind.Dataplane]
	if len(stored) > 0 {
		of = stored[0]
	}
	putOfPod(w, pod, of, wanted)
}

// putZoneProxy writes a ZoneIngress or ZoneEgress of a Pod, unless its name is that of another proxy, which a zone
// token or an operator has registered.
func putZoneProxy[S any](r *table.Reader, w *Writes, rows state.Rows[S], pod *convert.Pod,
	wanted *resource.Object[S]) {
	stored, ok := rows.Find(r, "", wanted.Name)
	if ok && len(podOf(stored)) == 0 {
		w.Events = append(w.Events, convert.Event{On: pod.Ref(), Warning: true, Reason: convert.FailedDataplane,
			Message: fmt.Sprintf("%s exists and is not the Pod's; delete it", stored.Key())})
		return
	}
	putOfPod(w, pod, stored, wanted)
}

// putOfPod writes a resource of a Pod, unless it is stored in this form; stored is nil where it is not stored.
func putOfPod[S any](w *Writes, pod *convert.Pod, stored, wanted *resource.Object[S]) {
	report := &Report{On: pod.Ref(), Done: convert.CreatedDataplane, Failed: convert.FailedDataplane}
	if stored == nil {
		owner := &resource.Key{Kind: PodKind, Name: pod.Key()}
		w.addWrite(servingDelay, Write{Create: wanted, Owner: owner, Report: report})
		return
	}
	had := stored.Vouched
	if maps.Equal(wanted.Labels, stored.Labels) && sameSpec(wanted.Spec, stored.Spec) &&
		slices.Equal(wanted.Vouched.Operator, had.Operator) && len(had.Token)+len(had.Agent) == 0 &&
		wanted.Vouched.Complete == had.Complete {
		return
	}
	wanted.Version, report.Done = stored.Version, convert.UpdatedDataplane
	if maps.Equal(wanted.Labels, stored.Labels) && sameSpec(withoutStates(wanted.Spec), withoutStates(stored.Spec)) {
		report.Done = "" // the conditions of the Pod say so
	}
	w.addWrite(servingDelay, Write{Put: wanted, Report: report})
}

// withoutStates returns a Dataplane without the states of its inbounds, and another resource as it is.
func withoutStates(spec any) any {
	dp, ok := spec.(kind.Dataplane)
	if !ok {
		return spec
	}
	dp.Networking.Inbound = slices.Clone(dp.Networking.Inbound)
	for i := range dp.Networking.Inbound {
		dp.Networking.Inbound[i].State = ""
	}
	return dp
}

// kubernetesService creates the MeshService of a Service. Later changes are those of the MeshService, see fromService.
func (p *Plan) kubernetesService(r *table.Reader, u Request) (w Writes) {
	k := p.kubernetes
	service, ok := k.Objects.Service(r, u.Name)
	if !ok || !k.Objects.IsSynced(r) {
		return w
	}
	namespace := k.Objects.Namespace(r, service.Namespace)
	if k.Settings.HasMeshService(service, namespace, false) {
		w.Events = append(w.Events, service.UnsupportedPortEvents()...)
		mesh := k.Settings.MeshOfService(service, namespace)
		if others := p.otherMeshes(r, service, mesh); len(others) > 0 {
			w.Events = append(w.Events, convert.Event{On: service.Ref(), Warning: true, Reason: convert.MultipleMeshes,
				Message: severalMeshes(mesh, others)})
		}
	}
	p.createService(r, &w, service, namespace, nil)
	return w
}

// otherMeshes returns the meshes of servers of a Service that are not in its mesh, sorted. The clients of the Service's
// MeshService do not reach them.
func (p *Plan) otherMeshes(r *table.Reader, service *convert.Service, mesh string) []string {
	var others []string
	for _, other := range p.State.Tables.MeshNames(r) {
		if other != mesh && p.hasServers(r, service, other) {
			others = append(others, other)
		}
	}
	return others
}

// hasServers reports whether a Dataplane of a mesh has an inbound for a Service.
func (p *Plan) hasServers(r *table.Reader, service *convert.Service, mesh string) bool {
	for i := range service.Ports {
		tag := service.Tag(&service.Ports[i])
		for _, dp := range p.State.Tables.DataplanesBySelector.List(r, state.TagKey(mesh, kind.ServiceTag, tag)) {
			for _, in := range dp.Spec.Networking.Inbound {
				if in.Tags[kind.ServiceTag] == tag && in.State != kind.Ignored && len(podOf(dp)) > 0 {
					return true
				}
			}
		}
	}
	return false
}

// unreachedServers are the conditions of the MeshService of a Service that has servers which clients of the MeshService
// do not reach: servers of other meshes, and endpoints that are not Pods.
func (p *Plan) unreachedServers(r *table.Reader, of *resource.Object[kind.MeshService]) []kind.Condition {
	tags := of.Spec.Selector.DataplaneTags
	service, ok := p.kubernetes.Objects.Service(r, tags[kind.ServiceNameTag]+"."+tags[kind.NamespaceLabel])
	if !ok {
		return nil
	}
	conditions := service.ExcludedCondition(p.kubernetes.Objects.SlicesOf(r, service))
	if others := p.otherMeshes(r, service, of.Mesh); len(others) > 0 {
		conditions = append(conditions, kind.Condition{Type: kind.MultipleMeshes, Status: "True",
			Reason: convert.MultipleMeshes, Message: severalMeshes(of.Mesh, others)})
	}
	return conditions
}

func severalMeshes(mesh string, others []string) string {
	return fmt.Sprintf("Pods of the mesh %s are behind the Service, and its MeshService is in the mesh %s, whose "+
		"clients do not reach them; give each mesh a Service of its own, with the label kuma.io/mesh",
		strings.Join(others, ", "), mesh)
}

// createService creates the MeshService of a Service, or of one Pod behind a headless one. Unless the Service names its
// mesh, it begins with the first server: before, its clients reach Pods without a proxy. (ADR 32)
func (p *Plan) createService(r *table.Reader, w *Writes, service *convert.Service, namespace *convert.Namespace,
	pod *convert.Pod) {
	k := p.kubernetes
	if namespace == nil || namespace.Terminating || !k.Settings.HasMeshService(service, namespace, false) {
		return
	}
	wanted := k.Settings.MeshService(service, namespace, pod, k.Objects.RoutedProtocols(r, service.Key()))
	if wanted == nil {
		return
	}
	if _, ok := p.State.Tables.Meshes.Find(r, "", wanted.Mesh); !ok {
		return
	}
	if stored, ok := p.State.Tables.Services.Find(r, wanted.Mesh, wanted.Name); ok {
		if !madeFromService(stored) {
			w.Events = append(w.Events, convert.Event{On: service.Ref(), Warning: true,
				Reason: convert.FailedMeshService,
				Message: fmt.Sprintf("%s exists and is not the Service's; delete it, or exclude the Service with the "+
					"annotation kuma.io/ignore", stored.Key())})
		}
		return
	}
	if len(k.services.List(r, wanted.Name)) > 0 {
		return // in another mesh, from which it is deleted first
	}
	if reason := p.excluded.Get(r, rowKey{wanted.Mesh, service.Namespace}); reason != "" {
		w.Events = append(w.Events, convert.Event{On: service.Ref(), Warning: true, Reason: convert.NotAdmitted,
			Message: reason})
		return
	}
	if !wanted.Always && !p.serves(r, wanted.Object) {
		return
	}
	if reason := p.exceeded.Get(r, additionOf(wanted)); reason != "" {
		w.Events = append(w.Events, convert.Event{On: service.Ref(), Warning: true, Reason: convert.FullNamespace,
			Message: reason})
		return
	}
	owner := &resource.Key{Kind: ServiceKind, Name: service.Key()}
	if pod != nil {
		owner = &resource.Key{Kind: PodKind, Name: pod.Key()}
	}
	w.addWrite(servingDelay, Write{Create: wanted.Object, Owner: owner, Report: &Report{On: service.Ref(),
		Done: convert.CreatedMeshService, Failed: convert.FailedMeshService}})
}

// additionOf returns what a new MeshService adds to its namespace.
func additionOf(wanted *convert.MeshService) service.Addition {
	return service.AdditionOf(nil, wanted.Object)
}

// excludedReason returns the reason for which a mesh admits no Pod of a namespace; empty where it may admit one.
func (p *Plan) excludedReason(r *table.Reader, key rowKey) string {
	mesh, ok := p.State.Tables.Meshes.Find(r, "", key.Mesh)
	namespace := p.kubernetes.Objects.Namespace(r, key.Name)
	if !ok || namespace == nil {
		return ""
	}
	return mesh.Spec.DataplaneProxyMembership.NotAdmittedNamespace(key.Mesh, key.Name, namespace.Labels,
		p.State.Tables.Zone)
}

// limitPorts leaves a wanted MeshService the ports that it has, where its Service has more and its namespace may not
// have them, and returns the event about the Service.
func (p *Plan) limitPorts(r *table.Reader, stored *resource.Object[kind.MeshService], wanted *convert.MeshService,
	on convert.Ref) []convert.Event {
	reason := p.exceeded.Get(r, service.AdditionOf(stored, wanted.Object))
	if reason == "" {
		return nil
	}
	wanted.Spec.Ports = stored.Spec.Ports
	return []convert.Event{{On: on, Warning: true, Reason: convert.FullNamespace,
		Message: "the MeshService keeps its former ports: " + reason}}
}

// namespaceConditions returns the condition of a MeshService that a user wrote in a namespace of which the mesh admits
// no Pod. While the objects are not known, it is the former one.
func (p *Plan) namespaceConditions(r *table.Reader, of *resource.Object[kind.MeshService],
	former []kind.Condition) []kind.Condition {
	namespace := of.Label(kind.NamespaceLabel)
	if p.kubernetes == nil || !p.State.Tables.IsBounded(namespace) {
		return nil
	}
	if !p.kubernetes.Objects.IsSynced(r) {
		return conditionsOf(former, kind.NamespaceAdmitted)
	}
	reason := p.excluded.Get(r, rowKey{of.Mesh, namespace})
	if reason == "" {
		return nil
	}
	return []kind.Condition{{Type: kind.NamespaceAdmitted, Status: "False", Reason: convert.NotAdmitted,
		Message: reason}}
}

// conditionsOf returns the conditions of some types.
func conditionsOf(conditions []kind.Condition, types ...string) []kind.Condition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c kind.Condition) bool {
		return !slices.Contains(types, c.Type)
	})
}

// serves reports whether a proxy serves an inbound of a service.
func (p *Plan) serves(r *table.Reader, service *resource.Object[kind.MeshService]) bool {
	for m := range p.State.Services.Members(r, service) {
		if m.Ready {
			return true
		}
	}
	return false
}

// fromService returns what a stored MeshService should be. It is nil where its Service asks for none any more, or the
// Pod that it is for is no longer behind the headless Service. known is false for a MeshService that was not made from
// a Service of this zone, and while the objects are not known.
func (p *Plan) fromService(r *table.Reader, stored *resource.Object[kind.MeshService]) (wanted *convert.MeshService,
	on convert.Ref, known bool) {
	k := p.kubernetes
	if k == nil || !madeFromService(stored) || p.State.Tables.IsRemote(stored) || !k.Objects.IsSynced(r) {
		return nil, on, false
	}
	tags := stored.Spec.Selector.DataplaneTags
	in := tags[kind.NamespaceLabel]
	service, ok := k.Objects.Service(r, tags[kind.ServiceNameTag]+"."+in)
	if !ok {
		return nil, on, true
	}
	namespace := k.Objects.Namespace(r, in)
	total := p.facts.Get(r, state.ServiceKey{Mesh: stored.Mesh, Name: stored.Name}).count.Total
	if !k.Settings.HasMeshService(service, namespace, total > 0) {
		return nil, service.Ref(), true
	}
	var pod *convert.Pod
	if name, instance := tags[kind.InstanceTag]; instance {
		pod, ok = k.Objects.Pods.Get(r, name+"."+in)
		if !ok || pod.IP == "" || pod.Ended || !p.isBackend(r, pod, service) {
			return nil, service.Ref(), true
		}
	}
	wanted = k.Settings.MeshService(service, namespace, pod, k.Objects.RoutedProtocols(r, service.Key()))
	if wanted != nil && (wanted.Mesh != stored.Mesh || wanted.Name != stored.Name ||
		p.excluded.Get(r, rowKey{wanted.Mesh, in}) != "") {
		wanted = nil
	}
	return wanted, service.Ref(), true
}

func (p *Plan) isBackend(r *table.Reader, pod *convert.Pod, service *convert.Service) bool {
	return slices.ContainsFunc(p.kubernetes.Objects.ServicesOf(r, pod), func(s convert.Serves) bool {
		return s.Service == service && !s.Ignored
	})
}

// asWanted returns a MeshService with the selector, ports and labels of its Service. The fields that this control plane
// computes stay. It is the stored one where it has these already.
func asWanted(stored *resource.Object[kind.MeshService],
	wanted *convert.MeshService) *resource.Object[kind.MeshService] {
	labels := maps.Clone(wanted.Labels)
	for _, computed := range []string{kind.DisplayName, kind.OriginLabel, kind.ZoneLabel, kind.EnvLabel,
		kind.NamespaceLabel} {
		if value := stored.Label(computed); value != "" {
			labels[computed] = value
		}
	}
	updated := *stored
	updated.Labels = labels
	updated.Spec.Selector = wanted.Spec.Selector
	updated.Spec.Ports = slices.Clone(wanted.Spec.Ports)
	for i := range updated.Spec.Ports {
		port := &updated.Spec.Ports[i]
		if had, ok := kind.PortNumbered(stored.Spec.Ports, port.Port); ok {
			port.SNIs = had.SNIs
		}
	}
	if maps.Equal(labels, stored.Labels) && sameSpec(updated.Spec, stored.Spec) {
		return stored
	}
	return &updated
}
