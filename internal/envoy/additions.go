package envoy

import (
	"google.golang.org/protobuf/encoding/protowire"

	"weft/internal/xds"
)

// OnlyAddsEndpoints reports whether after has all endpoints of before unchanged, and more. It is false where either is
// nil or cannot be decoded. Messages are compared as they are encoded, which is deterministic: while proxies connect,
// each endpoint that becomes ready compares all endpoints of its service.
func OnlyAddsEndpoints(before, after *xds.Resource) bool {
	had, has := readAssignment(before), readAssignment(after)
	if had == nil || has == nil || had.rest != has.rest || len(has.endpoints) <= len(had.endpoints) {
		return false
	}
	for endpoint := range had.endpoints {
		if _, kept := has.endpoints[endpoint]; !kept {
			return false
		}
	}
	return true
}

// HasEndpoints reports whether a load assignment has an endpoint. It is false for nil and for a resource that cannot be
// decoded.
func HasEndpoints(r *xds.Resource) bool {
	assignment := readAssignment(r)
	return assignment != nil && len(assignment.endpoints) > 0
}

// assignment is a load assignment in its encoded parts.
type assignment struct {
	rest      string // all fields but the endpoints
	endpoints map[placedEndpoint]struct{}
}

// placedEndpoint is an encoded endpoint with the other fields of its locality.
type placedEndpoint struct{ locality, endpoint string }

// Fields of an xds resource, of its Any, of a ClusterLoadAssignment and of its LocalityLbEndpoints.
const (
	resourceField    = 2
	anyValueField    = 2
	localitiesField  = 2
	lbEndpointsField = 2
)

// readAssignment returns the parts of an encoded load assignment; nil for nil and for what cannot be decoded.
func readAssignment(r *xds.Resource) *assignment {
	if r == nil {
		return nil
	}
	_, wrapped, ok := splitField(r.Wire, resourceField)
	if !ok || len(wrapped) != 1 {
		return nil
	}
	_, message, ok := splitField(wrapped[0], anyValueField)
	if !ok || len(message) != 1 {
		return nil
	}
	rest, localities, ok := splitField(message[0], localitiesField)
	a := &assignment{rest: rest, endpoints: map[placedEndpoint]struct{}{}}
	for _, locality := range localities {
		fields, endpoints, readable := splitField(locality, lbEndpointsField)
		ok = ok && readable
		for _, endpoint := range endpoints {
			a.endpoints[placedEndpoint{fields, string(endpoint)}] = struct{}{}
		}
	}
	if !ok {
		return nil
	}
	return a
}

// splitField returns the values of a field of bytes, and the encoding of all other fields. ok is false for a message
// that cannot be decoded.
func splitField(message []byte, number protowire.Number) (rest string, values [][]byte, ok bool) {
	var others []byte
	for len(message) > 0 {
		found, wireType, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return "", nil, false
		}
		length := protowire.ConsumeFieldValue(found, wireType, message[tag:])
		if length < 0 {
			return "", nil, false
		}
		if field := message[:tag+length]; found == number && wireType == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(field[tag:])
			values = append(values, value)
		} else {
			others = append(others, field...)
		}
		message = message[tag+length:]
	}
	return string(others), values, true
}
