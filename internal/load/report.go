package load

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Metric is one line of the report: a measurement, that of the floor, and the budget.
type Metric struct {
	Name   string
	Value  float64
	Floor  float64 // 0: none
	Budget float64 // 0: none
	Unit   string
}

// Met returns whether the value is within its budget.
func (f Metric) Met() bool { return f.Budget == 0 || f.Value <= f.Budget }

// Metrics returns the measurements with their budgets. A change may use one and a half times the CPU of the floor, and
// take twice as long plus 20 ms; a first configuration may take twice as long.
func (r *Report) Metrics() []Metric {
	p, f := r.Plane, r.Floor
	const kilobyte = 1000
	return []Metric{
		{"one change: CPU", p.ChangeCPUMicros / 1000, f.ChangeCPUMicros / 1000, 1.5 * f.ChangeCPUMicros / 1000, "ms"},
		{"one change: CPU for each proxy", p.StreamCPUMicros, f.StreamCPUMicros, 1.5 * f.StreamCPUMicros, "us"},
		{"one change: last proxy has it, p50", p.ChangeP50Millis, f.ChangeP50Millis, 0, "ms"},
		{"one change: last proxy has it, p99", p.ChangeP99Millis, f.ChangeP99Millis, 2*f.ChangeP99Millis + 20, "ms"},
		{"one change: last proxy has it, max", p.ChangeMaxMillis, f.ChangeMaxMillis, 0, "ms"},
		{"one change: bytes to each proxy", float64(p.ChangeBytes), float64(f.ChangeBytes), 0, "B"},
		{"first config: all proxies have it", p.FirstSeconds, f.FirstSeconds, 2 * f.FirstSeconds, "s"},
		{"first config: CPU", p.FirstCPUSeconds, f.FirstCPUSeconds, 0, "s"},
		{"first config: bytes to each proxy", float64(p.FirstBytes), float64(f.FirstBytes), 0, "B"},
		{"memory for each proxy in sync", float64(p.MemoryBytes) / kilobyte, float64(f.MemoryBytes) / kilobyte, 100,
			"kB"},
		{"memory with all proxies", float64(p.ConnectedRSSBytes) / kilobyte / kilobyte,
			float64(f.ConnectedRSSBytes) / kilobyte / kilobyte, 0, "MB"},
		{"idle CPU, of one core", r.IdleCPUPercent, 0, 1, "%"},
		{"writing all Dataplanes", r.RegisterSeconds, 0, 0, "s"},
		{"writing all Dataplanes: CPU", r.RegisterCPUSeconds, 0, 0, "s"},
		{"memory with all Dataplanes, no proxy", float64(r.RegisteredRSSBytes) / kilobyte / kilobyte, 0, 0, "MB"},
		{"converging from nothing", r.ConvergeSeconds, 0, 0, "s"},
		{"converging from nothing: CPU", r.ConvergeCPUSeconds, 0, 0, "s"},
	}
}

// Print writes the report as a table.
func (r *Report) Print(out io.Writer) error {
	fmt.Fprintf(out, "%d proxies, %d services, %d changes of one endpoint\n\n", r.Proxies, r.Services, r.Changes)
	return printMetrics(out, r.Metrics())
}

// printMetrics writes measurements as a table, with a verdict on each that has a budget.
func printMetrics(out io.Writer, metrics []Metric) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "\tcontrol plane\tfloor\tbudget\t\t\n")
	for _, f := range metrics {
		verdict := ""
		switch {
		case !f.Met():
			verdict = "OVER"
		case f.Budget > 0:
			verdict = "ok"
		}
		fmt.Fprintf(table, "%s (%s)\t%s\t%s\t%s\t%s\t\n", f.Name, f.Unit, number(f.Value), number(f.Floor),
			number(f.Budget), verdict)
	}
	return table.Flush()
}

func number(v float64) string {
	switch {
	case v == 0:
		return "-"
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}
