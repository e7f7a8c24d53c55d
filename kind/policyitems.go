package kind

import "fmt"

// ToItem is a conf about the traffic that the selected proxies send to destinations.
type ToItem[C any] struct {
	// the destinations
	TargetRef DestinationRef `json:"targetRef" schema:"required"`
	Default   C              `json:"default" schema:"required minProperties=1"` // the conf
}

// toParts returns the items as parts, with the confs of the items.
func toParts[C any](items []ToItem[C]) []ToPart {
	parts := make([]ToPart, len(items))
	for i := range items {
		parts[i] = ToPart{TargetRef(items[i].TargetRef), &items[i].Default}
	}
	return parts
}

// checkTo checks the items of `to` of a policy, each conf with the function of its kind.
func checkTo[C any](c *checks, items []ToItem[C], conf func(c *checks, at string, conf *C)) {
	for i := range items {
		at := fmt.Sprintf("spec.to[%d]", i)
		c.destinationRef(at+".targetRef", &items[i].TargetRef)
		conf(c, at+".default", &items[i].Default)
	}
}
