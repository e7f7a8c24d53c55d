package scenario

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// policiesScenario measures a mesh with and without policies: changes of an endpoint, edits of a policy, the encoded
// resources that proxy groups share, and the memory of a proxy.
type policiesScenario struct {
	Proxies  int // connected, at least 2
	Services int // which the proxies share evenly and all reach
	// Policies is their number, at least 5. Four of them are about the whole mesh, and each other one is about a team
	// of proxies, which is a proxy group.
	Policies int
	Changes  int // of one endpoint each, and edits of one policy each
}

// PoliciesReport has the measurements of one control plane, with its store, in a process of its own.
type PoliciesReport struct {
	Proxies  int `json:"proxies"`
	Services int `json:"services"`
	Policies int `json:"policies"`

	ProxyGroups int `json:"proxyGroups"` // with the policies
	// Clusters is the number of different clusters that all proxy groups together were sent, before and after the
	// policies were written, and Routes that of routes. Without sharing, each group would have its own.
	Clusters int `json:"clusters"`
	Routes   int `json:"routes"`

	PlainChange    ChangeCost `json:"plainChange"`    // of an endpoint, without policies
	EndpointChange ChangeCost `json:"endpointChange"` // of an endpoint, with the policies
	TeamEdit       ChangeCost `json:"teamEdit"`       // of the policy of a team, about one service
	MeshEdit       ChangeCost `json:"meshEdit"`       // of a policy of the whole mesh, about one service

	WriteSeconds    float64 `json:"writeSeconds"`    // from the first written policy until all proxies are in sync
	WriteCPUSeconds float64 `json:"writeCPUSeconds"` // of the control plane, meanwhile
	FirstSeconds    float64 `json:"firstSeconds"`    // until every proxy has its first configuration, with the policies
	FirstCPUSeconds float64 `json:"firstCPUSeconds"` // of the control plane, meanwhile
	MemoryBytes     int64   `json:"memoryBytes"`     // for each connected proxy that is in sync
	RSSBytes        int64   `json:"rssBytes"`        // of the control plane with all proxies, after a collection
}

// ChangeCost is the mean cost of one change.
type ChangeCost struct {
	Proxies   int     `json:"proxies"`   // that get it
	CPUMicros float64 `json:"cpuMicros"` // of the control plane
	Bytes     int64   `json:"bytes"`     // to all proxies together
	Millis    float64 `json:"millis"`    // until the last proxy has it
}

// meshPolicies is the number of policies of the whole mesh.
const meshPolicies = 4

// policiesRun is one measurement.
type policiesRun struct {
	*run
	policies int
}

// AddFlags adds the sizes of the measurement.
func (o *policiesScenario) AddFlags(flags *pflag.FlagSet) {
	addProxies(flags, &o.Proxies, 10_000)
	flags.IntVar(&o.Policies, "policies", 500, "policies, of which all but four are of one team of proxies each")
	addServices(flags, &o.Services, 300)
	flags.IntVar(&o.Changes, "changes", 20, "changes of an endpoint, and edits of a policy")
}

func (o *policiesScenario) check() error {
	if o.Proxies < 2 || o.Services < 1 || o.Services > o.Proxies || o.Policies <= meshPolicies || o.Changes < 1 {
		return fmt.Errorf("want 2 proxies or more, 1 to %d services, %d policies or more and 1 change or more; "+
			"got %d, %d, %d and %d", o.Proxies, meshPolicies+1, o.Proxies, o.Services, o.Policies, o.Changes)
	}
	return nil
}

func (o *policiesScenario) measure(ctx context.Context, d *deployment) (Report, error) {
	plane, err := d.start("zone")
	if err != nil {
		return nil, err
	}
	w := &world{Environment: &d.Environment, Proxies: o.Proxies, Services: o.Services, Changes: o.Changes,
		Plane: plane, Quiet: quietTime}
	r := &policiesRun{run: &run{world: w, diagnostics: plane.Admin, nodes: w.nodes(), change: w.flip},
		policies: o.Policies}
	report := &PoliciesReport{Proxies: o.Proxies, Services: o.Services, Policies: o.Policies}
	if err := runSteps(ctx, report, r.prepare, r.measureWrite, r.measureSharing, r.measureEdits,
		r.measureSize); err != nil {
		return nil, err
	}
	return report, r.fleet.disconnect()
}

