package reconcile

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"weft/internal/graph"
	"weft/internal/pki"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// rotation brings the CA that a MeshIdentity names, or the backend that the mtls of a mesh enables, into use: first its root joins the MeshTrust, then
// every proxy that holds a certificate believes it, then it signs, and once the last leaf of the former
// one has expired that one's root leaves the MeshTrust. The SigningCA is the memory of where it stands.
//
// What an operator takes out of the MeshTrust stays out: only a root that was never there is put in.
type rotation struct {
	plan       *Plan
	r          *table.Reader
	now        time.Time
	mesh, name string

	stored  *resource.Object[kind.SigningCA] // nil: there is none
	signing kind.SigningCA                   // as it is to be
	trust   *resource.Object[kind.MeshTrust] // nil: there is none
	bundles []kind.CABundle                  // of the MeshTrust, as they are to be
	sources []*source                        // that are to be believed; the one that is to sign among them
	unread  bool                             // some source can't be read, so that nobody knows which root is its
	life    kind.Duration                    // of a leaf
	byHand  bool                             // the MeshTrust is the operator's to write
	retired []retired
	settle  *Settle

	steps []Step
	again time.Time
}

// retired is a root whose CA signs no more.
type retired struct {
	fingerprint string
	holders     int
	until       time.Time // when the last leaf has expired
}

func (p *Plan) rotation(r *table.Reader, mesh, name string, now time.Time) *rotation {
	rot := &rotation{plan: p, r: r, now: now, mesh: mesh, name: name}
	if stored, ok := p.State.SigningCAs.Find(r, mesh, name); ok {
		rot.stored, rot.signing = stored, stored.Spec
		rot.signing.Roots = slices.Clone(stored.Spec.Roots)
	}
	if trust, ok := p.State.Trusts.Find(r, mesh, name); ok {
		rot.trust, rot.bundles = trust, slices.Clone(trust.Spec.CABundles)
	}
	return rot
}

func (rot *rotation) do(step Step) { rot.steps = append(rot.steps, step) }

// wakeAt has the unit looked at again, at the earliest time that was asked for.
func (rot *rotation) wakeAt(at time.Time) {
	if rot.again.IsZero() || at.Before(rot.again) {
		rot.again = at
	}
}

// follow takes the source as the one that is to sign.
func (rot *rotation) follow(src *source) *problem {
	s := &rot.signing
	if s.TrustDomain != "" && s.TrustDomain != src.domain {
		return &problem{"TrustDomainChanged", fmt.Sprintf(
			"the trust domain was %s, of which there are leaves, and is %s now; give it back, and make another MeshIdentity for the new one", s.TrustDomain, src.domain)}
	}
	s.TrustDomain, s.Life = src.domain, rot.life
	if trouble := rot.entrust(src); trouble != nil {
		return trouble
	}
	switch fingerprint := src.ca.Fingerprint(); {
	case s.Fingerprint == fingerprint:
		s.Next, s.Backend = nil, src.backend
		if s.Since.IsZero() {
			s.Since = kind.Time{Time: rot.now}
		}
	case rot.sameRoot(src.ca):
		rot.activate(src)
	case s.Next == nil || s.Next.Fingerprint != fingerprint:
		s.Next = &kind.NextCA{Fingerprint: fingerprint, Since: kind.Time{Time: rot.now}}
	case !rot.now.Before(rot.bound()):
		rot.activate(src)
	case rot.believed(src):
		rot.wakeAt(rot.bound())
		next := *rot.stored
		next.Spec = src.signed(next.Spec)
		rot.settle = &Settle{
			Topic: rot.topic(), Mesh: rot.mesh, Zones: true,
			Rows: []resource.Key{kind.MeshTrusts.Key(rot.mesh, rot.name)}, Then: []resource.Any{&next},
		}
	}
	return nil
}

// activate makes the source sign.
func (rot *rotation) activate(src *source) { rot.signing = src.signed(rot.signing) }

// signed is a SigningCA with the source in use.
func (src *source) signed(row kind.SigningCA) kind.SigningCA {
	row.Authority, row.Fingerprint, row.Since, row.Next = src.text, src.ca.Fingerprint(), kind.Time{}, nil
	row.Backend = src.backend
	return row
}

// sameRoot says whether a CA is believed by whoever believes the one that signs now.
func (rot *rotation) sameRoot(ca *pki.CA) bool {
	active := rot.active()
	return active != nil && active.Root() == ca.Root()
}

// active is the CA that signs now; nil where none does.
func (rot *rotation) active() *pki.CA {
	if len(rot.signing.Authority) == 0 {
		return nil
	}
	ca, err := pki.ParseCA(rot.signing.Authority)
	if err != nil {
		return nil // what is stored was parsed before it was
	}
	return ca
}

// bound is when the next CA signs although some proxies have not settled: the leaves that they held when
// it began have expired.
func (rot *rotation) bound() time.Time {
	return rot.signing.Next.Since.Add(patienceFor(rot.signing.Life))
}

// leastPatience is how long a step waits at least, for proxies that are there and slow.
const leastPatience = time.Minute

