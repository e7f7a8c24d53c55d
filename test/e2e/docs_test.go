package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// The page for newcomers is run as it is written, but for ports and addresses, which others may have here,
// and for the build, which is done.
func TestGettingStartedWorksAsWritten(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/getting-started.md")
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
	for _, change := range [][2]string{
		{"make build tools", "#"},
		{`"$PWD/bin:$PATH"`, `"` + binaries + `:$PATH"`},
		{"/tmp/first-mesh", dir},
		{"127.0.0.2", fmt.Sprintf("127.30.%d.2", subnet)},
		{"127.0.0.3", fmt.Sprintf("127.30.%d.3", subnet)},
		{":5680", fmt.Sprintf(":%d", ports[0])},
		{":5678", fmt.Sprintf(":%d", ports[1])},
		{"9902", fmt.Sprint(ports[2])},
		{"9903", fmt.Sprint(ports[3])},
	} {
		if !strings.Contains(text, change[0]) {
			t.Fatalf("the page says nothing of %s any more", change[0])
		}
		text = strings.ReplaceAll(text, change[0], change[1])
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", text)
	cmd.Env = append(os.Environ(),
		fmt.Sprintf("KUMA_DIAGNOSTICS_SERVER_PORT=%d", ports[0]), fmt.Sprintf("KUMA_DP_SERVER_PORT=%d", ports[1]),
		fmt.Sprintf("KUMA_API_SERVER_HTTP_PORT=%d", ports[4]), fmt.Sprintf("KUMA_API_SERVER_HTTPS_PORT=%d", ports[5]),
		fmt.Sprintf("WEFT_API=http://127.0.0.1:%d", ports[4]), "WEFT_ENVOY="+envoy,
		"WEFT_CONFIG="+filepath.Join(dir, "home", "config"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := onLastingThread(cmd.Start); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // whatever is left
	if err != nil || !strings.Contains(out.String(), "RBAC: access denied") || !strings.Contains(out.String(), "hello from backend") {
		logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
		for _, log := range logs {
			said, _ := os.ReadFile(log)
			t.Logf("%s:\n%s", filepath.Base(log), said)
		}
		t.Errorf("%v, the page's commands say:\n%s", err, &out)
	}
}
