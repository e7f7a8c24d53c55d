package envoy

import (
	"testing"

	"weft/internal/service"
	"weft/internal/xds"
)

func TestOnlyAddsEndpoints(t *testing.T) {
	list := func(endpoints ...service.Endpoint) *xds.Resource {
		return Assignment(&service.Endpoints{Endpoints: endpoints})
	}
	a, b := service.Endpoint{Address: "10.0.0.1", Port: 80}, service.Endpoint{Address: "10.0.0.2", Port: 80}
	plain := a
	plain.Plaintext = true
	for name, c := range map[string]struct {
		before, after *xds.Resource
		want          bool
	}{
		"one more":                   {list(a), list(a, b), true},
		"one more before it":         {list(b), list(a, b), true},
		"the first one":              {list(), list(a), true},
		"one goes":                   {list(a, b), list(a), false},
		"one takes another's place":  {list(a), list(b), false},
		"one more, and one changes":  {list(a), list(plain, b), false},
		"nothing differs":            {list(a), list(a), false},
		"an assignment that is new":  {nil, list(a), false},
		"an assignment that is gone": {list(a), nil, false},
	} {
		if got := OnlyAddsEndpoints(c.before, c.after); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

func TestHasEndpoints(t *testing.T) {
	list := func(endpoints ...service.Endpoint) *xds.Resource {
		return Assignment(&service.Endpoints{Endpoints: endpoints})
	}
	if HasEndpoints(nil) || HasEndpoints(list()) ||
		!HasEndpoints(list(service.Endpoint{Address: "10.0.0.1", Port: 80})) {
		t.Error("want true with an endpoint alone")
	}
}