// patienceFor is how long a step waits for proxies whose leaves live so long.
func patienceFor(life kind.Duration) time.Duration { return max(time.Duration(life), leastPatience) }

func (rot *rotation) topic() string {
	return fmt.Sprintf("the root of %s, CA %s", kind.IdentitySource(rot.mesh, rot.name), rot.signing.Next.Fingerprint)
}

// believed says whether the mesh believes the source as the table stands.
func (rot *rotation) believed(src *source) bool {
	for _, domain := range rot.plan.State.Trust.Get(rot.r, rot.mesh).Domains {
		if domain.Name == src.domain {
			return src.ca.LeadsTo(domain.Roots, rot.now)
		}
	}
	return false
}

// entrust puts a source's root into the MeshTrust, unless it has been there.
func (rot *rotation) entrust(src *source) *problem {
	if rot.byHand {
		if rot.signing.Fingerprint != src.ca.Fingerprint() && !rot.believed(src) {
			return &problem{"RootMissing", fmt.Sprintf("no MeshTrust of the trust domain %s has the CA's root, and meshTrustCreation is Disabled; write one", src.domain)}
		}
		return nil
	}
	if rot.trust != nil && rot.trust.Spec.TrustDomain != src.domain {
		return &problem{"MeshTrustTaken", fmt.Sprintf("the MeshTrust %s is of the trust domain %s; rename it, or the MeshIdentity that gives it its name", rot.name, rot.trust.Spec.TrustDomain)}
	}
	root := src.ca.Root()
	put := slices.Contains(rot.signing.Roots, root)
	there := rot.holds(root)
	switch {
	case rot.trust == nil:
		for _, known := range rot.signing.Roots {
			rot.add(known)
		}
		rot.add(root)
	case there && !put:
		rot.signing.Roots = append(rot.signing.Roots, root)
	case !there && !put:
		rot.add(root)
	case !there:
		return &problem{"RootRemoved", fmt.Sprintf("the root of its CA was taken out of the MeshTrust %s, so nobody believes its leaves; replace the CA", rot.name)}
	}
	return nil
}

func (rot *rotation) add(root string) {
	if !rot.holds(root) {
		rot.bundles = append(rot.bundles, kind.CABundle{Type: "Pem", PEM: &kind.PEMBundle{Value: root}})
	}
}

// holds says whether the MeshTrust has a root, as it is to be.
func (rot *rotation) holds(root string) bool {
	fingerprint := pki.Fingerprints(root)[0]
	return slices.ContainsFunc(rot.bundles, func(b kind.CABundle) bool {
		return b.PEM != nil && slices.Contains(pki.Fingerprints(b.PEM.Value), fingerprint)
	})
}

// store writes the SigningCA and the MeshTrust where they differ, or else waits for what is to settle. The
// SigningCA comes first: a write of it that still waits is void then, and so no CA comes into use whose root
// leaves the MeshTrust.
func (rot *rotation) store() {
	rot.storeSigning()
	rot.storeTrust()
}

func (rot *rotation) storeSigning() {
	switch {
	case rot.signing.TrustDomain == "":
	case rot.stored == nil:
		rot.do(Step{Put: kind.SigningCAs.Make(rot.mesh, rot.name, rot.signing)})
	case !reflect.DeepEqual(rot.stored.Spec, rot.signing):
		row := *rot.stored
		row.Spec = rot.signing
		rot.do(Step{Put: &row})
	case rot.settle != nil:
		rot.do(Step{Settle: rot.settle})
	}
}

func (rot *rotation) storeTrust() {
	trust := kind.MeshTrusts.Make(rot.mesh, rot.name, kind.MeshTrust{TrustDomain: rot.signing.TrustDomain})
	if rot.trust != nil {
		*trust = *rot.trust
	}
	if !reflect.DeepEqual(trust.Spec.CABundles, rot.bundles) {
		trust.Spec.CABundles = rot.bundles
		rot.do(Step{Put: trust})
	}
}

// prune takes former roots out of the MeshTrust that nobody's leaf needs any more. That it did is noted
// once the MeshTrust is seen without them.
func (rot *rotation) prune() {
	rot.signing.Roots = slices.DeleteFunc(rot.signing.Roots, func(root string) bool {
		if rot.inUse(root) || rot.retain(root) || rot.unread || rot.young() {
			return false
		}
		if !rot.holds(root) {
			return true
		}
		rot.bundles = slices.DeleteFunc(rot.bundles, func(b kind.CABundle) bool {
			return b.PEM != nil && slices.Equal(pki.Fingerprints(b.PEM.Value), pki.Fingerprints(root))
		})
		return false
	})
}

// lateSignings is how long after a change of the CA leaves of the former one may still be stored: whoever
// signed them had not heard of it.
const lateSignings = time.Minute

// young says whether the CA that signs has begun just now.
func (rot *rotation) young() bool {
	end := rot.signing.Since.Add(lateSignings)
	if !rot.now.Before(end) {
		return false
	}
	rot.wakeAt(end)
	return true
}

