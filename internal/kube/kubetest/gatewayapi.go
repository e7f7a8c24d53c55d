package kubetest

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// gatewayAPI is the release of the Gateway API whose definitions the tests install.
const gatewayAPI = "sigs.k8s.io/gateway-api@v1.6.3"

// GatewayAPI returns the files of the definitions of the Gateway API that the control plane reads, by their plurals.
func GatewayAPI(t testing.TB) map[string]string {
	t.Helper()
	output, err := exec.Command("go", "mod", "download", "-json", gatewayAPI).Output()
	var module struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(output, &module)
	}
	if err != nil {
		t.Fatalf("the module %s: %v", gatewayAPI, err)
	}
	files := map[string]string{}
	for _, plural := range []string{"httproutes", "grpcroutes", "tcproutes", "tlsroutes", "referencegrants"} {
		files[plural] = filepath.Join(module.Dir, "config", "crd", "standard",
			fmt.Sprintf("gateway.networking.k8s.io_%s.yaml", plural))
	}
	return files
}
