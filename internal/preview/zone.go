package preview

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"weft/kind"
	"weft/resource"
)

// Received is a change of resources of the global control plane as its zones receive it.
type Received struct {
	Put, Removed []ReceivedResource
}

// ReceivedResource is a resource of global.
type ReceivedResource struct {
	Kind, Mesh, Name string
	Body             []byte // resource.Body; nil for a removed one
}

// ReceivedOf returns the part of a change of the global control plane that zones receive: the resources of global that
// are synced to zones. Secrets are left out: a zone receives none before it is written. stored returns the present
// state of a resource.
func ReceivedOf(change *Change, stored func(resource.Key) (resource.Any, error)) (Received, error) {
	var received Received
	for _, o := range change.Put {
		d, meta := kind.ByName(o.Key().Kind), o.Envelope()
		if !synced(d) || !kind.OwnerOf(meta).Global() {
			continue
		}
		body, err := resource.Body(o)
		if err != nil {
			return Received{}, err
		}
		received.Put = append(received.Put, ReceivedResource{o.Key().Kind, meta.Mesh,
			kind.OwnerName(d.Describe(), meta), body})
	}
	// A Mesh owns the other resources, so that it is there before them.
	slices.SortStableFunc(received.Put, func(a, b ReceivedResource) int { return cmp.Compare(order(a), order(b)) })
	for _, key := range change.Removed {
		d := kind.ByName(key.Kind)
		if !synced(d) {
			continue
		}
		o, err := stored(key)
		if err != nil {
			return Received{}, err
		}
		received.Removed = append(received.Removed, ReceivedResource{key.Kind, key.Mesh,
			kind.OwnerName(d.Describe(), o.Envelope()), nil})
	}
	return received, nil
}

// synced reports whether zones receive resources of a kind from global that a preview may contain.
func synced(d resource.Descriptor) bool {
	return d != nil && d.Describe().Sync.Has(resource.GlobalToZones) && !d.Describe().Encrypted
}

func order(r ReceivedResource) int {
	if r.Kind == kind.Meshes.Name {
		return 0
	}
	return 1
}

// Size returns the bytes of the resources.
func (r *Received) Size() int {
	size := 0
	for _, o := range slices.Concat(r.Put, r.Removed) {
		size += len(o.Mesh) + len(o.Name) + len(o.Body)
	}
	return size
}

// Bound leaves out entries, and then groups, until the written form has a number of bytes at most. They are counted.
func (d *Diff) Bound(most int) {
	for entries := maxEntries / 2; entries > 0 && d.size() > most; entries /= 2 {
		for i := range d.Groups {
			d.Groups[i].cut(entries)
		}
	}
	for len(d.Groups) > 0 && d.size() > most {
		kept := len(d.Groups) / 2
		d.More += len(d.Groups) - kept
		d.Groups = d.Groups[:kept]
	}
}

// Read decodes the written form of a diff of another control plane, which has a number of bytes at most. Its lists get
// the bounds of a diff that [Compare] returns. A negative count is an error, and so is a diff that is longer with all
// its fields, since little text can become large values.
func Read(document []byte, most int) (*Diff, error) {
	if len(document) > most {
		return nil, fmt.Errorf("the diff has %d bytes, at most %d are read", len(document), most)
	}
	d := &Diff{}
	if err := json.Unmarshal(document, d); err != nil {
		return nil, err
	}
	d.Groups, d.More = cut(append([]Group{}, d.Groups...), maxGroups, d.More)
	least := d.More
	for i := range d.Groups {
		g := &d.Groups[i]
		g.Names, _ = cut(g.Names, maxNames, 0)
		g.cut(maxEntries)
		least = min(least, g.Proxies, g.More)
		for j := range g.Resources {
			r := &g.Resources[j]
			r.Fields, r.More = cut(r.Fields, maxFields, r.More)
			least = min(least, r.More)
		}
	}
	if least < 0 {
		return nil, errors.New("the diff has a negative count")
	}
	if size := d.size(); size > most {
		return nil, fmt.Errorf("the diff has %d bytes with all its fields, at most %d are read", size, most)
	}
	return d, nil
}

func (d *Diff) size() int {
	text, err := json.Marshal(d)
	if err != nil {
		return 0 // it has no value that JSON lacks
	}
	return len(text)
}

// cut leaves the first entries of each list.
func (g *Group) cut(most int) {
	g.Values, g.More = cut(g.Values, most, g.More)
	g.Callers, g.More = cut(g.Callers, most, g.More)
	g.Requests, g.More = cut(g.Requests, most, g.More)
	g.Resources, g.More = cut(g.Resources, most, g.More)
	for i := range g.Resources {
		g.Resources[i].Fields, g.Resources[i].More = cut(g.Resources[i].Fields, most, g.Resources[i].More)
	}
}

func cut[T any](list []T, most, more int) ([]T, int) {
	if over := len(list) - most; over > 0 {
		return slices.Clone(list[:most]), more + over
	}
	return list, more
}
