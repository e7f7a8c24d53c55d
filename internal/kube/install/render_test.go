package install_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"weft/internal/kube/install"
)

var required = flag.Bool("helm", false, "compare with helm, which `make helm` builds")

const chart = "../../../deploy/chart"

// renderings are values for which the objects are compared with those of helm.
var renderings = map[string]string{
	"defaults": `{}`,
	"global": `{controlPlane: {mode: global, replicas: 2, globalZoneSyncService: {nodePort: 30685,
		loadBalancerSourceRanges: [10.0.0.0/8], annotations: {a: "1"}}, tls: {kdsGlobalServer: {secretName: zones}}}}`,
	"a zone of global": `{createNamespace: true, controlPlane: {zone: east, kdsGlobalAddress: "grpcs://g:5685",
		secrets: {token: {Env: KUMA_MULTIZONE_ZONE_KDS_AUTH_CP_TOKEN_INLINE, Secret: token, Key: token}},
		tls: {kdsZoneClient: {secretName: global-ca}}}}`,
	"certificates of the operator": `{controlPlane: {tls: {general: {secretName: own, caSecretName: own-ca,
		caBundle: QQ==}, apiServer: {secretName: api, clientCertsSecretName: users}}}}`,
	"cert-manager": `{controlPlane: {tls: {general: {certManager: {enabled: true, issuerRef: {kind: Issuer, name: ca},
		dnsNames: [cp.example]}}}}}`,
	"zone proxies": `{meshes: [{name: default, ingress: {enabled: true}, egress: {enabled: true, replicas: 2}}, {name: pci,
		ingress: {enabled: true, service: {type: NodePort, port: 443, nodePort: 30001, externalTrafficPolicy: Local,
		annotations: {a: b}}, resources: {requests: {cpu: 1}}, podAnnotations: {kuma.io/ingress-public-port: "443"},
		nodeSelector: {edge: "true"}, terminationGracePeriodSeconds: 60}}]}`,
	"networks of the API servers": `{controlPlane: {admissionServerPort: 5444, apiServerNetworks: [10.0.0.0/28,
		"2001:db8::/64"]}}`,
	"an autoscaler": `{controlPlane: {autoscaling: {enabled: true, minReplicas: 3, behavior: {scaleDown:
		{stabilizationWindowSeconds: 600}}}}}`,
	"the CNI plugin": `{cni: {enabled: true, chained: true, netDir: /etc/kubernetes/cni/net.d, binDir: /var/lib/cni/bin,
		confName: 10-net.conflist, logLevel: debug, namespace: cni, image: {tag: v3, pullPolicy: Always}, resources: {limits:
		{memory: 64Mi}}, nodeSelector: {mesh: "true"}, tolerations: [], podAnnotations: {a: b}}, global: {imagePullSecrets:
		[pull]}, dataPlane: {validationContainer: {resources: {limits: {cpu: 1}}}}}`,
	"everything else": `{cni: {enabled: true}, skipRBAC: true, global: {image: {registry: registry.example/mesh, tag: v1},
		imagePullSecrets: [pull]}, controlPlane: {config: "store:\n  type: kubernetes\n", hostNetwork: true,
		admissionServerPort: 9443, envVars: {KUMA_GENERAL_LOG_LEVEL: debug, A: 1, B: true}, injectorFailurePolicy: Ignore,
		extraSecrets: [{name: x, mountPath: /x}], extraConfigMaps: [{name: y, mountPath: /y}], extraLabels: {team: mesh},
		podAnnotations: {a: b}, deploymentAnnotations: {c: d}, serviceAccountAnnotations: {e: f}, tolerations:
		[{key: mesh, operator: Exists}], priorityClassName: high, topologySpreadConstraints: [{maxSkew: 1, topologyKey:
		zone, whenUnsatisfiable: ScheduleAnyway}], resources: {limits: null}, podDisruptionBudget: {enabled: false},
		service: {type: NodePort, annotations: {g: h}, apiServer: {http: {nodePort: 30681}, https: {nodePort: 30682}}}},
		dataPlane: {image: {tag: v2}, sidecarContainer: {resources: {limits: {cpu: 2}}}}, transparentProxy: {configMap:
		{config: {ipFamilyMode: ipv4, redirect: {inbound: {excludePorts: [80, 1000-1100]}, dns: {enabled: false}}}}}}`,
}

