// Package reconcile writes the resources that the control plane owns: virtual IPs, services generated for
// kuma.io/service tags, CAs and MeshTrusts of MeshIdentities, the steps of their rotation, and statuses. They follow
// from the resources of users.
//
// Every write is a derived value. A [Plan] has a derived table of [Writes] for each kind of [Request], and the runner
// stores their values; see addFamilies. A write that must follow acks reads the rows of package barrier, and states in
// its Writes what it waits for.
package reconcile

import (
	"cmp"
	"iter"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"weft/internal/barrier"
	"weft/internal/graph"
	"weft/internal/kube/convert"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Grace is how long a generated MeshService stays after its last Dataplane is deleted.
const Grace = time.Hour

// Request identifies what is reconciled together.
type Request struct {
	// Kind is the kind of a resource, or [TagKind] with the value of the tag as the name. MeshZoneAddress,
	// EvictedProxies, ChangingIdentities, [ProvidersKind], [SNIKind] and [PlaintextKind] have a mesh and no name.
	// ZoneEgress has neither: one Request covers the zone.
	Kind, Mesh, Name string
}

// String returns "KIND MESH/NAME".
func (u Request) String() string { return u.Kind + " " + u.Mesh + "/" + u.Name }

// TagKind is the kind of requests for one value of the tag kuma.io/service.
const TagKind = "tag"

// NewSecret is a Secret to create from random data, unless it exists.
type NewSecret struct {
	Key  resource.Key
	Make func(now time.Time) ([]byte, error)
}

// Plan derives the control plane's own writes from the state.
type Plan struct {
	State *graph.State
	// Ranges are the networks of virtual IPs.
	Ranges Ranges
	// DrainTime is how long former configuration stays in use after the last ack of the next one, since traffic that a
	// proxy sent before its ack may still be in flight.
	DrainTime time.Duration
	// Lives returns true while an instance of the control plane is alive.
	Lives func(instance string) bool
	// Unpermitted returns why a user may not write a conf of a MeshProxyPatch, empty where a user may; nil: any may.
	Unpermitted func(*kind.ProxyPatchConf) string
	// Acks has the progress of the conditions that the writes state.
	Acks *barrier.Rows

	kubernetes     *Kubernetes // nil outside Kubernetes
	zoneProxyRoles map[string]*zoneProxyRole
	nacks          table.Derived[causeKey, nackSummary]
	rejected       table.Derived[state.ProxyKey, string] // see rejectedListener
	facts          table.Derived[state.ServiceKey, facts]
	generated      table.Derived[tagKey, *kind.MeshService]
	// excluded is the reason for which a mesh admits no Pod of a namespace, by both, and exceeded that for which a
	// namespace may not have an addition; empty: none. The Services that wait are computed again where a reason
	// changes.
	excluded           table.Derived[rowKey, string]
	exceeded           table.Derived[service.Addition, string]
	progress           table.Derived[rowKey, progress]
	hostnamesByService table.Derived[Request, []hostname]
	// egressStatus has the conditions of this zone's ZoneEgresses, by zone.
	egressStatus table.Derived[string, []kind.Condition]
	members      table.Derived[state.ServiceKey, members]
	// notAdmitted are the evicted proxies of a shard, with the ends of their certificates.
	notAdmitted table.Derived[state.Shard, []kind.EvictedProxy]
	announced   table.Derived[state.Shard, announced]
	// full is true where a mesh has the largest number of generated services, and noVIP where a range has no free
	// address.
	full              table.Derived[string, bool]
	noVIP             table.Derived[netip.Prefix, bool]
	absences          table.Input[absence]
	absencesByRequest table.Index[absence] // by the Request that waits
	// failures has the writes that fail, by their Request.
	failures    table.Input[failure]
	allFailures table.Index[failure]
	// servicesMoving and multiZoneMoving find the services of which a port has several SNIs, by their mesh.
	servicesMoving  table.Index[*resource.Object[kind.MeshService]]
	multiZoneMoving table.Index[*resource.Object[kind.MeshMultiZoneService]]
	// instances has one row, the live instances of the control plane.
	instances table.Input[[]string]
	// computed has the parts of statuses that are computed outside of the table, by their resource, in a zone on
	// Kubernetes.
	computed table.Input[*ComputedStatus]
	families map[string]*family // by the kind of their Requests
}

// Global returns true for the global control plane, which serves no proxies.
func (p *Plan) Global() bool { return p.State.Tables.Zone == "" }

// rowKey identifies a resource whose kind is given by the context.
type rowKey struct{ Mesh, Name string }

type tagKey struct{ Mesh, Value string }

// facts are the inputs of a MeshService's status.
type facts struct {
	identities string // SPIFFE IDs joined with a space, to keep facts comparable
	secured    bool
	count      kind.DataplaneCount
	nacks      nackSummary
}

// NewPlan returns a plan and adds its derived tables to a state. It must be called before the state's first commit. k
// is nil outside Kubernetes.
func NewPlan(g *graph.State, ranges Ranges, k *Kubernetes) *Plan {
	p := &Plan{
		State: g, kubernetes: k, Ranges: ranges, zoneProxyRoles: zoneProxyRoles(g),
		Lives: func(string) bool { return true }, Acks: barrier.NewRows(g.Tables.DB), families: map[string]*family{},
	}
	p.absences = table.NewInput(g.Tables.DB, absence.key)
	p.absencesByRequest = table.NewIndex(p.absences, func(a absence) []string { return []string{a.Request.String()} })
	p.failures = table.NewInput(g.Tables.DB, func(f failure) string { return f.Request.String() })
	p.allFailures = table.NewIndex(p.failures, func(failure) []string { return []string{""} })
	p.servicesMoving = table.NewIndex(g.Tables.Services, movingSNIs[kind.MeshService])
	p.multiZoneMoving = table.NewIndex(g.Tables.MultiZoneServices, movingSNIs[kind.MeshMultiZoneService])
	p.instances = table.NewInput(g.Tables.DB, func([]string) string { return "" })
	p.computed = table.NewInput(g.Tables.DB, func(c *ComputedStatus) string { return c.Of.String() })
	p.nacks = table.NewDerived(g.Tables.DB, "NACKs", p.summarizeNACKs, func(a, b nackSummary) bool { return a == b })
	p.rejected = table.NewDerived(g.Tables.DB, "rejected listener of a proxy", p.rejectedListener,
		func(a, b string) bool { return a == b })
	p.facts = table.NewDerived(g.Tables.DB, "service facts", p.serviceFacts, func(a, b facts) bool { return a == b })
	p.generated = table.NewDerived(g.Tables.DB, "generated services", p.generatedService, equalServices)
	p.hostnamesByService = table.NewDerived(g.Tables.DB, "host names", p.hostnames, slices.Equal)
	p.egressStatus = table.NewDerived(g.Tables.DB, "conditions of zone egresses", p.egressConditions, slices.Equal)
	p.members = table.NewDerived(g.Tables.DB, "members of many zones", p.membersOf, equalMembers)
	p.notAdmitted = table.NewDerived(g.Tables.DB, "evicted proxies of a shard", p.notAdmittedIn, slices.Equal)
	p.announced = table.NewDerived(g.Tables.DB, "announced SPIFFE IDs of a shard", p.announcedIn, announced.equal)
	p.progress = table.NewDerived(g.Tables.DB, "progress of retained endpoints", p.retainProgress,
		func(a, b progress) bool {
			return a == b
		})
	p.full = table.NewDerived(
		g.Tables.DB,
		"meshes with all generated services",
		func(r *table.Reader, mesh string) bool {
			return g.Services.GeneratedCount(r, mesh) >= service.MaxGenerated
		},
		func(a, b bool) bool { return a == b },
	)
	p.noVIP = table.NewDerived(g.Tables.DB, "ranges without a free address", p.rangeIsFull, func(a, b bool) bool {
		return a == b
	})
	p.excluded = table.NewDerived(g.Tables.DB, "namespaces that a mesh excludes", p.excludedReason, equal[string])
	p.exceeded = table.NewDerived(g.Tables.DB, "full namespaces", func(r *table.Reader, a service.Addition) string {
		return g.Services.ExceededBound(r, a, service.Addition{})
	}, equal[string])
	p.addFamilies()
	return p
}

func equal[V comparable](a, b V) bool { return a == b }

// lives returns true while an instance of the control plane is alive, and makes the reader depend on it.
func (p *Plan) lives(r *table.Reader, instance string) bool {
	p.instances.Get(r, "")
	return p.Lives(instance)
}

func equalServices(a, b *kind.MeshService) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(a.Ports, b.Ports, equalPorts)
}

