package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"weft/internal/process"
	"weft/internal/testwait"
)

var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// The commands of the getting-started page run as written, except ports and addresses, which may be in use here, and
// the build, which is done.
func TestGettingStartedWorksAsWritten(t *testing.T) {
	t.Parallel()
	said, err := runPage(t, "getting-started.md", "/tmp/first-mesh", [][2]string{
		{"make build tools", "#"},
		{`"$PWD/bin:$PATH"`, `"` + binaries + `:$PATH"`},
	})
	if err != nil || !strings.Contains(said, "RBAC: access denied") || !strings.Contains(said, "hello from backend") {
		t.Errorf("%v, the page's commands say:\n%s", err, said)
	}
}

// TestComingFromKumaWorksAsWritten: an export is translated and applied. A permission that was written with from allows
// a request.
func TestComingFromKumaWorksAsWritten(t *testing.T) {
	t.Parallel()
	said, err := runPage(t, "coming-from-kuma.md", "/tmp/from-kuma", nil)
	if err != nil {
		t.Errorf("%v, the page's commands say:\n%s", err, said)
	}
	for _, want := range []string{
		"MeshAccessLog is a kind of Kuma that this release lacks", "MeshTrafficPermission shop/till-callers created",
		"client spiffe://shop/cart, server spiffe://shop/till", "the export lacks the Secret shop.ca-builtin-cert-ca-1",
		"MeshTrafficPermission shop/till-callers deleted", "zone default: no proxy changes",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the page's commands do not say %q:\n%s", want, said)
		}
	}
}

// runPage runs the shell commands of a documentation page, and returns their output. It replaces the page's folder,
// addresses and ports, and makes the further changes.
func runPage(t *testing.T, name, folder string, changes [][2]string) (string, error) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("../../docs", name))
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString("set -eu\n")
	for _, block := range shellBlock.FindAllStringSubmatch(string(page), -1) {
		script.WriteString(block[1])
	}
	subnet, ports, dir := subnets.Add(1), freePorts(t, 7), t.TempDir()
	text := script.String()
	for _, change := range append(changes, [][2]string{
		{folder, dir},
		{"127.0.0.2", fmt.Sprintf("127.30.%d.2", subnet)},
		{"127.0.0.3", fmt.Sprintf("127.30.%d.3", subnet)},
		{":5680", fmt.Sprintf(":%d", ports[0])},
		{":5678", fmt.Sprintf(":%d", ports[1])},
		{"9902", fmt.Sprint(ports[2])},
		{"9903", fmt.Sprint(ports[3])},
	}...) {
		if !strings.Contains(text, change[0]) {
			t.Fatalf("the page says nothing of %s any more", change[0])
		}
		text = strings.ReplaceAll(text, change[0], change[1])
	}
	shell := process.New(dir, name, "bash", "-c", text)
	shell.Env = append(os.Environ(),
		fmt.Sprintf("KUMA_DIAGNOSTICS_SERVER_PORT=%d", ports[0]), fmt.Sprintf("KUMA_DP_SERVER_PORT=%d", ports[1]),
		fmt.Sprintf("KUMA_API_SERVER_HTTP_PORT=%d", ports[4]), fmt.Sprintf("KUMA_API_SERVER_HTTPS_PORT=%d", ports[5]),
		fmt.Sprintf("WEFT_API=http://127.0.0.1:%d", ports[4]), "WEFT_ENVOY="+envoy,
		"PATH="+binaries+":"+os.Getenv("PATH"),
		"WEFT_CONFIG="+filepath.Join(dir, "home", "config"))
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	testwait.Receive(t, "the commands end", shell.Exit())
	syscall.Kill(-shell.PID(), syscall.SIGKILL) // remaining processes
	out, err := os.ReadFile(shell.Log)
	if state := shell.State(); err == nil && !state.Success() {
		err = errors.New(state.String())
	}
	if t.Failed() || err != nil {
		logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
		for _, log := range logs {
			said, _ := os.ReadFile(log)
			t.Logf("%s:\n%s", filepath.Base(log), said)
		}
	}
	return string(out), err
}
