package cluster

import (
	"os/exec"
	"syscall"
)

// endWithParent has the kernel kill the program when the thread that started it ends, so also with a killed process.
func endWithParent(program *exec.Cmd) {
	program.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
