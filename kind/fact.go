package kind

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/resource"
)

// Facts returns the properties of a Dataplane that an identity, the role of a zone proxy or membership in a service may
// rest on: its name, its labels, the tags and addresses of its inbounds, and its zone proxy sections. They are sorted
// and unique. Labels and tags that the control plane sets are not included, since the control plane itself vouches for
// them.
func Facts(o *resource.Object[Dataplane]) []string {
	n := &o.Spec.Networking
	facts := append([]string{NameFact(o.Name)}, SectionFacts(n)...)
	for label, value := range o.Labels {
		if !setByControlPlane[label] {
			facts = append(facts, LabelFact(label, value))
		}
	}
	for _, in := range n.Inbound {
		for tag, value := range in.Tags {
			if !IsComputedTag(tag) && value != "" {
				facts = append(facts, TagFact(tag, value))
			}
		}
		if address := cmp.Or(in.Address, n.Address); address != "" {
			facts = append(facts, AddressFact(address))
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

// IsComputedLabel reports whether the control plane sets a label of Dataplanes by something else than their name, and
// vouches for it.
func IsComputedLabel(label string) bool { return setByControlPlane[label] }

// IsStatedByNamespace reports whether the owner of a namespace chooses the value of a label of a Pod or a Service. The
// control plane computes the other labels, or reads them from the Namespace. A label of a Node counts as one of the
// Pod, since the Pod may have it where the Node lacks it.
func IsStatedByNamespace(label string) bool {
	return label == DisplayName || !setByControlPlane[label] && label != PodUIDLabel && label != NamespaceLabelsLabel
}

// IsComputedTag reports whether the control plane sets a tag of inbounds, and vouches for it.
func IsComputedTag(tag string) bool {
	return tag == ZoneLabel || tag == EnvironmentTag || tag == NamespaceLabel
}

// Prefixes of facts.
const (
	nameWord    = "name "
	labelWord   = "label "
	serviceWord = "service "
	tagWord     = "tag "
	addressWord = "address "
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

// TagFact returns the fact of a tag of an inbound.
func TagFact(tag, value string) string {
	if tag == ServiceTag {
		return ServiceFact(value)
	}
	return tagWord + tag + "=" + value
}

// AddressFact returns the fact of the address of an inbound: an IP address or a host name.
func AddressFact(address string) string { return addressWord + address }

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

// RequiredFacts returns the facts of a Dataplane that the token of its agent must claim, by who vouches for them: its
// zone proxy sections, also those without a voucher, and its name where a token vouches for it. A name for which an
// operator vouches requires no token with it.
func RequiredFacts(o *resource.Object[Dataplane]) resource.Vouched {
	required, unvouched := o.Vouched.Partition(SectionFacts(&o.Spec.Networking))
	required.Token = append(required.Token, unvouched...)
	name, _ := o.Vouched.Partition([]string{NameFact(o.Name)})
	required.Token = append(required.Token, name.Token...)
	return required
}

// TakesOver reports whether a token that claims facts of a Dataplane takes it over from tokens without its name: it
// claims the name, for which neither a token nor an operator vouches yet.
func TakesOver(stored *resource.Object[Dataplane], claimed []string) bool {
	name := NameFact(stored.Name)
	return !stored.Vouched.Has(name) && slices.Contains(claimed, name)
}

// SameInbounds reports whether two Dataplanes have the same inbounds, by what requests of clients and the application
// read of them: addresses, ports and tags. The rest of an inbound concerns its own machine.
func SameInbounds(a, b *resource.Object[Dataplane]) bool {
	return slices.Equal(inboundTexts(&a.Spec.Networking), inboundTexts(&b.Spec.Networking))
}

func inboundTexts(n *Networking) []string {
	var texts []string
	for _, in := range n.Inbound {
		in = n.Effective(in)
		tags := maps.Clone(in.Tags)
		maps.DeleteFunc(tags, func(tag, _ string) bool { return IsComputedTag(tag) })
		application := HostPort(in.ServiceAddress, in.ServicePort)
		texts = append(texts, fmt.Sprintf("%s to %s with %q", in.Listener(), application, tags))
	}
	slices.Sort(texts)
	return texts
}

// Fact is one parsed fact of [Facts].
type Fact struct {
	// One of these is set: Name of the Dataplane, Service or Address of an inbound, Label or Tag with its Value, or
	// Role of a zone proxy. The tag kuma.io/service is a Service.
	Name, Service, Address string
	Label, Tag, Value      string
	Role                   string
}

// SelectsOnly reports whether no SPIFFE ID and no role rests on the fact, but only membership in services.
func (f Fact) SelectsOnly() bool { return f.Tag != "" || f.Address != "" }

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
	if tag, ok := strings.CutPrefix(fact, tagWord); ok {
		key, value, _ := strings.Cut(tag, "=")
		return Fact{Tag: key, Value: value}
	}
	if address, ok := strings.CutPrefix(fact, addressWord); ok {
		return Fact{Address: address}
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
	case f.Tag != "":
		return "the tag " + f.Tag + ": " + f.Value
	case f.Address != "":
		return "the address " + f.Address
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
// number, and the bytes of all of them. maxAgentAddresses bounds the addresses among them: an agent may change its
// address at every start.
const (
	MaxAgentFacts     = 128
	MaxAgentBytes     = 8 << 10
	maxAgentAddresses = 16
)

// anyFact in the record of agents stands for every fact, and anyAddress for every address, after their number exceeded
// the bounds.
const (
	anyFact    = "*"
	anyAddress = addressWord + "*"
)

// VouchOperator records the facts that an operator vouches for by writing after over before, which is nil for a new
// Dataplane. These are the facts that the write adds, and the facts that an operator vouched for before and that
// remain. A fact that an agent wrote without a voucher stays the agent's, even where the agent removed it before this
// write.
func VouchOperator(before, after *resource.Object[Dataplane]) {
	var had []string
	var record resource.Vouched
	if before != nil {
		had, record = Facts(before), CompleteRecord(before)
	}
	facts := Facts(after)
	after.Vouched = resource.Vouched{
		Operator: slices.DeleteFunc(slices.Clone(facts), func(fact string) bool {
			return (slices.Contains(had, fact) || isAgents(&record, fact)) && !slices.Contains(record.Operator, fact)
		}),
		Token:    remaining(record.Token, facts),
		Agent:    record.Agent,
		Complete: true,
	}
}

// VouchToken records the facts that an agent's token vouches for by registering after over before, which is nil for a
// new Dataplane. A remaining vouched fact stays vouched for, unless the token takes the Dataplane over: then what the
// tokens without its name vouched for has no voucher any more. Facts without a voucher are recorded as the agent's.
// before may be after.
func VouchToken(before, after *resource.Object[Dataplane], claimed []string) {
	var record resource.Vouched
	if before != nil {
		record = CompleteRecord(before)
		if TakesOver(before, claimed) {
			record.Token = nil
		}
	}
	facts := Facts(after)
	vouched := resource.Vouched{
		Operator: remaining(record.Operator, facts),
		Token:    remaining(record.Token, facts),
		Agent:    record.Agent,
		Complete: true,
	}
	vouched = vouched.And(resource.Vouched{Token: claimed})
	_, missing := vouched.Partition(facts)
	vouched = vouched.And(resource.Vouched{Agent: missing})
	vouched.Agent = boundedFacts(vouched.Agent)
	after.Vouched = vouched
}

// remaining returns the facts of a record that a Dataplane still has.
func remaining(record, facts []string) []string {
	return slices.DeleteFunc(slices.Clone(record), func(fact string) bool { return !slices.Contains(facts, fact) })
}

// boundedFacts returns the record of agents within its bounds.
func boundedFacts(agent []string) []string {
	isAddress := func(fact string) bool { return strings.HasPrefix(fact, addressWord) }
	addresses := 0
	for _, fact := range agent {
		if isAddress(fact) {
			addresses++
		}
	}
	if addresses > maxAgentAddresses || slices.Contains(agent, anyAddress) {
		agent = append(slices.DeleteFunc(agent, isAddress), anyAddress)
		slices.Sort(agent)
	}
	if len(agent) > MaxAgentFacts || len(strings.Join(agent, "")) > MaxAgentBytes || slices.Contains(agent, anyFact) {
		return []string{anyFact}
	}
	return agent
}

// CompleteRecord returns the record of a Dataplane. In the record of an earlier release, which knew neither tags nor
// addresses, the operator who wrote the whole Dataplane vouches for them too.
func CompleteRecord(o *resource.Object[Dataplane]) resource.Vouched {
	record := o.Vouched
	if !record.Complete && WrittenByOperator(&record, o.Name) {
		record.Operator = Facts(o)
	}
	record.Complete = true
	return record
}

// Vouches reports whether an operator or a token vouches for a fact of a Dataplane, which it has. An operator who wrote
// a Dataplane under an earlier release vouches for the whole of it.
func Vouches(o *resource.Object[Dataplane], fact string) bool {
	return o.Vouched.Has(fact) || !o.Vouched.Complete && WrittenByOperator(&o.Vouched, o.Name)
}

// VouchesForName reports whether an operator or a token vouches for the name of a Dataplane. On another control plane
// than that of its zone, a Dataplane has another name than in its record.
func VouchesForName(o *resource.Object[Dataplane]) bool {
	isName := func(fact string) bool { return strings.HasPrefix(fact, nameWord) }
	return slices.ContainsFunc(o.Vouched.Operator, isName) || slices.ContainsFunc(o.Vouched.Token, isName)
}

// HadVoucher reports whether an operator or a token vouched for a fact that a Dataplane had: it still does, or no agent
// ever wrote the fact without a voucher.
func HadVoucher(o *resource.Object[Dataplane], fact string) bool {
	return Vouches(o, fact) || o.Vouched.Complete && !isAgents(&o.Vouched, fact)
}

// isAgents reports whether an agent wrote a fact without a voucher, by a record within its bounds.
func isAgents(record *resource.Vouched, fact string) bool {
	return slices.Contains(record.Agent, fact) || slices.Contains(record.Agent, anyFact) ||
		strings.HasPrefix(fact, addressWord) && slices.Contains(record.Agent, anyAddress)
}

// VouchedLabels returns the labels of a Dataplane that the control plane sets, or for which an operator or a token
// vouches.
func VouchedLabels(o *resource.Object[Dataplane]) map[string]string {
	return vouchedPart(o.Labels, func(label, value string) bool { return vouchesForLabel(o, label, value) })
}

func vouchesForLabel(o *resource.Object[Dataplane], label, value string) bool {
	if label == DisplayName {
		return VouchesForName(o)
	}
	return IsComputedLabel(label) || Vouches(o, LabelFact(label, value))
}

// VouchedTags returns the tags of an inbound of a Dataplane that the control plane sets, or that have a voucher by
// vouches: [Vouches], or [HadVoucher] for an inbound that the Dataplane had.
func VouchedTags(o *resource.Object[Dataplane], tags map[string]string,
	vouches func(*resource.Object[Dataplane], string) bool) map[string]string {
	return vouchedPart(tags, func(tag, value string) bool {
		return IsComputedTag(tag) || vouches(o, TagFact(tag, value))
	})
}

// vouchedPart returns the pairs with a voucher; all itself where each has one.
func vouchedPart(all map[string]string, vouches func(key, value string) bool) map[string]string {
	part, copied := all, false
	for key, value := range all {
		if vouches(key, value) {
			continue
		}
		if !copied {
			part, copied = maps.Clone(all), true
		}
		delete(part, key)
	}
	return part
}

// WrittenByOperator reports whether an operator wrote the Dataplane of a record of an earlier release, and no agent
// registered it since.
func WrittenByOperator(record *resource.Vouched, name string) bool {
	return len(record.Token)+len(record.Agent) == 0 && slices.Contains(record.Operator, NameFact(name))
}
