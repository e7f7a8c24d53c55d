package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/diag"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// MembershipOptions say what to measure of a mesh that puts half of its proxies out.
type MembershipOptions struct {
	Weft     string // the program, which the tool runs as the control plane
	Proxies  int    // connected, at least 2; every other one is put out
	Services int    // which all of them serve and see
	Progress io.Writer
}

// MembershipReport is what was measured: of one control plane, with its store, as a process of its own.
type MembershipReport struct {
	Proxies  int `json:"proxies"`  // connected
	Out      int `json:"out"`      // of these, put out by one change of the Mesh, and let in again by another
	Services int `json:"services"` // that all serve and see

	ResponseSeconds float64 `json:"responseSeconds"` // until the change is answered, with the names of whom it puts out
	StreamsSeconds  float64 `json:"streamsSeconds"`  // from the change until the last of them has lost its stream
	OutSeconds      float64 `json:"outSeconds"`      // until the last of the others has heard the last of it
	OutCPUSeconds   float64 `json:"outCPUSeconds"`   // of the control plane, for all of it
	OutBytes        int64   `json:"outBytes"`        // to each of the others
	BackSeconds     float64 `json:"backSeconds"`     // from the next change until all of them have everything again and everybody has heard
	BackCPUSeconds  float64 `json:"backCPUSeconds"`  // of the control plane, for all of it
}

// membershipRun is one measurement.
type membershipRun struct {
	*world
	members, others *fleet // who stays, and who is put out
}

// team is the tag by which the mesh tells proxies apart.
const team = "team"

// RunMembership measures what it costs to put half of a mesh's connected proxies out, and to let them in again.
func RunMembership(ctx context.Context, o MembershipOptions) (report *MembershipReport, err error) {
	if o.Proxies < 2 || o.Services < 1 || o.Services > o.Proxies/2 {
		return nil, fmt.Errorf("want 2 proxies or more, and a service or more that has one of each half; got %d and %d", o.Proxies, o.Services)
	}
	d, err := newDeployment(o.Weft)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	plane, err := d.start(ctx, "zone")
	if err != nil {
		return nil, err
	}
	run := &membershipRun{world: &world{Options: Options{Proxies: o.Proxies, Services: o.Services, Plane: plane.Plane, Progress: o.Progress}}}
	report = &MembershipReport{Proxies: o.Proxies, Out: o.Proxies / 2, Services: o.Services}
	for _, step := range []func(context.Context, *MembershipReport) error{run.prepare, run.evict, run.letIn} {
		if err := step(ctx, report); err != nil {
			return nil, err
		}
	}
	return report, errors.Join(run.members.disconnect(), run.others.disconnect())
}

// prepare connects all proxies.
func (r *membershipRun) prepare(ctx context.Context, _ *MembershipReport) error {
	if _, err := r.admit(ctx, nil); err != nil {
		return err
	}
	r.say("writing %d Dataplanes of %d services into the mesh %s", r.Proxies, r.Services, meshName)
	err := r.each(ctx, r.Proxies, func(ctx context.Context, i int) error {
		_, err := r.Plane.API.Put(ctx, r.teamed(i), kind.Dataplanes)
		return err
	})
	if err != nil {
		return err
	}
	target, err := r.target(ctx)
	if err != nil {
		return err
	}
	complete := func(p *proxy) bool { return p.listens && p.open == 0 && len(p.asked[xds.Endpoint]) >= r.Services }
	r.members, r.others = newFleet(target, complete), newFleet(target, complete)
	r.others.dismissed = func(err error) bool { return status.Code(err) == codes.PermissionDenied }
	r.say("connecting %d proxies", r.Proxies)
	if err := r.members.connect(ctx, r.half(0)); err != nil {
		return err
	}
	if err := r.others.connect(ctx, r.half(1)); err != nil {
		return err
	}
	_, err = r.members.quiet(ctx, settling)
	return err
}

