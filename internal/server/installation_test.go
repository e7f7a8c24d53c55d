package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"weft/internal/cni"
	"weft/internal/kube/api"
	"weft/internal/kube/convert"
	"weft/internal/kube/crd"
	"weft/internal/kube/inject"
	"weft/internal/kube/install"
	"weft/internal/kube/install/installtest"
	"weft/internal/kube/kubetest"
	"weft/internal/server/servertest"
	"weft/internal/testwait"
	"weft/kind"
	kubernetes "weft/test/kubernetes/cluster"
	"weft/test/mesh"
)

// installation is what the chart installs in a cluster.
type installation struct {
	*cluster
	t       *testing.T
	objects []installtest.Object
	user    string            // of the control plane
	address string            // of its webhooks
	more    map[string]string // settings that are not those of the Deployment
}

// newInstallation applies the objects of the chart. Webhooks are called through the Service at the address.
func newInstallation(t *testing.T, values string) *installation {
	t.Helper()
	c := newCluster(t)
	address, err := kubernetes.MachineAddress()
	if err != nil {
		t.Fatal(err)
	}
	i := &installation{cluster: c, t: t, address: address,
		user: "system:serviceaccount:" + c.namespace + ":kuma-control-plane"}
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(values), &parsed); err != nil {
		t.Fatal(err)
	}
	i.objects = installtest.Objects(t, install.Options{Namespace: c.namespace, Values: parsed, CRDs: true})
	for _, o := range i.objects {
		if err := c.client.Apply(t.Context(), o.Path(), o, nil); err != nil {
			t.Fatalf("%s: %v", o.Path(), err)
		}
		if o.Kind() != "CustomResourceDefinition" {
			t.Cleanup(func() { installtest.Delete(t, c.client, o) })
		}
	}
	return i
}

// start starts the control plane as its ServiceAccount, with the settings of its Deployment but for its addresses. As
// the controllers of Kubernetes do, it writes the EndpointSlice of the Service.
func (i *installation) start() *servertest.Plane {
	i.t.Helper()
	i.kubeconfig(i.t, i.token(i.t, "kuma-control-plane"))
	for _, v := range i.container("kuma-control-plane")["env"].([]any) {
		variable := v.(map[string]any)
		if value, ok := variable["value"].(string); ok {
			i.t.Setenv(variable["name"].(string), value)
		}
	}
	values := map[string]string{"audit.output": "off", "runtime.kubernetes.admissionServer.address": i.address}
	maps.Copy(values, i.more)
	p := servertest.Start(i.t, servertest.Options{Settings: values})
	_, port, err := net.SplitHostPort(p.Webhooks)
	if err != nil {
		i.t.Fatal(err)
	}
	i.create(i.t, "/apis/discovery.k8s.io/v1/namespaces/"+i.namespace+"/endpointslices", object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata": object{"name": "kuma-control-plane-1", "labels": object{
			"kubernetes.io/service-name":             "kuma-control-plane",
			"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
		"endpoints": []any{object{"addresses": []any{i.address}, "conditions": object{"ready": true}}},
		"ports":     []any{object{"name": "https-admission", "port": json.Number(port), "protocol": "TCP"}}})
	return p
}

// TestInstallation: a control plane that runs as the ServiceAccount of the chart, with its roles and its settings,
// reviews what kubectl writes, injects Pods, and makes Dataplanes of zone proxies. It needs each of its permissions,
// and no other. After it is uninstalled, the cluster has nothing of it.
func TestInstallation(t *testing.T) {
	i := newInstallation(t, `
createNamespace: true
global: {image: {registry: registry.example, tag: v1}}
controlPlane: {zone: east, replicas: 2}
cni: {enabled: true}
meshes: [{name: default, egress: {enabled: true}}]
`)
	shop := i.newShop(t)
	before := i.stored()
	p := i.start()
	labels := i.writesPolicies(shop.name)
	if labels["kuma.io/policy-role"] == nil || labels["kuma.io/zone"] != "east" {
		t.Errorf("the policy has the labels %v", labels)
	}
	i.injects(p, shop)
	uninstallGatewayAPI := i.installGatewayAPI(t)
	i.attachesRoutes(shop)
	i.runsZoneProxies(shop)
	i.keepsCA(shop)
	i.writesByREST(p)
	shop.removePod("web-1")
	shop.awaitStates("web-1", "none")
	if err := i.client.Delete(t.Context(), shop.services()+"/web", "", ""); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	i.needsItsPermissions(i.user, "kuma-control-plane")
	i.reviewsNoControllers(shop.name)
	daemonSet := i.daemonSet()
	i.knowsItsDaemonSet(daemonSet, false)
	i.needsItsPermissions("system:serviceaccount:kube-system:kuma-cni-node", "kuma-cni-node")
	uninstallGatewayAPI()
	i.uninstall()
	i.knowsItsDaemonSet(daemonSet, true)
	for _, path := range i.stored() {
		if !slices.Contains(before, path) || strings.Contains(path, "kuma-") || strings.Contains(path, ".kuma.io") {
			t.Errorf("the uninstallation leaves %s", path)
		}
	}
}