// inUse says whether leaves are signed under a root, or are to be.
func (rot *rotation) inUse(root string) bool {
	if slices.ContainsFunc(rot.sources, func(src *source) bool { return src.ca.Root() == root }) {
		return true
	}
	active := rot.active()
	return active != nil && active.Root() == root
}

// retain says whether a root is needed for leaves that are still held, and counts them.
func (rot *rotation) retain(root string) bool {
	old := retired{fingerprint: pki.Fingerprints(root)[0]}
	if rot.plan.Global() {
		return rot.inZones(old.fingerprint)
	}
	for _, row := range rot.plan.State.Holders(rot.r, rot.mesh, old.fingerprint) {
		for _, leaf := range row.Spec.Certificates {
			if leaf.Root != old.fingerprint || !rot.now.Before(leaf.Until.Add(graph.ConnectionLife)) {
				continue
			}
			old.holders++
			if leaf.Until.After(old.until) {
				old.until = leaf.Until.Time
			}
		}
	}
	if old.holders == 0 {
		return false
	}
	rot.wakeAt(old.until.Add(graph.ConnectionLife))
	rot.retired = append(rot.retired, old)
	return true
}

// inZones says whether a zone has a root in its own MeshTrust of this name, for certificates that its proxies hold.
func (rot *rotation) inZones(fingerprint string) bool {
	return slices.ContainsFunc(rot.plan.State.TrustsByMesh.List(rot.r, graph.MeshKey(rot.mesh)), func(t *resource.Object[kind.MeshTrust]) bool {
		return t.Spec.TrustDomain == rot.signing.TrustDomain && rot.plan.State.InOtherZone(&t.Meta) && slices.Contains(pki.Roots(&t.Spec), fingerprint)
	})
}

// retire ends what a MeshIdentity, or mtls, that is gone has left, once nobody holds a leaf of it.
func (rot *rotation) retire() {
	if rot.stored == nil {
		return
	}
	rot.rest()
	switch {
	case rot.trust != nil && len(rot.bundles) == 0:
		rot.delete(rot.trust.Key())
	case len(rot.signing.Roots) == 0 && rot.signing.Fingerprint == "":
		rot.delete(rot.stored.Key())
	default:
		rot.store()
	}
}

// rest ends the signing once nobody holds a leaf of who signed last, and has the roots pruned.
func (rot *rotation) rest() {
	if active := rot.active(); active == nil || !rot.retain(active.Root()) {
		rot.signing.Authority, rot.signing.Fingerprint, rot.signing.Backend = nil, "", ""
	}
	rot.signing.Next = nil
	rot.prune()
}

func (rot *rotation) delete(key resource.Key) { rot.do(Step{Delete: &key}) }

// ready says whether certificates are signed as users want it.
func (rot *rotation) ready(trouble *problem) kind.Condition {
	active := rot.active()
	switch {
	case trouble != nil && active != nil:
		return kind.Condition{Type: "Ready", Status: "False", Reason: trouble.reason, Message: fmt.Sprintf(
			"%s; certificates are signed with the CA that was in use before, until %s", trouble.message, written(active.NotAfter()))}
	case trouble != nil:
		return kind.Condition{Type: "Ready", Status: "False", Reason: trouble.reason, Message: trouble.message}
	case active == nil:
		return kind.Condition{Type: "Ready", Status: "False", Reason: "RootPropagating", Message: "certificates are signed once every proxy believes the root of the CA"}
	}
	return kind.Condition{Type: "Ready", Status: "True", Reason: "Ready", Message: "certificates are signed"}
}

// settled says what a rotation waits for; nothing where there is none.
func (rot *rotation) settled() []kind.Condition {
	if rot.signing.Next != nil {
		return []kind.Condition{{Type: "RotationConverged", Status: "False", Reason: "RootPropagating", Message: fmt.Sprintf(
			"a new CA signs once every proxy believes its root, at %s at the latest%s", written(rot.bound()), rot.plan.waitingFor(rot.topic()))}}
	}
	var conditions []kind.Condition
	for _, old := range rot.retired {
		conditions = append(conditions, kind.Condition{Type: "RotationConverged", Status: "False", Reason: "FormerCertificatesRetained", Message: fmt.Sprintf(
			"the former root %s stays believed while leaves of it are valid: %d proxies hold one, the last until %s", old.fingerprint, old.holders, written(old.until))})
	}
	return conditions
}

func written(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// named is how many proxies a condition names.
const named = 10

// waitingFor names whom a topic waits for, as the end of a sentence.
func (p *Plan) waitingFor(topic string) string {
	if zones := p.Unconfirmed(topic); zones != "" {
		return "; " + zones
	}
	proxies := p.Behind(topic)
	if len(proxies) == 0 {
		return ""
	}
	var names []string
	for _, proxy := range proxies[:min(len(proxies), named)] {
		names = append(names, proxy.Name)
	}
	text := "; it waits for the Dataplanes " + strings.Join(names, ", ")
	if more := len(proxies) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ": see what they refuse, or delete those that are gone for good"
}
