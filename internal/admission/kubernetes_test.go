package admission_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"weft/internal/admission"
	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

// On Kubernetes, a Dataplane and a MeshService have the namespace that their name ends with, and the environment is
// Kubernetes.
func TestNamespaceOfKubernetes(t *testing.T) {
	rows := memory.New(memory.Options{})
	t.Cleanup(func() { _ = rows.Close() })
	w := admission.New(rows, admission.Options{Zone: "east", Environment: kind.Kubernetes, Joined: true})
	if _, err := admission.New(rows, admission.Options{}).Put(t.Context(), parse(t, `{type: Mesh, name: m}`),
		admission.Change{}); err != nil {
		t.Fatal(err)
	}
	for _, doc := range []string{
		`{type: Dataplane, mesh: m, name: web.v1.shop, networking: {address: 10.0.0.1, inbound: [{port: 80, ` +
			`servicePort: 81, tags: {k8s.kuma.io/namespace: shop}}]}}`,
		`{type: MeshService, mesh: m, name: web.v1.shop, labels: {k8s.kuma.io/namespace: shop}, spec: {selector: ` +
			`{dataplaneTags: {a: b}}, ports: [{port: 80}]}}`,
	} {
		result, err := w.Put(t.Context(), parse(t, doc), admission.Change{ControlPlane: true})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{kind.DisplayName: "web.v1", kind.NamespaceLabel: "shop", kind.EnvLabel: "kubernetes",
			kind.ZoneLabel: "east", kind.OriginLabel: "zone"}
		if got := result.Object.Envelope().Labels; !maps.Equal(got, want) {
			t.Errorf("%s has the labels %v, want %v", result.Object.Key(), got, want)
		}
		if dp, ok := result.Object.(*resource.Object[kind.Dataplane]); ok {
			want := map[string]string{kind.ZoneLabel: "east", kind.EnvironmentTag: "kubernetes",
				kind.NamespaceLabel: "shop"}
			if got := dp.Spec.Networking.Inbound[0].Tags; !maps.Equal(got, want) {
				t.Errorf("the inbound has the tags %v, want %v", got, want)
			}
		}
	}
	for doc, says := range map[string]string{
		`{type: Dataplane, mesh: m, name: web.shop, labels: {k8s.kuma.io/namespace: x}, networking: {address: ` +
			`10.0.0.1}}`: `labels[k8s.kuma.io/namespace]: is "x", and the control plane sets "shop"`,
		`{type: Dataplane, mesh: m, name: web.shop, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: ` +
			`{k8s.kuma.io/namespace: x}}]}}`: `tags[k8s.kuma.io/namespace]: is "x", and the control plane sets "shop"`,
		`{type: MeshTrust, mesh: m, name: a, labels: {k8s.kuma.io/namespace: x}, spec: {trustDomain: a}}`: "has no meaning",
	} {
		if _, err := w.Put(t.Context(), parse(t, doc), admission.Change{ControlPlane: true}); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", doc, err, says)
		}
	}
}

