package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/kind"
	"weft/test/kubernetes/shop"
)

// Membership rules: those of a mesh over machines and Pods, as the document Mesh Membership has them; the same with the
// system namespace, where the zone proxies of the cluster are; and those of a mesh of Pods alone.
const (
	exampleRules = `{tags: {kuma.io/environment: universal}}, {tags: {k8s.kuma.io/namespace: ns-1}}, ` +
		`{tags: {k8s.kuma.io/namespace: ns-2, kuma.io/zone: default}}, {tags: {k8s.kuma.io/namespace: ns-3, xyz: abc}}`
	machinesAndSomePods = exampleRules + `, {tags: {k8s.kuma.io/namespace: kuma-system}}`
	podsAlone           = `{tags: {kuma.io/environment: kubernetes}}`
)

const (
	deniedRequest    = "403 RBAC: access denied"  // by the proxy of the server
	noServer         = "503 no healthy upstream"  // by the proxy of the client
	noService        = "connection reset by peer" // by the proxy of the server, since that of the client uses no TLS
	notAdmitted      = "mesh default does not admit "
	missingLabel     = "{k8s.kuma.io/namespace: ns-3, xyz: abc} (no xyz)"
	notAdmittedEvent = "reason=MeshMembershipRefused,involvedObject.name="
	newMachineID     = "spiffe://default.machines.mesh.local/workload/new"
)

// TestMembershipOfBothEnvironments: one mesh admits machines by their environment, and Pods by their namespaces, their
// zone and a label. Members of both environments reach each other. A Pod that is no member has no traffic, and its user
// sees the rule; the Services of a namespace of which the mesh admits no Pod have no MeshService. When the mesh admits
// Pods alone, requests between machines and Pods are denied at once.
func TestMembershipOfBothEnvironments(t *testing.T) {
	m := openMixed(t, "ns-1", "ns-2", "ns-3", "ns-4")
	m.reached(m.among("ns-1", "ns-2", "ns-3", "ns-4")...)
	m.run("each inbound has the tag of its environment", m.inboundsHaveEnvironments)
	m.run("a dry run names the Pods that the rules evict", func() {
		others := append(m.dataplanes("ns-3"), m.dataplanes("ns-4")...)
		m.evicts(machinesAndSomePods, others...)
		m.evicts(exampleRules, append(others, m.dataplanes("kuma-system")...)...)
	})
	m.run("members reach each other, and other Pods have no traffic", func() {
		members := append(m.among("ns-1", "ns-2"), m.toPod)
		m.losslessFlows("zones: a mesh evicts Pods by their namespaces and labels", members, func() {
			m.admit(machinesAndSomePods)
			for _, namespace := range []string{"ns-3", "ns-4"} {
				m.unreached(deniedRequest, m.pod(namespace, "ns-1"), m.toMachines(namespace))
			}
			m.unreached(noServer, m.pod("ns-1", "ns-3"))
			m.unreached(noService, m.pod("ns-1", "ns-4"))
			m.more(members)
		})
	})
	m.run("the users of evicted Pods see the rule", func() {
		m.event(missingLabel, "ns-3", notAdmittedEvent+"client")
		m.says(missingLabel, clusterAPI, "inspect", "dataplane", "client.ns-3", "-o", "json")
		m.says(notAdmitted+"Dataplane client.ns-4", clusterAPI, "check")
		m.says(notAdmitted+"the caller", clusterAPI, "explain", "--from", "client.ns-4", "--to", "web.ns-1")
		m.says("not admitted", clusterAPI, "inspect", "service", "web.ns-3")
		m.event(notAdmitted+"a Pod of the namespace ns-4", "ns-4", notAdmittedEvent+"web")
	})
	m.run("new Pods that are no members do not start", m.newPodsDoNotStart)
	m.run("Pods get the label, and are members", func() {
		m.kubectl("label", "pods", "--all", "-n", "ns-3", "xyz=abc")
		m.reached(m.among("ns-1", "ns-2", "ns-3")...)
		m.wait("pod/late", "condition=Ready", "-n", "ns-3")
	})
	m.run("a new machine needs no rule of its own", func() {
		m.proxy("new", "19007", "{address: "+anotherMachine+", outbound: ["+m.outbound("20002", "ns-2")+", "+
			m.outbound("20003", "ns-3")+"]}")
		m.reached(m.fromNewMachine("20002", "ns-2"), m.fromNewMachine("20003", "ns-3"))
	})
	machines := []flow{m.toPod, m.fromNewMachine("20003", "ns-3"), m.toMachines("ns-1"), m.toMachines("ns-2")}
	m.run("the mesh admits Pods alone", func() {
		m.evicts(podsAlone, m.machinesNamed("client", "ingress", "machine", "new")...)
		pods := []flow{m.pod("ns-1", "ns-1"), m.pod("ns-1", "ns-2"), m.pod("ns-2", "ns-3").sentHere()}
		m.losslessFlows("zones: a mesh evicts all machines", pods, func() {
			m.admit(podsAlone)
			began := time.Now()
			m.unreached(deniedRequest, machines[:2]...)
			m.unreached(noServer, machines[2:]...)
			m.t.Logf("requests between machines and Pods are denied after %.1f s", time.Since(began).Seconds())
			m.says("{kuma.io/environment: kubernetes} (kuma.io/environment is universal)", machinesAPI, "inspect",
				"dataplane", "machine", "-o", "json")
			m.reached(m.pod("ns-4", "ns-1"), m.pod("ns-1", "ns-4"))
			m.more(pods)
			m.unreached(deniedRequest, machines[:2]...)
		})
	})
	m.run("the mesh admits machines again", func() {
		m.admit(machinesAndSomePods)
		m.reached(append(m.among("ns-1", "ns-2", "ns-3"), machines...)...)
		m.unreached(deniedRequest, m.pod("ns-4", "ns-1"))
	})
}

