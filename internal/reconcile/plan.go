// Package reconcile keeps what the control plane itself writes in line with what users wrote: virtual
// IPs, services made for kuma.io/service tags, certificate authorities and MeshTrusts of MeshIdentities,
// and statuses.
//
// A [Plan] has a derived table of [Writes] for each kind of work, and the runner stores what these say, see
// addFamilies. Steps that wait for acks are not among them: [Plan.For] returns these for one Unit at one time, and when to
// ask again, and the [Reconciler] asks it whenever something that the Unit reads has changed.
package reconcile

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Grace is how long a generated MeshService stays after its last Dataplane.
const Grace = time.Hour

// Unit is what is reconciled at once.
type Unit struct {
	// Kind is that of a resource, or [TagUnit] with the tag's value as the name. MeshZoneAddress, EvictedProxies, [LeavesUnit],
	// [NamesUnit], [SNIUnit] and [ChangingUnit] have no name, and ZoneEgress has neither name nor mesh, for all of the zone.
	Kind, Mesh, Name string
}

// String is its kind, mesh and name.
func (u Unit) String() string { return u.Kind + " " + u.Mesh + "/" + u.Name }

// TagUnit is the kind of units that stand for one value of kuma.io/service.
const TagUnit = "tag"

// Step is one thing to do. Exactly one field is set.
type Step struct {
	Put    resource.Any
	Delete *resource.Key
	Make   *NewSecret
	Settle *Settle
	Leave  *Leave
}

// Leave asks for a row to be deleted once every other zone runs with what rows say, as they are stored, or after
// a time. Where the row has changed meanwhile the unit is asked anew.
type Leave struct {
	Row    *resource.Object[kind.RetainedSNIRoute]
	Rows   []resource.Key
	Within time.Duration
}

// Settle asks for writes once every proxy of a mesh that holds a certificate runs with what rows say, as
// the table has them now. A write whose row has changed meanwhile is left out: the unit is asked anew
// then, and so it is after a restart, which forgets what was waited for.
type Settle struct {
	Topic string // what is waited for; the same is waited for once
	Mesh  string
	// Everybody says that proxies without a certificate are waited for too, as far as they are there.
	Everybody bool
	// Zones says that the proxies of all other zones are waited for too.
	Zones bool
	Rows  []resource.Key
	Then  []resource.Any
	// Renew returns a write of Then for its row as it is after the wait, nil where the write no longer applies. Without it
	// a write applies to the row that it was derived from alone.
	Renew func(r *table.Reader, then resource.Any) resource.Any
}

// NewSecret asks for something that is of the system's random source, stored as a Secret unless that is there by
// then.
type NewSecret struct {
	Key  resource.Key
	Make func(now time.Time) ([]byte, error)
}

// Plan decides what is to be written.
type Plan struct {
	State *graph.State
	// Ranges are where virtual IPs come from.
	Ranges Ranges
	// Behind are the proxies that a topic waits for, as far as it is known; nil where nobody waits.
	Behind func(topic string) []graph.ProxyKey
	// Unconfirmed are the zones that it waits for, in words; empty where it does not.
	Unconfirmed func(topic string) string
	// DrainTime is how long former configuration stays in use after the last proxy has acked the next one: what a proxy
	// sent before its ack may still be on its way.
	DrainTime time.Duration
	// Lives says whether an instance of the control plane is there.
	Lives func(instance string) bool

	gates     map[string]*gate
	refused   *table.Derived[causeKey, refusals]
	facts     *table.Derived[graph.ServiceKey, facts]
	generated *table.Derived[tagKey, *kind.MeshService]
	progress  *table.Derived[rowKey, progress]
	names     *table.Derived[Unit, []hostname]
	// egressSays is what is said of this zone's ZoneEgresses, by the zone.
	egressSays *table.Derived[string, []kind.Condition]
	members    *table.Derived[graph.ServiceKey, members]
	// full says whether a mesh has as many generated services as it may have, and noVIP whether a range has none
	// left.
	full     *table.Derived[string, bool]
	noVIP    *table.Derived[netip.Prefix, bool]
	absences *table.Input[absence]
	absent   *table.Index[absence] // by the Unit that waits
	// instances has one row, which changes when an instance of the control plane comes or goes.
	instances *table.Input[int]
	families  map[string]*family // by the kind of their Units
}

// Global says whether it is the plan of the global control plane, which serves no proxy.
func (p *Plan) Global() bool { return p.State.Zone == "" }

// plannedOnGlobal are the kinds of which the global control plane writes something itself; of all others the
// zones do.
var plannedOnGlobal = map[string]bool{
	kind.MeshMultiZoneServices.Name: true, kind.MeshMultiZoneServiceStatuses.Name: true, kind.SNIFormats.Name: true,
	// Of the roots of trust domains that zones share, and of the builtin backends of mtls.
	kind.Meshes.Name: true, kind.Secrets.Name: true, kind.MeshIdentities.Name: true, kind.MeshTrusts.Name: true,
}

// rowKey names a resource of a kind that is known.
type rowKey struct{ Mesh, Name string }

