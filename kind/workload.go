package kind

import "weft/resource"

// Workload returns the workload of a Dataplane: its label kuma.io/workload, else the tag kuma.io/service of its first
// inbound in any state, else its name.
func Workload(name string, labels map[string]string, dp *Dataplane) string {
	if w := labels[WorkloadLabel]; w != "" {
		return w
	}
	if in := dp.Networking.Inbound; len(in) > 0 && in[0].Tags[ServiceTag] != "" {
		return in[0].Tags[ServiceTag]
	}
	return name
}

// WorkloadFact returns the fact (see [Facts]) that the workload of a Dataplane rests on.
func WorkloadFact(o *resource.Object[Dataplane]) string {
	if w := o.Label(WorkloadLabel); w != "" {
		return LabelFact(WorkloadLabel, w)
	}
	if in := o.Spec.Networking.Inbound; len(in) > 0 && in[0].Tags[ServiceTag] != "" {
		return ServiceFact(in[0].Tags[ServiceTag])
	}
	return NameFact(o.Name)
}