// mixed are zones whose cluster has a server web and a client in each of several namespaces. All clients may call all
// servers, also those of machines.
type mixed struct {
	*zones
	clients map[string]string // the addresses of the clients' Pods, by namespace
}

func openMixed(t *testing.T, namespaces ...string) *mixed {
	t.Helper()
	first := namespaces[0]
	m := &mixed{openZones(t, first, shop.Server(first, "web", 1), "deployment/web", "condition=Available"),
		map[string]string{}}
	m.admitAllInTheEnd()
	ids := []string{machineID, newMachineID}
	for _, namespace := range namespaces {
		ids = append(ids, podID(namespace))
	}
	for _, namespace := range namespaces {
		if namespace != first {
			m.namespace(namespace, "kuma.io/sidecar-injection=enabled")
			m.apply(respondsAs("web-"+namespace, shop.Server(namespace, "web", 1)) +
				clientOfEveryWeb(namespace, "client"))
		}
		m.apply(permission(namespace, ids...))
	}
	m.put(machinesAPI, "callers", strings.Replace(machinePermission, "IDS", `"`+strings.Join(ids, `"}}, `+
		`{spiffeID: {type: Exact, value: "`)+`"`, 1))
	for _, namespace := range namespaces {
		m.wait("deployment/web", "condition=Available", "-n", namespace)
		m.wait("pod/client", "condition=Ready", "-n", namespace)
		m.clients[namespace] = m.podIP(namespace, "client")
	}
	return m
}

// machinePermission allows the clients IDS to call the servers of the machines.
const machinePermission = `
type: MeshTrafficPermission
mesh: default
name: callers
spec: {rules: [{default: {allow: [{spiffeID: {type: Exact, value: IDS}}]}}]}
`

// admitAllInTheEnd has the mesh admit every Dataplane at the end of the test, since the cluster keeps the Mesh.
func (m *mixed) admitAllInTheEnd() {
	all := m.file("all.yaml", "{type: Mesh, name: default}\n")
	m.whole.Cleanup(func() {
		ctx := context.Background()
		_, err := shop.RunWeft(ctx, m.Node, "--api", globalAPI, "apply", "-f", all)
		if err == nil {
			err = shop.Eventually(ctx, "the cluster has no rules", func(ctx context.Context) error {
				rules, err := m.Kubectl(ctx, "", "get", "mesh/default", "-o",
					"jsonpath={.spec.dataplaneProxyMembership}")
				if err == nil && rules != "" {
					err = errors.New(rules)
				}
				return err
			})
		}
		if err != nil {
			m.whole.Error(err)
		}
	})
}

// podID is the SPIFFE ID of the client in a namespace.
func podID(namespace string) string { return (&shop.Shop{Namespace: namespace}).ID("client") }

// web is the name with which the server web of a namespace responds.
func (m *mixed) web(namespace string) string {
	if namespace == m.shop.Namespace {
		return "web"
	}
	return "web-" + namespace
}

// pod is the traffic of the client in a namespace to the server in a namespace.
func (m *mixed) pod(from, to string) flow {
	return fromPod(m.clients[from], "http://web."+to).named("from "+from+" to "+to, podID(from), m.web(to))
}

// toMachines is the traffic of the client in a namespace to the server of the machines.
func (m *mixed) toMachines(from string) flow {
	return fromPod(m.clients[from], "http://web.svc.machines.mesh.local").named("from "+from+" to machines",
		podID(from), "machine")
}

// among are the traffic of Pods among namespaces, and to machines.
func (m *mixed) among(namespaces ...string) []flow {
	var flows []flow
	for _, from := range namespaces {
		for _, to := range namespaces {
			flows = append(flows, m.pod(from, to))
		}
		flows = append(flows, m.toMachines(from))
	}
	return flows
}

// fromNewMachine is the traffic through an outbound of the new machine to the server in a namespace.
func (m *mixed) fromNewMachine(port, to string) flow {
	return fromMachine(anotherMachine, port).named("from a new machine to "+to, newMachineID, m.web(to))
}

// outbound is an outbound of the new machine to the server in a namespace.
func (m *mixed) outbound(port, to string) string {
	return "{address: " + anotherMachine + ", port: " + port + ", backendRef: {kind: MeshService, port: 80, labels: " +
		"{kuma.io/display-name: web, kuma.io/zone: default, k8s.kuma.io/namespace: " + to + "}}}"
}