// TestInstallationOfGlobal: a global control plane needs each permission of its roles, and no other.
func TestInstallationOfGlobal(t *testing.T) {
	i := newInstallation(t, "controlPlane: {mode: global}")
	p := i.start()
	i.writesPolicies(i.namespace)
	i.writesByREST(p)
	i.refersToASecret()
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	i.needsItsPermissions(i.user, "kuma-control-plane")
}

// named returns the object of a kind with a name.
func (i *installation) named(kind, name string) installtest.Object {
	i.t.Helper()
	for _, o := range i.objects {
		if o.Kind() == kind && o["metadata"].(map[string]any)["name"] == name {
			return o
		}
	}
	i.t.Fatalf("the chart has no %s %s", kind, name)
	return nil
}

// container returns the only container of a Deployment.
func (i *installation) container(deployment string) map[string]any {
	spec := i.named("Deployment", deployment)["spec"].(map[string]any)["template"].(map[string]any)["spec"]
	return spec.(map[string]any)["containers"].([]any)[0].(map[string]any)
}

func (i *installation) timeout(namespace, name, value string) (object, error) {
	var stored object
	err := i.client.Create(i.t.Context(), crd.Path(kind.MeshTimeouts, namespace), object{
		"apiVersion": "kuma.io/v1alpha1", "kind": "MeshTimeout", "metadata": object{"name": name},
		"spec": object{"targetRef": object{"kind": "Mesh"}, "to": []any{object{"targetRef": object{"kind": "Mesh"},
			"default": object{"connectionTimeout": value}}}}}, &stored)
	return stored, err
}

// awaitWebhooks waits until the API server has the caBundle and the EndpointSlice. Before, it rejects every write.
func (i *installation) awaitWebhooks(t *testing.T) {
	t.Helper()
	testwait.UntilTrue(t, "a policy is reviewed", func() bool {
		_, err := i.timeout(i.namespace, "bad", "-1s")
		if err == nil {
			t.Fatal("an invalid policy is stored")
		}
		return strings.Contains(err.Error(), "connectionTimeout")
	})
}

// writesPolicies: the webhooks review what kubectl writes. It returns the labels of a stored policy.
func (i *installation) writesPolicies(namespace string) object {
	i.t.Helper()
	i.awaitWebhooks(i.t)
	stored, err := i.timeout(namespace, "slow", "3s")
	if err != nil {
		i.t.Fatal(err)
	}
	return stored["metadata"].(object)["labels"].(object)
}

// injects: a Pod gets a sidecar with the image of the values, a Dataplane, events, and its configuration.
func (i *installation) injects(p *servertest.Plane, shop *shop) {
	i.t.Helper()
	create := func(name string) (spec string) {
		var pod object
		if err := i.client.Create(i.t.Context(), "/api/v1/namespaces/"+shop.name+"/pods", object{"apiVersion": "v1",
			"kind": "Pod", "metadata": object{"name": name, "labels": object{"app": "web"}}, "spec": object{
				"automountServiceAccountToken": false, "containers": []any{object{"name": "app", "image": "app",
					"ports": []any{object{"name": "http", "containerPort": 8080}}}}}}, &pod); err != nil {
			i.t.Fatal(err)
		}
		return fmt.Sprint(pod["spec"])
	}
	shop.service("web", object{"kuma.io/mesh": "default"}, object{"app": "web"})
	if spec := create("web-1"); !strings.Contains(spec, "registry.example/weft-dp:v1") {
		i.t.Fatalf("the Pod has no sidecar: %s", spec)
	}
	shop.status("web-1", "10.0.0.1", true)
	shop.awaitStates("web-1", "web=Ready")
	testwait.UntilTrue(i.t, "the Service has a MeshService", func() bool {
		return i.client.Get(i.t.Context(), crd.Path(kind.MeshServices, shop.name)+"/web", nil, nil) == nil
	})
	testwait.UntilTrue(i.t, "an event says so", func() bool {
		return slices.Contains(shop.reasons("web-1"), "CreatedKumaDataplane")
	})
	conn := mesh.Dial(i.t, p.DataPlane)
	if err := tryConnect(i.t.Context(), conn, shop.node("web-1"), shop.token("web-1", "weft")); err != nil {
		i.t.Errorf("the token of the Pod does not open its Dataplane: %v", err)
	}
	// The Pod and its Namespace give the reason for which a Pod without an address has no Dataplane.
	create("bare")
	err := tryConnect(i.t.Context(), conn, shop.node("bare"), shop.token("bare", "weft"))
	rejects(i.t, err, codes.NotFound, "has no Dataplane yet")
	shop.removePod("bare")
}

