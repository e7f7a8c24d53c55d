//go:build !linux

package process

import (
	"os"
	"syscall"
)

// OwnGroup returns no attributes: without Linux's signal, programs outlive a killed process.
func OwnGroup() *syscall.SysProcAttr { return nil }

// killGroup kills a process.
func killGroup(pid int) {
	if process, err := os.FindProcess(pid); err == nil {
		_ = process.Kill() // unless it has exited
	}
}

// killFamily kills a process.
func killFamily(pid int) { killGroup(pid) }
