package inspect_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weft/internal/graph"
	"weft/internal/inspect"
	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// rings is a MeshLoadBalancingStrategy with rings of a size to all services, or to one.
func rings(name, service string, size uint32, labels map[string]string) resource.Any {
	ref := kind.DestinationRef{Kind: "Mesh"}
	if service != "" {
		ref = kind.DestinationRef{Kind: "MeshService", Labels: map[string]string{"app": service}}
	}
	balancer := &kind.LoadBalancer{Type: kind.RingHash, RingHash: &kind.RingHashConfig{MinRingSize: &size}}
	of := kind.MeshLoadBalancingStrategies.Make("default", name, kind.MeshLoadBalancingStrategy{
		To: []kind.ToItem[kind.LoadBalancingConf]{{TargetRef: ref,
			Default: kind.LoadBalancingConf{LoadBalancer: balancer}}},
	})
	of.Labels = labels
	return of
}

// Policies with which a proxy would pay more than the bound of their owner are left out, and those of other owners
// stay.
func TestPoliciesThatCostTooMuchAreLeftOut(t *testing.T) {
	const services = 8
	producer := func(namespace string) map[string]string {
		return map[string]string{kind.NamespaceLabel: namespace, kind.PolicyRoleLabel: kind.ProducerRole,
			kind.EnvLabel: kind.Kubernetes}
	}
	const entries = 1024 // that cost nothing
	for _, test := range []struct {
		name     string
		policies []resource.Any
		left     string // the names of those that are left out
	}{
		{"at the bound of operators", []resource.Any{rings("a", "", 3<<20/services+entries, nil)}, ""},
		{"beyond it", []resource.Any{rings("a", "", 3<<20/services+entries+1, nil)}, "a"},
		{"about one service", []resource.Any{rings("a", "s1", 1<<20, nil)}, ""},
		{"the second of two", []resource.Any{rings("a", "", 300_000, nil), rings("b", "", 300_000, nil)}, "b"},
		{"a later small one stays", []resource.Any{rings("a", "", 300_000, nil), rings("b", "", 300_000, nil),
			rings("c", "s1", 2048, nil)}, "b"},
		{"of two namespaces", []resource.Any{rings("a", "", 32_768, producer("one")),
			rings("b", "", 32_768, producer("two"))}, ""},
		{"producers beyond their bound", []resource.Any{rings("a", "s1", 65_536, producer("one")),
			rings("b", "s2", 65_536, producer("one")), rings("c", "s3", 65_536, producer("one")),
			rings("d", "s4", 65_536, producer("one")), rings("e", "s5", 65_536, producer("one")),
			rings("f", "", 300_000, nil)}, "e"},
		{"defaults cost nothing", []resource.Any{rings("a", "", entries, nil)}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := graph.NewState("east")
			s.Tables.DB.Commit(func(tx *table.Tx) {
				s.Tables.Put(tx, kind.Meshes.Make("", "default", kind.Mesh{}))
				s.Tables.Put(tx, kind.Dataplanes.Make("default", "web-1", kind.Dataplane{Networking: kind.Networking{
					Address: "10.0.0.1", TransparentProxying: &kind.TransparentProxying{}}}))
				for i := range services {
					service := kind.MeshServices.Make("default", fmt.Sprint("s", i), kind.MeshService{
						Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "web"}},
						Ports:    []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP}}})
					service.Labels = map[string]string{"app": service.Name}
					s.Tables.Put(tx, service)
				}
				for _, policy := range test.policies {
					s.Tables.Put(tx, policy)
				}
			})
			effects := inspect.NewReports(s, s.Tables.DB.Snapshot()).PolicyEffects()
			var left []string
			for _, policy := range test.policies {
				status := effects.Status(policy)
				accepted, applied := status.Conditions[0], status.Conditions[2]
				if accepted.Reason != kind.CostTooHigh {
					continue
				}
				left = append(left, policy.Envelope().Name)
				if accepted.Status != "False" || applied.Status != "False" || applied.Reason != kind.CostTooHigh ||
					!strings.Contains(accepted.Message, "is left out") {
					t.Errorf("the conditions of a policy that is left out are %v", status.Conditions)
				}
			}
			if got := strings.Join(left, " "); got != test.left {
				t.Errorf("%q are left out, want %q", got, test.left)
			}
			web := proxy.SelectionKey{PoliciesKey: proxy.PoliciesKey{Kind: kind.MeshLoadBalancingStrategies.Name,
				Mesh: "default"}, Proxy: state.ProxyKey{Mesh: "default", Name: "web-1"}}
			applied := s.Proxies.Selections.Get(table.Eval(s.Tables.DB.Snapshot()), web)
			if want := len(test.policies) - len(left); len(applied) != want {
				t.Errorf("%d policies apply, want %d", len(applied), want)
			}
		})
	}
}

