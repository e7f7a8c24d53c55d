package zonesync

import (
	"maps"

	"weft/internal/wire"
)

// Acked has the positions of a log up to which the items of each mesh are acked. A mesh whose proxies do not ack is
// lagging, and delays no other mesh. A Mesh counts for itself, see [kind.MeshOf].
type Acked[P comparable] struct {
	Most    P            // of every mesh that is not in Lagging
	Lagging map[string]P // by mesh; not to be changed
}

// PositionOf returns the position of a mesh.
func (a Acked[P]) PositionOf(mesh string) P {
	if p, lagging := a.Lagging[mesh]; lagging {
		return p
	}
	return a.Most
}

func (a Acked[P]) most() P { return a.Most }

// Equal reports whether all positions are the same.
func (a Acked[P]) Equal(b Acked[P]) bool { return a.Most == b.Most && maps.Equal(a.Lagging, b.Lagging) }

// mapAcked returns the position that a function returns for each mesh that lags in one of several values, and for
// the others. The function is called with the positions of one mesh.
func mapAcked[P, Q comparable](f func([]P) Q, of ...Acked[P]) Acked[Q] {
	positions := make([]P, len(of))
	at := func(position func(Acked[P]) P) Q {
		for i, a := range of {
			positions[i] = position(a)
		}
		return f(positions)
	}
	result := Acked[Q]{Most: at(Acked[P].most)}
	for _, a := range of {
		for mesh := range a.Lagging {
			if p := at(func(a Acked[P]) P { return a.PositionOf(mesh) }); p != result.Most {
				if result.Lagging == nil {
					result.Lagging = map[string]Q{}
				}
				result.Lagging[mesh] = p
			}
		}
	}
	return result
}

// maxLagging is the number of meshes that an ack lists. Where more lag, all have the position of the last.
const maxLagging = 32

// least returns the position up to which the items of all meshes are acked.
func least(a Acked[uint64]) uint64 {
	p := a.Most
	for _, lagging := range a.Lagging {
		p = min(p, lagging)
	}
	return p
}

// putAcked writes positions into an ack.
func putAcked(ack *wire.Ack, a Acked[uint64]) {
	ack.Acked, ack.Most = least(a), a.Most
	if len(a.Lagging) > maxLagging {
		ack.Most = ack.Acked
		return
	}
	for mesh, p := range a.Lagging {
		ack.Lagging = append(ack.Lagging, &wire.MeshAck{Mesh: mesh, Acked: p})
	}
}

// ackedIn reads the positions of an ack. Where they can't be read, no mesh is further than the last.
func ackedIn(ack *wire.Ack) Acked[uint64] {
	a := Acked[uint64]{Most: max(ack.Most, ack.Acked), Lagging: map[string]uint64{}}
	for i, mesh := range ack.Lagging {
		if i == maxLagging || len(mesh.Mesh) > maxNameBytes {
			return Acked[uint64]{Most: ack.Acked}
		}
		a.Lagging[mesh.Mesh] = min(mesh.Acked, a.Most)
	}
	return a
}