// attachesRoutes: routes of the Gateway API with a Service as their parent have conditions.
func (i *installation) attachesRoutes(shop *shop) {
	i.t.Helper()
	for _, of := range convert.RouteKinds {
		path := shop.routes(of)
		testwait.UntilTrue(i.t, "the API server has the kind "+of, func() bool {
			return i.client.Get(i.t.Context(), path, nil, nil) == nil
		})
		i.create(i.t, path, object{"apiVersion": "gateway.networking.k8s.io/v1", "kind": of,
			"metadata": object{"name": "r"}, "spec": object{"parentRefs": []any{object{"group": "", "kind": "Service",
				"name": "web"}}, "hostnames": []any{"web.example.com"},
				"rules": []any{object{"backendRefs": []any{object{"name": "web", "port": 80}}}}}})
		testwait.UntilTrue(i.t, "the "+of+" has conditions", func() bool {
			var route object
			i.read(i.t, path+"/r", &route)
			return strings.Contains(fmt.Sprint(route["status"]), convert.RouteController)
		})
		i.delete(path + "/r")
	}
}

// runsZoneProxies: a Pod of the Deployment of a zone egress is a zone egress of its mesh, and finds the CA.
func (i *installation) runsZoneProxies(around *shop) {
	i.t.Helper()
	template := i.named("Deployment", "kuma-default-egress")["spec"].(map[string]any)["template"].(map[string]any)
	meta := template["metadata"].(map[string]any)
	meta["name"] = "egress-1"
	i.create(i.t, "/api/v1/namespaces/"+i.namespace+"/pods", object{"apiVersion": "v1", "kind": "Pod", "metadata": meta,
		"spec": template["spec"]})
	system := &shop{around.cluster, i.t, i.namespace}
	system.status("egress-1", "10.0.0.7", true)
	path := crd.Path(kind.Dataplanes, i.namespace) + "/egress-1"
	testwait.UntilTrue(i.t, "the zone egress has a Dataplane", func() bool {
		var stored object
		err := i.client.Get(i.t.Context(), path, nil, &stored)
		return err == nil &&
			strings.Contains(fmt.Sprint(stored), "zoneEgress:map[address:10.0.0.7 name:egress port:10002")
	})
	testwait.UntilTrue(i.t, "the system namespace has the CA", func() bool {
		return i.client.Get(i.t.Context(), "/api/v1/namespaces/"+i.namespace+"/configmaps/"+inject.CAConfigMap, nil,
			nil) == nil
	})
	system.removePod("egress-1")
	system.awaitStates("egress-1", "none")
	i.refersToASecret()
}

// refersToASecret: a user who may read Secrets names one.
func (i *installation) refersToASecret() {
	i.t.Helper()
	source := object{"type": "Secret", "secretRef": object{"kind": "Secret", "name": "partner-ca"}}
	i.create(i.t, crd.Path(kind.MeshExternalServices, i.namespace), object{"apiVersion": "kuma.io/v1alpha1",
		"kind": "MeshExternalService", "metadata": object{"name": "partner"}, "spec": object{
			"match":     object{"type": "HostnameGenerator", "port": 443, "protocol": "tcp"},
			"endpoints": []any{object{"address": "192.0.2.1", "port": 443}},
			"tls":       object{"enabled": true, "verification": object{"caCert": source}}}})
}

