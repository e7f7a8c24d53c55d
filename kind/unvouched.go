package kind

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"weft/resource"
)

// UnvouchedChange returns why a write of a Dataplane takes an operator, which its writer is not; empty: it takes none.
// Such a write leaves every vouched fact, the workload and the networking as they are: the networking is what its agent
// states of its own machine, or an operator of any. before is nil for a new Dataplane. That, and one that such a writer
// wrote before, no proxy runs ([resource.Vouched]), so any change is accepted.
func UnvouchedChange(before, after *resource.Object[Dataplane]) string {
	if before == nil || before.Vouched.User {
		return ""
	}
	has := Facts(after)
	for _, fact := range vouchedFacts(before) {
		if !slices.Contains(has, fact) {
			return "somebody vouches for " + ReadFact(fact).String() + ", which the write changes or removes"
		}
	}
	if before.Label(WorkloadLabel) != after.Label(WorkloadLabel) {
		return "the write changes the label " + WorkloadLabel
	}
	if field := changedNetworking(&before.Spec.Networking, &after.Spec.Networking); field != "" {
		return "the write changes networking." + field
	}
	return ""
}

// changedNetworking returns the first field by name that differs, without defaults and without tags that the control
// plane sets; empty: none.
func changedNetworking(before, after *Networking) string {
	had, has := networkingFields(before), networkingFields(after)
	for _, field := range slices.Sorted(maps.Keys(has)) {
		if !bytes.Equal(had[field], has[field]) {
			return field
		}
		delete(had, field)
	}
	for _, field := range slices.Sorted(maps.Keys(had)) {
		return field
	}
	return ""
}

// networkingFields returns the fields of a networking as JSON.
func networkingFields(n *Networking) map[string]json.RawMessage {
	effective := *n
	effective.Inbound = nil
	for _, in := range n.Inbound {
		in = n.Effective(in)
		in.Tags = maps.Clone(in.Tags)
		maps.DeleteFunc(in.Tags, func(tag, _ string) bool { return IsComputedTag(tag) })
		effective.Inbound = append(effective.Inbound, in)
	}
	text, _ := json.Marshal(&effective)
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(text, &fields)
	return fields
}

// vouchedFacts returns the facts of a Dataplane for which an operator or a token vouches.
func vouchedFacts(o *resource.Object[Dataplane]) []string {
	record := CompleteRecord(o)
	return slices.DeleteFunc(Facts(o), func(fact string) bool { return !record.Has(fact) })
}
