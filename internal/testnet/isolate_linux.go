package testnet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Run calls run, which returns an exit code, in a network namespace with the loopback interface alone, and returns the
// code. The caller exits with it. For that, Run starts the program of the caller again with the same arguments, so the
// caller does nothing before that may be done once only. A user without the right to create a namespace stays in the
// network of the machine.
func Run(run func() int) int {
	const isIsolated = "WEFT_TEST_NETWORK"
	if os.Getenv(isIsolated) == fmt.Sprint(os.Getppid()) {
		os.Unsetenv(isIsolated) // programs of the tests may isolate their own
		if err := bringUpLoopback(); err != nil {
			fmt.Fprintln(os.Stderr, "the loopback interface of the tests' network:", err)
			return 1
		}
		return run()
	}
	if os.Getuid() != 0 {
		return run()
	}
	program, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "the program of the tests:", err)
		return 1
	}
	command := exec.Command(program, os.Args[1:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.Env = append(os.Environ(), isIsolated+"="+fmt.Sprint(os.Getpid()))
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	// The child gets the signal of its parent's death when the thread that started it ends.
	runtime.LockOSThread()
	if err := command.Start(); err != nil { // no right to it, no namespace left, or a kernel without them
		return run()
	}
	forwardSignals(command.Process)
	err = command.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "the tests:", err)
		return 1
	}
	if status, ok := command.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		fmt.Fprintln(os.Stderr, "the tests ended by the signal:", status.Signal())
		return 1
	}
	return command.ProcessState.ExitCode()
}

// forwardSignals sends the process the signals by which go test ends tests.
func forwardSignals(process *os.Process) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	go func() {
		for s := range signals {
			_ = process.Signal(s) // it may have ended
		}
	}()
}

// otherAddress is an address of the tests' network beside those of loopback, as every machine has one: Kubernetes calls
// no webhook at 127.0.0.1. It is for documentation (RFC 5737), so no machine has it.
var otherAddress = []byte{198, 51, 100, 1}

// bringUpLoopback makes 127.0.0.0/8, ::1 and otherAddress usable in a new namespace.
func bringUpLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, up); err != nil {
		return err
	}
	other, err := unix.NewIfreq("lo:1")
	if err != nil {
		return err
	}
	if err := other.SetInet4Addr(otherAddress); err != nil {
		return err
	}
	return unix.IoctlIfreq(socket, unix.SIOCSIFADDR, other)
}
