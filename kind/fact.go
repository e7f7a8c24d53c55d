package kind

import (
	"fmt"
	"slices"
	"strings"

	"weft/resource"
)

// Facts returns the properties of a Dataplane that an identity or the role of a zone proxy may rest on: its name, its
// labels, the values of kuma.io/service of its inbounds, and its zone proxy sections. They are sorted and unique.
// Labels that the control plane sets are not included, since the control plane itself vouches for them.
func Facts(o *resource.Object[Dataplane]) []string {
	facts := append([]string{NameFact(o.Name)}, SectionFacts(&o.Spec.Networking)...)
	for label, value := range o.Labels {
		if !setByControlPlane[label] {
			facts = append(facts, LabelFact(label, value))
		}
	}
	for _, in := range o.Spec.Networking.Inbound {
		if service := in.Tags[ServiceTag]; service != "" {
			facts = append(facts, ServiceFact(service))
		}
	}
	slices.Sort(facts)
	return slices.Compact(facts)
}

// setByControlPlane are the labels whose value admission sets.
var setByControlPlane = map[string]bool{
	resource.MeshLabel: true, DisplayName: true, OriginLabel: true, ZoneLabel: true, EnvLabel: true,
	NamespaceLabel: true, ListenerZoneIngressLabel: true, ListenerZoneEgressLabel: true, ZoneProxyTypeLabel: true,
}

// Prefixes of facts.
const (
	nameWord    = "name "
	labelWord   = "label "
	serviceWord = "service "
	ingressWord = "zoneIngress "
	egressWord  = "zoneEgress "
)

// NameFact returns the fact of a Dataplane's name.
func NameFact(name string) string { return nameWord + name }

// LabelFact returns the fact of a label. The label kuma.io/display-name repeats the name.
func LabelFact(label, value string) string {
	if label == DisplayName {
		return NameFact(value)
	}
	return labelWord + label + "=" + value
}

// ServiceFact returns the fact of a value of kuma.io/service of an inbound.
func ServiceFact(service string) string { return serviceWord + service }

// SectionFacts returns the facts of a Dataplane's zone proxy sections.
func SectionFacts(n *Networking) []string {
	var facts []string
	if z := n.ZoneEgress; z != nil {
		facts = append(facts, strings.TrimSpace(fmt.Sprintf("%s%s %s", egressWord, z.Listener(), z.Name)))
	}
	if z := n.ZoneIngress; z != nil {
		facts = append(facts,
			strings.TrimSpace(fmt.Sprintf("%s%s %s:%d %s", ingressWord, z.Listener(), z.AdvertisedAddress,
				z.AdvertisedPort, z.Name)))
	}
	return facts
}

// Fact is one parsed fact of [Facts].
type Fact struct {
	// One of these is set: Name of the Dataplane, Service of an inbound, Label with its Value, or Role of a zone proxy.
	Name, Service string
	Label, Value  string
	Role          string
}

// ReadFact parses a fact.
func ReadFact(fact string) Fact {
	if name, ok := strings.CutPrefix(fact, nameWord); ok {
		return Fact{Name: name}
	}
	if service, ok := strings.CutPrefix(fact, serviceWord); ok {
		return Fact{Service: service}
	}
	if label, ok := strings.CutPrefix(fact, labelWord); ok {
		key, value, _ := strings.Cut(label, "=")
		return Fact{Label: key, Value: value}
	}
	if strings.HasPrefix(fact, ingressWord) {
		return Fact{Role: IngressRole}
	}
	return Fact{Role: EgressRole}
}

// String returns the fact in the resource's terms: `the label kuma.io/workload: web`.
func (f Fact) String() string {
	switch {
	case f.Name != "":
		return "the name " + f.Name
	case f.Service != "":
		return "the tag " + ServiceTag + ": " + f.Service
	case f.Label != "":
		return "the label " + f.Label + ": " + f.Value
	case f.Role == IngressRole:
		return "networking.zoneIngress"
	}
	return "networking.zoneEgress"
}

// Roles of a Dataplane: RoleDataplane with inbounds or outbounds, the others by its zone proxy sections.
const (
	DataplaneRole = "dataplane"
	IngressRole   = string(IngressProxy)
	EgressRole    = string(EgressProxy)
)

// Roles returns the sorted roles of a Dataplane. Without zone proxy sections it is a dataplane.
func (n *Networking) Roles() []string {
	var roles []string
	sections := n.ZoneIngress != nil || n.ZoneEgress != nil
	if !sections || len(n.Inbound)+len(n.Outbound) > 0 || n.TransparentProxying != nil {
		roles = append(roles, DataplaneRole)
	}
	if n.ZoneEgress != nil {
		roles = append(roles, EgressRole)
	}
	if n.ZoneIngress != nil {
		roles = append(roles, IngressRole)
	}
	return roles
}

// MaxAgentFacts and MaxAgentBytes bound the facts that [resource.Vouched] records of agents for one Dataplane: their
// number, and the bytes of all of them.
const (
	MaxAgentFacts = 128
	MaxAgentBytes = 8 << 10
)

// anyFact in the record of agents stands for every fact, after their number exceeded the bounds.
const anyFact = "*"

// VouchOperator records the facts that an operator vouches for by writing after over before, which is nil for a new
// Dataplane. These are the facts that the write adds, and the facts that an operator vouched for before and that
// remain. A fact that an agent wrote without a voucher stays the agent's, even where the agent removed it before this
// write.
func VouchOperator(before, after *resource.Object[Dataplane]) {
	var had []string
	var record resource.Vouched
	if before != nil {
		had, record = Facts(before), before.Vouched
	}
	facts := Facts(after)
	agents := func(fact string) bool {
		return slices.Contains(had, fact) || slices.Contains(record.Agent, fact) ||
			slices.Contains(record.Agent, anyFact)
	}
	after.Vouched = resource.Vouched{
		Operator: slices.DeleteFunc(slices.Clone(facts), func(fact string) bool {
			return agents(fact) && !slices.Contains(record.Operator, fact)
		}),
		Token: slices.DeleteFunc(slices.Clone(record.Token), func(fact string) bool {
			return !slices.Contains(facts, fact)
		}),
		Agent: record.Agent,
	}
}

// VouchToken records the facts that an agent's token vouches for by registering after over before, which is nil for a
// new Dataplane. A remaining vouched fact stays vouched for. Facts without a voucher are recorded as the agent's.
// before may be after.
func VouchToken(before, after *resource.Object[Dataplane], claimed []string) {
	var record resource.Vouched
	if before != nil {
		record = before.Vouched
	}
	facts := Facts(after)
	gone := func(fact string) bool { return !slices.Contains(facts, fact) }
	now := resource.Vouched{Token: claimed, Agent: record.Agent}
	vouched := now.And(resource.Vouched{
		Operator: slices.DeleteFunc(slices.Clone(record.Operator), gone),
		Token:    slices.DeleteFunc(slices.Clone(record.Token), gone),
	})
	_, missing := vouched.By(facts)
	after.Vouched = vouched.And(resource.Vouched{Agent: missing})
	agent := after.Vouched.Agent
	if len(agent) > MaxAgentFacts || len(strings.Join(agent, "")) > MaxAgentBytes || slices.Contains(agent, anyFact) {
		after.Vouched.Agent = []string{anyFact}
	}
}