// prepare connects all proxies, and measures changes of an endpoint without a policy.
func (r *policiesRun) prepare(ctx context.Context, report *PoliciesReport) error {
	r.logProgress("writing %d Dataplanes of %d services into the mesh %s", r.Proxies, r.Services, meshName)
	if _, err := r.Plane.Admin.Put(ctx, kind.Meshes.Make("", meshName, kind.Mesh{}), kind.Meshes); err != nil {
		return err
	}
	err := r.each(ctx, r.Proxies, func(ctx context.Context, i int) error {
		_, err := r.Plane.Admin.Put(ctx, r.member(i, kind.Ready), kind.Dataplanes)
		return err
	})
	if err != nil {
		return err
	}
	target, err := r.target(ctx)
	if err != nil {
		return err
	}
	r.change = func(ctx context.Context, n int) error {
		state := kind.NotReady
		if n%2 == 1 {
			state = kind.Ready
		}
		_, err := r.Plane.Admin.Put(ctx, r.member(n/2%r.Proxies, state), kind.Dataplanes)
		return err
	}
	r.fleet = newFleet(target, func(p *proxy) bool {
		return p.listens && p.open == 0 && len(p.subscribed[xds.Endpoint]) >= r.Services
	})
	r.logProgress("connecting %d proxies", r.Proxies)
	if err := r.fleet.connect(ctx, r.nodes); err != nil {
		return err
	}
	if _, err := r.fleet.quiet(ctx, r.Quiet); err != nil {
		return err
	}
	report.PlainChange, err = r.measureEndpoints(ctx)
	return err
}

// member is proxy i, with the label of its team.
func (r *policiesRun) member(i int, state kind.InboundState) *resource.Object[kind.Dataplane] {
	dp := r.dataplane(i, state)
	dp.Labels = map[string]string{team: r.teamOf(i)}
	return dp
}

func (r *policiesRun) teams() int { return r.policies - meshPolicies }

func (r *policiesRun) teamOf(i int) string { return fmt.Sprintf("team-%d", i%r.teams()) }

// size is the number of the proxies of a team.
func (r *policiesRun) size(of int) int {
	if of < r.Proxies%r.teams() {
		return r.Proxies/r.teams() + 1
	}
	return r.Proxies / r.teams()
}

// measureEndpoints returns the mean cost of a change of an endpoint.
func (r *policiesRun) measureEndpoints(ctx context.Context) (ChangeCost, error) {
	var cost Cost
	if err := r.measureChanges(ctx, &cost); err != nil {
		return ChangeCost{}, err
	}
	if r.Changes%2 == 1 { // the last change removed an endpoint, which the next measurement would remove again
		if _, err := r.measureChange(ctx, r.Changes); err != nil {
			return ChangeCost{}, err
		}
	}
	return ChangeCost{Proxies: r.Proxies, CPUMicros: cost.ChangeCPUMicros,
		Bytes: cost.ChangeBytes * int64(r.Proxies), Millis: cost.ChangeP50Millis}, nil
}

// measuredServices is the number of services that teams have policies about. Policies of several teams about one
// service are equal.
func (r *policiesRun) measuredServices() int { return max(1, r.Services/10) }

// policy is policy i with a conf that differs for each edit. The first [meshPolicies] are of the whole mesh.
func (r *policiesRun) policy(i, edit int) (resource.Any, resource.Descriptor) {
	name := fmt.Sprintf("policy-%d", i)
	var target *kind.TargetRef
	about := kind.DestinationRef{Kind: kind.MeshServices.Name, Name: r.aboutService(i)}
	if i >= meshPolicies {
		target = &kind.TargetRef{Kind: "Dataplane", Labels: map[string]string{team: r.teamOf(i - meshPolicies)}}
	}
	n := uint32(100 + edit)
	switch i % 4 {
	case 0:
		after := kind.Duration(time.Duration(n) * time.Second)
		conf := kind.TimeoutConf{ConnectionTimeout: &after}
		return kind.MeshTimeouts.Make(meshName, name,
			kind.MeshTimeout{TargetRef: target, To: toItem(about, conf)}), kind.MeshTimeouts
	case 1:
		conf := kind.CircuitBreakerConf{ConnectionLimits: &kind.ConnectionLimits{MaxConnections: &n}}
		return kind.MeshCircuitBreakers.Make(meshName, name,
			kind.MeshCircuitBreaker{TargetRef: target, To: toItem(about, conf)}), kind.MeshCircuitBreakers
	case 2:
		least := &kind.LoadBalancer{Type: kind.LeastRequest, LeastRequest: &kind.LeastRequestConfig{ChoiceCount: &n}}
		conf := kind.LoadBalancingConf{LoadBalancer: least}
		return kind.MeshLoadBalancingStrategies.Make(meshName, name,
				kind.MeshLoadBalancingStrategy{TargetRef: target, To: toItem(about, conf)}),
			kind.MeshLoadBalancingStrategies
	default:
		conf := kind.RetryConf{HTTP: &kind.HTTPRetries{RequestRetries: kind.RequestRetries{NumRetries: &n}}}
		return kind.MeshRetries.Make(meshName, name,
			kind.MeshRetry{TargetRef: target, To: toItem(about, conf)}), kind.MeshRetries
	}
}

