package kind

import (
	"fmt"
	"maps"
)

// ToItem is a conf about the traffic that the selected proxies send to destinations.
type ToItem[C any] struct {
	// the destinations
	TargetRef DestinationRef `json:"targetRef" schema:"required"`
	Default   C              `json:"default"` // the conf
}

// toParts returns the items as parts, with the confs of the items.
func toParts[C any](items []ToItem[C]) []ToPart {
	parts := make([]ToPart, len(items))
	for i := range items {
		parts[i] = ToPart{items[i].TargetRef, &items[i].Default}
	}
	return parts
}

// checkTo checks the items of `to` of a policy, each target and conf with the function of its kind.
func checkTo[C any](c *checks, items []ToItem[C], target func(c *checks, at string, ref *DestinationRef),
	conf func(c *checks, at string, conf *C)) {
	for i := range items {
		at := fmt.Sprintf("spec.to[%d]", i)
		target(c, at+".targetRef", &items[i].TargetRef)
		conf(c, at+".default", &items[i].Default)
	}
}

// Messages about fields of Kuma's references.
const (
	otherMesh  = "has no meaning here; leave it out: a reference is to a resource of the policy's own mesh"
	noGateways = "has no meaning here; leave it out: there are no built-in gateways"
)

// replacedInTargets returns the messages about fields of Kuma's targets that this release lacks, with those about
// further fields of a kind.
func replacedInTargets(more map[string]string) map[string]string {
	replaced := map[string]string{
		"targetRef.mesh":          otherMesh,
		"to.targetRef.mesh":       otherMesh,
		"to.targetRef.proxyTypes": noGateways,
		"to.targetRef.tags":       "is not served by this release; use labels, which are those of the services",
	}
	maps.Copy(replaced, more)
	return replaced
}
