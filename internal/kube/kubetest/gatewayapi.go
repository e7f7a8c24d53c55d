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

// moduleOfGatewayAPI returns the folder of that release, which it downloads where it is missing.
func moduleOfGatewayAPI() (folder string, err error) {
	output, err := exec.Command("go", "mod", "download", "-json", gatewayAPI).Output()
	var module struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(output, &module); err == nil {
		err = jsonErr
	}
	if err != nil {
		return "", fmt.Errorf("the module %s: %w %s", gatewayAPI, err, module.Error)
	}
	return module.Dir, nil
}

// GatewayAPI returns the files of the definitions of the Gateway API that the control plane reads, by their plurals.
func GatewayAPI(t testing.TB) map[string]string {
	t.Helper()
	folder, err := moduleOfGatewayAPI()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, plural := range []string{"httproutes", "grpcroutes", "tcproutes", "tlsroutes", "referencegrants"} {
		files[plural] = filepath.Join(folder, "config", "crd", "standard",
			fmt.Sprintf("gateway.networking.k8s.io_%s.yaml", plural))
	}
	return files
}
