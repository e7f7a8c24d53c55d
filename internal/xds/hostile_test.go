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

// What a client asks for that does not exist is remembered, so that it gets it later; a client can't make
// the server remember without end, however it cuts its names.
func TestNamesThatDoNotExistAreBoundedByTheirSize(t *testing.T) {
	for _, size := range []int{8, maxName} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			s := newStage(t)
			s.session.follow([]*ResourceSet{s.catalog.NewResourceSet()})
			asked, err := 0, error(nil)
			for ; err == nil && asked < 10*maxMissing; asked += size {
				name := fmt.Sprintf("%0*d", size, asked)
				_, err = stepWith(t, s.session, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: Cluster.URL(), ResourceNamesSubscribe: []string{name}})
			}
			if err == nil || !strings.Contains(err.Error(), "of type cluster that do not exist") {
				t.Errorf("after %d bytes of names the session ended with %v", asked, err)
			}
			if asked > maxMissing {
				t.Errorf("%d bytes of names were remembered, at most %d should be", asked, maxMissing)
			}
		})
	}
}

func TestNamesThatAreNotAskedForAnyMoreAreForgotten(t *testing.T) {
	s := newStage(t)
	s.session.follow([]*ResourceSet{s.catalog.NewResourceSet()})
	for i := range 4 * maxMissing / maxName {
		names := []string{fmt.Sprintf("%0*d", maxName, i)}
		for _, request := range []*discoveryv3.DeltaDiscoveryRequest{{ResourceNamesSubscribe: names}, {ResourceNamesUnsubscribe: names}} {
			request.TypeUrl = Route.URL()
			if _, err := stepWith(t, s.session, request); err != nil {
				t.Fatalf("at name %d: %v", i, err)
			}
		}
	}
}

// Connections that speak something else, or nothing, are in nobody's way.
func TestGarbageOnTheSocketDisturbsNobody(t *testing.T) {
	r := newRoom(t)
	for _, said := range []string{"", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\xff\xff garbage", strings.Repeat("\x00", 1<<16)} {
		plain, err := net.Dial("tcp", r.address)
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Close()
		_, _ = io.WriteString(plain, said) // it may be cut off before all is said
		trusted, err := tls.Dial("tcp", r.address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer trusted.Close()
		_, _ = io.WriteString(trusted, said)
	}
	c := r.connect(t, "a")
	c.hear("")
}
