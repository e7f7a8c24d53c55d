package reconcile

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"weft/internal/barrier"
	"weft/internal/pki"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// rotation brings the CA of a MeshIdentity, or of the enabled mtls backend of a mesh, into use. First its root joins
// the MeshTrust. Once every proxy that holds a certificate trusts the root, the CA signs. Once the last certificate of
// the former CA has expired, its root leaves the MeshTrust. The SigningCA stores the progress.
//
// A root that an operator removes from the MeshTrust stays removed: only a root that was never there is added.
type rotation struct {
	plan       *Plan
	r          *table.Reader
	mesh, name string

	stored      *resource.Object[kind.SigningCA] // nil: none is stored
	signing     kind.SigningCA                   // wanted value
	trust       *resource.Object[kind.MeshTrust] // nil: none is stored
	bundles     []kind.CABundle                  // wanted bundles of the MeshTrust
	sources     []*source                        // to be trusted, the signing one included
	unread      bool                             // some source can't be read, so its root is unknown
	life        kind.Duration                    // lifetime of a certificate
	manualTrust bool                             // an operator writes the MeshTrust
	retired     []retired

	writes Writes
}

// retired is the root of a former CA whose certificates are in use.
type retired struct {
	fingerprint string
	holders     int
	until       time.Time // expiry of the last certificate
}

func (p *Plan) rotation(r *table.Reader, mesh, name string) *rotation {
	rot := &rotation{plan: p, r: r, mesh: mesh, name: name}
	if stored, ok := p.State.Tables.SigningCAs.Find(r, mesh, name); ok {
		rot.stored, rot.signing = stored, stored.Spec
		rot.signing.Roots = slices.Clone(stored.Spec.Roots)
	}
	if trust, ok := p.State.Tables.Trusts.Find(r, mesh, name); ok {
		rot.trust, rot.bundles = trust, slices.Clone(trust.Spec.CABundles)
	}
	return rot
}

// request returns the Request whose writes the rotation derives.
func (rot *rotation) request() Request { return Request{kind.MeshIdentities.Name, rot.mesh, rot.name} }

func (rot *rotation) addWrite(w Write) { rot.writes.addWrite(0, w) }

// follow starts or continues the rotation to a source, and returns the problem that prevents it.
func (rot *rotation) follow(src *source) *problem {
	s := &rot.signing
	if s.TrustDomain != "" && s.TrustDomain != src.domain {
		return &problem{"TrustDomainChanged", fmt.Sprintf(
			"the trust domain was %s, of which there are certificates, and is %s now; give it back, and make another "+
				"MeshIdentity for the new one", s.TrustDomain, src.domain)}
	}
	s.TrustDomain, s.Life = src.domain, rot.life
	if trouble := rot.entrust(src); trouble != nil {
		return trouble
	}
	switch fingerprint := src.ca.Fingerprint(); {
	case s.Fingerprint == fingerprint:
		s.Next, s.Backend = nil, src.backend
		if s.Since.IsZero() {
			s.Since = kind.Time{Time: rot.r.Now()}
		}
	case rot.sameRoot(src.ca):
		rot.activate(src)
	case s.Next == nil || s.Next.Fingerprint != fingerprint:
		s.Next = &kind.NextCA{Fingerprint: fingerprint, Since: kind.Time{Time: rot.r.Now()}}
	case rot.r.Past(rot.bound()):
		rot.activate(src)
	case rot.trusts(src):
		rot.waitForRoot(src)
	}
	return nil
}

// waitForRoot makes the source sign once every proxy has acked the MeshTrusts with its root, and otherwise states that
// this is waited for. The acks count for the SigningCA and the MeshTrusts as they are now: a CA whose root has left a
// MeshTrust meanwhile is waited for again.
func (rot *rotation) waitForRoot(src *source) {
	c := &barrier.Condition{Name: rot.waitName(), Mesh: rot.mesh, States: []string{rowState(rot.stored)}}
	for _, trust := range rot.trustsWithRoot(src) {
		c.Rows = append(c.Rows, trust.Key())
		c.States[0] += " " + rowState(trust)
	}
	if c.NoDrain = rot.first(); c.NoDrain {
		c.States[0] += " first"
	}
	c.ZoneRows = rot.plan.syncedRows(c.Rows)
	rot.writes.Wait = c
	if rot.plan.Acks.IsAcked(rot.r, c.Name, c.States[0]) {
		rot.activate(src)
	}
}

