package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weft/internal/kube/crd"
	"weft/internal/server/servertest"
	"weft/internal/testwait"
	"weft/kind"
	"weft/resource"
	"weft/test/mesh"
)

// joins returns the settings of a zone that joins a global control plane.
func joins(t *testing.T, global *servertest.Plane, zone string) map[string]string {
	t.Helper()
	signed, err := mesh.ZoneToken(t.Context(), global.Admin, zone)
	token := filepath.Join(t.TempDir(), zone+".token")
	if err == nil {
		err = os.WriteFile(token, []byte(signed), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"multizone.zone.name":                 zone,
		"multizone.zone.globalAddress":        "grpcs://" + global.Zones,
		"multizone.zone.kds.rootCaFile":       filepath.Join(global.DataDir, "ca.crt"),
		"multizone.zone.kds.auth.cpTokenPath": token,
	}
}

// universal are the settings of a control plane on machines, beside others whose settings are in the environment.
func universal(more map[string]string) servertest.Options {
	values := map[string]string{"environment": "universal", "store.type": "memory"}
	for path, value := range more {
		values[path] = value
	}
	return servertest.Options{Settings: values}
}

// copied returns the name of a copy of a resource outside of its owner.
func copied(d resource.Descriptor, mesh, name, zone string) string {
	return kind.SyncedName(d.Describe(), mesh, name, kind.Owner{Zone: zone})
}

// reads awaits an object that has texts.
func (c *cluster) reads(t *testing.T, path string, wants ...string) {
	t.Helper()
	testwait.UntilTrue(t, path+" has "+strings.Join(wants, ", "), func() bool {
		var stored object
		err := c.client.Get(t.Context(), path, nil, &stored)
		text := fmt.Sprint(stored)
		lacks := func(want string) bool { return !strings.Contains(text, want) }
		return err == nil && !slices.ContainsFunc(wants, lacks)
	})
}

// TestAZoneOnKubernetesJoinsGlobal: global's resources are objects of the system namespace, which kubectl does not
// change, and those of the zone reach global and other zones with their namespaces.
func TestAZoneOnKubernetesJoinsGlobal(t *testing.T) {
	global := servertest.Start(t, universal(map[string]string{"mode": "global"}))
	west := servertest.Start(t, universal(joins(t, global, "west")))
	const timeout = `{type: MeshTimeout, mesh: %s, name: slow.v1, spec: {targetRef: {kind: Mesh}, to: [{targetRef: ` +
		`{kind: Mesh}, default: {connectionTimeout: %s}}]}}`
	apply(t, global, "{type: Mesh, name: pay}\n---\n"+fmt.Sprintf(timeout, "default", "3s")+"\n---\n"+
		fmt.Sprintf(timeout, "pay", "4s")+"\n---\n"+`{type: MeshMultiZoneService, mesh: default, name: web, spec: `+
		`{selector: {meshService: {matchLabels: {kuma.io/display-name: web}}}, ports: [{port: 80, appProtocol: http}]}}`+
		"\n---\n"+`{type: Secret, mesh: default, name: own, data: YQ==}`)

	i := newInstallation(t, fmt.Sprintf(`
controlPlane:
  zone: east
  kdsGlobalAddress: grpcs://%s
  tls: {kdsZoneClient: {secretName: global-ca}}
  extraSecrets: {token: {name: zone-token, mountPath: /var/run/secrets/kuma.io/zone-token}}
  envVars: {KUMA_MULTIZONE_ZONE_KDS_AUTH_CP_TOKEN_PATH: /var/run/secrets/kuma.io/zone-token/token}
`, global.Zones))
	files := joins(t, global, "east")
	i.more = map[string]string{} // the files of the Secrets, which no kubelet mounts
	for _, path := range []string{"multizone.zone.kds.rootCaFile", "multizone.zone.kds.auth.cpTokenPath"} {
		i.more[path] = files[path]
	}
	for _, namespace := range []string{"a", "b"} {
		s := i.newShopNamed(t, i.namespace+"-"+namespace, object{"team": "blue-" + namespace})
		s.service("web", object{"kuma.io/mesh": "default"}, object{"app": "web"})
	}
	east := i.start()

	t.Run("resources of global are objects", func(t *testing.T) {
		for mesh, value := range map[string]string{"default": "3s", "pay": "4s"} {
			name := copied(kind.MeshTimeouts, mesh, "slow.v1", "")
			i.reads(t, crd.Path(kind.MeshTimeouts, i.namespace)+"/"+name, "connectionTimeout:"+value,
				"kuma.io/origin:global", "kuma.io/display-name:slow.v1", "kuma.io/mesh:"+mesh)
			awaitRead(t, east, "/meshes/"+mesh+"/meshtimeouts/"+name, `"kuma.io/env":"universal"`)
		}
		i.reads(t, crd.Path(kind.MeshMultiZoneServices, i.namespace)+"/web", "kuma.io/origin:global")
		i.reads(t, crd.Path(kind.Meshes, "")+"/pay", "kuma.io/origin:global")
		i.reads(t, "/api/v1/namespaces/"+i.namespace+"/secrets/own", "kuma.io/origin:global", "system.kuma.io/secret")
	})
	t.Run("kubectl does not change them", func(t *testing.T) {
		i.awaitWebhooks(t)
		path := crd.Path(kind.MeshTimeouts, i.namespace) + "/" + copied(kind.MeshTimeouts, "default", "slow.v1", "")
		var stored object
		i.read(t, path, &stored)
		const says = `belongs to the global control plane, where its name is "slow.v1"; change it there`
		stored["spec"].(object)["targetRef"] = object{"kind": "Dataplane"}
		for what, err := range map[string]error{"update": i.client.Update(t.Context(), path, stored, nil),
			"delete": i.client.Delete(t.Context(), path, "", "")} {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want %q", what, err, says)
			}
		}
		err := i.client.Create(t.Context(), crd.Path(kind.Meshes, ""), object{"apiVersion": "kuma.io/v1alpha1",
			"kind": "Mesh", "metadata": object{"name": "new"}, "spec": object{}}, nil)
		const where = `a Mesh belongs to the global control plane, which zone "east" has joined; write it there`
		if err == nil || !strings.Contains(err.Error(), where) {
			t.Errorf("%v, want %q", err, where)
		}
	})
	t.Run("resources of the zone reach global", func(t *testing.T) {
		for _, namespace := range []string{i.namespace + "-a", i.namespace + "-b"} {
			s := &shop{i.cluster, t, namespace}
			s.pod("web-1", "10.42.1."+fmt.Sprint(len(namespace)), true, object{"app": "web", "tier": "front"})
			s.awaitStates("web-1", "web=Ready")
			dataplane := "/meshes/default/dataplanes/" + copied(kind.Dataplanes, "default", "web-1."+namespace, "east")
			awaitRead(t, global, dataplane, `"k8s.kuma.io/namespace":"`+namespace+`"`)
			awaitRead(t, global, dataplane, `\"team\":\"blue-`+strings.TrimPrefix(namespace, i.namespace+"-"))
			awaitRead(t, global, dataplane, `"tier":"front"`)
			awaitRead(t, global, dataplane, `"kuma.io/environment":"kubernetes"`)
			awaitRead(t, global, dataplane, `"kuma.io/display-name":"web-1"`)
		}
	})
	t.Run("services of two namespaces reach other zones", func(t *testing.T) {
		for _, namespace := range []string{i.namespace + "-a", i.namespace + "-b"} {
			service := "/meshes/default/meshservices/" + copied(kind.MeshServices, "default", "web."+namespace, "east")
			awaitRead(t, global, service, `"k8s.kuma.io/namespace":"`+namespace+`"`)
			awaitRead(t, west, service, `"kuma.io/env":"kubernetes"`)
		}
	})
	t.Run("a mesh of global evicts a Pod by its namespace", func(t *testing.T) {
		const rule = `{type: Mesh, name: default, dataplaneProxyMembership: {blocked: [{kubernetes: {namespace: ` +
			`{labels: {team: blue-a}}}}]}}`
		evicts(t, global, rule, "1 Dataplane: web-1."+i.namespace+"-a of zone east: networking.inbound[0] is blocked "+
			"by dataplaneProxyMembership.blocked[0] {kubernetes: {namespace.labels: {team: blue-a}}}")
		apply(t, global, rule)
		s := &shop{i.cluster, t, i.namespace + "-a"}
		testwait.UntilTrue(t, "an event of the Pod says so", func() bool {
			return slices.Contains(s.reasons("web-1"), "MeshMembershipRefused")
		})
		other := &shop{i.cluster, t, i.namespace + "-b"}
		if slices.Contains(other.reasons("web-1"), "MeshMembershipRefused") {
			t.Error("the Pod of another namespace is evicted too")
		}
	})
	t.Run("a mesh of global admits machines and Pods by their environments", func(t *testing.T) {
		apply(t, west, `{type: Dataplane, mesh: default, name: vm-1, networking: {address: 10.0.0.9, inbound: [{port: 80, `+
			`tags: {kuma.io/service: vm}}]}}`)
		machine := "/meshes/default/dataplanes/" + copied(kind.Dataplanes, "default", "vm-1", "west")
		awaitRead(t, global, machine, `"kuma.io/environment":"universal"`)
		both := fmt.Sprintf(`{type: Mesh, name: default, dataplaneProxyMembership: {allowed: [{tags: {kuma.io/environment: `+
			`universal}}, {tags: {k8s.kuma.io/namespace: %[1]s-a}}, {tags: {k8s.kuma.io/namespace: %[1]s-b, kuma.io/zone: `+
			`west}}]}}`, i.namespace)
		evicts(t, global, both, fmt.Sprintf("1 Dataplane: web-1.%[1]s-b of zone east: networking.inbound[0] is "+
			"allowed by none of dataplaneProxyMembership.allowed: {kuma.io/environment: universal} ("+
			"kuma.io/environment is kubernetes), {k8s.kuma.io/namespace: %[1]s-a} (k8s.kuma.io/namespace is %[1]s-b), "+
			"{k8s.kuma.io/namespace: %[1]s-b, kuma.io/zone: west} (kuma.io/zone is east)", i.namespace))
		apply(t, global, both)
		b := &shop{i.cluster, t, i.namespace + "-b"}
		testwait.UntilTrue(t, "an event of the evicted Pod", func() bool {
			return slices.Contains(b.reasons("web-1"), "MeshMembershipRefused")
		})
		const excluded = "mesh default does not admit Dataplane "
		admits(t, east, "web-1."+i.namespace+"-a", "")
		admits(t, east, "web-1."+i.namespace+"-b", excluded+"web-1."+i.namespace+"-b: ")
		admits(t, west, "vm-1", "")

		const pods = `{type: Mesh, name: default, dataplaneProxyMembership: {allowed: [{tags: {kuma.io/environment: ` +
			`kubernetes}}]}}`
		evicts(t, global, pods, "1 Dataplane: vm-1 of zone west: networking.inbound[0] is allowed by none of "+
			"dataplaneProxyMembership.allowed: {kuma.io/environment: kubernetes} (kuma.io/environment is universal)")
		apply(t, global, pods)
		admits(t, west, "vm-1", excluded+"vm-1: ")
		admits(t, east, "web-1."+i.namespace+"-b", "")
		apply(t, global, "{type: Mesh, name: default}")
		admits(t, west, "vm-1", "")
	})
	t.Run("what is deleted on global is deleted in the zone", func(t *testing.T) {
		if err := global.Admin.Delete(t.Context(), kind.MeshTimeouts, "pay", "slow.v1"); err != nil {
			t.Fatal(err)
		}
		path := crd.Path(kind.MeshTimeouts, i.namespace) + "/" + copied(kind.MeshTimeouts, "pay", "slow.v1", "")
		testwait.UntilTrue(t, path+" is gone", func() bool { return i.client.Get(t.Context(), path, nil, nil) != nil })
	})
	t.Run("a zone that leaves owns what global had", func(t *testing.T) {
		if err := east.Stop(); err != nil {
			t.Fatal(err)
		}
		t.Setenv("KUMA_MULTIZONE_ZONE_GLOBAL_ADDRESS", "")
		i.more = nil
		t.Setenv("KUMA_MULTIZONE_ZONE_KDS_AUTH_CP_TOKEN_PATH", "")
		t.Setenv("KUMA_MULTIZONE_ZONE_KDS_ROOT_CA_FILE", "")
		alone := servertest.Start(t, servertest.Options{Settings: map[string]string{"audit.output": "off"}})
		name := copied(kind.MeshTimeouts, "default", "slow.v1", "")
		awaitRead(t, alone, "/meshes/default/meshtimeouts/"+name, `"kuma.io/zone":"east"`)
		evicts(t, alone, `{type: Mesh, name: default, dataplaneProxyMembership: {allowed: [{kubernetes: {namespace: `+
			`{labels: {team: blue-b}}}}]}}`, "1 Dataplane: web-1."+i.namespace+"-a: networking.inbound[0] is allowed by none of "+
			"dataplaneProxyMembership.allowed: {kubernetes: {namespace.labels: {team: blue-b}}} (namespace label team "+
			"is blue-a)")
	})
}

