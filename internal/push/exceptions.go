package push

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// Exceptions returns the exceptions of a proxy whose Envoy rejects resources, given its last ones and its NACKs. The
// policies that may be the cause of a NACK are left out one after another, the latest written first, until Envoy
// accepts the resource. Where it rejects the resource without each of them, they are left out together, and where that
// does not help either, none is. A policy that restricts traffic is never left out. The exceptions of policies that
// were written since, or removed, end.
//
// It decides one step for each resource, and none while the last one is not published: then it returns known. A NACK
// of a version that is not sent any more has no effect. The result has [kind.MaxExceptions] exceptions at most. Where
// more were needed, the proxy keeps what its Envoy accepted last.
func (ps *Proxies) Exceptions(key state.ProxyKey, s *xds.Stream, nacks []kind.NACK,
	known []kind.Exception) []kind.Exception {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	r := ps.reader()
	if stored, _ := ps.state.Tables.Insight(r, key); stored == nil || !sameExceptions(stored.Spec.Exceptions, known) {
		return known
	}
	rejected := map[xds.NACK]bool{}
	for _, nack := range s.NACKs() {
		nack.Message = ""
		rejected[nack] = true
	}
	d := exceptionDecision{key: key, versions: func(of kind.Cause) (resource.Meta, bool) {
		return policyMeta(ps.state.Tables, r, of.Key(key.Mesh))
	}}
	d.keepPresent(known)
	inSync := s.InSync(ps.catalog.Revision())
	for i := range nacks {
		t, _ := typeNamed(nacks[i].Type)
		if rejected[xds.NACK{Type: t, Name: nacks[i].Name, Version: nacks[i].Version}] {
			d.decide(&nacks[i])
		}
	}
	if inSync {
		d.dropEnded(s.NACKs())
	}
	return d.exceptions
}

func sameExceptions(a, b []kind.Exception) bool { return slices.EqualFunc(a, b, kind.Exception.Equal) }

func policyMeta(t *state.Tables, r *table.Reader, key resource.Key) (resource.Meta, bool) {
	if !kind.MayBeLeftOut(key.Kind) {
		return resource.Meta{}, false
	}
	o, ok := t.Find(r, key)
	if !ok {
		return resource.Meta{}, false
	}
	return *o.Envelope(), true
}

// typeNamed returns the type with a short name.
func typeNamed(name string) (xds.Type, bool) {
	for _, t := range []xds.Type{xds.Cluster, xds.Endpoint, xds.Listener, xds.Extension, xds.Route, xds.Secret} {
		if t.String() == name {
			return t, true
		}
	}
	return 0, false
}

// exceptionDecision is the next step of the exceptions of one proxy.
type exceptionDecision struct {
	key state.ProxyKey
	// versions returns the envelope of a policy; false: it does not exist, or may not be left out.
	versions   func(kind.Cause) (resource.Meta, bool)
	exceptions []kind.Exception
	// changed are the policies whose state this step has changed: their effect on other resources is not known yet.
	changed []kind.Cause
}

// keepPresent keeps the exceptions from the present versions of policies.
func (d *exceptionDecision) keepPresent(known []kind.Exception) {
	for _, e := range known {
		if meta, ok := d.versions(e.Policy); ok && meta.Version == e.PolicyVersion {
			d.exceptions = append(d.exceptions, e)
		}
	}
}

// decide takes the next step for a resource that Envoy rejects in the version that it is sent with the present
// exceptions.
func (d *exceptionDecision) decide(nack *kind.NACK) {
	candidates := d.candidates(nack)
	for _, c := range candidates {
		if slices.Contains(d.changed, c.cause) {
			return
		}
	}
	own := d.indexesOf(nack)
	joint, tried := 0, 0
	for _, i := range own {
		switch e := &d.exceptions[i]; e.State {
		case kind.ExceptionAlone: // in vain
			d.set(i, kind.ExceptionTried)
			tried++
		case kind.ExceptionTried:
			tried++
		case kind.ExceptionJoint:
			joint++
		}
	}
	if joint > 0 {
		for _, i := range own {
			d.set(i, kind.ExceptionEnded)
		}
		return
	}
	for _, c := range candidates {
		if !d.has(own, c.cause) && !d.excludes(c.cause) {
			d.leaveOut(nack, c)
			return
		}
	}
	for _, i := range own {
		if d.exceptions[i].State != kind.ExceptionTried {
			continue
		}
		if tried > 1 {
			d.set(i, kind.ExceptionJoint)
		} else {
			d.set(i, kind.ExceptionEnded)
		}
	}
}

// candidate is a policy that may be the cause of a NACK.
type candidate struct {
	cause kind.Cause
	meta  resource.Meta
}

// candidates returns the policies that may be the cause of a NACK, the latest written first. None is of a listener
// whose address another program has.
func (d *exceptionDecision) candidates(nack *kind.NACK) []candidate {
	if isAboutAddress(nack.Message) {
		return nil
	}
	var candidates []candidate
	for _, cause := range nack.Causes {
		if meta, ok := d.versions(cause); ok {
			candidates = append(candidates, candidate{cause, meta})
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(b.meta.Modified.Compare(a.meta.Modified), cmp.Compare(a.cause.Kind, b.cause.Kind),
			cmp.Compare(a.cause.Name, b.cause.Name))
	})
	return candidates
}

// isAboutAddress reports whether Envoy rejects a listener because of its address, which no policy sets.
func isAboutAddress(message string) bool {
	return strings.Contains(message, "cannot bind") || strings.Contains(message, "Address already in use") ||
		strings.Contains(message, "duplicate address")
}

// indexesOf returns the indexes of the exceptions that were made because of a resource.
func (d *exceptionDecision) indexesOf(nack *kind.NACK) []int {
	var indexes []int
	for i := range d.exceptions {
		if e := &d.exceptions[i]; e.Type == nack.Type && e.Name == nack.Name {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

func (d *exceptionDecision) has(indexes []int, cause kind.Cause) bool {
	return slices.ContainsFunc(indexes, func(i int) bool { return d.exceptions[i].Policy == cause })
}

func (d *exceptionDecision) excludes(cause kind.Cause) bool {
	return slices.ContainsFunc(d.exceptions, func(e kind.Exception) bool { return e.Policy == cause && e.Excludes() })
}

func (d *exceptionDecision) set(i int, state string) {
	d.exceptions[i].State = state
	d.changed = append(d.changed, d.exceptions[i].Policy)
}

func (d *exceptionDecision) leaveOut(nack *kind.NACK, c candidate) {
	if len(d.exceptions) == kind.MaxExceptions {
		return
	}
	d.exceptions = append(d.exceptions, kind.Exception{Policy: c.cause, PolicyVersion: c.meta.Version, Type: nack.Type,
		Name: nack.Name, Message: nack.Message, Time: kind.Time{Time: time.Now().UTC().Truncate(time.Millisecond)},
		State: kind.ExceptionAlone})
	d.changed = append(d.changed, c.cause)
}

// dropEnded drops what was tried in vain for resources that Envoy does not reject any more.
func (d *exceptionDecision) dropEnded(nacks []xds.NACK) {
	d.exceptions = slices.DeleteFunc(d.exceptions, func(e kind.Exception) bool {
		return !e.Excludes() && !slices.ContainsFunc(nacks, func(nack xds.NACK) bool {
			return nack.Type.String() == e.Type && nack.Name == e.Name
		})
	})
}
