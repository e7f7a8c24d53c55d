package xds

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// Requested names that do not exist are remembered, and sent once they exist. A client cannot make the server remember
// without limit, whatever the length of the names.
func TestNamesThatDoNotExistAreBoundedByTheirSize(t *testing.T) {
	for _, size := range []int{8, maxName} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			s := newStage(t)
			s.session.follow([]*ResourceSet{s.catalog.NewResourceSet()})
			requested, err := 0, error(nil)
			for ; err == nil && requested < 10*maxMissing; requested += size {
				name := fmt.Sprintf("%0*d", size, requested)
				_, err = stepWith(t, s.session, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: Cluster.URL(),
					ResourceNamesSubscribe: []string{name}})
			}
			if err == nil || !strings.Contains(err.Error(), "of type cluster do not exist") {
				t.Errorf("after %d bytes of names the session ended with %v", requested, err)
			}
			if requested > maxMissing {
				t.Errorf("%d bytes of names were remembered, at most %d should be", requested, maxMissing)
			}
		})
	}
}

func TestNamesThatAreNoLongerRequestedAreDropped(t *testing.T) {
	s := newStage(t)
	s.session.follow([]*ResourceSet{s.catalog.NewResourceSet()})
	for i := range 4 * maxMissing / maxName {
		names := []string{fmt.Sprintf("%0*d", maxName, i)}
		for _, request := range []*discoveryv3.DeltaDiscoveryRequest{{ResourceNamesSubscribe: names},
			{ResourceNamesUnsubscribe: names}} {
			request.TypeUrl = Route.URL()
			if _, err := stepWith(t, s.session, request); err != nil {
				t.Fatalf("at name %d: %v", i, err)
			}
		}
	}
}

// Connections that speak another protocol, or send nothing, do not disturb clients.
func TestGarbageOnTheSocketDisturbsNoClient(t *testing.T) {
	r := newRoom(t)
	for _, said := range []string{"", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\xff\xff garbage",
		strings.Repeat("\x00", 1<<16)} {
		plain, err := net.Dial("tcp", r.address)
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Close()
		_, _ = io.WriteString(plain, said) // the server may close it before all is written
		trusted, err := tls.Dial("tcp", r.address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer trusted.Close()
		_, _ = io.WriteString(trusted, said)
	}
	c := r.connect(t, "a")
	c.expectResponse("")
}
