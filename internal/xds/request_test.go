package xds

import (
	"bytes"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// requestOf returns the request as a server reads it.
func requestOf(t interface {
	Helper()
	Fatal(...any)
}, sent *discoveryv3.DeltaDiscoveryRequest) *request {
	t.Helper()
	wire, err := proto.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	var r request
	if err := r.unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}); err != nil {
		t.Fatal(err)
	}
	return &r
}

// stepWith gives a session what a client sends. It then overwrites the lists of the request, as a stream does.
func stepWith(t interface {
	Helper()
	Fatal(...any)
}, s *session, sent *discoveryv3.DeltaDiscoveryRequest) (outcome, error) {
	t.Helper()
	r := requestOf(t, sent)
	result, err := s.step(r)
	if r.scratch != nil {
		for i := range r.subscribe {
			r.subscribe[i] = "!"
		}
		for i := range r.unsubscribe {
			r.unsubscribe[i] = "!"
		}
		for i := range r.stated {
			r.stated[i] = statement{"!", "!"}
		}
	}
	r.release()
	return result, err
}

// message is the request as the generated code has it. Fields that a session does not read are missing.
func (r *request) message() *discoveryv3.DeltaDiscoveryRequest {
	m := &discoveryv3.DeltaDiscoveryRequest{
		Node: r.node, TypeUrl: r.typeURL, ResponseNonce: r.nonce, ErrorDetail: r.rejection,
		ResourceNamesSubscribe: r.subscribe, ResourceNamesUnsubscribe: r.unsubscribe,
	}
	for _, s := range r.stated {
		if m.InitialResourceVersions == nil {
			m.InitialResourceVersions = map[string]string{}
		}
		m.InitialResourceVersions[s.name] = s.version
	}
	return m
}

var everyField = &discoveryv3.DeltaDiscoveryRequest{
	Node:                     &corev3.Node{Id: "default.web-1", UserAgentName: "envoy"},
	TypeUrl:                  Cluster.URL(),
	ResourceNamesSubscribe:   []string{"a", "", "b"},
	ResourceNamesUnsubscribe: []string{"c"},
	InitialResourceVersions:  map[string]string{"a": "1", "b": "", "": "2"},
	ResponseNonce:            "nonce",
	ErrorDetail:              &status.Status{Code: 3, Message: "no such filter"},
}

// A request means the same to a session as to the generated code, whatever bytes a client sends. A field that a session
// does not read may be malformed.
func FuzzRequest(f *testing.F) {
	whole, err := proto.Marshal(everyField)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(append(whole, whole...)) // every field twice
	f.Add([]byte("\x10\x05\x12\x01a\x13\x14"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		got := request{typeURL: "of the request before"}
		err := got.unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)})
		var want discoveryv3.DeltaDiscoveryRequest
		if proto.Unmarshal(wire, &want) != nil {
			return
		}
		if err != nil {
			t.Fatalf("%v, want %v", err, &want)
		}
		want.ResourceLocatorsSubscribe, want.ResourceLocatorsUnsubscribe = nil, nil
		want.ProtoReflect().SetUnknown(nil)
		if !proto.Equal(&want, got.message()) {
			t.Errorf("%v, want %v", got.message(), &want)
		}
	})
}

// The first requests wait for the stream's resource sets, while others are read into the same memory.
func TestARequestThatWaitsIsKept(t *testing.T) {
	s := newSession(NewCatalog(), func() {})
	for _, name := range []string{"first", "other"} {
		sent := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: Cluster.URL(),
			InitialResourceVersions: map[string]string{name: "1"}}
		if _, err := stepWith(t, s, sent); err != nil {
			t.Fatal(err)
		}
	}
	s.follow([]*ResourceSet{s.catalog.NewResourceSet()})
	if got := s.subs[Cluster].gone; !slices.Equal(got, []string{"first"}) {
		t.Errorf("the client has %q too many, want the first", got)
	}
}

