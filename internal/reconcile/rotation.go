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

// rotation brings the CA of a MeshIdentity, or of the enabled mtls backend of a mesh, into use. First its root joins
// the MeshTrust. Once every proxy that holds a certificate trusts the root, the CA signs. Once the last certificate of
// the former CA has expired, its root leaves the MeshTrust. The SigningCA stores the progress.
//
// A root that an operator removes from the MeshTrust stays removed: only a root that was never there is added.
type rotation struct {
	plan       *Plan
	r          *table.Reader
	now        time.Time
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
	ackWait     *AckWait

	steps   []Step
	requeue time.Time
}

// retired is the root of a former CA whose certificates are in use.
type retired struct {
	fingerprint string
	holders     int
	until       time.Time // expiry of the last certificate
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

func (rot *rotation) addStep(step Step) { rot.steps = append(rot.steps, step) }

// requeueAt requeues the request at a time, or earlier where that was asked for before.
func (rot *rotation) requeueAt(at time.Time) {
	if rot.requeue.IsZero() || at.Before(rot.requeue) {
		rot.requeue = at
	}
}

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
			s.Since = kind.Time{Time: rot.now}
		}
	case rot.sameRoot(src.ca):
		rot.activate(src)
	case s.Next == nil || s.Next.Fingerprint != fingerprint:
		s.Next = &kind.NextCA{Fingerprint: fingerprint, Since: kind.Time{Time: rot.now}}
	case !rot.now.Before(rot.bound()):
		rot.activate(src)
	case rot.trusts(src):
		rot.requeueAt(rot.bound())
		next := *rot.stored
		next.Spec = src.signed(next.Spec)
		rot.ackWait = &AckWait{
			Name: rot.topic(), Mesh: rot.mesh, AllZones: true,
			Rows: []resource.Key{kind.MeshTrusts.Key(rot.mesh, rot.name)}, Then: []resource.Any{&next},
		}
	}
	return nil
}

// activate makes the source sign.
func (rot *rotation) activate(src *source) { rot.signing = src.signed(rot.signing) }

// signed returns a SigningCA that uses the source.
func (src *source) signed(row kind.SigningCA) kind.SigningCA {
	row.Authority, row.Fingerprint, row.Since, row.Next = src.text, src.ca.Fingerprint(), kind.Time{}, nil
	row.Backend = src.backend
	return row
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
	return rot.signing.Next.Since.Add(timeoutFor(rot.signing.Life))
}

// minTimeout is the shortest timeout of a step, for slow proxies with short-lived certificates.
const minTimeout = time.Minute

// timeoutFor returns how long a step waits for proxies whose certificates have a lifetime.
func timeoutFor(life kind.Duration) time.Duration { return max(time.Duration(life), minTimeout) }

func (rot *rotation) topic() string {
	return fmt.Sprintf("the root of %s, CA %s", kind.IdentitySource(rot.mesh, rot.name), rot.signing.Next.Fingerprint)
}

