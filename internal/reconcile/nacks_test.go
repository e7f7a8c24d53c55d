package reconcile

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// nackingProxy returns the insight of a connected proxy with one NACK for each cause.
func (w *world) nackingProxy(name, message string, causes ...kind.Cause) *resource.Object[kind.DataplaneInsight] {
	insight := kind.DataplaneInsights.Make("default", name, kind.DataplaneInsight{
		Subscriptions: []kind.Subscription{{ID: name, ConnectTime: kind.Time{Time: w.now}}},
	})
	for _, cause := range causes {
		insight.Spec.NACKs = append(insight.Spec.NACKs, kind.NACK{
			Type: "cluster", Name: "of_" + cause.Name, Message: message, Causes: []kind.Cause{cause},
		})
	}
	return insight
}

func TestNACKsAreConditionsOfTheirCauses(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	service, permission := kind.Cause{Kind: "MeshService", Name: "web"},
		kind.Cause{Kind: "MeshTrafficPermission", Name: "all"}
	trust := kind.Cause{Kind: "MeshTrust", Name: "roots"}
	w.put(
		kind.MeshServices.Make("default", "web", kind.MeshService{Ports: []kind.ServicePort{{Port: 80}}}),
		kind.MeshServices.Make("default", "other", kind.MeshService{Ports: []kind.ServicePort{{Port: 80}}}),
		kind.MeshTrafficPermissions.Make("default", "all", kind.MeshTrafficPermission{}),
		kind.MeshTrusts.Make("default", "roots", kind.MeshTrust{TrustDomain: "d.local"}),
	)
	conditions := map[string]func() []kind.Condition{
		"web": func() []kind.Condition {
			_, status := w.service("web")
			return status.Conditions
		},
		"other": func() []kind.Condition {
			_, status := w.service("other")
			return status.Conditions
		},
		"all": func() []kind.Condition {
			status, ok := w.plan.State.Tables.PolicyRows["MeshTrafficPermission"].Statuses.Find(
				w.reader(),
				"default",
				"all",
			)
			if !ok {
				return nil
			}
			return status.Spec.Conditions
		},
		"roots": func() []kind.Condition {
			status, ok := w.plan.State.Tables.TrustStatuses.Find(w.reader(), "default", "roots")
			if !ok {
				return nil
			}
			return status.Spec.Conditions
		},
	}
	expect := func(when string, want map[string]string) {
		t.Helper()
		w.reconcile("MeshService", "web")
		w.reconcile("MeshService", "other")
		w.reconcile("MeshTrafficPermission", "all")
		w.reconcile("MeshTrust", "roots")
		for name, of := range conditions {
			got := ""
			for _, c := range of() {
				got += fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
			}
			if got != want[name] {
				t.Errorf("%s: %s has the condition\n  %s, want\n  %s", when, name, got, want[name])
			}
		}
	}
	const prefix = "Accepted=False RejectedByProxies: "
	expect("at first", nil)
	w.put(w.nackingProxy("a-1", "no such\n  field\n", service, permission, trust)) // a condition is one line
	expect("after one NACK", map[string]string{
		"web": prefix +
			"1 proxy rejects its configuration, and keeps the previous one (a-1): cluster of_web: no such field",
		"all": prefix +
			"1 proxy rejects its configuration, and keeps the previous one (a-1): cluster of_all: no such field",
		"roots": prefix +
			"1 proxy rejects its configuration, and keeps the previous one (a-1): cluster of_roots: no such field",
	})
	for i := 2; i <= 7; i++ {
		w.put(w.nackingProxy(fmt.Sprintf("a-%d", i), "no such field either", service))
	}
	expect("after seven NACKs", map[string]string{
		"web": prefix + "7 proxies reject its configuration, and keep the previous one (a-1, a-2, a-3, a-4, a-5 " +
			"and 2 more): cluster of_web: no such field",
		"all": prefix +
			"1 proxy rejects its configuration, and keeps the previous one (a-1): cluster of_all: no such field",
		"roots": prefix +
			"1 proxy rejects its configuration, and keeps the previous one (a-1): cluster of_roots: no such field",
	})
	for i := 2; i <= 7; i++ {
		w.put(w.nackingProxy(fmt.Sprintf("a-%d", i), ""))
	}
	gone := w.nackingProxy("a-1", "no such field", service, permission, trust)
	gone.Spec.Subscriptions[0].DisconnectTime = &kind.Time{Time: w.now.Add(time.Minute)}
	w.put(gone)
	expect("after six took it and one went", nil)
}

