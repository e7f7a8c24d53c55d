package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/diag"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// membershipScenario measures a mesh that evicts half of its connected proxies, and admits them again.
type membershipScenario struct {
	Proxies  int // connected, at least 2; every other one is evicted
	Services int // which all of them serve and reach
}

// MembershipReport has the measurements of one control plane, with its store, in a process of its own.
type MembershipReport struct {
	Proxies  int `json:"proxies"`  // connected
	Evicted  int `json:"evicted"`  // evicted by one change of the Mesh, and admitted by another
	Services int `json:"services"` // that all serve and reach

	// until the response of the change, which lists the evicted proxies
	ResponseSeconds float64 `json:"responseSeconds"`
	// from the change until the last evicted proxy has lost its stream
	StreamsSeconds    float64 `json:"streamsSeconds"`
	EvictedSeconds    float64 `json:"evictedSeconds"`    // until the last of the other proxies is in sync
	EvictedCPUSeconds float64 `json:"evictedCPUSeconds"` // of the control plane, meanwhile
	EvictedBytes      int64   `json:"evictedBytes"`      // to each of the other proxies
	BackSeconds       float64 `json:"backSeconds"`       // from the second change until all proxies are in sync
	BackCPUSeconds    float64 `json:"backCPUSeconds"`    // of the control plane, meanwhile
}

// membershipRun is one measurement.
type membershipRun struct {
	*world
	members, evicted *fleet // the admitted half, and the evicted one
}

// team is the tag in the membership rules.
const team = "team"

// AddFlags adds the sizes of the measurement.
func (o *membershipScenario) AddFlags(flags *pflag.FlagSet) {
	addProxies(flags, &o.Proxies, 2000)
	addServices(flags, &o.Services, 100)
}

func (o *membershipScenario) check() error {
	if o.Proxies < 2 || o.Services < 1 || o.Services > o.Proxies/2 {
		return fmt.Errorf("want 2 proxies or more, and a service or more that has one of each half; got %d and %d",
			o.Proxies, o.Services)
	}
	return nil
}

func (o *membershipScenario) measure(ctx context.Context, d *deployment) (Report, error) {
	plane, err := d.start("zone")
	if err != nil {
		return nil, err
	}
	run := &membershipRun{world: &world{Environment: &d.Environment, Proxies: o.Proxies, Services: o.Services,
		Plane: plane}}
	report := &MembershipReport{Proxies: o.Proxies, Evicted: o.Proxies / 2, Services: o.Services}
	if err := runSteps(ctx, report, run.prepare, run.evict, run.admitAll); err != nil {
		return nil, err
	}
	return report, errors.Join(run.members.disconnect(), run.evicted.disconnect())
}

// prepare connects all proxies.
func (r *membershipRun) prepare(ctx context.Context, _ *MembershipReport) error {
	if _, err := r.admit(ctx, nil); err != nil {
		return err
	}
	r.logProgress("writing %d Dataplanes of %d services into the mesh %s", r.Proxies, r.Services, meshName)
	err := r.each(ctx, r.Proxies, func(ctx context.Context, i int) error {
		_, err := r.Plane.Admin.Put(ctx, r.teamed(i), kind.Dataplanes)
		return err
	})
	if err != nil {
		return err
	}
	target, err := r.target(ctx)
	if err != nil {
		return err
	}
	complete := func(p *proxy) bool { return p.listens && p.open == 0 && len(p.subscribed[xds.Endpoint]) >= r.Services }
	r.members, r.evicted = newFleet(target, complete), newFleet(target, complete)
	r.evicted.mayEnd = func(err error) bool { return status.Code(err) == codes.PermissionDenied }
	r.logProgress("connecting %d proxies", r.Proxies)
	if err := r.members.connect(ctx, r.half(0)); err != nil {
		return err
	}
	if err := r.evicted.connect(ctx, r.half(1)); err != nil {
		return err
	}
	_, err = r.members.quiet(ctx, quietTime)
	return err
}

// quietTime is how long no message may arrive before the proxies count as in sync.
const quietTime = 2 * time.Second

