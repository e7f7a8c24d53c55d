package agent

import "syscall"

// endWithUs makes the kernel end Envoy when the agent's thread does. Envoy is a process group of its own,
// so that a Ctrl-C reaches the agent alone, which then drains.
func endWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