// trusts returns true where the mesh, as it is in the table, trusts the source.
func (rot *rotation) trusts(src *source) bool {
	for _, domain := range rot.plan.State.Trust.Get(rot.r, rot.mesh).Domains {
		if domain.Name == src.domain {
			return src.ca.LeadsTo(domain.Roots, rot.now)
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

// store writes the SigningCA and the MeshTrust where they differ, or else starts the ack wait. The SigningCA comes
// first, which makes a waiting write of it conflict: no CA comes into use whose root leaves the MeshTrust.
func (rot *rotation) store() {
	rot.storeSigning()
	rot.storeTrust()
}

func (rot *rotation) storeSigning() {
	switch {
	case rot.signing.TrustDomain == "":
	case rot.stored == nil:
		rot.addStep(Step{Put: kind.SigningCAs.Make(rot.mesh, rot.name, rot.signing)})
	case !reflect.DeepEqual(rot.stored.Spec, rot.signing):
		row := *rot.stored
		row.Spec = rot.signing
		rot.addStep(Step{Put: &row})
	case rot.ackWait != nil:
		rot.addStep(Step{AckWait: rot.ackWait})
	}
}

func (rot *rotation) storeTrust() {
	trust := kind.MeshTrusts.Make(rot.mesh, rot.name, kind.MeshTrust{TrustDomain: rot.signing.TrustDomain})
	if rot.trust != nil {
		*trust = *rot.trust
	}
	if !reflect.DeepEqual(trust.Spec.CABundles, rot.bundles) {
		trust.Spec.CABundles = rot.bundles
		rot.addStep(Step{Put: trust})
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
	end := rot.signing.Since.Add(lateSignings)
	if !rot.now.Before(end) {
		return false
	}
	rot.requeueAt(end)
	return true
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
	for _, row := range rot.plan.State.Holders(rot.r, rot.mesh, old.fingerprint) {
		for _, cert := range row.Spec.Certificates {
			if cert.Root != old.fingerprint || !rot.now.Before(cert.Until.Add(graph.ConnectionLife)) {
				continue
			}
			old.holders++
			if cert.Until.After(old.until) {
				old.until = cert.Until.Time
			}
		}
	}
	if old.holders == 0 {
		return false
	}
	rot.requeueAt(old.until.Add(graph.ConnectionLife))
	rot.retired = append(rot.retired, old)
	return true
}

// inZones returns true where a zone has a root in its own MeshTrust of this name, for certificates that its proxies
// hold.
func (rot *rotation) inZones(fingerprint string) bool {
	return slices.ContainsFunc(rot.plan.State.TrustsByMesh.List(rot.r, graph.MeshKey(rot.mesh)),
		func(t *resource.Object[kind.MeshTrust]) bool {
			return t.Spec.TrustDomain == rot.signing.TrustDomain && rot.plan.State.InOtherZone(&t.Meta) &&
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
		rot.delete(rot.trust.Key())
	case len(rot.signing.Roots) == 0 && rot.signing.Fingerprint == "":
		rot.delete(rot.stored.Key())
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

func (rot *rotation) delete(key resource.Key) { rot.addStep(Step{Delete: &key}) }

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

// rotationConverged returns the conditions of an unfinished rotation; none where it has finished.
func (rot *rotation) rotationConverged() []kind.Condition {
	if rot.signing.Next != nil {
		return []kind.Condition{{Type: "RotationConverged", Status: "False", Reason: "RootPropagating",
			Message: fmt.Sprintf(
				"a new CA signs once every proxy trusts its root, at %s at the latest%s", formatTime(rot.bound()),
				rot.plan.pendingText(rot.topic()))}}
	}
	var conditions []kind.Condition
	for _, old := range rot.retired {
		conditions = append(conditions, kind.Condition{Type: "RotationConverged", Status: "False",
			Reason: "FormerCertificatesRetained", Message: fmt.Sprintf(
				"the former root %s stays trusted while its certificates are valid: "+
					"%d proxies have one, the last until %s",
				old.fingerprint, old.holders, formatTime(old.until))})
	}
	return conditions
}

func formatTime(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// maxNamedPending is the number of proxies that a condition names.
const maxNamedPending = 10

// pendingText returns the end of a sentence that names the proxies or zones which the wait of a name is waiting for;
// empty where none is known.
func (p *Plan) pendingText(topic string) string {
	if zones := p.PendingZones(topic); zones != "" {
		return "; " + zones
	}
	proxies := p.PendingProxies(topic)
	if len(proxies) == 0 {
		return ""
	}
	var names []string
	for _, proxy := range proxies[:min(len(proxies), maxNamedPending)] {
		names = append(names, proxy.Name)
	}
	text := "; it waits for the Dataplanes " + strings.Join(names, ", ")
	if more := len(proxies) - maxNamedPending; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ": see what they reject, or delete those that are gone for good"
}