// half returns every other node, so that each service has proxies of both halves.
func (r *membershipRun) half(which int) (nodes []string) {
	for i, node := range r.nodes() {
		if i/r.Services%2 == which {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

func (r *membershipRun) teamed(i int) *resource.Object[kind.Dataplane] {
	dp := r.dataplane(i, kind.Ready)
	dp.Spec.Networking.Inbound[0].Tags[team] = fmt.Sprint(i / r.Services % 2)
	return dp
}

// evict makes the mesh admit one half only.
func (r *membershipRun) evict(ctx context.Context, report *MembershipReport) error {
	report.Evicted = len(r.evicted.proxies)
	r.logProgress("evicting %d of them", report.Evicted)
	r.members.bytes.Store(0)
	began, err := r.admit(ctx, []kind.MembershipRule{{Tags: map[string]string{team: "0"}}})
	if err != nil {
		return err
	}
	report.ResponseSeconds = time.Since(began.at).Seconds()
	if err := r.evicted.wait(ctx, func() bool { return int(r.evicted.ended.Load()) == report.Evicted }); err != nil {
		return err
	}
	report.StreamsSeconds = time.Since(began.at).Seconds()
	report.EvictedSeconds, report.EvictedCPUSeconds, err = r.awaitQuiet(ctx, began)
	report.EvictedBytes = r.members.bytes.Load() / int64(len(r.members.proxies))
	return err
}

// admitAll makes the mesh admit all proxies again, which connect at once.
func (r *membershipRun) admitAll(ctx context.Context, report *MembershipReport) error {
	r.logProgress("admitting them again")
	if err := r.evicted.disconnect(); err != nil {
		return err
	}
	began, err := r.admit(ctx, nil)
	if err != nil {
		return err
	}
	// The control plane may still reject a proxy that connects at the moment of the change. It reconnects, as Envoy
	// does.
	r.evicted.rejoin()
	if err := r.evicted.connect(ctx, r.half(1)); err != nil {
		return err
	}
	connected := time.Since(began.at).Seconds()
	heard, used, err := r.awaitQuiet(ctx, began)
	report.BackSeconds, report.BackCPUSeconds = max(connected, heard), used
	return err
}

// start is the time of a change, and the control plane's usage until then.
type start struct {
	at   time.Time
	used diag.Process
}

// admit changes the membership rules, and returns once they are stored.
func (r *membershipRun) admit(ctx context.Context, allowed []kind.MembershipRule) (began start, err error) {
	if began.used, err = processStats(ctx, r.Plane.Admin); err != nil {
		return began, err
	}
	began.at = time.Now()
	mesh := kind.Meshes.Make("", meshName, kind.Mesh{DataplaneProxyMembership: &kind.Membership{Allowed: allowed}})
	_, err = r.Plane.Admin.Put(ctx, mesh, kind.Meshes)
	return began, err
}

// awaitQuiet waits until no message arrives at the admitted half. It returns the time until the last message, and the
// control plane's CPU until then, in seconds.
func (r *membershipRun) awaitQuiet(ctx context.Context, began start) (took, used float64, err error) {
	end, err := r.members.quiet(ctx, quietTime)
	if err != nil {
		return 0, 0, err
	}
	after, err := processStats(ctx, r.Plane.Admin)
	return end.Sub(began.at).Seconds(), seconds(after.CPUNanoseconds - began.used.CPUNanoseconds), err
}

// Title is the sizes of the measurement.
func (r *MembershipReport) Title() string {
	return fmt.Sprintf("%d proxies, %d services; %d are evicted and admitted again", r.Proxies, r.Services, r.Evicted)
}

// Metrics returns the measurements.
func (r *MembershipReport) Metrics() []Metric {
	return []Metric{
		{Name: "evicted: the response to the change", Value: r.ResponseSeconds, Unit: "s"},
		{Name: "evicted: the last one has lost its stream", Value: r.StreamsSeconds, Unit: "s"},
		{Name: "evicted: the others are in sync", Value: r.EvictedSeconds, Unit: "s"},
		{Name: "evicted: CPU", Value: r.EvictedCPUSeconds, Unit: "s"},
		{Name: "evicted: sent to each other proxy", Value: float64(r.EvictedBytes) / 1e3, Unit: "KB"},
		{Name: "admitted: all are in sync", Value: r.BackSeconds, Unit: "s"},
		{Name: "admitted: CPU", Value: r.BackCPUSeconds, Unit: "s"},
	}
}
