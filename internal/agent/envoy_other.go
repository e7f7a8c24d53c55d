//go:build !linux

package agent

import "syscall"

// endWithUs sets only the process group: on this platform, a killed agent leaves its Envoy running.
func endWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
