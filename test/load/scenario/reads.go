package scenario

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"weft/internal/xds"
)

// readsScenario measures the requests of which a page of a UI consists, while all proxies are connected.
type readsScenario struct {
	Proxies  int // at least 2
	Services int // which the proxies share evenly and all reach
	Requests int // of each kind
}

// read is a request of the API.
type read struct {
	name, path string
	budget     float64 // of the control plane's CPU, in ms; 0: none
}

// reads are the measured requests. Each one has a budget for 15,000 proxies of 300 services, unless it is of a whole
// list.
var reads = []read{
	{"a page of 50 Dataplanes", "/meshes/load/dataplanes?size=50", 50},
	{"a page of 50 overviews", "/meshes/load/dataplanes/_overview?size=50", 50},
	{"50 overviews by part of a name", "/meshes/load/dataplanes/_overview?size=50&name=149", 50},
	{"50 overviews, the latest changes first", "/meshes/load/dataplanes/_overview?size=50&sort=-modificationTime", 50},
	{"50 overviews by status", "/meshes/load/dataplanes/_overview?size=50&sort=status", 50},
	{"50 overviews of a service", "/meshes/load/dataplanes/_overview?size=50&filter[service]=service-7", 50},
	{"50 overviews of a version", "/meshes/load/dataplanes/_overview?size=50&filter[version.envoy]=1.40", 50},
	{"50 overviews of an address", "/meshes/load/dataplanes/_overview?size=50&filter[address]=10.0.3.7", 50},
	{"50 overviews without a certificate", "/meshes/load/dataplanes/_overview?size=50&filter[certificate]=none", 50},
	{"50 overviews that are offline", "/meshes/load/dataplanes/_overview?size=50&filter[status]=offline", 50},
	{"every overview", "/meshes/load/dataplanes/_overview", 0},
	{"a page of 50 services with their status", "/meshes/load/service-insights?size=50", 100},
	{"50 services by status", "/meshes/load/service-insights?size=50&sort=status", 100},
	{"a search for a name", "/_search?q=proxy-149", 50},
	{"a search for an address", "/_search?q=10.0.3.7", 50},
	{"a search for a label", "/_search?q=kuma.io/service=service-7", 50},
	{"a search without a result", "/_search?q=spiffe://nothing", 50},
	{"the summary of all meshes", "/global-insight", 100},
	{"the state of all zones", "/zones/_inspect", 100},
	{"the findings", "/_check", 0},
	{"the backends of a service", "/meshes/load/meshservices/service-7/_backing", 50},
	{"the policies of a proxy", "/meshes/load/dataplanes/proxy-7/_inspect", 100},
}

// ReadCost is the cost of one request.
type ReadCost struct {
	Name      string  `json:"name"`
	CPUMillis float64 `json:"cpuMillis"` // of the control plane, the mean
	Millis    float64 `json:"millis"`    // until the client has the response, the median
	Bytes     int     `json:"bytes"`     // of the response, without compression
	budget    float64
}

// ReadsReport has the measurements of one control plane.
type ReadsReport struct {
	Proxies  int        `json:"proxies"`
	Services int        `json:"services"`
	Reads    []ReadCost `json:"reads"`
}

// AddFlags adds the sizes of the measurement.
func (o *readsScenario) AddFlags(flags *pflag.FlagSet) {
	addProxies(flags, &o.Proxies, 15_000)
	addServices(flags, &o.Services, 300)
	flags.IntVar(&o.Requests, "requests", 10, "requests of each kind")
}

func (o *readsScenario) check() error {
	if o.Proxies < 2 || o.Services < 1 || o.Services > o.Proxies || o.Requests < 1 {
		return fmt.Errorf("want 2 proxies or more, 1 to %d services and 1 request or more; got %d, %d and %d",
			o.Proxies, o.Proxies, o.Services, o.Requests)
	}
	return nil
}

func (o *readsScenario) measure(ctx context.Context, d *deployment) (Report, error) {
	plane, err := d.start("zone")
	if err != nil {
		return nil, err
	}
	w := &world{Environment: &d.Environment, Proxies: o.Proxies, Services: o.Services, Plane: plane, Quiet: quietTime}
	fleet, err := w.connectAll(ctx)
	if err != nil {
		return nil, err
	}
	report := &ReadsReport{Proxies: o.Proxies, Services: o.Services}
	for _, r := range reads {
		cost, err := w.measureRead(ctx, r, o.Requests)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.name, err)
		}
		report.Reads = append(report.Reads, cost)
	}
	return report, fleet.disconnect()
}

// connectAll writes the mesh, and connects its proxies until they are in sync.
func (w *world) connectAll(ctx context.Context) (*fleet, error) {
	if err := w.register(ctx); err != nil {
		return nil, err
	}
	target, err := w.target(ctx)
	if err != nil {
		return nil, err
	}
	w.logProgress("connecting %d proxies", w.Proxies)
	fleet := newFleet(target, func(p *proxy) bool {
		return p.listens && p.open == 0 && len(p.subscribed[xds.Endpoint]) >= w.Services
	})
	if err := fleet.connect(ctx, w.nodes()); err != nil {
		return nil, err
	}
	_, err = fleet.quiet(ctx, w.Quiet)
	return fleet, err
}

// measureRead sends a request several times, one after the other, after one that is not measured.
func (w *world) measureRead(ctx context.Context, r read, times int) (ReadCost, error) {
	w.logProgress("%s", r.name)
	cost := ReadCost{Name: r.name, budget: r.budget}
	path, text, _ := strings.Cut(r.path, "?")
	query, err := url.ParseQuery(text)
	if err != nil {
		return cost, err
	}
	var body []byte
	if err := w.Plane.Admin.Get(ctx, path, query, &body); err != nil {
		return cost, err
	}
	before, err := collectGarbage(ctx, w.Plane.Admin)
	if err != nil {
		return cost, err
	}
	var took []time.Duration
	for range times {
		start := time.Now()
		if err := w.Plane.Admin.Get(ctx, path, query, &body); err != nil {
			return cost, err
		}
		took = append(took, time.Since(start))
	}
	after, err := processStats(ctx, w.Plane.Admin)
	slices.Sort(took)
	cost.CPUMillis = 1000 * seconds(after.CPUNanoseconds-before.CPUNanoseconds) / float64(times)
	cost.Millis, cost.Bytes = millis(took[times/2]), len(body)
	return cost, err
}

// Metrics returns the measurements with their budgets.
func (r *ReadsReport) Metrics() []Metric {
	var metrics []Metric
	for _, cost := range r.Reads {
		metrics = append(metrics,
			Metric{Name: cost.Name + ": CPU", Value: cost.CPUMillis, Budget: cost.budget, Unit: "ms"},
			Metric{Name: cost.Name + ": response", Value: cost.Millis, Unit: "ms"},
			Metric{Name: cost.Name + ": size", Value: float64(cost.Bytes) / 1000, Unit: "kB"})
	}
	return metrics
}

// Title is the sizes of the measurement.
func (r *ReadsReport) Title() string {
	return fmt.Sprintf("%d connected proxies, %d services", r.Proxies, r.Services)
}
