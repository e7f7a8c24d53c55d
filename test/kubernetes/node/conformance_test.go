package node_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weft/internal/kube/kubetest"
)

var conformance = flag.String("conformance", "", "run the conformance suite of the Gateway API for weft of this "+
	"version; `make conformance` builds it")

var conformanceTest = flag.String("conformance-test", "", "the one test of the suite that runs, without a report")

// conformanceReport is the report of the suite.
const conformanceReport = "../../../docs/kubernetes-conformance.yaml"

// supportedFeatures are the supported features of the Gateway API. (pkg/features of the Gateway API)
var supportedFeatures = []string{
	"Mesh", "MeshClusterIPMatching",
	"MeshConsumerRoute", "GRPCRoute",
	"HTTPRoute", "HTTPRouteParentRefPort", "HTTPRouteResponseHeaderModification",
	"MeshHTTPRouteRewritePath", "MeshHTTPRouteSchemeRedirect", "MeshHTTPRouteRedirectPort", "MeshHTTPRouteRedirectPath",
	"MeshHTTPRouteBackendRequestHeaderModification", "MeshHTTPRouteQueryParamMatching", "MeshHTTPRouteNamedRouteRule",
	"HTTPRoute303RedirectStatusCode", "HTTPRoute307RedirectStatusCode", "HTTPRoute308RedirectStatusCode",
}

// conformanceMesh accepts plaintext connections beside mutual TLS: the suite sends requests to the address of a Pod,
// which are not those of a service. Every client of the mesh is allowed.
const conformanceMesh = `
---
apiVersion: kuma.io/v1alpha1
kind: MeshTLS
metadata: {name: permissive, namespace: kuma-system, labels: {kuma.io/mesh: default}}
spec: {rules: [{default: {mode: Permissive}}]}
---
apiVersion: kuma.io/v1alpha1
kind: MeshTrafficPermission
metadata: {name: all, namespace: kuma-system, labels: {kuma.io/mesh: default}}
spec: {rules: [{default: {allow: [{spiffeID: {type: Prefix, value: "spiffe://default.default.mesh.local/ns/"}}]}}]}
`

// echoImage returns the name of the image of the servers in the suite's manifests.
func echoImage(t *testing.T) string {
	t.Helper()
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api/conformance")
	list.Dir = "../conformance"
	folder, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(folder)), "mesh", "manifests.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(manifests)) {
		if name, found := strings.CutPrefix(strings.TrimSpace(line), "image: "); found {
			return name
		}
	}
	t.Fatal("the suite's manifests have no image")
	return ""
}

// TestConformance runs the conformance suite of the Gateway API with the profiles MESH-HTTP and MESH-GRPC, and
// writes its report.
func TestConformance(t *testing.T) {
	if *conformance == "" {
		t.Skip("needs the suite, and minutes: make conformance")
	}
	suite, err := exec.Command("../conformance/build", "--print").Output()
	if err != nil {
		t.Fatal(err)
	}
	w := mesh(t)
	t.Cleanup(w.collect)
	if err := w.AddEcho(t.Context(), echoImage(t)); err != nil {
		t.Fatal(err)
	}
	w.kubectl("apply", "--server-side", "-f", filepath.Dir(kubetest.GatewayAPI(t)["httproutes"]))
	w.apply(conformanceMesh)
	args := []string{"-test.v", "-test.timeout=30m", "-conformance-profiles=MESH-HTTP,MESH-GRPC",
		"-supported-features=" + strings.Join(supportedFeatures, ","),
		"-namespace-labels=kuma.io/sidecar-injection=enabled", "-cleanup-base-resources=false"}
	if *conformanceTest != "" {
		args = append(args, "-run-test="+*conformanceTest, "-debug")
	} else {
		report, err := filepath.Abs(conformanceReport)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, "-report-output="+report, "-organization=weft", "-project=weft", "-version="+*conformance,
			"-url=unpublished", "-contact=unpublished")
	}
	run := exec.CommandContext(t.Context(), strings.TrimSpace(string(suite)), args...)
	run.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig())
	out, err := run.CombinedOutput()
	log := filepath.Join(os.TempDir(), "weft-conformance.log")
	if err := os.WriteFile(log, out, 0o644); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "--- ") {
			t.Log(strings.TrimRight(line, "\n"))
		}
	}
	if err != nil {
		t.Errorf("the suite: %v; its log is %s", err, log)
	}
}
