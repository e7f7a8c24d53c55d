//go:build !linux

package agent

import "syscall"

// killWithParent sets only the process group: on this platform, a killed agent leaves its Envoy running.
func killWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
