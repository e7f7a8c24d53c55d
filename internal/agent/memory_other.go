//go:build !linux

package agent

// defaultMemory returns 0, no bound: the memory limits are unknown on this platform.
func defaultMemory() uint64 { return 0 }
