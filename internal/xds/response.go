package xds

import (
	"slices"
	"strconv"
	"sync"
	"weak"

	"google.golang.org/protobuf/encoding/protowire"
)

// portionBytes is how many bytes of resources go into one response. Clients written in Go take 4 MiB by
// default; Envoy has no limit, but a smaller piece holds up its main thread for less.
const portionBytes = 1 << 20

// response is one message as it is sent, shared by every stream that sends the same.
type response struct {
	*manifest
	wire []byte
}

// Encoded implements [Encoded].
func (r *response) Encoded() []byte { return r.wire }

// manifest is what a stream remembers of a response until it is acknowledged. It does not hold the
// response's bytes.
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

// size is a close upper bound of the encoded message.
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

// cache finds a response that another stream has sent. It keeps none alive: what nobody sends any more
// is collected, so that a settled control plane holds no copy of its config beside the resources.
type cache struct {
	mu        sync.Mutex
	responses map[uint64]weak.Pointer[response]
}

// maxCached bounds the empty shells of collected responses.
const maxCached = 256

// response answers the message that carries these resources, and no removal.
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

// fingerprint tells lists of resources apart, nearly always (FNV-1a over the versions, which are hashes of messages that
// have their name in them).
func fingerprint(list []*Resource) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	sum := uint64(offset)
	for _, r := range list {
		for i := range len(r.Version) {
			sum = (sum ^ uint64(r.Version[i])) * prime
		}
		sum = (sum ^ uint64(len(r.Name))) * prime
	}
	return sum
}
