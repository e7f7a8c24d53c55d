package xds

import (
	"hash/maphash"
	"slices"
	"strconv"
	"sync"
	"weak"

	"google.golang.org/protobuf/encoding/protowire"
)

// chunkBytes is the size in bytes of the resources of one response. Clients written in Go accept 4 MiB by default.
// Envoy has no limit, but a smaller response blocks its main thread for a shorter time.
const chunkBytes = 1 << 20

// response is one encoded message, shared by every stream that sends the same.
type response struct {
	*manifest
	wire []byte
}

// Wire implements [EncodedMessage].
func (r *response) Wire() []byte { return r.wire }

// manifest is what a stream remembers of a response until it is acknowledged, without the response's bytes.
type manifest struct {
	typ     Type
	nonce   string
	changed []*Resource
	removed []string
}

// Fields of envoy.service.discovery.v3.DeltaDiscoveryResponse.
const (
	resourcesField = 2
	typeURLField   = 4
	nonceField     = 5
	removedField   = 6
)

func (c *Catalog) encode(t Type, changed []*Resource, removed []string) *response {
	m := &manifest{typ: t, nonce: strconv.FormatUint(c.nonces.Add(1), 36), changed: changed, removed: removed}
	wire := make([]byte, 0, m.size())
	for _, r := range changed {
		wire = protowire.AppendTag(wire, resourcesField, protowire.BytesType)
		wire = protowire.AppendBytes(wire, r.Wire)
	}
	wire = appendString(wire, typeURLField, t.URL())
	wire = appendString(wire, nonceField, m.nonce)
	for _, name := range removed {
		wire = appendString(wire, removedField, name)
	}
	return &response{manifest: m, wire: wire}
}

// size returns a close upper bound of the size of the encoded message.
func (m *manifest) size() int {
	const overhead = 6 // a tag, and a length of five bytes
	size := 2*overhead + len(m.typ.URL()) + len(m.nonce)
	for _, r := range m.changed {
		size += overhead + len(r.Wire)
	}
	for _, name := range m.removed {
		size += overhead + len(name)
	}
	return size
}

func appendString(wire []byte, field protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(wire, field, protowire.BytesType), value)
}

// cache finds a response that another stream has sent. It keeps no response alive: a response that no stream sends is
// collected, so a control plane whose clients are in sync has no copy of its configuration beside the resources.
type cache struct {
	mu        sync.Mutex
	responses map[uint64]weak.Pointer[response]
}

// maxCached bounds the empty entries of collected responses.
const maxCached = 256

// response returns the message with resources of the set, and no removal.
func (f *ResourceSet) response(t Type, changed []*Resource) *response {
	if f.own {
		return f.catalog.encode(t, slices.Clone(changed), nil)
	}
	return f.types[t].cache.response(f.catalog, t, changed)
}

// response returns the message with these resources, and no removal.
func (k *cache) response(c *Catalog, t Type, changed []*Resource) *response {
	key := fingerprint(changed)
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.responses[key].Value(); r != nil && slices.Equal(r.changed, changed) {
		return r
	}
	r := c.encode(t, slices.Clone(changed), nil)
	if k.responses == nil || len(k.responses) >= maxCached {
		k.responses = map[uint64]weak.Pointer[response]{}
	}
	k.responses[key] = weak.Make(r)
	return r
}

func (k *cache) clear() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.responses = nil
}

var seed = maphash.MakeSeed()

// fingerprint returns a hash of a list of resources: of their versions, which are hashes of messages that have their
// name in them. Different lists nearly always have different hashes.
func fingerprint(list []*Resource) uint64 {
	const prime = 1099511628211
	sum := uint64(len(list))
	for _, r := range list {
		sum = (sum ^ maphash.String(seed, r.Version)) * prime
	}
	return sum
}
