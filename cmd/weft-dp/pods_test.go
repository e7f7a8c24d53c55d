package main

import (
	"net/netip"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"weft/internal/agent/redirect"
	"weft/internal/kube/convert"
	"weft/internal/kube/inject"
	"weft/internal/settings"
	"weft/kind"
)

// TestRedirectionOfPods: the annotation of an injected Pod, which the CNI plugin reads, has the redirection of its init
// container.
func TestRedirectionOfPods(t *testing.T) {
	for name, annotations := range map[string]string{
		"defaults": `{}`,
		"exclusions": `{traffic.kuma.io/exclude-inbound-ports: "80,1000-1100", traffic.kuma.io/exclude-outbound-ports: "22",
			traffic.kuma.io/exclude-inbound-ips: "10.0.0.1,fd00::/8", traffic.kuma.io/exclude-outbound-ips: 10.1.0.0/16,
			traffic.kuma.io/exclude-outbound-ports-for-uids: "tcp:22:1000;*:53:0-999"}`,
		"a gateway":     `{kuma.io/gateway: enabled}`,
		"own probes":    `{kuma.io/application-probe-proxy-port: "0"}`,
		"no DNS":        `{kuma.io/builtin-dns: disabled}`,
		"a port of DNS": `{kuma.io/builtin-dns-port: "5353"}`,
	} {
		t.Run(name, func(t *testing.T) {
			pod := injected(t, annotations)
			config, err := redirect.ParseConfig(pod.Annotations[redirect.ConfigAnnotation])
			if err != nil {
				t.Fatal(err)
			}
			got, err := config.Options()
			if err != nil {
				t.Fatal(err)
			}
			r, command := newRedirection()
			if err := command.ParseFlags(pod.Spec.InitContainers[0].Args); err != nil {
				t.Fatal(err)
			}
			if err := r.complete(); err != nil {
				t.Fatal(err)
			}
			equal := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
			if diff := cmp.Diff(&r.Options, got, equal); diff != "" {
				t.Errorf("the annotation differs from the init container (-init +annotation):\n%s", diff)
			}
		})
	}
}

// injected returns a Pod with annotations after its injection.
func injected(t *testing.T, annotations string) *core.Pod {
	t.Helper()
	in := inject.Input{
		Settings: settings.InjectorDefaults(), System: "kuma-system", HasMesh: func(string) bool { return true },
		NotAdmitted: func(string, string, map[string]string) string { return "" },
		Patch:       func(string) *kind.ContainerPatch { return nil },
		Namespace: &convert.Namespace{Meta: convert.Meta{Name: "shop",
			Labels: map[string]string{"kuma.io/sidecar-injection": "enabled"}}},
	}
	var err error
	if in.Pod, err = yaml.YAMLToJSON([]byte(`{apiVersion: v1, kind: Pod, metadata: {name: web, annotations: ` +
		annotations + `}, spec: {containers: [{name: web, image: web, ports: [{containerPort: 8080}],
		readinessProbe: {httpGet: {port: 8081}}}]}}`)); err != nil {
		t.Fatal(err)
	}
	result, err := inject.Inject(in)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(result.Patch)
	if err == nil {
		in.Pod, err = patch.Apply(in.Pod)
	}
	var pod core.Pod
	if err == nil {
		err = yaml.Unmarshal(in.Pod, &pod)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &pod
}
