// Package testnet gives the tests of a package a network of their own, and ports in it.
//
// Tests of several packages, a demo, and what a killed run left behind would otherwise meet at the same ports. A
// network namespace belongs to the process of the tests and to the programs that it starts; the next run has another
// one, also where such a program lives on. Without root, or on systems other than Linux, there is none: then [Ports]
// avoids what others use at the moment.
package testnet

import (
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
)

// Main is the TestMain of a package whose tests run in a network of their own.
func Main(m *testing.M) { os.Exit(Run(m.Run)) }

// The ports of tests are below those that the kernel gives to connections, so no connection takes one before its server
// does, and above those of the demo and of examples.
const firstPort, endOfPorts = 22000, 32000

var given struct {
	sync.Mutex
	n int
}

// Ports returns unused TCP ports. No port is returned twice while others are unused.
func Ports(n int) ([]int, error) {
	given.Lock()
	defer given.Unlock()
	var ports []int
	for range endOfPorts - firstPort {
		if len(ports) == n {
			break
		}
		// Processes in the same network start at different ports.
		port := firstPort + (os.Getpid()*50+given.n)%(endOfPorts-firstPort)
		given.n++
		if l, err := net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
			_ = l.Close()
			ports = append(ports, port)
		}
	}
	if len(ports) < n {
		return nil, fmt.Errorf("no TCP port from %d to %d is unused", firstPort, endOfPorts-1)
	}
	return ports, nil
}

// Port returns an unused TCP port, as [Ports] does.
func Port(t testing.TB) int {
	t.Helper()
	ports, err := Ports(1)
	if err != nil {
		t.Fatal(err)
	}
	return ports[0]
}
