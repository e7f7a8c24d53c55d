package cni

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// inNamespace runs a function, and the programs that it starts, in the network namespace of a file. The namespace of
// this process is an error, since it is that of the node.
func inNamespace(file string, do func() error) error {
	namespace, err := os.Open(file)
	if err != nil {
		return err
	}
	defer namespace.Close()
	own, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		return err
	}
	if of, err := namespace.Stat(); err != nil || os.SameFile(of, own) {
		return errors.Join(err, fmt.Errorf("the network namespace %s is that of the node", file))
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("the network namespace %s: %w", file, err)
			return
		}
		result <- do()
	}()
	return <-result
}
