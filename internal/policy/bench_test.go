package policy

import (
	"fmt"
	"testing"

	"weft/resource"
)

const (
	manyPolicies = 500
	manyProxies  = 10_000
	apps         = 400
)

// manyOf is a mesh of 400 applications: 10 policies of the whole mesh, 480 of single applications by two labels and 10
// of single proxies.
func manyOf() []*Policy {
	policies := make([]*Policy, manyPolicies)
	for i := range policies {
		meta := &resource.Meta{Mesh: "m", Name: fmt.Sprintf("policy-%d", i),
			Labels: map[string]string{"kuma.io/origin": "global"}}
		target := Target{Kind: Dataplane, Labels: map[string]string{"app": fmt.Sprintf("app-%d", i%apps),
			"env": "prod"}}
		switch {
		case i < 10:
			target = Target{}
		case i < 20:
			target = Target{Kind: Dataplane, Name: fmt.Sprintf("proxy-%d", i)}
		}
		policies[i] = New(resource.Key{Kind: "MeshTest", Mesh: "m", Name: meta.Name}, meta, target)
	}
	return policies
}

func proxies() []*Proxy {
	all := make([]*Proxy, manyProxies)
	for i := range all {
		app := fmt.Sprintf("app-%d", i%apps)
		all[i] = &Proxy{Name: fmt.Sprintf("proxy-%d", i), Zone: "east", Labels: map[string]string{
			"app": app, "env": "prod", "team": fmt.Sprintf("team-%d", i%20), "kuma.io/zone": "east",
			"kuma.io/env":    "universal",
			"kuma.io/origin": "zone", "kuma.io/mesh": "m", "kuma.io/display-name": fmt.Sprintf("proxy-%d", i),
		},
			Sections: []Section{{Name: "http",
				Tags: map[string]string{"kuma.io/service": app, "kuma.io/protocol": "http"}}}}
	}
	return all
}

// BenchmarkSelect is the cost of selecting the policies of one proxy.
func BenchmarkSelect(b *testing.B) {
	l, all := NewList(manyOf()), proxies()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l.Select(all[i%len(all)])
	}
}

// BenchmarkSelectByScan is the same cost without the index, for comparison.
func BenchmarkSelectByScan(b *testing.B) {
	l, all := NewList(manyOf()), proxies()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p := all[i%len(all)]
		for j := range l.policies {
			if policy := l.policies[j]; policy.reaches(p) {
				policy.Target.Selects(p)
			}
		}
	}
}

// BenchmarkNewList is the cost of a changed policy beside the selections of the proxies.
func BenchmarkNewList(b *testing.B) {
	policies := manyOf()
	b.ReportAllocs()
	for b.Loop() {
		NewList(append([]*Policy(nil), policies...))
	}
}

// BenchmarkSelectAll is the cost of a changed target where all proxies select anew.
func BenchmarkSelectAll(b *testing.B) {
	l, all := NewList(manyOf()), proxies()
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range all {
			l.Select(p)
		}
	}
}

// BenchmarkMerge is the cost of merging the confs of five policies.
func BenchmarkMerge(b *testing.B) {
	w := newWorld(b, `
		a: Mesh > Mesh {"idle": 1, "request": 2, "connect": 3}
		b: Mesh > MeshService b {"idle": 2, "detectors": {"totalFailures": 5}}
		c: Dataplane > Mesh {"request": 3, "detectors": {"gatewayFailures": 3}}
		d: Dataplane app=web > Mesh {"retryOn": ["5xx", "reset"]}
		e: Dataplane name=web-1 > MeshService b section=http {"streamIdle": 30, "appendMatch": ["x"]}`, false)
	parts := Outbound(w.applying(web(), ""), parseDestination("b:http"))
	b.ReportAllocs()
	for b.Loop() {
		plan.Merge(parts)
	}
}
