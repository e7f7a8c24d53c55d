package agent

import "syscall"

// endWithUs makes the kernel kill Envoy when the agent's thread exits. Envoy has its own process group, so that only
// the agent receives a Ctrl-C, and drains.
func endWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