// admitting is a file with the Mesh that has these rules.
func (m *mixed) admitting(rules string) string {
	return m.file("mesh.yaml", "{type: Mesh, name: default, dataplaneProxyMembership: {allowed: ["+rules+"]}}\n")
}

// admit has the mesh admit by these rules alone.
func (m *mixed) admit(rules string) {
	m.t.Helper()
	m.weft(globalAPI, "apply", "-f", m.admitting(rules))
}

// evicted matches a Dataplane in the warning of an eviction.
var evicted = regexp.MustCompile(`\S+ of zone [a-z]+`)

// evicts returns when a dry run of the Mesh at global warns that these rules evict exactly these Dataplanes.
func (m *mixed) evicts(rules string, dataplanes ...string) {
	m.t.Helper()
	slices.Sort(dataplanes)
	m.eventually("a dry run names "+fmt.Sprint(dataplanes), func(ctx context.Context) error {
		warnings, err := shop.Warnings(ctx, m.Node, "--api", globalAPI, "apply", "--dry-run", "-f", m.admitting(rules))
		named := evicted.FindAllString(warnings, -1)
		slices.Sort(named)
		if err == nil && !slices.Equal(named, dataplanes) {
			err = fmt.Errorf("it names %s: %s", named, warnings)
		}
		return err
	})
}

// dataplanes are the Dataplanes of a namespace, as global names them.
func (m *mixed) dataplanes(namespace string) []string {
	m.t.Helper()
	names := strings.Fields(m.kubectl("get", "dataplanes", "-n", namespace, "-o", "jsonpath={.items[*].metadata.name}"))
	for i := range names {
		names[i] += "." + namespace + " of zone default"
	}
	return names
}

// machinesNamed are Dataplanes of machines, as global names them.
func (m *mixed) machinesNamed(names ...string) []string {
	for i := range names {
		names[i] += " of zone machines"
	}
	return names
}

// unreached returns when a proxy responds with an error to a request of each flow.
func (w *world) unreached(response string, flows ...flow) {
	w.t.Helper()
	for _, f := range flows {
		w.eventually(f.name+": "+response, func(ctx context.Context) error {
			of, err := f.call(ctx)
			if err == nil {
				return fmt.Errorf("%s responds", of.Service)
			}
			return contains(response)(err.Error())
		})
	}
}

// says returns when the output of weft contains a text.
func (m *mixed) says(text, api string, args ...string) {
	m.t.Helper()
	m.eventually("weft "+args[0]+" says "+text, func(ctx context.Context) error {
		out, err := shop.RunWeft(ctx, m.Node, append([]string{"--api", api}, args...)...)
		if err == nil {
			err = contains(text)(strings.Join(strings.Fields(out), " "))
		}
		return err
	})
}

// newPodsDoNotStart: a Pod in a namespace that no rule allows is rejected. A Pod without the label of its rule gets no
// Dataplane, and its application does not start.
func (m *mixed) newPodsDoNotStart() {
	err := m.Apply(m.t.Context(), shop.Client("ns-4", "late"))
	if err == nil || !strings.Contains(err.Error(), notAdmitted+"the Pod ns-4/late") {
		m.t.Errorf("a Pod of another namespace: %v, want that the %s", err, notAdmitted)
	}
	m.apply(shop.Client("ns-3", "late"))
	m.event(missingLabel, "ns-3", notAdmittedEvent+"late")
	started := m.kubectl("get", "pod", "late", "-n", "ns-3", "-o", "jsonpath={.status.containerStatuses[0].started}")
	if started != "false" {
		m.t.Errorf("started is %s for the application of a Pod that is not admitted", started)
	}
	if slices.Contains(m.dataplanes("ns-3"), "late.ns-3 of zone default") {
		m.t.Error("a Pod that was never admitted has a Dataplane")
	}
}

// inboundsHaveEnvironments returns when all inbounds have the tag of their environment, in both zones and at global.
func (m *mixed) inboundsHaveEnvironments() {
	for api, want := range map[string][]string{machinesAPI: {kind.Universal}, clusterAPI: {kind.Kubernetes},
		globalAPI: {kind.Kubernetes, kind.Universal}} {
		m.eventually(fmt.Sprintf("inbounds at %s have the tags %s", api, want), func(ctx context.Context) error {
			out, err := shop.RunWeft(ctx, m.Node, "--api", api, "get", "dataplanes", "-o", "json")
			if err != nil {
				return err
			}
			var dataplanes []struct {
				Name       string
				Labels     map[string]string
				Networking kind.Networking
			}
			if err := json.Unmarshal([]byte(out), &dataplanes); err != nil {
				return err
			}
			found := map[string]bool{}
			for _, dp := range dataplanes {
				for _, inbound := range dp.Networking.Inbound {
					tag := inbound.Tags[kind.EnvironmentTag]
					if found[tag] = true; tag != dp.Labels[kind.EnvLabel] {
						return fmt.Errorf("%s has the tag %q and the labels %v", dp.Name, tag, dp.Labels)
					}
				}
			}
			if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
				err = fmt.Errorf("the tags are %q", got)
			}
			return err
		})
	}
}
