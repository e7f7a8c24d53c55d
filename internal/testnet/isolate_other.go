//go:build !linux

package testnet

// Run calls run, which returns an exit code, and returns the code. The caller exits with it.
func Run(run func() int) int { return run() }
