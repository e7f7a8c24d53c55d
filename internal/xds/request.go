package xds

import (
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"
	"unsafe"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// request is an envoy.service.discovery.v3.DeltaDiscoveryRequest, decoded without a copy of its strings: a client that
// reconnects states thousands of names and versions at once. Its lists and the memory of its strings are used again
// after release, so a string that outlives the request has to be cloned. The node and the rejection are copies.
type request struct {
	node        *corev3.Node // nil: the request has none
	typeURL     string
	nonce       string // of the response that it acknowledges
	subscribe   []string
	unsubscribe []string
	stated      []statement
	// rejection is why the client rejects the response; nil: it does not.
	rejection *status.Status

	scratch *scratch // nil: nothing was decoded since the last release
}

// scratch is memory for decoding requests. Thousands of clients that reconnect at once would otherwise each allocate
// lists for their thousands of names.
type scratch struct {
	wire                   []byte
	subscribe, unsubscribe []string
	stated                 []statement
}

var scratches = sync.Pool{New: func() any { return &scratch{} }}

// Larger ones than a proxy of a large mesh needs are left to the garbage collector.
const (
	maxScratchBytes = 1 << 20
	maxScratchNames = 1 << 14
)

// release gives the memory of the request back. Its lists and strings are invalid afterwards. The lists are cleared,
// because each string in them keeps its whole message.
func (r *request) release() {
	of := r.scratch
	clear(r.subscribe)
	clear(r.unsubscribe)
	clear(r.stated)
	*r = request{}
	if of != nil && cap(of.wire) <= maxScratchBytes && of.names() <= maxScratchNames {
		scratches.Put(of)
	}
}

// names returns the capacity of the longest list.
func (of *scratch) names() int { return max(cap(of.subscribe), cap(of.unsubscribe), cap(of.stated)) }

// keep returns a copy of the request that stays valid after release. r is empty afterwards.
func (r *request) keep() *request {
	kept := *r
	kept.scratch = nil
	*r = request{}
	return &kept
}

// maxNames is the maximum number of names in each list of a request. A decoded name takes more memory than the 2 bytes
// that an empty one takes on the wire, so a small message could cost much. 4 MiB of names of usual length are half as
// many.
const maxNames = 1 << 17

// statement is a resource that a client states to have. A name that is stated twice counts as each of its versions.
type statement struct{ name, version string }

// Fields of DeltaDiscoveryRequest, and of an entry of its map.
const (
	nodeField            = 1
	requestTypeURLField  = 2
	subscribeField       = 3
	unsubscribeField     = 4
	initialVersionsField = 5
	responseNonceField   = 6
	errorDetailField     = 7

	mapKeyField   = 1
	mapValueField = 2
)

// unmarshal decodes a message and replaces the former contents of the request.
func (r *request) unmarshal(data mem.BufferSlice) error {
	r.release()
	r.scratch = scratches.Get().(*scratch)
	r.scratch.wire = listOf(r.scratch.wire, data.Len())[:data.Len()]
	data.CopyTo(r.scratch.wire)
	whole := chunk{r.scratch.wire, unsafe.String(unsafe.SliceData(r.scratch.wire), data.Len())}
	err := whole.fields(func(number protowire.Number, value chunk) error {
		r.reserve(number, whole)
		return r.field(number, value)
	})
	r.scratch.keepLists(r)
	return err
}

// keepLists stores the lists of a request that exceed the former ones.
func (of *scratch) keepLists(r *request) {
	if cap(r.subscribe) > cap(of.subscribe) {
		of.subscribe = r.subscribe
	}
	if cap(r.unsubscribe) > cap(of.unsubscribe) {
		of.unsubscribe = r.unsubscribe
	}
	if cap(r.stated) > cap(of.stated) {
		of.stated = r.stated
	}
}

// reserve allocates a list of names at its first field, so that the list does not grow name by name.
func (r *request) reserve(number protowire.Number, whole chunk) {
	switch {
	case number == subscribeField && len(r.subscribe) == 0:
		r.subscribe = listOf(r.scratch.subscribe, min(whole.count(number), maxNames))
	case number == unsubscribeField && len(r.unsubscribe) == 0:
		r.unsubscribe = listOf(r.scratch.unsubscribe, min(whole.count(number), maxNames))
	case number == initialVersionsField && len(r.stated) == 0:
		r.stated = listOf(r.scratch.stated, min(whole.count(number), maxNames))
	}
}

// listOf returns an empty list for n items, in the memory of a former one where that is large enough.
func listOf[T any](former []T, n int) []T {
	if cap(former) < n {
		return make([]T, 0, n)
	}
	return former[:0]
}

func (r *request) field(number protowire.Number, value chunk) (err error) {
	switch number {
	case nodeField:
		if r.node == nil {
			r.node = &corev3.Node{}
		}
		return proto.UnmarshalOptions{Merge: true}.Unmarshal(value.wire, r.node)
	case requestTypeURLField:
		r.typeURL, err = value.utf8()
	case subscribeField:
		r.subscribe, err = value.appendTo(r.subscribe)
	case unsubscribeField:
		r.unsubscribe, err = value.appendTo(r.unsubscribe)
	case initialVersionsField:
		if len(r.stated) == maxNames {
			return errTooManyNames
		}
		var s statement
		err = value.fields(s.field)
		r.stated = append(r.stated, s)
	case responseNonceField:
		r.nonce, err = value.utf8()
	case errorDetailField:
		if r.rejection == nil {
			r.rejection = &status.Status{}
		}
		return proto.UnmarshalOptions{Merge: true}.Unmarshal(value.wire, r.rejection)
	}
	return err
}

func (s *statement) field(number protowire.Number, value chunk) (err error) {
	switch number {
	case mapKeyField:
		s.name, err = value.utf8()
	case mapValueField:
		s.version, err = value.utf8()
	}
	return err
}

// chunk is a part of a message, as bytes and as a string.
type chunk struct {
	wire []byte
	text string
}

// fields calls each with the fields of a message that have bytes, in their order. Fields of other types are skipped.
func (c chunk) fields(each func(protowire.Number, chunk) error) error {
	for at := 0; at < len(c.wire); {
		number, wireType, n := protowire.ConsumeTag(c.wire[at:])
		if n < 0 {
			return protowire.ParseError(n)
		}
		at += n
		end := protowire.ConsumeFieldValue(number, wireType, c.wire[at:])
		if end < 0 {
			return protowire.ParseError(end)
		}
		end += at
		if wireType == protowire.BytesType {
			_, n := protowire.ConsumeVarint(c.wire[at:]) // the length of the value
			if err := each(number, chunk{c.wire[at+n : end], c.text[at+n : end]}); err != nil {
				return err
			}
		}
		at = end
	}
	return nil
}

// count returns the number of fields with a number, up to the first malformed one.
func (c chunk) count(number protowire.Number) (n int) {
	for at := 0; at < len(c.wire); {
		found, wireType, tag := protowire.ConsumeTag(c.wire[at:])
		if tag < 0 {
			return n
		}
		value := protowire.ConsumeFieldValue(found, wireType, c.wire[at+tag:])
		if value < 0 {
			return n
		}
		if found == number {
			n++
		}
		at += tag + value
	}
	return n
}

var (
	errNotUTF8      = errors.New("a string is not UTF-8")
	errTooManyNames = fmt.Errorf("a request has more than %d names in a list", maxNames)
)

func (c chunk) utf8() (string, error) {
	if !utf8.ValidString(c.text) {
		return "", errNotUTF8
	}
	return c.text, nil
}

func (c chunk) appendTo(all []string) ([]string, error) {
	if len(all) == maxNames {
		return nil, errTooManyNames
	}
	text, err := c.utf8()
	return append(all, text), err
}