// TestAPolicySaysWhichProxiesAreWithoutIt: the condition of a policy has the proxies that run without its present
// version, and what a policy that is never left out means for a proxy that starts.
func TestAPolicySaysWhichProxiesAreWithoutIt(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	retry := kind.Cause{Kind: "MeshRetry", Name: "r"}
	permission := kind.Cause{Kind: "MeshTrafficPermission", Name: "all"}
	policy := kind.MeshRetries.Make("default", "r", kind.MeshRetry{})
	policy.Version = "1"
	w.put(policy, kind.MeshTrafficPermissions.Make("default", "all", kind.MeshTrafficPermission{}))
	for i := range 7 {
		insight := kind.DataplaneInsights.Make("default", fmt.Sprint("a-", i), kind.DataplaneInsight{
			Exceptions: []kind.Exception{{Policy: retry, PolicyVersion: "1", Type: "route", Name: "x",
				Message: "no such field", State: kind.ExceptionAlone}}})
		w.put(insight)
	}
	starting := w.nackingProxy("new", "no such field", permission)
	starting.Spec.NACKs[0].Type = "listener"
	w.put(starting)
	says := func(of, name, want string) {
		t.Helper()
		w.reconcile(of, name)
		got := ""
		if status, ok := w.plan.State.Tables.PolicyRows[of].Statuses.Find(w.reader(), "default", name); ok {
			for _, c := range status.Spec.Conditions {
				got += c.Message
			}
		}
		if got != want {
			t.Errorf("the condition of %s is\n  %s, want\n  %s", name, got, want)
		}
	}
	says("MeshRetry", "r", "7 proxies reject its configuration, and run without the policy until it is written again "+
		"(a-0, a-1, a-2, a-3, a-4 and 2 more): route x: no such field")
	says("MeshTrafficPermission", "all", "1 proxy rejects its configuration, and keeps the previous one (new): "+
		"listener of_all: no such field; a policy that restricts traffic is not left out, so a proxy that starts does "+
		"not become ready")
	again := kind.MeshRetries.Make("default", "r", kind.MeshRetry{})
	again.Version = "2"
	w.put(again)
	says("MeshRetry", "r", "")
}

// Connections and certificates change an insight often. Only its NACKs change a status.
func TestOnlyANACKChangesAStatus(t *testing.T) {
	m := follow(newWorld(t, "241.0.0.0/8"), false, slog.New(slog.DiscardHandler))
	all := kind.MeshTrafficPermissions.Statuses.Key("default", "all")
	web := kind.MeshServiceStatuses.Key("default", "web")
	observe := func(objects ...resource.Any) []resource.Key {
		clear(m.made)
		m.user(objects...)
		m.drain()
		return slices.SortedFunc(maps.Keys(m.made), func(a, b resource.Key) int { return cmp.Compare(b.Kind, a.Kind) })
	}
	observe(
		kind.MeshServices.Make("default", "web", kind.MeshService{Ports: []kind.ServicePort{{Port: 80}}}),
		kind.MeshTrafficPermissions.Make("default", "all", kind.MeshTrafficPermission{}),
	)
	nackingProxy := m.nackingProxy("a-1", "no", kind.Cause{Kind: "MeshTrafficPermission", Name: all.Name},
		kind.Cause{Kind: "MeshService", Name: web.Name})
	if got, want := observe(nackingProxy), []resource.Key{all, web}; !slices.Equal(got, want) {
		t.Errorf("after a NACK %v are written, want %v", got, want)
	}
	requeue := *nackingProxy
	requeue.Spec.Certificate = &kind.Certificate{Serial: "5e"}
	if got := observe(&requeue); len(got) > 0 {
		t.Errorf("after another change of the insight %v are written", got)
	}
	if got, want := observe(m.nackingProxy("a-1", "")), []resource.Key{all, web}; !slices.Equal(got, want) {
		t.Errorf("after it is taken %v are written, want %v", got, want)
	}
}