func TestAMalformedRequestIsRejected(t *testing.T) {
	for what, wire := range map[string]string{
		"a name is not UTF-8":          "\x1a\x01\xff",
		"the type is not UTF-8":        "\x12\x01\xff",
		"a stated name is not UTF-8":   "\x2a\x03\x0a\x01\xff",
		"a length is beyond the end":   "\x12\x05a",
		"a length of five bytes":       "\x12\xff\xff\xff\xff\x0f",
		"a tag without a value":        "\x12",
		"an entry of the map is cut":   "\x2a\x02\x0a\x05",
		"the node is no message":       "\x0a\x02\x0a\x05",
		"the rejection is no message":  "\x3a\x02\x12\x05",
		"field number 0":               "\x02\x01a",
		"the end of a group, alone":    "\x14",
		"a group that does not end":    "\x13",
		"an unknown field that is cut": "\x7a\x05a",
	} {
		var r request
		if err := r.unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}); err == nil {
			t.Errorf("%s: it is read as %v", what, r.message())
		}
	}
}

// A decoded name takes more memory than the 2 bytes of an empty one on the wire.
func TestAMessageOfTinyNamesCostsLittleMemory(t *testing.T) {
	for _, list := range []struct {
		name string
		tag  byte
	}{{"subscribe", 0x1a}, {"unsubscribe", 0x22}, {"initial versions", 0x2a}} {
		t.Run(list.name, func(t *testing.T) {
			var r request
			largest := bytes.Repeat([]byte{list.tag, 0}, maxNames)
			if err := r.unmarshal(mem.BufferSlice{mem.SliceBuffer(largest)}); err != nil {
				t.Errorf("%d names: %v", maxNames, err)
			}
			if got := len(r.subscribe) + len(r.unsubscribe) + len(r.stated); got != maxNames {
				t.Errorf("%d names are read, want %d", got, maxNames)
			}
			hostile := mem.BufferSlice{mem.SliceBuffer(bytes.Repeat([]byte{list.tag, 0}, maxRequest/2))}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := r.unmarshal(hostile)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, errTooManyNames) {
				t.Errorf("%d names: %v, want %v", maxRequest/2, err, errTooManyNames)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 4*maxRequest {
				t.Errorf("a message of %d bytes takes %d bytes of memory", maxRequest, used)
			}
		})
	}
}

func TestARequestIsReadInPlaceOfTheLast(t *testing.T) {
	r := requestOf(t, everyField)
	if !proto.Equal(r.message(), everyField) {
		t.Errorf("%v, want %v", r.message(), everyField)
	}
	if err := r.unmarshal(mem.BufferSlice{mem.SliceBuffer(nil)}); err != nil ||
		!proto.Equal(r.message(), &discoveryv3.DeltaDiscoveryRequest{}) {
		t.Errorf("%v is left of the request before; %v", r.message(), err)
	}
}

// What a session remembers of a request must not be a part of the message that it came with.
func TestRememberedNamesDoNotKeepTheirMessage(t *testing.T) {
	s := newSession(NewCatalog(), func() {})
	s.follow([]*ResourceSet{s.catalog.NewResourceSet()})
	long := strings.Repeat("x", maxName)
	r := requestOf(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: Route.URL(),
		ResourceNamesSubscribe: []string{"short", long}})
	if _, err := s.step(r); err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(s.subs[Route].missing))
	if len(names) != 2 {
		t.Fatalf("%q are remembered", names)
	}
	for i, requested := range r.subscribe {
		if unsafe.StringData(names[i]) == unsafe.StringData(requested) {
			t.Errorf("%.10q is a part of the whole message", requested)
		}
	}
}

// Each of many requests is one name shorter than the one before, and as large as a message may be that is pooled.
func TestReleasedRequestsKeepNoMessage(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const requests = 100
	padding := make([]byte, maxScratchBytes*9/10)
	before := heap()
	r := &request{}
	for n := requests; n > 0; n-- {
		wire := bytes.Repeat([]byte{0x1a, 1, 'x'}, n) // resource_names_subscribe
		wire = protowire.AppendTag(wire, 100, protowire.BytesType)
		wire = protowire.AppendBytes(wire, padding)
		if err := r.unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}); err != nil {
			t.Fatal(err)
		}
		r.release()
	}
	if after := heap(); after > before+requests/4*maxScratchBytes {
		t.Errorf("%d released requests keep %d MiB", requests, (after-before)>>20)
	}
	runtime.KeepAlive(r)
}
