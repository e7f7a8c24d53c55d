package inject

import (
	"math"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"weft/internal/kube/podmeta"
	"weft/internal/settings"
)

// The resources of our containers where a namespace demands some that the settings leave out. Without such a rule, a
// container has no limit of the CPU: it would be throttled at a moment when the node has free CPUs.
var (
	demandedOfSidecar = settings.Resources{RequestCPU: "50m", RequestMemory: "64Mi", LimitCPU: "1000m",
		LimitMemory: "512Mi"}
	demandedOfInit = settings.Resources{RequestCPU: "20m", RequestMemory: "20M", LimitCPU: "100m", LimitMemory: "50M"}
)

// sidecarResource is an annotation with a resource of the sidecar.
type sidecarResource struct {
	annotation, example string
	limit               bool
	name                core.ResourceName
	in                  func(*settings.Resources) *string
}

var sidecarAnnotations = []sidecarResource{
	{podmeta.RequestCPU, "100m", false, core.ResourceCPU,
		func(r *settings.Resources) *string { return &r.RequestCPU }},
	{podmeta.RequestMemory, "128Mi", false, core.ResourceMemory,
		func(r *settings.Resources) *string { return &r.RequestMemory }},
	{podmeta.LimitCPU, "2", true, core.ResourceCPU,
		func(r *settings.Resources) *string { return &r.LimitCPU }},
	{podmeta.LimitMemory, "1Gi", true, core.ResourceMemory,
		func(r *settings.Resources) *string { return &r.LimitMemory }},
}

// readResources reads the resources that the annotations give the sidecar, over those of the settings. Where the Pod as
// a whole has resources, those of the settings do not count, since the sum would be rejected.
func (i *injection) readResources() settings.Resources {
	wanted := i.Settings.Sidecar
	if i.pod.Spec.Resources != nil {
		wanted = settings.Resources{}
	}
	for _, of := range sidecarAnnotations {
		text, ok := i.pod.Annotations[of.annotation]
		if !ok {
			continue
		}
		if q, err := resource.ParseQuantity(text); err != nil || q.Sign() < 0 {
			i.invalid(of.annotation, "is %q; want a quantity such as %s, or 0 for none", text, of.example)
			continue
		}
		*of.in(&wanted) = text
	}
	return wanted
}

// sidecarResources returns the resources of the sidecar within the rules of the namespace.
func (i *injection) sidecarResources() core.ResourceRequirements {
	list := requirements(i.options.resources)
	if i.pod.Spec.Resources != nil {
		return list
	}
	list.Requests[core.ResourceEphemeralStorage] = resource.MustParse("50M")
	list.Limits[core.ResourceEphemeralStorage] = resource.MustParse("1G")
	list = i.fitted(list, requirements(demandedOfSidecar), i.sharedBounds)
	for _, of := range sidecarAnnotations {
		text, ok := i.pod.Annotations[of.annotation]
		fits := map[bool]core.ResourceList{true: list.Limits, false: list.Requests}[of.limit][of.name]
		if ok && fits.Cmp(quantityOf(text)) != 0 {
			i.warn("the annotation %s is %s, and the rules of the namespace (ResourceQuota, LimitRange) make it %s",
				of.annotation, text, &fits)
		}
	}
	return list
}

// initResources returns the resources of a container that ends before the others start.
func (i *injection) initResources(wanted settings.Resources) core.ResourceRequirements {
	if i.pod.Spec.Resources != nil {
		return core.ResourceRequirements{} // the Pod as a whole has them
	}
	return i.fitted(requirements(wanted), requirements(demandedOfInit), i.bounds)
}

// requirements returns quantities, without those that are zero.
func requirements(of settings.Resources) core.ResourceRequirements {
	list := func(cpu, memory string) core.ResourceList {
		quantities := core.ResourceList{}
		for name, text := range map[core.ResourceName]string{core.ResourceCPU: cpu, core.ResourceMemory: memory} {
			if q := quantityOf(text); !q.IsZero() {
				quantities[name] = q
			}
		}
		return quantities
	}
	return core.ResourceRequirements{Requests: list(of.RequestCPU, of.RequestMemory),
		Limits: list(of.LimitCPU, of.LimitMemory)}
}

// quantityOf parses a quantity that was checked. An empty one is zero.
func quantityOf(text string) resource.Quantity {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return resource.Quantity{}
	}
	return q
}

// bounds are the rules of a namespace about one resource of a container. A zero quantity is no rule.
type bounds struct {
	// countsRequests and countsLimits are true where a ResourceQuota counts them, so that each container must have one.
	countsRequests, countsLimits bool
	min, max                     resource.Quantity
	ratio                        resource.Quantity // of the limit to the request, at most
	// defaultLimit is true where a container without a limit gets that of a LimitRange, which may be below its request.
	defaultLimit bool
}