func valuesOf(t *testing.T, text string) map[string]any {
	t.Helper()
	var values map[string]any
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// TestRenderingIsHelms: the objects are those of `helm template`, byte for byte.
func TestRenderingIsHelms(t *testing.T) {
	out, err := exec.Command("../../../test/kubernetes/helm/build", "--print").Output()
	if err != nil {
		t.Fatal(err)
	}
	helm := filepath.Join(strings.TrimSpace(string(out)), "helm")
	if _, err := os.Stat(helm); err != nil && *required {
		t.Fatalf("helm is not built, `make helm` does so once: %v", err)
	} else if err != nil {
		t.Skip("the build of helm takes minutes, once: make helm")
	}
	for name, text := range renderings {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "values.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			command := exec.Command(helm, "template", "any-name", chart, "--namespace", "mesh", "--values", file,
				"--include-crds")
			command.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir())
			want, err := command.Output()
			if exit, ok := err.(*exec.ExitError); ok {
				t.Fatalf("%v: %s", err, exit.Stderr)
			}
			got, err := install.Render(install.Options{Namespace: "mesh", Values: valuesOf(t, text), CRDs: true})
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("weft prints\n%s\nand helm\n%s", difference(got, want), difference(want, got))
			}
		})
	}
}

// difference returns the lines from the first one that another text does not have.
func difference(text, other []byte) string {
	lines, others := strings.Split(string(text), "\n"), strings.Split(string(other), "\n")
	i := 0
	for i < min(len(lines), len(others)) && lines[i] == others[i] {
		i++
	}
	return strings.Join(lines[max(0, i-3):min(len(lines), i+10)], "\n")
}

// TestRenderingIsRepeatable: nothing in the objects is random.
func TestRenderingIsRepeatable(t *testing.T) {
	for name, text := range renderings {
		first, err := install.Render(install.Options{Namespace: "mesh", Values: valuesOf(t, text), CRDs: true})
		if err != nil {
			t.Fatal(name, err)
		}
		second, err := install.Render(install.Options{Namespace: "mesh", Values: valuesOf(t, text), CRDs: true})
		if err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s: two renderings differ, or %v", name, err)
		}
	}
}