func equalPorts(a, b kind.ServicePort) bool {
	return a.Port == b.Port && a.Name == b.Name && a.AppProtocol == b.AppProtocol
}

func (p *Plan) serviceFacts(r *table.Reader, key state.ServiceKey) facts {
	if _, ok := p.State.Tables.Services.Find(r, key.Mesh, key.Name); !ok {
		return facts{}
	}
	ids := p.State.Services.ServiceIdentities.Get(r, key)
	f := facts{
		identities: strings.Join(ids, " "), secured: len(ids) > 0,
		nacks: p.nacks.Get(r, causeOf(kind.MeshServices.Key(key.Mesh, key.Name))),
	}
	for _, m := range p.State.Services.ServiceMembers.Get(r, key) {
		f.count.Total++
		if m.Ready {
			f.count.Connected++
		}
		if m.Ready && m.Healthy {
			f.count.Healthy++
		}
	}
	return f
}

// service writes the virtual IP, the identities, the SNIs and the status of a MeshService, and deletes a generated one
// that has had no Dataplane for [Grace]. A service of another zone gets only a virtual IP and host names.
func (p *Plan) service(r *table.Reader, u Request) (w Writes) {
	service, ok := p.State.Tables.Services.Find(r, u.Mesh, u.Name)
	if !ok {
		return w
	}
	f := p.facts.Get(r, state.ServiceKey{Mesh: u.Mesh, Name: u.Name})
	own := !p.State.Tables.IsRemote(service)
	wanted, on, made := p.fromService(r, service)
	if made && wanted == nil {
		w.addWrite(servingDelay, Write{Delete: service})
		return w
	}
	if own {
		spec, delay := p.grown(r, service)
		if made {
			w.Events = p.limitPorts(r, service, wanted, on)
			spec, delay = asWanted(service, wanted), servingDelay
		}
		updated, differs := withIdentities(spec, f)
		var report *Report
		if made && spec != service {
			report = &Report{On: on, Done: convert.UpdatedMeshService, Failed: convert.FailedMeshService}
		}
		if named := p.withSNIs(r, updated); named != nil {
			w.addWrite(servingDelay, Write{Put: named, Report: report})
		} else if differs || spec != service {
			w.addWrite(delay, Write{Put: updated, Report: report})
		}
	}
	var old kind.MeshServiceStatus
	stored, had := p.State.Tables.ServiceStatuses.Find(r, u.Mesh, u.Name)
	if had {
		old = stored.Spec
	}
	status := kind.MeshServiceStatus{
		TLS:        &kind.TLSStatus{Status: "NotReady"},
		Conditions: append(f.nacks.conditions(), p.reconciled(r, u)...),
	}
	if own {
		status.DataplaneProxies = &f.count
		status.Conditions = append(status.Conditions, p.retainedCondition(r, service)...)
	}
	if made {
		status.Conditions = append(status.Conditions, p.unreachedServers(r, service)...)
	} else if own && p.kubernetes != nil && madeFromService(service) { // until the objects are known
		status.Conditions = append(status.Conditions, conditionsOf(old.Conditions, convert.EndpointsExcluded,
			kind.MultipleMeshes)...)
	} else if own {
		status.Conditions = append(status.Conditions, p.namespaceConditions(r, service, old.Conditions)...)
	}
	if f.secured {
		status.TLS.Status = "Ready"
	}
	status.Addresses, status.HostnameGenerators = p.hostnamesOf(r, u)
	if made {
		status.VIPs = wanted.VIPs
	} else if p.kubernetes != nil && own && madeFromService(service) {
		status.VIPs = old.VIPs // until the objects are known
	} else {
		vips, unassigned := p.vipsOf(r, u, old.VIPs)
		status.VIPs, status.Conditions = vips, append(status.Conditions, unassigned...)
	}
	if own && service.Label(kind.ManagedBy) == kind.GeneratedBy && !madeFromService(service) && f.count.Total == 0 {
		status.Abandoned = cmp.Or(old.Abandoned, &kind.Time{Time: r.Now()})
		if r.Past(status.Abandoned.Add(Grace)) {
			return Writes{Do: []Write{{Delete: service}}}
		}
	}
	served := had && slices.Equal(old.VIPs, status.VIPs) && slices.Equal(old.Addresses, status.Addresses)
	putIfDifferent(&w, delayUntilServed(served), stored, kind.MeshServiceStatuses.Make(u.Mesh, u.Name, status))
	return w
}