// bounds returns the strictest rules of the ResourceQuotas and LimitRanges for a container. A quota counts whatever its
// scopes are: a limit is the smaller harm than a Pod that is denied.
func (i *injection) bounds(name core.ResourceName) bounds {
	var b bounds
	for _, quota := range i.Quotas {
		_, counted := quota.Spec.Hard["limits."+name]
		b.countsLimits = b.countsLimits || counted
		for _, request := range []core.ResourceName{name, "requests." + name} {
			_, counted := quota.Spec.Hard[request]
			b.countsRequests = b.countsRequests || counted
		}
	}
	for _, item := range i.limitItems(core.LimitTypeContainer, core.LimitTypePod) {
		b.max = smaller(b.max, item.Max[name])
		if item.Type == core.LimitTypePod {
			continue
		}
		b.min = larger(b.min, item.Min[name])
		_, defaulted := item.Default[name]
		b.defaultLimit = b.defaultLimit || defaulted
		b.ratio = smaller(b.ratio, item.MaxLimitRequestRatio[name])
	}
	return b
}

// sharedBounds returns the rules for a container that runs beside those of the user: a LimitRange of the Pod bounds
// their sum.
func (i *injection) sharedBounds(name core.ResourceName) bounds {
	b := i.bounds(name)
	for _, item := range i.limitItems(core.LimitTypePod) {
		rest, bounded := item.Max[name]
		if !bounded {
			continue
		}
		for _, c := range i.besideSidecar() {
			used := c.Resources.Limits[name]
			rest.Sub(used)
		}
		if least := requirements(demandedOfSidecar).Requests[name]; rest.Cmp(least) < 0 {
			allowed := item.Max[name]
			i.problems.Add("spec.containers", "a LimitRange of the namespace allows the Pod %s of %s, and the limits "+
				"of its containers leave less than the %s that the sidecar needs; lower the limits, or raise that of "+
				"the LimitRange", &allowed, name, &least)
			continue
		}
		b.max = smaller(b.max, rest)
	}
	return b
}

// besideSidecar returns the user's containers that run at the same time as the sidecar.
func (i *injection) besideSidecar() []core.Container {
	var all []core.Container
	for _, c := range i.pod.Spec.InitContainers {
		if restarts(&c) {
			all = append(all, c)
		}
	}
	return append(all, i.pod.Spec.Containers...)
}

func (i *injection) limitItems(types ...core.LimitType) []core.LimitRangeItem {
	var items []core.LimitRangeItem
	for _, limits := range i.LimitRanges {
		for _, item := range limits.Spec.Limits {
			for _, of := range types {
				if item.Type == of {
					items = append(items, item)
				}
			}
		}
	}
	return items
}

// fitted returns resources within rules, with those that a rule demands.
func (i *injection) fitted(wanted, demanded core.ResourceRequirements,
	rules func(core.ResourceName) bounds) core.ResourceRequirements {
	for _, name := range []core.ResourceName{core.ResourceCPU, core.ResourceMemory, core.ResourceEphemeralStorage} {
		b := rules(name)
		request, limit := b.fit(wanted.Requests[name], wanted.Limits[name], demanded.Requests[name],
			demanded.Limits[name])
		if name != core.ResourceCPU {
			request.RoundUp(0) // to a byte
		}
		put(wanted.Requests, name, request)
		put(wanted.Limits, name, limit)
	}
	return wanted
}

func put(list core.ResourceList, name core.ResourceName, q resource.Quantity) {
	if !q.IsZero() {
		list[name] = q
	}
}

// fit returns a request and a limit within the bounds; zero is none. A ratio raises the request: a lower limit would
// end the container, or throttle it.
func (b *bounds) fit(request, limit, demandedRequest, demandedLimit resource.Quantity) (_, _ resource.Quantity) {
	if limit.IsZero() && (b.countsLimits || b.defaultLimit || !b.max.IsZero() || !b.ratio.IsZero()) {
		limit = demandedLimit
	}
	if request.IsZero() && (b.countsRequests || !b.min.IsZero()) {
		request = demandedRequest
	}
	if !limit.IsZero() {
		limit = larger(smaller(limit, b.max), b.min)
	}
	if !request.IsZero() {
		request = larger(smaller(smaller(request, limit), b.max), b.min)
	}
	if !b.ratio.IsZero() && !request.IsZero() {
		request = smaller(larger(request, quotient(limit, b.ratio)), limit) // rounded up
	}
	return request, limit
}

// smaller and larger return one of two quantities; zero is none.
func smaller(a, b resource.Quantity) resource.Quantity {
	if a.IsZero() || !b.IsZero() && b.Cmp(a) < 0 {
		return b
	}
	return a
}

func larger(a, b resource.Quantity) resource.Quantity {
	if b.Cmp(a) > 0 {
		return b
	}
	return a
}

// quotient returns a quantity divided by a ratio, rounded up to a thousandth.
func quotient(q, ratio resource.Quantity) resource.Quantity {
	thousandths := math.Ceil(q.AsApproximateFloat64() / ratio.AsApproximateFloat64() * 1000)
	return *resource.NewMilliQuantity(int64(thousandths), q.Format)
}

// keepsThreads reports whether the sidecar has a limit of the CPU from which its number of threads does not follow.
func (i *injection) keepsThreads(r core.ResourceRequirements) bool {
	_, limited := r.Limits[core.ResourceCPU]
	return limited && i.options.concurrency == 0
}
