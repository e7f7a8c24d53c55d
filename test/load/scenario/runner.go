package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"
)

// Scenario is one measurement of control planes, which [Run] starts and ends.
type Scenario interface {
	// AddFlags adds the sizes of the measurement, with their defaults.
	AddFlags(*pflag.FlagSet)
	// check returns an error for sizes that can't be measured.
	check() error
	// measure starts the control planes that it needs, and measures them.
	measure(context.Context, *deployment) (Report, error)
}

// Report has the measurements of a scenario. Its JSON form has them by name.
type Report interface {
	// Title is the sizes of the measurement as a text.
	Title() string
	Metrics() []Metric
}

// Entry is a scenario with its name and its description.
type Entry struct {
	Name, Summary, Description string
	Scenario                   Scenario
}

// All returns every scenario, with sizes that are not set yet.
func All() []Entry {
	return []Entry{
		{"proxies", "the cost of connected proxies, and of changes of an endpoint", `
Connects simulated Envoys to a control plane, and measures the latency, the CPU time and the memory of the control
plane. A bare server that sends the same bytes is the floor.`, &proxiesScenario{}},
		{"join", "many proxies that connect at once, and a restart of their control plane", `
Connects simulated Envoys to a control plane at once. No endpoint is ready before: each proxy makes its endpoint ready
when it acks its listeners. Measures the bytes to each proxy beside one full configuration, the time and the CPU until
every proxy has everything, and the memory of the control plane for each proxy as the operating system counts it. A bare
server that sends one full configuration to as many clients is the floor. Then kills the control plane and starts it
again: every proxy comes back and states the versions that it has.`, &joinScenario{}},
		{"policies", "the cost of policies: endpoint changes, edits, shared resources and memory", `
Connects simulated Envoys to a control plane. Measures changes of an endpoint, writes policies, of which four are about
the whole mesh and each other one about a team of proxies, and measures the same changes again, edits of a policy, the
number of resources that are encoded for all proxy groups, and the memory for each proxy.`, &policiesScenario{}},
		{"membership", "the cost of evicting half of a mesh's connected proxies, and of admitting them again", `
Connects simulated Envoys to a control plane, and changes who may join their mesh, so that every other one loses its
stream and is removed from every endpoint list; and back.`, &membershipScenario{}},
		{"zones", "the cost of a global control plane with many zones, which are simulated", `
Connects simulated zones to a global control plane over the real protocol, and measures its time, CPU and memory: when
all zones join, at rest, when one more joins, and while every zone changes a service each second.`, &zonesScenario{}},
		{"across", "how long a change in one zone takes until it is in the Envoys of another", `
Runs a global control plane and two zones, connects simulated Envoys to one zone, and measures how long a change in the
other zone takes until the last of them has it, and what one zone costs another.`, &acrossScenario{}},
		{"reads", "the cost of lists, findings and inspections with many proxies", `
Connects simulated Envoys to a control plane, and measures the CPU time of the control plane and the duration of the
requests of which pages of a UI consist.`, &readsScenario{}},
	}
}

// Environment is what every scenario runs with.
type Environment struct {
	Weft       string // the program that runs as each control plane
	StartFloor StartFloor
	Progress   io.Writer
	Limit      time.Duration // after which the measurement fails
}

// Run runs a scenario with control planes of its own on empty stores, which it ends.
func Run(ctx context.Context, s Scenario, e Environment) (report Report, err error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "weft-load-")
	if err != nil {
		return nil, err
	}
	d := &deployment{Environment: e, dir: dir}
	defer func() { err = errors.Join(err, d.close()) }()
	ctx, cancel := context.WithTimeoutCause(ctx, e.Limit, fmt.Errorf("the measurement takes longer than %s", e.Limit))
	defer cancel() // proxies and zones end before the control planes do
	if report, err = s.measure(ctx, d); err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	return report, nil
}

func (e *Environment) logProgress(format string, args ...any) {
	fmt.Fprintf(e.Progress, format+"\n", args...)
}

// step is a part of a measurement, which fills its part of the report.
type step[R any] func(context.Context, *R) error

// runSteps runs the parts of a measurement until one fails.
func runSteps[R any](ctx context.Context, report *R, steps ...step[R]) error {
	for _, step := range steps {
		if err := step(ctx, report); err != nil {
			return err
		}
	}
	return nil
}