// On Kubernetes a reference has a name and, where it is not that of the policy, its namespace.
func TestNamespacesOfReferences(t *testing.T) {
	writer := func(options admission.Options) *admission.Writer {
		rows := memory.New(memory.Options{})
		t.Cleanup(func() { _ = rows.Close() })
		options.Zone, options.Joined = "east", true
		if _, err := admission.New(rows, admission.Options{}).Put(t.Context(), parse(t, `{type: Mesh, name: m}`),
			admission.Change{}); err != nil {
			t.Fatal(err)
		}
		return admission.New(rows, options)
	}
	kubernetes := writer(admission.Options{Environment: kind.Kubernetes, SystemNamespace: "kuma-system"})
	machines := writer(admission.Options{})
	const (
		timeout = `{type: MeshTimeout, mesh: m, name: t.%s, spec: {targetRef: %s, to: [{targetRef: %s, default: {idleTimeout: 1s}}]}}`
		all     = `{kind: Mesh}`
	)
	global := admission.New(memory.New(memory.Options{}), admission.Options{Environment: kind.Kubernetes,
		SystemNamespace: "kuma-system"})
	const misplaced = "name: is in the namespace shop, and a policy of the global control plane concerns all zones; " +
		"write it in the namespace kuma-system"
	if _, err := global.Put(t.Context(), parse(t, fmt.Sprintf(timeout, "shop", all, all)),
		admission.Change{}); err == nil || !strings.Contains(err.Error(), misplaced) {
		t.Errorf("global: %v, want %q", err, misplaced)
	}
	for _, c := range []struct{ name, namespace, target, to, role, problem string }{
		{"a service of the policy's namespace", "shop", all, `{kind: MeshService, name: web, namespace: shop}`,
			"producer", ""},
		{"a service of another namespace", "shop", all, `{kind: MeshService, name: web, namespace: pay}`,
			"consumer", ""},
		{"clients in another namespace", "shop", `{kind: Dataplane, name: a, namespace: pay}`,
			`{kind: MeshService, name: web}`, "producer", ""},
		{"an operator's policy for a Dataplane", "kuma-system", `{kind: Dataplane, name: a, namespace: pay}`, all,
			"system", ""},
		{"a consumer's policy for another namespace", "shop", `{kind: Dataplane, name: a, namespace: pay}`, all, "",
			`spec.targetRef.namespace: is "pay", and a policy in the namespace shop with the role consumer applies to ` +
				`Dataplanes of this namespace; write it in the namespace pay, or in kuma-system`},
		{"a namespace without a name", "shop", all, `{kind: MeshService, labels: {app: web}, namespace: shop}`, "",
			"spec.to[0].targetRef.namespace: goes with a name; use the label k8s.kuma.io/namespace"},
		{"a namespace of the mesh", "shop", `{kind: Mesh, namespace: shop}`, all, "", "of the kind Mesh has no name"},
		{"no name of a namespace", "shop", all, `{kind: MeshService, name: web, namespace: Shop}`, "",
			`spec.to[0].targetRef.namespace: "Shop" is not a namespace`},
	} {
		t.Run(c.name, func(t *testing.T) {
			result, err := kubernetes.Put(t.Context(), parse(t, fmt.Sprintf(timeout, c.namespace, c.target, c.to)),
				admission.Change{})
			switch {
			case c.problem == "" && err != nil:
				t.Error(err)
			case c.problem == "":
				if role := result.Object.Envelope().Label("kuma.io/policy-role"); role != c.role {
					t.Errorf("the role is %q, want %q", role, c.role)
				}
			case err == nil || !strings.Contains(err.Error(), c.problem):
				t.Errorf("%v, want %q", err, c.problem)
			}
			doc := parse(t, fmt.Sprintf(timeout, c.namespace, c.target, c.to))
			if _, err := machines.Put(t.Context(), doc, admission.Change{}); err == nil {
				t.Error("a control plane outside Kubernetes accepts it")
			}
		})
	}
}

// A SPIFFE ID with a label of Pods is what their authors choose: the write of the MeshIdentity says so.
func TestLabelsInSPIFFEIDsOfPods(t *testing.T) {
	rows := memory.New(memory.Options{})
	t.Cleanup(func() { _ = rows.Close() })
	w := admission.New(rows, admission.Options{Zone: "east", Environment: kind.Kubernetes})
	if _, err := w.Put(t.Context(), parse(t, `{type: Mesh, name: m}`), admission.Change{}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		`/team/{{ label "team" }}/{{ label "app" }}`: "spec.spiffeID.path: has the labels team, app, which the author " +
			"of a Pod chooses; {{ .Namespace }} and {{ .ServiceAccount }} are those of the Pod",
		`/ns/{{ .Namespace }}/sa/{{ .ServiceAccount }}`: "", "": "",
	} {
		result, err := w.Put(t.Context(), parse(t, `{type: MeshIdentity, mesh: m, name: i, spec: {selector: {dataplane: `+
			`{matchLabels: {}}}, spiffeID: {path: '`+path+`'}, provider: {type: Bundled}}}`), admission.Change{})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(result.Warnings, "\n"); got != want {
			t.Errorf("%q: the warnings are %q, want %q", path, got, want)
		}
	}
}