// toItem returns a conf about one destination.
func toItem[C any](about kind.DestinationRef, conf C) []kind.ToItem[C] {
	return []kind.ToItem[C]{{TargetRef: about, Default: conf}}
}

// aboutService is the service that policy i is about.
func (r *policiesRun) aboutService(i int) string {
	return fmt.Sprintf("service-%d", i%r.measuredServices())
}

func (r *policiesRun) put(ctx context.Context, i, edit int) error {
	o, of := r.policy(i, edit)
	_, err := r.Plane.Admin.Put(ctx, o, of)
	return err
}

// measureWrite writes the policies while all proxies are connected.
func (r *policiesRun) measureWrite(ctx context.Context, report *PoliciesReport) error {
	r.logProgress("writing %d policies", r.policies)
	before, err := processStats(ctx, r.diagnostics)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := r.each(ctx, r.policies, func(ctx context.Context, i int) error { return r.put(ctx, i, 0) }); err != nil {
		return err
	}
	end, err := r.fleet.quiet(ctx, r.Quiet)
	if err != nil {
		return err
	}
	after, err := processStats(ctx, r.diagnostics)
	report.WriteSeconds = end.Sub(start).Seconds()
	report.WriteCPUSeconds = seconds(after.CPUNanoseconds - before.CPUNanoseconds)
	return err
}

// measureSharing reconnects all proxies, and counts the different resources that they were sent.
func (r *policiesRun) measureSharing(ctx context.Context, report *PoliciesReport) error {
	if err := r.fleet.disconnect(); err != nil {
		return err
	}
	if err := r.awaitNoStream(ctx); err != nil {
		return err
	}
	var cost Cost
	if err := r.measureFirst(ctx, &cost); err != nil {
		return err
	}
	metrics, err := r.metrics(ctx)
	report.FirstSeconds, report.FirstCPUSeconds = cost.FirstSeconds, cost.FirstCPUSeconds
	report.Clusters, report.Routes = r.fleet.reader.distinct(xds.Cluster), r.fleet.reader.distinct(xds.Route)
	report.ProxyGroups = int(metrics["weft_proxy_groups"])
	return err
}

// awaitNoStream waits until the control plane has no stream, so that it has no configuration in use.
func (r *policiesRun) awaitNoStream(ctx context.Context) error {
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		metrics, err := r.metrics(ctx)
		if err != nil || metrics["weft_xds_streams"] == 0 {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("streams are open %s after the proxies have disconnected", timeout)
}

// measureEdits measures changes of an endpoint with the policies, and edits of policies.
func (r *policiesRun) measureEdits(ctx context.Context, report *PoliciesReport) (err error) {
	if report.EndpointChange, err = r.measureEndpoints(ctx); err != nil {
		return err
	}
	if report.TeamEdit, err = r.measureEdit(ctx, meshPolicies, r.size(0)); err != nil {
		return err
	}
	report.MeshEdit, err = r.measureEdit(ctx, meshEdited, r.Proxies-r.overriding(meshEdited))
	return err
}

// meshEdited is the policy of the whole mesh that is edited.
const meshEdited = 1

// overriding is the number of proxies whose team's policy of the same kind about the same service overrides a policy of
// the mesh.
func (r *policiesRun) overriding(policy int) int {
	n := 0
	for i := meshPolicies; i < r.policies; i++ {
		if i%4 == policy%4 && r.aboutService(i) == r.aboutService(policy) {
			n += r.size(i - meshPolicies)
		}
	}
	return n
}

// measureEdit returns the mean cost of an edit of a policy that proxies get as a cluster of the service that it is
// about.
func (r *policiesRun) measureEdit(ctx context.Context, policy, proxies int) (ChangeCost, error) {
	r.logProgress("%d edits of a policy of %d proxies", r.Changes, proxies)
	cost := ChangeCost{Proxies: proxies}
	r.fleet.bytes.Store(0)
	before, err := processStats(ctx, r.diagnostics)
	if err != nil {
		return cost, err
	}
	var took time.Duration
	for edit := range r.Changes {
		service := r.aboutService(policy)
		expected := r.fleet.expectOf(proxies, service, func(m *message) bool {
			return m.typ == xds.Cluster && slices.ContainsFunc(m.parts, func(p *part) bool {
				return strings.Contains(p.name, "__"+service+"_")
			})
		})
		start := time.Now()
		if err := r.put(ctx, policy, edit+1); err != nil {
			return cost, err
		}
		end, err := r.fleet.reached(ctx, expected)
		if err != nil {
			return cost, fmt.Errorf("edit %d: %w", edit, err)
		}
		took += end.Sub(start)
		if _, err := r.fleet.quiet(ctx, acknowledging); err != nil {
			return cost, err
		}
	}
	after, err := processStats(ctx, r.diagnostics)
	n := int64(r.Changes)
	cost.CPUMicros = float64(after.CPUNanoseconds-before.CPUNanoseconds) / 1e3 / float64(n)
	cost.Bytes = r.fleet.bytes.Load() / n
	cost.Millis = millis(took / time.Duration(n))
	return cost, err
}

// measureSize measures the memory that the second half of the proxies adds, with the policies.
func (r *policiesRun) measureSize(ctx context.Context, report *PoliciesReport) error {
	var cost Cost
	err := r.measureMemory(ctx, &cost)
	report.MemoryBytes, report.RSSBytes = cost.MemoryBytes, cost.ConnectedRSSBytes
	return err
}

// scraped are the metrics of a control plane, by name with labels.
type scraped map[string]float64

func (r *policiesRun) metrics(ctx context.Context) (scraped, error) {
	var text []byte
	if err := r.diagnostics.Get(ctx, "/metrics", nil, &text); err != nil {
		return nil, err
	}
	return scrape(text), nil
}

// scrape reads metrics in Prometheus' text form.
func scrape(text []byte) scraped {
	all := scraped{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		name, value, found := strings.Cut(lines.Text(), "} ")
		if found {
			name += "}"
		} else {
			name, value, _ = strings.Cut(lines.Text(), " ")
		}
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			all[name] = n
		}
	}
	return all
}