// settling is how long nothing must come until proxies count as settled.
const settling = 2 * time.Second

// half are every other node, so that each service has proxies of both halves.
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

// evict has the mesh admit one half alone.
func (r *membershipRun) evict(ctx context.Context, report *MembershipReport) error {
	report.Out = len(r.others.proxies)
	r.say("putting %d of them out", report.Out)
	r.members.bytes.Store(0)
	began, err := r.admit(ctx, []kind.MembershipRule{{Tags: map[string]string{team: "0"}}})
	if err != nil {
		return err
	}
	report.ResponseSeconds = time.Since(began.at).Seconds()
	if err := r.others.wait(ctx, func() bool { return int(r.others.ended.Load()) == report.Out }); err != nil {
		return err
	}
	report.StreamsSeconds = time.Since(began.at).Seconds()
	report.OutSeconds, report.OutCPUSeconds, err = r.settled(ctx, began)
	report.OutBytes = r.members.bytes.Load() / int64(len(r.members.proxies))
	return err
}

// letIn has it admit all again, who come at once.
func (r *membershipRun) letIn(ctx context.Context, report *MembershipReport) error {
	r.say("letting them in again")
	if err := r.others.disconnect(); err != nil {
		return err
	}
	began, err := r.admit(ctx, nil)
	if err != nil {
		return err
	}
	if err := r.others.connect(ctx, r.half(1)); err != nil {
		return err
	}
	connected := time.Since(began.at).Seconds()
	heard, used, err := r.settled(ctx, began)
	report.BackSeconds, report.BackCPUSeconds = max(connected, heard), used
	return err
}

// start is when something began, and what the control plane had used by then.
type start struct {
	at   time.Time
	used diag.Process
}

// admit changes who may join, and answers once that is stored.
func (r *membershipRun) admit(ctx context.Context, allowed []kind.MembershipRule) (began start, err error) {
	if began.used, err = process(ctx, r.Plane.Diagnostics); err != nil {
		return began, err
	}
	began.at = time.Now()
	mesh := kind.Meshes.Make("", meshName, kind.Mesh{DataplaneProxyMembership: &kind.Membership{Allowed: allowed}})
	_, err = r.Plane.API.Put(ctx, mesh, kind.Meshes)
	return began, err
}

// settled waits until nothing comes to those who stay, and answers when the last message came, and the control
// plane's CPU until then.
func (r *membershipRun) settled(ctx context.Context, began start) (took, used float64, err error) {
	end, err := r.members.quiet(ctx, settling)
	if err != nil {
		return 0, 0, err
	}
	after, err := process(ctx, r.Plane.Diagnostics)
	return end.Sub(began.at).Seconds(), seconds(after.CPUNanoseconds - began.used.CPUNanoseconds), err
}

// Print writes the report for readers.
func (r *MembershipReport) Print(out io.Writer) error {
	fmt.Fprintf(out, "%d proxies, %d services; %d are put out and let in again\n\n", r.Proxies, r.Services, r.Out)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, f := range []Metric{
		{Name: "put out: the change is answered", Value: r.ResponseSeconds, Unit: "s"},
		{Name: "put out: the last one has lost its stream", Value: r.StreamsSeconds, Unit: "s"},
		{Name: "put out: the others have heard the last of it", Value: r.OutSeconds, Unit: "s"},
		{Name: "put out: CPU", Value: r.OutCPUSeconds, Unit: "s"},
		{Name: "put out: sent to each other one", Value: float64(r.OutBytes) / 1e3, Unit: "KB"},
		{Name: "let in: all have everything, and the others have heard", Value: r.BackSeconds, Unit: "s"},
		{Name: "let in: CPU", Value: r.BackCPUSeconds, Unit: "s"},
	} {
		fmt.Fprintf(table, "%s\t%s\t%s\t\n", f.Name, number(f.Value), f.Unit)
	}
	return table.Flush()
}