// first returns true where no proxy of the mesh has had a certificate that may be in use: no certificate is stored, no
// CA signs, and no proxy gets one from SPIRE. So no connection rests on former roots, and no drain time follows the
// acks. Global does not know the certificates of its zones.
func (rot *rotation) first() bool {
	tables, mesh := rot.plan.State.Tables, state.MeshKey(rot.mesh)
	signs := func(ca *resource.Object[kind.SigningCA]) bool { return ca.Spec.Fingerprint != "" }
	fromSPIRE := func(of *resource.Object[kind.MeshIdentity]) bool { return of.Spec.Provider.Type == kind.Spire }
	return !rot.plan.Global() && len(tables.CertificatesByRoot.List(rot.r, mesh)) == 0 &&
		len(tables.EgressCertificatesByRoot.List(rot.r, mesh)) == 0 &&
		!slices.ContainsFunc(tables.SigningCAsByMesh.List(rot.r, mesh), signs) &&
		!slices.ContainsFunc(tables.IdentitiesByMesh.List(rot.r, mesh), fromSPIRE)
}

// trustsWithRoot returns the MeshTrusts by which proxies trust the source: the one that the control plane writes, or
// all that operators wrote with its root.
func (rot *rotation) trustsWithRoot(src *source) (trusts []*resource.Object[kind.MeshTrust]) {
	if !rot.manualTrust {
		if rot.trust != nil {
			trusts = append(trusts, rot.trust)
		}
		return trusts
	}
	for _, trust := range rot.plan.State.Tables.TrustsByMesh.List(rot.r, state.MeshKey(rot.mesh)) {
		var roots []string
		for _, bundle := range trust.Spec.CABundles {
			if bundle.PEM != nil {
				roots = append(roots, bundle.PEM.Value)
			}
		}
		if trust.Spec.TrustDomain == src.domain && src.ca.LeadsTo(roots, rot.r.Now()) {
			trusts = append(trusts, trust)
		}
	}
	return trusts
}

// activate makes the source sign.
func (rot *rotation) activate(src *source) {
	s := &rot.signing
	s.Authority, s.Fingerprint, s.Since, s.Next = src.text, src.ca.Fingerprint(), kind.Time{}, nil
	s.Backend = src.backend
}

// sameRoot returns true where a CA has the root of the signing CA, so that the same proxies trust it.
func (rot *rotation) sameRoot(ca *pki.CA) bool {
	active := rot.active()
	return active != nil && active.Root() == ca.Root()
}

// active returns the signing CA, nil where there is none.
func (rot *rotation) active() *pki.CA {
	if len(rot.signing.Authority) == 0 {
		return nil
	}
	ca, err := pki.ParseCA(rot.signing.Authority)
	if err != nil {
		return nil // can't happen: the CA was parsed before it was stored
	}
	return ca
}

// bound returns when the next CA signs although some proxies have not acked: the certificates that they held have
// expired by then.
func (rot *rotation) bound() time.Time {
	return rot.plan.formerExpired(rot.r, rot.signing.Next.Since.Add(timeoutFor(rot.signing.Life)))
}

// minTimeout is the shortest timeout of a step, for slow proxies with short-lived certificates.
const minTimeout = time.Minute

// timeoutFor returns how long a step waits for proxies whose certificates have a lifetime.
func timeoutFor(life kind.Duration) time.Duration { return max(time.Duration(life), minTimeout) }

func (rot *rotation) waitName() string {
	return fmt.Sprintf("the root of %s, CA %s", kind.IdentitySource(rot.mesh, rot.name), rot.signing.Next.Fingerprint)
}

// trusts returns true where the mesh, as it is in the table, trusts the source.
func (rot *rotation) trusts(src *source) bool {
	for _, domain := range rot.plan.State.Identity.Trust.Get(rot.r, rot.mesh).Domains {
		if domain.Name == src.domain {
			return src.ca.LeadsTo(domain.Roots, rot.r.Now())
		}
	}
	return false
}

// entrust adds a source's root to the MeshTrust, unless it was there before, and returns the problem of a root that is
// missing.
func (rot *rotation) entrust(src *source) *problem {
	if rot.manualTrust {
		if rot.signing.Fingerprint != src.ca.Fingerprint() && !rot.trusts(src) {
			return &problem{"RootMissing",
				fmt.Sprintf("no MeshTrust of the trust domain %s has the CA's root, and meshTrustCreation is "+
					"Disabled; write one", src.domain)}
		}
		return nil
	}
	if rot.trust != nil && rot.trust.Spec.TrustDomain != src.domain {
		return &problem{"MeshTrustTaken",
			fmt.Sprintf(
				"the MeshTrust %s is of the trust domain %s; rename it, or the MeshIdentity that gives it its name",
				rot.name, rot.trust.Spec.TrustDomain)}
	}
	root := src.ca.Root()
	put := slices.Contains(rot.signing.Roots, root)
	there := rot.hasRoot(root)
	switch {
	case rot.trust == nil:
		for _, known := range rot.signing.Roots {
			rot.addRoot(known)
		}
		rot.addRoot(root)
	case there && !put:
		rot.signing.Roots = append(rot.signing.Roots, root)
	case !there && !put:
		rot.addRoot(root)
	case !there:
		return &problem{"RootRemoved",
			fmt.Sprintf(
				"the root of its CA was taken out of the MeshTrust %s, so no proxy trusts its certificates; "+
					"replace the CA",
				rot.name)}
	}
	return nil
}