type tagKey struct{ Mesh, Value string }

// facts are what a MeshService's status is made of.
type facts struct {
	identities string // joined with a space, so that facts are comparable
	secured    bool
	count      kind.DataplaneCount
	refused    refusals
}

// NewPlan adds what plans read to a state, before its first commit.
func NewPlan(state *graph.State, ranges Ranges) *Plan {
	p := &Plan{
		State: state, Ranges: ranges, gates: gates(state),
		Behind: func(string) []graph.ProxyKey { return nil }, Unconfirmed: func(string) string { return "" },
		Lives: func(string) bool { return true }, families: map[string]*family{},
	}
	p.absences = table.NewInput(state.DB, absence.key)
	p.absent = table.NewIndex(p.absences, func(a absence) []string { return []string{a.Unit.String()} })
	p.instances = table.NewInput(state.DB, func(int) string { return "" })
	p.refused = table.NewDerived(state.DB, "NACKs", p.refusedBy, func(a, b refusals) bool { return a == b })
	p.facts = table.NewDerived(state.DB, "service facts", p.serviceFacts, func(a, b facts) bool { return a == b })
	p.generated = table.NewDerived(state.DB, "generated services", p.generatedService, equalServices)
	p.names = table.NewDerived(state.DB, "host names", p.hostnames, slices.Equal)
	p.egressSays = table.NewDerived(state.DB, "conditions of zone egresses", p.egressConditions, slices.Equal)
	p.members = table.NewDerived(state.DB, "members of many zones", p.membersOf, equalMembers)
	p.progress = table.NewDerived(state.DB, "progress of retained endpoints", p.holdProgress, func(a, b progress) bool { return a == b })
	p.full = table.NewDerived(state.DB, "meshes with all generated services", func(r *table.Reader, mesh string) bool {
		return state.Generated(r, mesh) >= graph.MaxGenerated
	}, func(a, b bool) bool { return a == b })
	p.noVIP = table.NewDerived(state.DB, "ranges without a free address", p.rangeIsFull, func(a, b bool) bool { return a == b })
	p.addFamilies()
	return p
}

// lives says whether an instance of the control plane is there.
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

// For answers what one unit needs now, and when to ask again though nothing has changed (zero: never).
func (p *Plan) For(r *table.Reader, u Unit, now time.Time) (steps []Step, again time.Time) {
	switch u.Kind {
	case kind.MeshIdentities.Name:
		return p.identity(r, u.Mesh, u.Name, now)
	case SNIUnit:
		return p.serverNames(r, u.Mesh, now)
	case kind.EvictedProxiesList.Name:
		return p.putOut(r, u.Mesh, now)
	case kind.RetainedSNIRoutes.Name:
		return p.passage(r, u.Mesh, u.Name, now)
	case ChangingUnit:
		return p.changing(r, u.Mesh, now)
	case LeavesUnit:
		return p.leaves(r, u.Mesh, p.State.CertificatesByRoot.List(r, graph.MeshKey(u.Mesh)), now)
	case NamesUnit:
		return p.leaves(r, u.Mesh, p.State.CertificatesChanging.List(r, graph.MeshKey(u.Mesh)), now)
	}
	panic("reconcile: no such unit: " + u.Kind)
}

