package agent

import "syscall"

// killWithParent makes the kernel kill Envoy when the agent's thread exits. Envoy has its own process group, so that
// only the agent receives a Ctrl-C, and drains.
func killWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