func (rot *rotation) addRoot(root string) {
	if !rot.hasRoot(root) {
		rot.bundles = append(rot.bundles, kind.CABundle{Type: "Pem", PEM: &kind.PEMBundle{Value: root}})
	}
}

// hasRoot returns true where the wanted MeshTrust has a root.
func (rot *rotation) hasRoot(root string) bool {
	fingerprint := pki.Fingerprints(root)[0]
	return slices.ContainsFunc(rot.bundles, func(b kind.CABundle) bool {
		return b.PEM != nil && slices.Contains(pki.Fingerprints(b.PEM.Value), fingerprint)
	})
}

// store writes the SigningCA and the MeshTrust where they differ. The SigningCA comes first, so that no CA comes into
// use whose root leaves the MeshTrust. A wait ends with any change of the two.
func (rot *rotation) store() {
	if rot.signing.TrustDomain != "" {
		putIfDifferent(&rot.writes, 0, rot.stored, kind.SigningCAs.Make(rot.mesh, rot.name, rot.signing))
	}
	trust := kind.MeshTrusts.Make(rot.mesh, rot.name, kind.MeshTrust{TrustDomain: rot.signing.TrustDomain})
	switch {
	case rot.trust == nil && len(rot.bundles) > 0:
		trust.Spec.CABundles = rot.bundles
		rot.addWrite(Write{Create: trust})
	case rot.trust != nil && !reflect.DeepEqual(rot.trust.Spec.CABundles, rot.bundles):
		*trust = *rot.trust
		trust.Spec.CABundles = rot.bundles
		rot.addWrite(Write{Put: trust})
	}
}

// prune removes former roots from the MeshTrust that no certificate needs. The SigningCA drops a root once the stored
// MeshTrust is without it.
func (rot *rotation) prune() {
	rot.signing.Roots = slices.DeleteFunc(rot.signing.Roots, func(root string) bool {
		if rot.inUse(root) || rot.keepForHolders(root) || rot.unread || rot.justStarted() {
			return false
		}
		if !rot.hasRoot(root) {
			return true
		}
		rot.bundles = slices.DeleteFunc(rot.bundles, func(b kind.CABundle) bool {
			return b.PEM != nil && slices.Equal(pki.Fingerprints(b.PEM.Value), pki.Fingerprints(root))
		})
		return false
	})
}

// lateSignings is how long after a change of the CA certificates of the former one may still be stored, by a replica
// that had not received the change.
const lateSignings = time.Minute

// justStarted returns true for lateSignings after the signing CA came into use.
func (rot *rotation) justStarted() bool {
	if rot.signing.Fingerprint != "" && rot.signing.Since.IsZero() {
		return true // in this write, or in one that the table has just received
	}
	return !rot.r.Past(rot.signing.Since.Add(lateSignings))
}

// inUse returns true for the root of the signing CA and of every source.
func (rot *rotation) inUse(root string) bool {
	if slices.ContainsFunc(rot.sources, func(src *source) bool { return src.ca.Root() == root }) {
		return true
	}
	active := rot.active()
	return active != nil && active.Root() == root
}

// keepForHolders returns true while proxies hold certificates of a root, and records their number and last expiry.
func (rot *rotation) keepForHolders(root string) bool {
	old := retired{fingerprint: pki.Fingerprints(root)[0]}
	if rot.plan.Global() {
		return rot.inZones(old.fingerprint)
	}
	for _, row := range rot.plan.State.Identity.Holders(rot.r, rot.mesh, old.fingerprint) {
		for _, cert := range row.Spec.Certificates {
			until := rot.plan.State.Tables.ValidUntil(rot.r, cert.Until)
			if cert.Root != old.fingerprint || rot.r.Past(until.Add(kind.ConnectionLife)) {
				continue
			}
			old.holders++
			if until.After(old.until) {
				old.until = until.Time
			}
		}
	}
	if old.holders == 0 {
		return false
	}
	rot.retired = append(rot.retired, old)
	return true
}