// Metrics returns the measurements with their budgets: a change of an endpoint may cost a tenth more than without
// policies, and proxy groups share the resources of nearly every destination.
func (r *PoliciesReport) Metrics() []Metric {
	const kilobyte, moreThanPlain, variants = 1000, 1.1, 2
	plain, change, inTeam, inMesh := r.PlainChange, r.EndpointChange, r.TeamEdit, r.MeshEdit
	few := fmt.Sprintf("an edit for %d proxies", inTeam.Proxies)
	most := fmt.Sprintf("an edit for %d proxies", inMesh.Proxies)
	return []Metric{
		{"proxy groups", float64(r.ProxyGroups), 0, 0, ""},
		{"different clusters", float64(r.Clusters), 0, variants * float64(r.Services), ""},
		{"different routes", float64(r.Routes), 0, variants * float64(r.Services), ""},
		{"a change of an endpoint, no policy: CPU", plain.CPUMicros / 1000, 0, 0, "ms"},
		{"a change of an endpoint: CPU", change.CPUMicros / 1000, 0, moreThanPlain * plain.CPUMicros / 1000, "ms"},
		{"a change of an endpoint, no policy: last proxy has it", plain.Millis, 0, 0, "ms"},
		{"a change of an endpoint: last proxy has it", change.Millis, 0, 0, "ms"},
		{few + ": CPU", inTeam.CPUMicros / 1000, 0, change.CPUMicros / 1000, "ms"},
		{few + ": last proxy has it", inTeam.Millis, 0, 0, "ms"},
		{few + ": bytes to each", inTeam.each(), 0, 0, "B"},
		{most + ": CPU", inMesh.CPUMicros / 1000, 0, 2 * change.CPUMicros / 1000, "ms"},
		{most + ": last proxy has it", inMesh.Millis, 0, 0, "ms"},
		{most + ": bytes to each", inMesh.each(), 0, 0, "B"},
		{"writing all policies: all proxies in sync", r.WriteSeconds, 0, 0, "s"},
		{"writing all policies: CPU", r.WriteCPUSeconds, 0, 0, "s"},
		{"first config: all proxies have it", r.FirstSeconds, 0, 0, "s"},
		{"first config: CPU", r.FirstCPUSeconds, 0, 0, "s"},
		{"memory for each proxy in sync", float64(r.MemoryBytes) / kilobyte, 0, 100, "kB"},
		{"memory with all proxies", float64(r.RSSBytes) / kilobyte / kilobyte, 0, 0, "MB"},
	}
}

// each is the number of bytes to each proxy that gets a change.
func (c *ChangeCost) each() float64 { return float64(c.Bytes) / float64(max(1, c.Proxies)) }

// Title is the sizes of the measurement.
func (r *PoliciesReport) Title() string {
	return fmt.Sprintf("%d proxies, %d services, %d policies", r.Proxies, r.Services, r.Policies)
}
