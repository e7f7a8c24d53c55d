package scenario

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Metric is one line of a report: a measurement, that of the floor, and the budget.
type Metric struct {
	Name   string
	Value  float64
	Floor  float64 // 0: none
	Budget float64 // 0: none
	Unit   string
}

// zeroBudget is the budget of what must not happen at all.
const zeroBudget = -1

// verdict is whether the value is within its budget; empty where it has none.
func (m Metric) verdict() string {
	switch {
	case m.Budget == 0:
		return ""
	case m.Value <= max(0, m.Budget):
		return "ok"
	}
	return "OVER"
}

// Print writes a report as a table, with a verdict on each measurement that has a budget. The columns of floors and
// budgets are those of a report that has one.
func Print(out io.Writer, report Report) error {
	fmt.Fprintf(out, "%s\n\n", report.Title())
	metrics := report.Metrics()
	floors := slices.ContainsFunc(metrics, func(m Metric) bool { return m.Floor != 0 })
	budgets := slices.ContainsFunc(metrics, func(m Metric) bool { return m.verdict() != "" })
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name, value, floor, budget, verdict string) {
		fmt.Fprintf(table, "%s\t%s\t", name, value)
		if floors {
			fmt.Fprintf(table, "%s\t", floor)
		}
		if budgets {
			fmt.Fprintf(table, "%s\t%s\t", budget, verdict)
		}
		fmt.Fprintln(table)
	}
	row("", "measured", "floor", "budget", "")
	for _, m := range metrics {
		name, budget := m.Name, number(m.Budget)
		if m.Unit != "" {
			name += " (" + m.Unit + ")"
		}
		if m.Budget == zeroBudget {
			budget = "0"
		}
		row(name, number(m.Value), number(m.Floor), budget, m.verdict())
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