func (p *Plan) serviceFacts(r *table.Reader, key graph.ServiceKey) facts {
	service, ok := p.State.Services.Find(r, key.Mesh, key.Name)
	if !ok {
		return facts{}
	}
	ids := p.State.ServiceIdentities.Get(r, key)
	f := facts{
		identities: strings.Join(ids, " "), secured: len(ids) > 0,
		refused: p.refused.Get(r, causeOf(kind.MeshServices.Key(key.Mesh, key.Name))),
	}
	for _, m := range p.State.Members(r, service) {
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

// service gives a MeshService its virtual IP, its identities and its status, and ends a generated one
// that nobody serves any more. Another zone's has a virtual IP and names here too, and is else left alone.
func (p *Plan) service(r *table.Reader, u Unit) (w Writes) {
	service, ok := p.State.Services.Find(r, u.Mesh, u.Name)
	if !ok {
		return w
	}
	f := p.facts.Get(r, graph.ServiceKey{Mesh: u.Mesh, Name: u.Name})
	own := !p.State.IsRemote(service)
	if own {
		spec, pace := p.grown(r, service)
		updated, differs := withIdentities(spec, f)
		if differs || spec != service {
			w.add(pace, Write{Put: updated})
		}
	}
	var old kind.MeshServiceStatus
	stored, had := p.State.ServiceStatuses.Find(r, u.Mesh, u.Name)
	if had {
		old = stored.Spec
	}
	status := kind.MeshServiceStatus{
		TLS:        &kind.TLSStatus{Status: "NotReady"},
		Conditions: f.refused.conditions(),
	}
	if own {
		status.DataplaneProxies = &f.count
		status.Conditions = append(status.Conditions, p.heldCondition(r, service)...)
	}
	if f.secured {
		status.TLS.Status = "Ready"
	}
	status.Addresses, status.HostnameGenerators = p.namesOf(r, u)
	if vips, full := p.vipsOf(r, u, old.VIPs); full != nil {
		status.Conditions = append(status.Conditions, *full)
	} else {
		status.VIPs = vips
	}
	if own && service.Label(kind.ManagedBy) == kind.GeneratedBy && f.count.Total == 0 {
		status.Abandoned = cmp.Or(old.Abandoned, &kind.Time{Time: r.Now()})
		if r.Past(status.Abandoned.Add(Grace)) {
			return Writes{Do: []Write{{Delete: service}}}
		}
	}
	served := had && slices.Equal(old.VIPs, status.VIPs) && slices.Equal(old.Addresses, status.Addresses)
	put(&w, pace(served), stored, kind.MeshServiceStatuses.Make(u.Mesh, u.Name, status))
	return w
}

// pace is how long a status may wait: not long, unless what serving needs stands there.
func pace(served bool) time.Duration {
	if served {
		return calmly
	}
	return soon
}

// grown is a service with the ports that proxies serve meanwhile, the same one where it has them. Its ports only grow
// here: one that its last Dataplane took along goes with the service.
func (p *Plan) grown(r *table.Reader, service *resource.Object[kind.MeshService]) (*resource.Object[kind.MeshService], time.Duration) {
	tag := service.Spec.Selector.DataplaneTags[kind.ServiceTag]
	if service.Label(kind.ManagedBy) != kind.GeneratedBy || serviceName(tag) != service.Name {
		return service, calmly
	}
	wanted := p.generated.Get(r, tagKey{service.Mesh, tag})
	if wanted == nil {
		return service, calmly
	}
	ports := mergePorts(service.Spec.Ports, wanted.Ports)
	if slices.EqualFunc(ports, service.Spec.Ports, equalPorts) {
		return service, calmly
	}
	updated := *service
	updated.Spec.Ports = ports
	return &updated, soon
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

// generatedService is the MeshService of a tag, with the ports that proxies serve. It is nil where a MeshService
// for the tag was written, and where no proxy serves an inbound with the tag: a Dataplane that was only registered
// makes nothing that other proxies, or other zones, read. (ADR 32)
func (p *Plan) generatedService(r *table.Reader, key tagKey) *kind.MeshService {
	for _, service := range p.State.ServicesByTag.List(r, graph.TagKey(key.Mesh, kind.ServiceTag, key.Value)) {
		if !p.State.IsRemote(service) && service.Label(kind.ManagedBy) != kind.GeneratedBy {
			return nil
		}
	}
	generated := kind.MeshServices.Make(key.Mesh, serviceName(key.Value), kind.MeshService{
		Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: key.Value}},
	})
	spec := &generated.Spec
	for _, m := range p.State.Members(r, generated) {
		if m.Ready && !slices.ContainsFunc(spec.Ports, func(port kind.ServicePort) bool { return port.Port == m.Inbound.Port }) {
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

// generatedPort has the inbound's name, unless that is the number, as it is by default.
func generatedPort(in *kind.Inbound) kind.ServicePort {
	port := kind.ServicePort{Port: in.Port, AppProtocol: in.Protocol}
	if in.Name != strconv.Itoa(int(in.Port)) {
		port.Name = in.Name
	}
	return port
}

// tag makes the generated service, unless a service has its name.
func (p *Plan) tag(r *table.Reader, u Unit) (w Writes) {
	name := serviceName(u.Name)
	if _, stored := p.State.Services.Find(r, u.Mesh, name); stored {
		return w
	}
	wanted := p.generated.Get(r, tagKey{u.Mesh, u.Name})
	switch {
	case wanted == nil:
	case p.full.Get(r, u.Mesh):
		w.Notices = []Notice{{slog.LevelWarn, "no service is generated for a tag: the mesh has as many as it may have; write a MeshService for it, or remove services",
			[]any{"mesh", u.Mesh, "tag", kind.ServiceTag, "value", u.Name, "bound", graph.MaxGenerated}}}
	default:
		service := kind.MeshServices.Make(u.Mesh, name, *wanted)
		service.Labels = map[string]string{kind.ManagedBy: kind.GeneratedBy}
		w.add(soon, Write{Create: service})
	}
	return w
}

// mergePorts adds ports to those that a service has, up to [kind.MaxServicePorts].
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

// inOrder sorts ports by their number, and leaves a name to the first that has it: inbounds of several
// Dataplanes may be called the same.
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

// serviceName makes a resource's name of a tag's value: lower case letters, digits and dashes.
func serviceName(tag string) string {
	name := strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			return c
		case 'A' <= c && c <= 'Z':
			return c - 'A' + 'a'
		}
		return '-'
	}, tag)
	if name = strings.Trim(name, "-"); name == tag && len(name) <= 63 {
		return name
	}
	h := fnv.New32a()
	h.Write([]byte(tag))
	return fmt.Sprintf("%s-%08x", strings.Trim(name[:min(len(name), 54)], "-"), h.Sum32())
}