// TestInvalidValues: an invalid value is rejected with its name and what to do, here and by the schema of the chart,
// which helm checks. A value of Kuma without meaning passes the schema, and a template rejects it.
func TestInvalidValues(t *testing.T) {
	text, err := os.ReadFile(chart + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("values.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("values.json")
	if err != nil {
		t.Fatal(err)
	}
	var defaults map[string]any
	if text, err = os.ReadFile(chart + "/values.yaml"); err == nil {
		err = yaml.Unmarshal(text, &defaults)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(defaults); err != nil {
		t.Errorf("the defaults are invalid: %v", err)
	}
	for values, want := range map[string]struct {
		says   string
		schema bool // rejects it too
	}{
		`{controlPlan: {}}`:                                                   {"the value controlPlan is unknown; the chart has createNamespace,", true},
		`{controlPlane: {replica: 2}}`:                                        {"the value controlPlane.replica is unknown; controlPlane has", true},
		`{controlPlane: {replicas: two}}`:                                     {`controlPlane.replicas is "two"; want a number`, true},
		`{controlPlane: {replicas: -1}}`:                                      {"controlPlane.replicas is -1; want a number", true},
		`{controlPlane: {mode: remote}}`:                                      {`controlPlane.mode is "remote"; want one of zone, global`, true},
		`{controlPlane: {zone: East}}`:                                        {`controlPlane.zone is "East"; want a text that matches`, true},
		`{controlPlane: {hostNetwork: "yes"}}`:                                {`want true or false`, true},
		`{controlPlane: {kdsGlobalAddress: g}}`:                               {`controlPlane.kdsGlobalAddress is "g"; want`, true},
		`{controlPlane: {tolerations: {}}}`:                                   {"want a list", true},
		`{controlPlane: {envVars: []}}`:                                       {"want a mapping", true},
		`{controlPlane: []}`:                                                  {"want a mapping of mode, zone", true},
		`{meshes: {default: {}}}`:                                             {"the value meshes is", true},
		`{meshes: [{name: a, ingres: {}}]}`:                                   {"the value meshes[0].ingres is unknown; meshes[0] has name, ingress", true},
		`{meshes: [{ingress: {enabled: true}}]}`:                              {"the value meshes[0].name is missing", true},
		`{controlPlane: {mode: global}, meshes: [{name: a}]}`:                 {"install zone proxies in zones", false},
		`{cni: {enabled: true, chained: false}}`:                              {"leave it out, and set cni.netDir and cni.binDir", false},
		`{cni: {enabled: true}, controlPlane: {mode: global}}`:                {"install the CNI plugin in zones", false},
		`{cni: {taintController: {enabled: true}}}`:                           {"cni.taintController has no meaning: no Node is tainted", false},
		`{cni: {netDir: etc}}`:                                                {`cni.netDir is "etc"; want a text that matches`, true},
		`{controlPlane: {environment: a}}`:                                    {"controlPlane.environment has no meaning: it is always", false},
		`{ingress: {enabled: true}}`:                                          {"use meshes: [{name: default, ingress: {enabled: true}}]", false},
		`{controlPlane: {autoscaling: {targetCPUUtilizationPercentage: 80}}}`: {"use controlPlane.autoscaling.metrics", false},
		`{kuma: {controlPlane: {mode: zone}}}`:                                {"kuma has no meaning: these are the values of a chart around Kuma's", false},
		`{namespaceAllowList: [a]}`:                                           {"label only the namespaces", false},
		`{controlPlane: {mode: global, kdsGlobalAddress: "grpcs://a:1"}}`:     {"leave one of them out", false},
		`{controlPlane: {tls: {general: {secretName: a}}}}`:                   {"belong together", false},
		`{controlPlane: {tls: {general: {caSecretName: a}}}}`:                 {"needs controlPlane.tls.general.secretName", false},
		`{controlPlane: {tls: {general: {certManager: {enabled: true}}}}}`:    {"issuerRef is empty", false},
		`{controlPlane: {tls: {general: {secretName: a, caBundle: b, certManager: {enabled: true, issuerRef: {name: x}}}}}}`: {
			"makes the Secret", false},
	} {
		given := valuesOf(t, values)
		_, err := install.Render(install.Options{Namespace: "mesh", Values: given})
		if err == nil || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%s: %v, want %q", values, err, want.says)
		}
		if err := schema.Validate(mergedWith(t, defaults, given)); (err != nil) != want.schema {
			t.Errorf("%s: the schema says %v", values, err)
		}
	}
}

// mergedWith returns the values as helm validates them.
func mergedWith(t *testing.T, defaults, given map[string]any) any {
	t.Helper()
	var merged any
	encoded, err := json.Marshal(over(defaults, given))
	if err == nil {
		err = json.Unmarshal(encoded, &merged)
	}
	if err != nil {
		t.Fatal(err)
	}
	return merged
}

func over(defaults, given any) any {
	d, isMap := defaults.(map[string]any)
	g, wants := given.(map[string]any)
	if !isMap || !wants {
		return given
	}
	merged := map[string]any{}
	for key, v := range d {
		merged[key] = v
	}
	for key, v := range g {
		if merged[key] == nil {
			merged[key] = v
		} else {
			merged[key] = over(merged[key], v)
		}
	}
	return merged
}

// TestReadValues: later values win, and assignments have the form of helm's --set.
func TestReadValues(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte("{a: {b: 1, c: 2}, d: [x]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := install.ReadValues([]string{file}, map[string]any{"a.b": "flag"}, []string{
		`a.c=3,e=true,f=text with spaces`, `d={y,z},g[0].name=one,g[1].name=two`, `h\.i=1\,2`, `j=007,k=-5,l=a=b,m=`})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"a":{"b":"flag","c":3},"d":["y","z"],"e":true,"f":"text with spaces",` +
		`"g":[{"name":"one"},{"name":"two"}],"h.i":"1,2","j":"007","k":-5,"l":"a=b","m":""}`
	if string(encoded) != want {
		t.Errorf("the values are\n%s, want\n%s", encoded, want)
	}
	for _, bad := range []string{"a", "=b", "a[x]=1", "a[-1]=1", "a[99999999]=1"} {
		if _, err := install.ReadValues(nil, nil, []string{bad}); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := os.WriteFile(file, []byte("{a: 1, a: 2}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := install.ReadValues([]string{file}, nil, nil); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file with a key twice: %v", err)
	}
}

// TestSpireOfZoneProxies: one value has the socket of the SPIRE agent in sidecars and in zone proxies. The annotation
// of a Pod has precedence, as it has for sidecars.
func TestSpireOfZoneProxies(t *testing.T) {
	render := func(hostPath string, enabled bool, annotations map[string]any) string {
		t.Helper()
		text, err := install.Render(install.Options{Namespace: "kuma-system", Values: map[string]any{
			"dataPlane": map[string]any{"spire": map[string]any{"enabled": enabled, "hostPath": hostPath}},
			"meshes": []any{map[string]any{"name": "default", "ingress": map[string]any{"enabled": true},
				"egress": map[string]any{"enabled": true, "podAnnotations": annotations}}}}})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for hostPath, want := range map[string]string{"": "driver: csi.spiffe.io", "/run/spire": "path: /run/spire"} {
		text := render(hostPath, true, nil)
		for _, part := range []string{want, "mountPath: /run/spire/sockets"} {
			if n := strings.Count(text, part); n != 2 {
				t.Errorf("with the folder %q of the Node, %q is there %d times, want 2", hostPath, part, n)
			}
		}
		if !strings.Contains(text, "KUMA_RUNTIME_KUBERNETES_INJECTOR_SPIRE_ENABLED") {
			t.Errorf("with the folder %q of the Node, the injector has no setting of SPIRE", hostPath)
		}
	}
	for annotation, want := range map[string][2]int{"": {0, 2}, "enabled": {1, 2}, "true": {1, 2}, "disabled": {0, 1},
		"false": {0, 1}} {
		for i, enabled := range []bool{false, true} {
			text := render("", enabled, map[string]any{"k8s.kuma.io/spire-support": annotation})
			if n := strings.Count(text, "csi.spiffe.io"); n != want[i] {
				t.Errorf("dataPlane.spire.enabled=%t, and the annotation %q: %d volumes, want %d", enabled, annotation,
					n, want[i])
			}
		}
	}
}

// TestThePortOfTheWebhooksIsOfTheAPIServers: a NetworkPolicy exists only where the values name the networks of the API
// servers, so it never shuts them out. It closes no other port of the control plane.
func TestThePortOfTheWebhooksIsOfTheAPIServers(t *testing.T) {
	policy := func(values string) (found struct {
		Spec struct {
			Ingress []struct {
				Ports []struct{ Port int }
				From  []struct {
					IPBlock struct{ CIDR string } `json:"ipBlock"`
				}
			}
		}
	}, exists bool) {
		objects, err := install.Render(install.Options{Namespace: "mesh", Values: valuesOf(t, values)})
		if err != nil {
			t.Fatal(err)
		}
		for text := range strings.SplitSeq(string(objects), "\n---\n") {
			if strings.Contains(text, "\nkind: NetworkPolicy\n") {
				if err := yaml.Unmarshal([]byte(text), &found); err != nil {
					t.Fatal(err)
				}
				exists = true
			}
		}
		return found, exists
	}
	if _, exists := policy(`{}`); exists {
		t.Error("without the networks of the API servers there is a NetworkPolicy, which would shut them out")
	}
	got, _ := policy(renderings["networks of the API servers"])
	open := map[int]int{} // the number of networks that reach a port; 0: all
	for _, rule := range got.Spec.Ingress {
		for _, port := range rule.Ports {
			open[port.Port] = len(rule.From)
		}
	}
	want := map[int]int{5678: 0, 5680: 0, 5681: 0, 5682: 0, 5683: 1, 5685: 0, 5444: 2}
	if !maps.Equal(open, want) {
		t.Errorf("the numbers of networks for each port are %v, want %v", open, want)
	}
}