// evicts fails the test unless the dry run of a Mesh names the Dataplanes of a message, and changes nothing.
func evicts(t *testing.T, plane *servertest.Plane, mesh, message string) {
	t.Helper()
	written, err := kind.Parse([]byte(mesh))
	if err != nil {
		t.Fatal(err)
	}
	message = "dataplaneProxyMembership evicts " + message
	var warnings []string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the dry run warns of %q", warnings)
		}
	})
	testwait.UntilTrue(t, "the dry run says "+message, func() bool {
		preview, err := plane.Admin.PreviewPut(t.Context(), written.Object, kind.Meshes)
		warnings = preview.Warnings
		return err == nil && slices.Contains(warnings, message)
	})
}

// admits waits until a zone admits one of its Dataplanes, or, with a reason, does not.
func admits(t *testing.T, zone *servertest.Plane, name, reason string) {
	t.Helper()
	testwait.UntilTrue(t, fmt.Sprintf("zone %s does not admit %s: %q", zone.DataDir, name, reason), func() bool {
		var text []byte
		err := zone.Admin.Get(t.Context(), "/meshes/default/dataplanes/"+name+"/_overview", nil, &text)
		return err == nil && strings.Contains(string(text), `"notAdmitted":"`+reason) == (reason != "")
	})
}