// keepsCA: the control plane corrects the CA of a namespace.
func (i *installation) keepsCA(shop *shop) {
	i.t.Helper()
	collection := "/api/v1/namespaces/" + shop.name + "/configmaps"
	edit := func(collection, name string, change func(o object)) {
		err := api.Edit(i.t.Context(), i.client, collection, name, func(stored *object) (*object, error) {
			if stored == nil {
				return nil, fmt.Errorf("%s/%s does not exist", collection, name)
			}
			change(*stored)
			return stored, nil
		})
		if err != nil {
			i.t.Fatal(err)
		}
	}
	testwait.UntilTrue(i.t, "the namespace has the CA", func() bool {
		return i.client.Get(i.t.Context(), collection+"/"+inject.CAConfigMap, nil, nil) == nil
	})
	edit(collection, inject.CAConfigMap, func(o object) { o["data"] = object{inject.CAKey: "changed"} })
	edit("/api/v1/namespaces", shop.name, func(o object) { // a change of the Namespace has it read again
		o["metadata"].(object)["annotations"] = object{"example.com/changed": "true"}
	})
	testwait.UntilTrue(i.t, "the CA is corrected", func() bool {
		var stored struct{ Data map[string]string }
		i.read(i.t, collection+"/"+inject.CAConfigMap, &stored)
		return strings.Contains(stored.Data[inject.CAKey], "BEGIN CERTIFICATE")
	})
}

// writesByREST writes, changes and deletes resources with the REST API.
func (i *installation) writesByREST(p *servertest.Plane) {
	i.t.Helper()
	for _, w := range []struct{ data, timeout string }{{"YQ==", "1s"}, {"Yg==", "2s"}} {
		apply(i.t, p, "{type: Secret, mesh: default, name: own, data: "+w.data+"}\n---\n"+
			"{type: MeshTimeout, mesh: default, name: own."+i.namespace+", spec: {targetRef: {kind: Mesh}, to: "+
			"[{targetRef: {kind: Mesh}, default: {connectionTimeout: "+w.timeout+"}}]}}")
	}
	if err := errors.Join(p.Admin.Delete(i.t.Context(), kind.Secrets, "default", "own"),
		p.Admin.Delete(i.t.Context(), kind.MeshTimeouts, "default", "own."+i.namespace)); err != nil {
		i.t.Fatal(err)
	}
}

// daemonSet is the DaemonSet of the CNI plugin, as one of its Pods asks about it.
func (i *installation) daemonSet() *cni.DaemonSet {
	i.t.Helper()
	system := *i.cluster
	system.namespace = "kube-system"
	account := i.t.TempDir()
	ca, err := os.ReadFile(i.Config().CAFile)
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(account, "ca.crt"), ca, 0o600),
			os.WriteFile(filepath.Join(account, "token"), []byte(system.token(i.t, "kuma-cni-node")), 0o600))
	}
	if err != nil {
		i.t.Fatal(err)
	}
	return &cni.DaemonSet{Namespace: "kube-system", Name: "kuma-cni-node", Account: account,
		Server: strings.TrimPrefix(i.Config().Host, "https://")}
}

// knowsItsDaemonSet: a Pod of the CNI plugin knows whether it was uninstalled.
func (i *installation) knowsItsDaemonSet(d *cni.DaemonSet, deleted bool) {
	i.t.Helper()
	testwait.UntilTrue(i.t, fmt.Sprintf("the DaemonSet is deleted: %v", deleted), func() bool {
		got, err := d.IsDeleted(i.t.Context())
		if err != nil {
			i.t.Fatal(err)
		}
		return got == deleted
	})
}

// needsItsPermissions: no request of a user was forbidden, and each verb of each rule of its roles was used.
func (i *installation) needsItsPermissions(user, roles string) {
	i.t.Helper()
	requests := i.Requests(i.t, user)
	for _, r := range requests {
		if r.Response.Code == http.StatusForbidden {
			i.t.Errorf("%s may not %s %+v", user, r.Verb, r.ObjectRef)
		}
	}
	for _, o := range i.objects {
		if o["metadata"].(map[string]any)["name"] != roles {
			continue
		}
		text, err := json.Marshal(o)
		var role struct {
			Rules []struct{ APIGroups, Resources, ResourceNames, Verbs []string }
		}
		if err == nil {
			err = json.Unmarshal(text, &role)
		}
		if err != nil {
			i.t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				for _, resource := range rule.Resources {
					if !slices.ContainsFunc(requests, func(r kubetest.Request) bool {
						return r.Verb == verb && slices.Contains(rule.APIGroups, r.ObjectRef.APIGroup) &&
							(resource == "*" || resource == strings.TrimSuffix(r.ObjectRef.Resource+"/"+
								r.ObjectRef.Subresource, "/")) &&
							(rule.ResourceNames == nil || slices.Contains(rule.ResourceNames, r.ObjectRef.Name))
					}) {
						i.t.Errorf("%s never used the permission of the %s to %s %s %q", user, o.Kind(), verb, resource,
							rule.ResourceNames)
					}
				}
			}
		}
	}
	i.t.Logf("%d requests", len(requests))
}