// TestNamesOfOperatorsKinds: a resource of a kind that concerns whole meshes is in the system namespace, so a dot is a
// part of its name. The control plane and global may give it such a name; of a user it means a namespace.
func TestNamesOfOperatorsKinds(t *testing.T) {
	rows := memory.New(memory.Options{})
	t.Cleanup(func() { _ = rows.Close() })
	w := admission.New(rows, admission.Options{Zone: "east", Environment: kind.Kubernetes, Joined: true,
		SystemNamespace: "kuma-system"})
	if _, err := admission.New(rows, admission.Options{}).Put(t.Context(), parse(t, `{type: Mesh, name: m}`),
		admission.Change{}); err != nil {
		t.Fatal(err)
	}
	root := newRoot(t, "m")
	trust := func(name string) resource.Any {
		return kind.MeshTrusts.Make("m", name, kind.MeshTrust{TrustDomain: "m", CABundles: []kind.CABundle{{
			Type: "Pem", PEM: &kind.PEMBundle{Value: root}}}})
	}
	for name, namespace := range map[string]string{kind.MTLSIdentity: "", "id.kuma-system": "kuma-system"} {
		result, err := w.Put(t.Context(), trust(name), admission.Change{ControlPlane: true})
		if err != nil {
			t.Errorf("the control plane's write of %s: %v", name, err)
			continue
		}
		labels := result.Object.Envelope().Labels
		if want := strings.TrimSuffix(name, ".kuma-system"); labels[kind.DisplayName] != want ||
			labels[kind.NamespaceLabel] != namespace {
			t.Errorf("%s has the labels %v, want the name %s and the namespace %q", name, labels, want, namespace)
		}
		if _, err := w.Put(t.Context(), result.Object, admission.Change{}); err != nil {
			t.Errorf("a user's write of the stored %s: %v", name, err)
		}
	}
	const says = "name: is in the namespace shop, and a MeshTrust concerns the whole mesh; write it in the namespace " +
		"kuma-system"
	if _, err := w.Put(t.Context(), trust("own.shop"), admission.Change{}); err == nil ||
		!strings.Contains(err.Error(), says) {
		t.Errorf("a user's write: %v, want %q", err, says)
	}
	if err := w.Receive(t.Context(), admission.Received{Kind: kind.HostnameGenerators, Name: "a.b", Body: []byte(
		`{"labels": {"kuma.io/display-name": "a.b", "kuma.io/origin": "global"}, "spec": {"selector": ` +
			`{"meshService": {"matchLabels": {"a": "b"}}}, "template": "{{ .DisplayName }}.mesh"}}`)}); err != nil {
		t.Errorf("a resource of global: %v", err)
	}
}

// TestRoleLabels: the labels of a zone proxy follow from its sections, whatever its owner writes.
func TestRoleLabels(t *testing.T) {
	const (
		ingress = `zoneIngress: {address: 10.0.0.1, port: 1, advertisedAddress: 10.0.0.2, advertisedPort: 2}`
		egress  = `zoneEgress: {address: 10.0.0.1, port: 3}`
		inbound = `address: 10.0.0.1, inbound: [{port: 80}]`
	)
	for _, c := range []struct{ environment, networking, want string }{
		{kind.Kubernetes, ingress, "enabled,,ingress"},
		{kind.Kubernetes, egress, ",enabled,egress"},
		{kind.Kubernetes, ingress + ", " + egress, "enabled,enabled,"},
		{kind.Kubernetes, inbound, ",,"},
		{kind.Universal, ingress, "enabled,,"},
		{kind.Universal, egress, ",enabled,"},
	} {
		rows := memory.New(memory.Options{})
		t.Cleanup(func() { _ = rows.Close() })
		w := admission.New(rows, admission.Options{Zone: "east", Environment: c.environment})
		put(t, w, `{type: Mesh, name: m}`)
		result := put(t, w, `{type: Dataplane, mesh: m, name: a.shop, labels: {kuma.io/listener-zoneegress: other, `+
			`kuma.io/listener-zoneingress: other, k8s.kuma.io/zone-proxy-type: other}, networking: {`+c.networking+`}}`)
		of := result.Object.Envelope()
		got := strings.Join([]string{of.Label(kind.ListenerZoneIngressLabel), of.Label(kind.ListenerZoneEgressLabel),
			of.Label(kind.ZoneProxyTypeLabel)}, ",")
		if got != c.want || len(result.Warnings) != 3 {
			t.Errorf("%s, %s: the labels are %q, want %q; the warnings are %q, want 3", c.environment, c.networking,
				got, c.want, result.Warnings)
		}
	}
}

