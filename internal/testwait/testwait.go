// Package testwait has the deadlines of tests, and their waits for events.
//
// A deadline is no expectation of how fast a machine is: it ends a test whose event never comes. So there is one, it is
// minutes long, and a test that works never reaches it. A duration that is an expectation is a measurement, and belongs
// to `make bench`; a test of the repository finds deadlines from other places.
package testwait

import (
	"context"
	"testing"
	"time"
)

const (
	// Timeout is the time after which an event that has not come counts as one that never comes. It is shorter than the
	// timeout of a whole test binary, so that the test that waits is named.
	Timeout = 5 * time.Minute

	// Attempt is the time after which one of many attempts ends, so that the next one begins: a connection whose first
	// packet was dropped, or a request to a server that is gone. An attempt that ends this way fails no test.
	Attempt = 30 * time.Second

	// pause is the time between two attempts.
	pause = 5 * time.Millisecond
)

// Context returns a context that ends with the test, or after [Timeout].
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	t.Cleanup(cancel)
	return ctx
}

// Deadline returns the end of [Timeout], for the deadline of a connection.
func Deadline() time.Time { return time.Now().Add(Timeout) }

// Until repeats an attempt until it returns nil. After [Timeout] it fails the test with the last error. The text states
// the event that the test waits for.
//
// An attempt that takes long, for example since it starts a program, is repeated after as long as it took, so that the
// programs that it waits for get the processor meanwhile.
func Until(t testing.TB, what string, attempt func() error) {
	t.Helper()
	for deadline := Deadline(); ; {
		began := time.Now()
		err := attempt()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting until %s: %v", what, err)
		}
		time.Sleep(max(pause, time.Since(began)))
	}
}

// Receive returns the next value of a channel, or the zero value once it is closed. After [Timeout] it fails the test.
// The text states the event.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(Timeout):
		t.Fatalf("waiting until %s: it never happened", what)
		panic("unreachable")
	}
}

// Pass returns after a duration of real time. The time is the input of the test, for example the life of a certificate
// or a stall of a machine, or the test looks for something that must not happen, which no event marks. The reason says
// which. A test may miss a failure by it, and never fails by it.
func Pass(d time.Duration, reason string) {
	if reason == "" {
		panic("testwait: no reason")
	}
	time.Sleep(d)
}

// Input returns a duration that is the input of a test, and ends no wait of the test: for example, the time after which
// a client cancels its requests. The reason says which.
func Input(d time.Duration, reason string) time.Duration {
	if reason == "" {
		panic("testwait: no reason")
	}
	return d
}