// reviewsNoControllers: without a control plane, a user can't write resources, and controllers of Kubernetes can.
func (i *installation) reviewsNoControllers(namespace string) {
	i.t.Helper()
	if _, err := i.timeout(namespace, "unreviewed", "3s"); err == nil ||
		!strings.Contains(err.Error(), "failed calling webhook") {
		i.t.Errorf("a write without a control plane: %v", err)
	}
	config := i.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:namespace-controller"}
	controller, err := api.New(config)
	if err != nil {
		i.t.Fatal(err)
	}
	if err := controller.Delete(i.t.Context(), crd.Path(kind.MeshTimeouts, namespace)+"/slow", "", ""); err != nil {
		i.t.Errorf("the namespace controller can't delete a policy: %v", err)
	}
}

// collections returns the paths of the collections that the API server lists.
func (i *installation) collections() []string {
	i.t.Helper()
	paths := []string{"/api/v1"}
	var groups struct {
		Groups []struct{ PreferredVersion struct{ GroupVersion string } }
	}
	i.read(i.t, "/apis", &groups)
	for _, g := range groups.Groups {
		paths = append(paths, "/apis/"+g.PreferredVersion.GroupVersion)
	}
	var all []string
	for _, path := range paths {
		var served struct {
			Resources []struct {
				Name  string
				Verbs []string
			}
		}
		if err := i.client.Get(i.t.Context(), path, nil, &served); err != nil && !apierrors.IsNotFound(err) {
			i.t.Fatal(err) // a group ends with its definitions
		}
		for _, r := range served.Resources {
			if slices.Contains(r.Verbs, "list") {
				all = append(all, path+"/"+r.Name)
			}
		}
	}
	return all
}

// listed is an object of a list.
type listed struct {
	Metadata struct{ Name, Namespace string }
}

func (i *installation) list(collection, selector string) []listed {
	i.t.Helper()
	var list struct{ Items []listed }
	err := i.client.Get(i.t.Context(), collection, api.Options{"labelSelector": selector}, &list)
	if err != nil && !apierrors.IsNotFound(err) { // its definition is gone
		i.t.Fatal(err)
	}
	return list.Items
}

// uninstall runs the commands of the documentation, which are of two forms.
func (i *installation) uninstall() {
	i.t.Helper()
	page, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		i.t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "### Uninstall\n")
	_, section, _ = strings.Cut(section, "\n```\n")
	commands, _, _ := strings.Cut(section, "\n```\n")
	collections := i.collections()
	for command := range strings.Lines(commands) {
		var kinds, selector string
		if strings.TrimSpace(command) == "weft install crds | kubectl delete --ignore-not-found -f -" {
			for _, d := range crd.All() {
				i.delete(crd.Definitions + "/" + d.Metadata.Name)
			}
		} else if _, err := fmt.Sscanf(command, "kubectl delete %s --selector %s", &kinds, &selector); err != nil {
			i.t.Fatalf("the test does not know the command %s", command)
		}
		for name := range strings.SplitSeq(kinds, ",") {
			for _, collection := range collections {
				if prefix, of := strings.CutSuffix(collection, "/"+name); of && name != "" {
					for _, o := range i.list(collection, selector) {
						in := ""
						if o.Metadata.Namespace != "" {
							in = "/namespaces/" + o.Metadata.Namespace
						}
						i.delete(prefix + in + "/" + name + "/" + o.Metadata.Name)
					}
				}
			}
		}
	}
	testwait.UntilTrue(i.t, "the definitions are gone", func() bool { return len(i.list(crd.Definitions, "")) == 0 })
}

func (i *installation) delete(path string) {
	i.t.Helper()
	if err := i.client.Delete(i.t.Context(), path, "", ""); err != nil {
		i.t.Fatal(err)
	}
}

// stored returns all objects outside the system namespaces of the tests, which the namespace controller would empty.
// Events expire.
func (i *installation) stored() []string {
	i.t.Helper()
	all := map[string]bool{}
	for _, collection := range i.collections() {
		if strings.HasSuffix(collection, "/events") {
			continue
		}
		for _, o := range i.list(collection, "") {
			if !strings.HasPrefix(o.Metadata.Namespace, "system-") && o.Metadata.Name != i.namespace {
				all[collection+" "+o.Metadata.Namespace+"/"+o.Metadata.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}