func TestALongNACKIsTruncatedInACondition(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	w.put(
		kind.MeshServices.Make("default", "web", kind.MeshService{Ports: []kind.ServicePort{{Port: 80}}}),
		w.nackingProxy("a-1", strings.Repeat("ä", 4<<10), kind.Cause{Kind: "MeshService", Name: "web"}),
	)
	w.reconcile("MeshService", "web")
	if _, status := w.service("web"); len(status.Conditions) != 1 || len(status.Conditions[0].Message) > 2<<10 {
		t.Errorf("the conditions are %d: %.100v", len(status.Conditions), status.Conditions)
	}
}

func TestAServiceThatCannotBeTranslatedSaysSo(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	cause := kind.Cause{Kind: "MeshService", Name: "web"}
	w.put(
		kind.MeshServices.Make("default", "web", kind.MeshService{Ports: []kind.ServicePort{{Port: 80}}}),
		w.nackingProxy("a-1", "no such field", cause),
	)
	fault := state.Fault{Value: "clusters of web", Mesh: "default", Cause: cause, Panic: "index out of range"}
	w.plan.State.Tables.DB.Commit(func(tx *table.Tx) { w.plan.State.Tables.Faults.Put(tx, fault) })
	w.reconcile("MeshService", "web")
	_, status := w.service("web")
	if len(status.Conditions) != 1 || status.Conditions[0].Reason != "TranslationFailed" ||
		!strings.HasSuffix(status.Conditions[0].Message, "index out of range") {
		t.Errorf("the conditions are %+v, want one", status.Conditions)
	}
	w.plan.State.Tables.DB.Commit(func(tx *table.Tx) { w.plan.State.Tables.Faults.Delete(tx, fault.Value) })
	w.reconcile("MeshService", "web")
	if _, status := w.service("web"); len(status.Conditions) != 1 ||
		status.Conditions[0].Reason != "RejectedByProxies" {
		t.Errorf("after that the conditions are %+v, want what the proxy says", status.Conditions)
	}
}

// TestAnUnpermittedPatchSaysSo: a stored MeshProxyPatch that a user could not write by now has a condition until it is
// written again.
func TestAnUnpermittedPatchSaysSo(t *testing.T) {
	w := newWorld(t, "241.0.0.0/24")
	w.plan.Unpermitted = func(conf *kind.ProxyPatchConf) string {
		if len(conf.AppendModifications) > 1 {
			return "it has two"
		}
		return ""
	}
	remove := kind.Modification{Cluster: &kind.ClusterModification{Operation: kind.PatchRemove}}
	conditions := func(modifications ...kind.Modification) []kind.Condition {
		w.put(kind.MeshProxyPatches.Make("default", "p", kind.MeshProxyPatch{
			Default: kind.ProxyPatchConf{AppendModifications: modifications}}))
		w.reconcile(kind.MeshProxyPatches.Name, "p")
		rows := w.plan.State.Tables.PolicyRows[kind.MeshProxyPatches.Name]
		stored, ok := rows.Statuses.Find(w.reader(), "default", "p")
		if !ok {
			return nil
		}
		return stored.Spec.Conditions
	}
	if got := conditions(remove, remove); len(got) != 1 || got[0].Status != "False" ||
		got[0].Reason != "NotPermitted" || !strings.Contains(got[0].Message, "it has two") {
		t.Errorf("the conditions are %+v", got)
	}
	if got := conditions(remove); len(got) > 0 {
		t.Errorf("written again it has the conditions %+v", got)
	}
}