// routed is a MeshHTTPRoute to the service s1 with a number of matches, and a header that it sets.
func routed(matches int, header string) resource.Any {
	rule := kind.HTTPRouteRule{}
	for i := range matches {
		rule.Matches = append(rule.Matches, kind.HTTPMatch{Path: &kind.PathMatch{Type: kind.PathExact,
			Value: fmt.Sprint("/", i)}})
	}
	if header != "" {
		rule.Default.Filters = []kind.HTTPFilter{{Type: "RequestHeaderModifier",
			RequestHeaderModifier: &kind.HeaderModifier{Set: []kind.HeaderValue{{Name: "x-a", Value: header}}}}}
	}
	return kind.MeshHTTPRoutes.Make("default", "r", kind.MeshHTTPRoute{To: []kind.HTTPRouteTo{{
		TargetRef: kind.RoutedRef{Kind: "MeshService", Labels: map[string]string{"app": "s1"}},
		Rules:     []kind.HTTPRouteRule{rule}}}})
}

// retried is a MeshRetry with some regular expressions about a destination.
func retried(about kind.DestinationRef, expressions int) resource.Any {
	conf := kind.RetryConf{HTTP: &kind.HTTPRetries{}}
	for i := range expressions {
		conf.HTTP.RetriableRequestHeaders = append(conf.HTTP.RetriableRequestHeaders,
			kind.HeaderMatch{Type: kind.HeaderRegex, Name: "x-a", Value: fmt.Sprint("a", i)})
	}
	return kind.MeshRetries.Make("default", "t", kind.MeshRetry{To: []kind.ToItem[kind.RetryConf]{{TargetRef: about,
		Default: conf}}})
}

// Envoy makes the retries and the headers of a rule again for each route: a match is one.
func TestRoutesMultiplyCosts(t *testing.T) {
	about := func(of, app string) kind.DestinationRef {
		ref := kind.DestinationRef{Kind: of}
		if app != "" {
			ref.Labels = map[string]string{"app": app}
		}
		return ref
	}
	named := func(route resource.Any) resource.Any {
		route.Envelope().Labels = map[string]string{"app": "s1"}
		return route
	}
	for _, test := range []struct {
		name     string
		policies []resource.Any
		left     string // the kinds of those that are left out
	}{
		{"retries of few routes", []resource.Any{routed(60, ""), retried(about("Mesh", ""), 32)}, ""},
		{"retries of many routes", []resource.Any{routed(3600, ""), retried(about("Mesh", ""), 32)}, "MeshRetry"},
		{"of their service", []resource.Any{routed(3600, ""), retried(about("MeshService", "s1"), 32)}, "MeshRetry"},
		{"of the routes", []resource.Any{named(routed(3600, "")), retried(about("MeshHTTPRoute", "s1"), 32)},
			"MeshRetry"},
		{"of another service", []resource.Any{routed(3600, ""), retried(about("MeshService", "s2"), 32)}, ""},
		{"a header of many routes", []resource.Any{routed(3600, strings.Repeat("a", 1000))}, "MeshHTTPRoute"},
		{"a short one", []resource.Any{routed(3600, "a")}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := graph.NewState("east")
			s.Tables.DB.Commit(func(tx *table.Tx) {
				s.Tables.Put(tx, kind.Meshes.Make("", "default", kind.Mesh{}))
				for _, name := range []string{"s1", "s2"} {
					service := kind.MeshServices.Make("default", name, kind.MeshService{
						Ports: []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP}}})
					service.Labels = map[string]string{"app": name}
					s.Tables.Put(tx, service)
				}
				for _, policy := range test.policies {
					s.Tables.Put(tx, policy)
				}
			})
			r, left := table.Eval(s.Tables.DB.Snapshot()), ""
			for _, policy := range test.policies {
				if s.Proxies.CostReason(r, policy.Key()) != "" {
					left = policy.Key().Kind
				}
			}
			if left != test.left {
				t.Errorf("%q is left out, want %q", left, test.left)
			}
		})
	}
}