// delayUntilServed returns the delay of a status write: short until the service has what clients need, long afterwards.
func delayUntilServed(served bool) time.Duration {
	if served {
		return statusDelay
	}
	return servingDelay
}

// grown returns a generated service with the ports that proxies serve by now, or the service itself where it has them.
// Ports are only added; a port goes with the service.
func (p *Plan) grown(r *table.Reader, service *resource.Object[kind.MeshService]) (*resource.Object[kind.MeshService],
	time.Duration) {
	tag := service.Spec.Selector.DataplaneTags[kind.ServiceTag]
	if service.Label(kind.ManagedBy) != kind.GeneratedBy || kind.GeneratedName(tag) != service.Name {
		return service, statusDelay
	}
	wanted := p.generated.Get(r, tagKey{service.Mesh, tag})
	if wanted == nil {
		return service, statusDelay
	}
	ports := mergePorts(service.Spec.Ports, wanted.Ports)
	if slices.EqualFunc(ports, service.Spec.Ports, equalPorts) {
		return service, statusDelay
	}
	updated := *service
	updated.Spec.Ports = ports
	return &updated, servingDelay
}

func withIdentities(service *resource.Object[kind.MeshService], f facts) (*resource.Object[kind.MeshService], bool) {
	state := "Unavailable"
	if f.count.Healthy > 0 {
		state = "Available"
	}
	var ids []kind.ServiceIdentity
	if tag, ok := service.Spec.Selector.DataplaneTags[kind.ServiceTag]; ok {
		ids = append(ids, kind.ServiceIdentity{Type: kind.ServiceTagIdentity, Value: tag})
	}
	for _, id := range strings.Fields(f.identities) {
		ids = append(ids, kind.ServiceIdentity{Type: kind.SpiffeIdentity, Value: id})
	}
	if service.Spec.State == state && slices.Equal(service.Spec.Identities, ids) {
		return service, false
	}
	updated := *service
	updated.Spec.State, updated.Spec.Identities = state, ids
	return &updated, true
}

