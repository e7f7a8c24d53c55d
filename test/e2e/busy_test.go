package e2e

import (
	"flag"
	"fmt"
	"os/exec"
	"syscall"
)

// busy is how `make drills BUSY=1` runs the drills on a machine that other processes keep busy.
var busy = flag.Bool("busy", false, "run 6 busy processes per core beside the tests; then drills send 100 requests "+
	"a second")

// busyPerCore is the number of busy processes per core under -busy.
const busyPerCore = 6

// startBusy starts processes that spin, until they are ended.
func startBusy(n int) (end func(), err error) {
	var started []*exec.Cmd
	end = func() {
		for _, process := range started {
			process.Process.Kill()
			process.Wait()
		}
	}
	for range n {
		process := exec.Command("/bin/sh", "-c", "while :; do :; done")
		process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := onLastingThread(process.Start); err != nil {
			return end, fmt.Errorf("a busy process: %w", err)
		}
		started = append(started, process)
	}
	return end, nil
}