// inZones returns true where a zone has a root in its own MeshTrust of this name, for certificates that its proxies
// hold.
func (rot *rotation) inZones(fingerprint string) bool {
	return slices.ContainsFunc(rot.plan.State.Tables.TrustsByMesh.List(rot.r, state.MeshKey(rot.mesh)),
		func(t *resource.Object[kind.MeshTrust]) bool {
			return t.Spec.TrustDomain == rot.signing.TrustDomain && rot.plan.State.Tables.InOtherZone(&t.Meta) &&
				slices.Contains(pki.Roots(&t.Spec), fingerprint)
		})
}

// retire deletes the SigningCA and the MeshTrust of a deleted MeshIdentity or mtls, once no proxy holds one of its
// certificates.
func (rot *rotation) retire() {
	if rot.stored == nil {
		return
	}
	rot.endSigning()
	switch {
	case rot.trust != nil && len(rot.bundles) == 0:
		rot.addWrite(Write{Delete: rot.trust})
	case len(rot.signing.Roots) == 0 && rot.signing.Fingerprint == "":
		rot.addWrite(Write{Delete: rot.stored})
	default:
		rot.store()
	}
}

// endSigning stops signing once no proxy holds a certificate of the last signing CA, and prunes the roots.
func (rot *rotation) endSigning() {
	if active := rot.active(); active == nil || !rot.keepForHolders(active.Root()) {
		rot.signing.Authority, rot.signing.Fingerprint, rot.signing.Backend = nil, "", ""
	}
	rot.signing.Next = nil
	rot.prune()
}

// putStatus writes the conditions of the MeshIdentity.
func (rot *rotation) putStatus(conditions []kind.Condition) {
	var stored *resource.Object[kind.MeshIdentityStatus]
	conditions = append(conditions, rot.plan.reconciled(rot.r, rot.request())...)
	var before []kind.Condition
	if row, ok := rot.plan.State.Tables.Find(rot.r, kind.MeshIdentityStatuses.Key(rot.mesh, rot.name)); ok {
		stored = row.(*resource.Object[kind.MeshIdentityStatus])
		before = stored.Spec.Conditions
	}
	putIfDifferent(&rot.writes, conditionDelay(before, conditions), stored,
		kind.MeshIdentityStatuses.Make(rot.mesh, rot.name, kind.MeshIdentityStatus{Conditions: conditions}))
}

// conditionDelay returns the delay of a status write: long where only the messages of the conditions differ, which have
// counts.
func conditionDelay(before, after []kind.Condition) time.Duration {
	same := slices.EqualFunc(before, after, func(a, b kind.Condition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
	})
	if same {
		return statusDelay
	}
	return servingDelay
}

// ready returns the condition Ready.
func (rot *rotation) ready(trouble *problem) kind.Condition {
	active := rot.active()
	switch {
	case trouble != nil && active != nil:
		return kind.Condition{Type: "Ready", Status: "False", Reason: trouble.reason, Message: fmt.Sprintf(
			"%s; certificates are signed with the CA that was in use before, until %s", trouble.message,
			formatTime(active.NotAfter()))}
	case trouble != nil:
		return kind.Condition{Type: "Ready", Status: "False", Reason: trouble.reason, Message: trouble.message}
	case active == nil:
		return kind.Condition{Type: "Ready", Status: "False", Reason: "RootPropagating",
			Message: "certificates are signed once every proxy trusts the root of the CA"}
	}
	return kind.Condition{Type: "Ready", Status: "True", Reason: "Ready", Message: "certificates are signed"}
}

// rotationConverged returns the condition of an unfinished rotation; none where it has finished.
func (rot *rotation) rotationConverged() []kind.Condition {
	condition := kind.Condition{Type: "RotationConverged", Status: "False"}
	switch {
	case rot.signing.Next != nil:
		condition.Reason, condition.Message = "RootPropagating", fmt.Sprintf(
			"a new CA signs once every proxy trusts its root, at %s at the latest%s", formatTime(rot.bound()),
			rot.plan.pendingText(rot.r, rot.waitName()))
	case len(rot.retired) > 0:
		condition.Reason, condition.Message = "FormerCertificatesRetained", retainedText(rot.retired)
	default:
		return nil
	}
	return []kind.Condition{condition}
}

// retainedText states until when former roots stay trusted, in one condition for all of them: readers of conditions,
// such as kubectl, expect one of each type.
func retainedText(roots []retired) string {
	var texts []string
	for _, old := range roots {
		texts = append(texts, fmt.Sprintf("the former root %s stays trusted while its certificates are valid: "+
			"%d proxies have one, the last until %s", old.fingerprint, old.holders, formatTime(old.until)))
	}
	return strings.Join(texts, "; ")
}

func formatTime(at time.Time) string { return at.UTC().Format(time.RFC3339) }