// generatedService returns the MeshService of a tag, with the ports that proxies serve. It is nil where a user has
// written a MeshService for the tag, and where no proxy serves an inbound with the tag: a Dataplane that is only
// registered creates nothing that other proxies or zones read. (ADR 32)
func (p *Plan) generatedService(r *table.Reader, key tagKey) *kind.MeshService {
	for _, service := range p.State.Tables.ServicesByTag.List(r, state.TagKey(key.Mesh, kind.ServiceTag, key.Value)) {
		if !p.State.Tables.IsRemote(service) && service.Label(kind.ManagedBy) != kind.GeneratedBy {
			return nil
		}
	}
	generated := kind.MeshServices.Make(key.Mesh, kind.GeneratedName(key.Value), kind.MeshService{
		Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: key.Value}},
	})
	spec := &generated.Spec
	for m := range p.membersFor(r, generated) {
		if m.Ready && !slices.ContainsFunc(spec.Ports, func(port kind.ServicePort) bool {
			return port.Port == m.Inbound.Port
		}) {
			spec.Ports = append(spec.Ports, generatedPort(&m.Inbound))
		}
	}
	if len(spec.Ports) == 0 {
		return nil
	}
	spec.Ports = inOrder(spec.Ports)
	spec.Ports = spec.Ports[:min(len(spec.Ports), kind.MaxServicePorts)]
	return spec
}