// A token registers no proxy of a namespace, which only the API server of Kubernetes has.
func TestATokenHasNoNamespace(t *testing.T) {
	rows := memory.New(memory.Options{})
	t.Cleanup(func() { _ = rows.Close() })
	w := admission.New(rows, admission.Options{Zone: "east", Environment: kind.Kubernetes, SystemNamespace: "system"})
	put(t, w, `{type: Mesh, name: m}`)
	token := &admission.Token{
		Claimed: func(*resource.Object[kind.Dataplane]) []string { return nil },
		Allows:  func(_, _ *resource.Object[kind.Dataplane]) error { return nil },
	}
	for name, rejected := range map[string]bool{"evil.shop": true, "evil.system": true, "vm-1": false} {
		o := parse(t, `{type: Dataplane, mesh: m, name: `+name+`, networking: {address: 10.0.0.1, inbound: [{port: 80}]}}`)
		if _, err := w.Put(t.Context(), o, admission.Change{Token: token}); rejected != (err != nil) ||
			rejected && resource.CodeOf(err) != resource.Forbidden {
			t.Errorf("a token registers %s: %v, want an error: %t", name, err, rejected)
		}
	}
}

// A Mesh keeps the exemption of its members through a write that leaves it out; a new Mesh has none, and asks for
// vouchers.
func TestTheExemptionOfAMeshStays(t *testing.T) {
	rows := memory.New(memory.Options{})
	t.Cleanup(func() { _ = rows.Close() })
	w := admission.New(rows, admission.Options{Zone: "east"})
	mesh := func(fields string) (*resource.Object[kind.Mesh], []string) {
		t.Helper()
		result, err := w.Put(t.Context(), parse(t, `{type: Mesh, name: m`+fields+`}`), admission.Change{})
		if err != nil {
			t.Fatal(err)
		}
		return result.Object.(*resource.Object[kind.Mesh]), result.Warnings
	}
	if o, _ := mesh(""); !o.Vouched.Complete || o.Spec.UnvouchedMembers != nil {
		t.Errorf("a new Mesh: complete %t, %v", o.Vouched.Complete, o.Spec.UnvouchedMembers)
	}
	mesh(`, unvouchedMembers: {tags: true, until: 2030-01-01T00:00:00Z}`)
	if o, warnings := mesh(`, routing: {}`); o.Spec.UnvouchedMembers == nil ||
		!strings.Contains(strings.Join(warnings, " "), "unvouchedMembers: is kept") {
		t.Errorf("a write without the field: %v, %v", o.Spec.UnvouchedMembers, warnings)
	}
	if o, _ := mesh(`, unvouchedMembers: {tags: false, addresses: false}`); o.Spec.UnvouchedMembers != nil {
		t.Errorf("a removed exemption: %v", o.Spec.UnvouchedMembers)
	}
	_, err := w.Put(t.Context(), parse(t, `{type: Mesh, name: m, unvouchedMembers: {tags: true}}`), admission.Change{})
	if resource.CodeOf(err) != resource.Invalid || !strings.Contains(err.Error(), "unvouchedMembers.until") {
		t.Errorf("an exemption without an end: %v", err)
	}
}

// TestRolesWithoutNamespaces: a policy without a namespace has the role system, and no other one may be written.
func TestRolesWithoutNamespaces(t *testing.T) {
	const timeout = `{type: MeshTimeout, mesh: m, name: t, labels: {kuma.io/policy-role: %s}, spec: {to: [{targetRef: ` +
		`{kind: Mesh}, default: {idleTimeout: 1s}}]}}`
	for role, want := range map[string]string{
		"system":         "",
		"consumer":       `labels[kuma.io/policy-role]: is "consumer", the role of a policy in a namespace of Kubernetes`,
		"producer":       `is "producer", the role of a policy in a namespace of Kubernetes, and a policy without a namespace has`,
		"workload-owner": `is "workload-owner"`,
	} {
		rows := memory.New(memory.Options{})
		writer := admission.New(rows, admission.Options{Zone: "east"})
		if _, err := writer.Put(t.Context(), parse(t, `{type: Mesh, name: m}`), admission.Change{}); err != nil {
			t.Fatal(err)
		}
		_, err := writer.Put(t.Context(), parse(t, fmt.Sprintf(timeout, role)), admission.Change{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("the role %s: %v, want %q", role, err, want)
		}
		_ = rows.Close()
	}
}
