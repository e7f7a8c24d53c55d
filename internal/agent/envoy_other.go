//go:build !linux

package agent

import "syscall"

// endWithUs has nothing but the process group here: an agent that is killed leaves its Envoy running.
func endWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
