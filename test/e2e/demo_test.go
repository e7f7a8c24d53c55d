package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// TestTheDemoPassesAndCleansUp runs the first command of a newcomer, from the binary alone.
func TestTheDemoPassesAndCleansUp(t *testing.T) {
	t.Parallel()
	temp, err := os.MkdirTemp("", "demo-") // t.TempDir is too long for the sockets of the demo
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(temp) })
	demo := exec.Command(filepath.Join(binaries, "weft"), "demo", "--once")
	demo.Dir = temp
	demo.Env = append(os.Environ(), "WEFT_ENVOY="+envoy, "TMPDIR="+temp)
	demo.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	runtime.LockOSThread() // the end of the thread ends the demo
	defer runtime.UnlockOSThread()
	out, err := demo.CombinedOutput()
	if err != nil {
		t.Fatalf("weft demo --once: %s\n%s", err, out)
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("it left %v behind, %v", left, err)
	}
}
