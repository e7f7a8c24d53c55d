//go:build !linux

package agent

// defaultMemory returns 0, no bound: neither cgroups nor the machine's memory are known here.
func defaultMemory() uint64 { return 0 }
