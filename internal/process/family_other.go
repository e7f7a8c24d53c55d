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

// stopFamily returns a process, which it does not stop.
func stopFamily(pid int) map[int]bool { return map[int]bool{pid: true} }

// signalAll sends processes a signal.
func signalAll(family map[int]bool, signal syscall.Signal) {
	for pid := range family {
		if process, err := os.FindProcess(pid); err == nil {
			_ = process.Signal(signal) // unless it has exited
		}
	}
}
