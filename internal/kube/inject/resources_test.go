package inject

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

// TestFittedResources: whatever the bounds are, a fitted request and limit comply with them, and have what is counted.
func TestFittedResources(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		draw := func(label string, least, most int64) resource.Quantity {
			if rapid.Bool().Draw(r, label+" is none") {
				return resource.Quantity{}
			}
			return *resource.NewMilliQuantity(rapid.Int64Range(least, most).Draw(r, label), resource.DecimalSI)
		}
		b := bounds{countsRequests: rapid.Bool().Draw(r, "requests"), countsLimits: rapid.Bool().Draw(r, "limits"),
			defaultLimit: rapid.Bool().Draw(r, "default"), min: draw("min", 1, 800), max: draw("max", 800, 3000),
			ratio: draw("ratio", 1000, 9000)}
		request, limit := b.fit(draw("request", 1, 1000), draw("limit", 1000, 4000), resource.MustParse("50m"),
			resource.MustParse("1"))
		for _, rule := range []struct {
			name  string
			holds bool
		}{
			{"the request is below the limit", limit.IsZero() || request.Cmp(limit) <= 0},
			{"min", b.min.IsZero() || request.Cmp(b.min) >= 0 && (limit.IsZero() || limit.Cmp(b.min) >= 0)},
			{"max", b.max.IsZero() || !limit.IsZero() && limit.Cmp(b.max) <= 0},
			{"ratio", b.ratio.IsZero() || !limit.IsZero() &&
				(request.IsZero() || limit.MilliValue()*1000/request.MilliValue() <= b.ratio.MilliValue())},
			{"counted requests", !b.countsRequests || !request.IsZero()},
			{"counted limits", !b.countsLimits || !limit.IsZero()},
		} {
			if !rule.holds {
				r.Errorf("%+v: request %s, limit %s: %s", b, &request, &limit, rule.name)
			}
		}
	})
}