// TestGlobalOnKubernetes: a zone of machines joins a global control plane whose resources are objects of a cluster.
// What zones send is there in the system namespace, and after a restart.
func TestGlobalOnKubernetes(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	options := c.options(map[string]string{"mode": "global", "general.dataDir": t.TempDir()})
	global := servertest.Start(t, options)
	west := servertest.Start(t, universal(joins(t, global, "west")))
	c.create(t, crd.Path(kind.MeshTimeouts, c.namespace), object{"apiVersion": "kuma.io/v1alpha1",
		"kind": "MeshTimeout", "metadata": object{"name": "slow", "labels": object{"kuma.io/origin": "global",
			"kuma.io/env": "kubernetes", "k8s.kuma.io/namespace": c.namespace},
			"annotations": object{"kuma.io/display-name": "slow"}},
		"spec": object{"targetRef": object{"kind": "Mesh"}, "to": []any{object{"targetRef": object{"kind": "Mesh"},
			"default": object{"connectionTimeout": "3s"}}}}})
	apply(t, global, `{type: MeshMultiZoneService, mesh: default, name: web.`+c.namespace+`, spec: {selector: `+
		`{meshService: {matchLabels: {kuma.io/display-name: web}}}, ports: [{port: 80, appProtocol: http}]}}`)
	awaitRead(t, west, "/meshes/default/meshtimeouts/"+copied(kind.MeshTimeouts, "default", "slow."+c.namespace, ""),
		`"connectionTimeout":"3s"`)
	awaitRead(t, west, "/meshes/default/meshmultizoneservices/web", `"k8s.kuma.io/namespace":"`+c.namespace+`"`)
	for _, generator := range []string{"zone-mesh-service", "zone-mesh-service-universal"} {
		path := "/hostnamegenerators/" + copied(kind.HostnameGenerators, "", generator, "")
		awaitRead(t, west, path, `"kuma.io/origin":"global"`)
	}
	apply(t, west, `{type: MeshService, mesh: default, name: web, spec: {selector: {dataplaneTags: {kuma.io/service: `+
		`web}}, ports: [{port: 80, appProtocol: http}]}}`)
	name := copied(kind.MeshServices, "default", "web", "west")
	path := crd.Path(kind.MeshServices, c.namespace) + "/" + name
	c.reads(t, path, "kuma.io/zone:west", "kuma.io/env:universal", "kuma.io/display-name:web")
	c.reads(t, crd.Path(kind.Zones, "")+"/west", "kind:Zone")
	awaitRead(t, global, "/meshes/default/meshmultizoneservices/web."+c.namespace, `"zone":"west"`)

	if err := global.Stop(); err != nil {
		t.Fatal(err)
	}
	again := servertest.Start(t, options)
	awaitRead(t, again, "/meshes/default/meshservices/"+name, `"kuma.io/zone":"west"`)
	awaitRead(t, again, "/config", "kubernetes")
	c.reads(t, path, "kuma.io/zone:west")
}