// TestPoliciesThatAProxyIsWithout: a proxy lists the policies that target it and that it is without, and no others.
func TestPoliciesThatAProxyIsWithout(t *testing.T) {
	s := graph.NewState("east")
	costly, other := rings("costly", "", 8<<20, nil), rings("other", "", 2048, nil)
	timeout := kind.MeshTimeouts.Make("default", "rejected", kind.MeshTimeout{})
	timeout.Version = "1"
	other.(*resource.Object[kind.MeshLoadBalancingStrategy]).Spec.TargetRef = &kind.TargetRef{Kind: "Dataplane",
		Name: "api-1"}
	insight := kind.DataplaneInsights.Make("default", "web-1", kind.DataplaneInsight{Exceptions: []kind.Exception{
		{Policy: kind.Cause{Kind: "MeshTimeout", Name: "rejected"}, PolicyVersion: "1", Type: "route", Name: "r",
			Message: "no", State: kind.ExceptionAlone},
		{Policy: kind.Cause{Kind: "MeshTimeout", Name: "rejected"}, PolicyVersion: "0", State: kind.ExceptionAlone},
	}})
	s.Tables.DB.Commit(func(tx *table.Tx) {
		s.Tables.Put(tx, kind.Meshes.Make("", "default", kind.Mesh{}))
		for i, name := range []string{"web-1", "api-1"} {
			s.Tables.Put(tx, kind.Dataplanes.Make("default", name, kind.Dataplane{Networking: kind.Networking{
				Address: fmt.Sprint("10.0.0.", i+1), TransparentProxying: &kind.TransparentProxying{}}}))
		}
		for i := range 8 {
			s.Tables.Put(tx, kind.MeshServices.Make("default", fmt.Sprint("s", i), kind.MeshService{
				Ports: []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP}}}))
		}
		for _, o := range []resource.Any{costly, other, timeout, insight} {
			s.Tables.Put(tx, o)
		}
	})
	reports := inspect.NewReports(s, s.Tables.DB.Snapshot())
	of := func(name string) string {
		var texts []string
		for _, left := range reports.AppliedConfs(state.ProxyKey{Mesh: "default", Name: name}).LeftOut {
			message, _, _ := strings.Cut(left.Message, ":")
			message, _, _ = strings.Cut(message, " 8380416 ")
			texts = append(texts, left.Policy+" "+left.Reason+" "+message)
		}
		return strings.Join(texts, "\n")
	}
	const cost = "MeshLoadBalancingStrategy default/costly CostTooHigh a proxy that sends to all its services would " +
		"have"
	if got, want := of("web-1"), cost+"\nMeshTimeout default/rejected RejectedByProxy Envoy rejects the route r with "+
		"it"; got != want {
		t.Errorf("web-1 is without\n%s\nwant\n%s", got, want)
	}
	if got := of("api-1"); got != cost {
		t.Errorf("api-1 is without\n%s\nwant\n%s", got, cost)
	}
}

// TestChecksCountForEachEndpoint: what checks cost a proxy depends on the number of endpoints, whichever interval is
// the shorter one.
func TestChecksCountForEachEndpoint(t *testing.T) {
	checks := func(conf kind.HealthCheckConf) resource.Any {
		conf.TCP = &kind.TCPHealthCheck{}
		return kind.MeshHealthChecks.Make("default", "checks", kind.MeshHealthCheck{
			To: []kind.ToItem[kind.HealthCheckConf]{{TargetRef: kind.DestinationRef{Kind: "Mesh"}, Default: conf}}})
	}
	every := func(d time.Duration) *kind.Duration { return new(kind.Duration(d)) }
	const tenth = 100 * time.Millisecond
	for _, test := range []struct {
		name                string
		services, endpoints int
		policy              resource.Any
		left                bool
	}{
		{"at the bound", 12, 16, checks(kind.HealthCheckConf{NoTrafficInterval: every(tenth)}), false},
		{"beyond it by endpoints", 12, 17, checks(kind.HealthCheckConf{NoTrafficInterval: every(tenth)}), true},
		{"beyond it with traffic", 12, 17, checks(kind.HealthCheckConf{Interval: every(tenth)}), true},
		{"beyond it by ports", 13, 16, checks(kind.HealthCheckConf{NoTrafficInterval: every(tenth)}), true},
		{"of a longer interval", 13, 16, checks(kind.HealthCheckConf{NoTrafficInterval: every(2 * tenth)}), false},
		{"of the default interval", 60, 40, checks(kind.HealthCheckConf{}), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := graph.NewState("east")
			s.Tables.DB.Commit(func(tx *table.Tx) {
				s.Tables.Put(tx, kind.Meshes.Make("", "default", kind.Mesh{}))
				for i := range test.services {
					name := fmt.Sprint("s", i)
					s.Tables.Put(tx, kind.MeshServices.Make("default", name, kind.MeshService{
						Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}},
						Ports:    []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP}}}))
					for j := range test.endpoints {
						n := kind.Networking{Address: fmt.Sprintf("10.0.%d.%d", i, j+1), Inbound: []kind.Inbound{
							{Port: 80, Tags: map[string]string{kind.ServiceTag: name}}}}
						dp := kind.Dataplanes.Make("default", fmt.Sprint(name, "-", j), kind.Dataplane{Networking: n})
						kind.VouchOperator(nil, dp)
						s.Tables.Put(tx, dp)
						s.Tables.Put(tx, kind.DataplaneListenerStatuses.Make("default", dp.Name,
							kind.DataplaneListenerStatus{
								Inbounds: []kind.ServedInbound{{Inbound: n.Effective(n.Inbound[0])}}}))
					}
				}
				s.Tables.Put(tx, test.policy)
			})
			reason := s.Proxies.CostReason(table.Eval(s.Tables.DB.Snapshot()), test.policy.Key())
			if (reason != "") != test.left {
				t.Errorf("the policy is left out because it %q; want %t", reason, test.left)
			}
		})
	}
}