// membersFor returns the members of a generated service. Those of a stored one with the same selector are computed once
// for all their readers.
func (p *Plan) membersFor(r *table.Reader, generated *resource.Object[kind.MeshService]) iter.Seq[*service.Member] {
	stored, ok := p.State.Tables.Services.Find(r, generated.Mesh, generated.Name)
	if ok && !p.State.Tables.IsRemote(stored) && reflect.DeepEqual(stored.Spec.Selector, generated.Spec.Selector) {
		key := state.ServiceKey{Mesh: generated.Mesh, Name: generated.Name}
		return slices.Values(p.State.Services.ServiceMembers.Get(r, key))
	}
	return p.State.Services.Members(r, generated)
}

// generatedPort returns the port of an inbound. It has the inbound's name, except the default name, which is the
// number.
func generatedPort(in *kind.Inbound) kind.ServicePort {
	port := kind.ServicePort{Port: in.Port, AppProtocol: in.Protocol}
	if in.Name != strconv.Itoa(int(in.Port)) {
		port.Name = in.Name
	}
	return port
}

// tag creates the generated service of a tag, unless a service with that name exists.
func (p *Plan) tag(r *table.Reader, u Request) (w Writes) {
	name := kind.GeneratedName(u.Name)
	if _, stored := p.State.Tables.Services.Find(r, u.Mesh, name); stored {
		return w
	}
	wanted := p.generated.Get(r, tagKey{u.Mesh, u.Name})
	switch {
	case wanted == nil:
	case p.full.Get(r, u.Mesh):
		w.Notices = []Notice{{slog.LevelWarn,
			"no service is generated for a tag: the mesh has as many as it may have; write a MeshService for it, or " +
				"remove services",
			[]any{"mesh", u.Mesh, "tag", kind.ServiceTag, "value", u.Name, "bound", service.MaxGenerated}}}
	default:
		service := kind.MeshServices.Make(u.Mesh, name, *wanted)
		service.Labels = map[string]string{kind.ManagedBy: kind.GeneratedBy}
		w.addWrite(servingDelay, Write{Create: service})
	}
	return w
}

// mergePorts returns old with the wanted ports added or replaced, up to [kind.MaxServicePorts].
func mergePorts(old, wanted []kind.ServicePort) []kind.ServicePort {
	ports := slices.Clone(old)
	for _, port := range wanted {
		i := slices.IndexFunc(ports, func(had kind.ServicePort) bool { return had.Port == port.Port })
		switch {
		case i >= 0:
			ports[i] = port
		case len(ports) < kind.MaxServicePorts:
			ports = append(ports, port)
		}
	}
	return inOrder(ports)
}

// inOrder sorts ports by number. Of several ports with one name, the first keeps the name, since inbounds of several
// Dataplanes may have the same name.
func inOrder(ports []kind.ServicePort) []kind.ServicePort {
	slices.SortFunc(ports, func(a, b kind.ServicePort) int { return cmp.Compare(a.Port, b.Port) })
	taken := map[string]bool{}
	for i := range ports {
		if taken[ports[i].Name] {
			ports[i].Name = ""
		}
		taken[ports[i].Name] = true
	}
	return ports
}
