package reconcile

import (
	"maps"
	"strings"
	"testing"
	"time"

	"weft/internal/pki"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

const domain = "default.east.mesh.local"

// provided returns a MeshIdentity with the CA of the Secret "ca".
func provided() resource.Any {
	ref := &kind.DataSource{Type: "Secret", SecretRef: &kind.SecretRef{Kind: "Secret", Name: "ca"}}
	return kind.MeshIdentities.Make("default", "id", kind.MeshIdentity{
		Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{MatchLabels: map[string]string{}}},
		Provider: kind.IdentityProvider{Type: "Bundled", Bundled: &kind.BundledProvider{
			CertificateParameters: &kind.CertificateParameters{Expiry: kind.Duration(time.Hour)},
			CA:                    &kind.ProvidedCA{Certificate: ref, PrivateKey: ref},
		}},
	})
}

// reconcileIdentity reconciles the MeshIdentity until no step is left, and returns the requeue time.
func (w *world) reconcileIdentity() (requeue time.Time) {
	for range 4 {
		requeue = w.reconcile("MeshIdentity", "id")
	}
	return requeue
}

// signing returns the fingerprint of the signing CA.
func (w *world) signing() string {
	return w.plan.State.Identity.Authority.Get(w.reader(), state.IdentityKey{Mesh: "default", Name: "id"}).Fingerprint
}

func fingerprint(w *world, ca string) string {
	parsed, err := pki.ParseCA([]byte(ca))
	if err != nil {
		w.t.Fatal(err)
	}
	return parsed.Fingerprint()
}

// roots returns the number of roots of the MeshTrust.
func (w *world) roots() int {
	trust, ok := w.plan.State.Tables.Trusts.Find(w.reader(), "default", "id")
	if !ok {
		return 0
	}
	return len(trust.Spec.CABundles)
}

// manual returns the MeshIdentity of [provided] whose MeshTrusts an operator writes.
func manual() resource.Any {
	mi := provided().(*resource.Object[kind.MeshIdentity])
	mi.Spec.Provider.Bundled.MeshTrustCreation = "Disabled"
	return mi
}

// trusting returns an operator's MeshTrust with the roots of CAs.
func trusting(w *world, cas ...string) resource.Any {
	trust := kind.MeshTrust{TrustDomain: domain}
	for _, ca := range cas {
		parsed, err := pki.ParseCA([]byte(ca))
		if err != nil {
			w.t.Fatal(err)
		}
		trust.CABundles = append(
			trust.CABundles,
			kind.CABundle{Type: "Pem", PEM: &kind.PEMBundle{Value: parsed.Root()}},
		)
	}
	return kind.MeshTrusts.Make("default", "operators", trust)
}

// conditions returns the conditions of the MeshIdentity by type, as the plan has them now.
func (w *world) conditions() map[string]kind.Condition {
	key := kind.MeshIdentityStatuses.Key("default", "id")
	var status resource.Any
	if stored, ok := w.plan.State.Tables.Find(w.reader(), key); ok {
		status = stored
	}
	for _, write := range w.writes(w.reader(), "MeshIdentity", "id").Do {
		for _, row := range []resource.Any{write.Put, write.Create} {
			if row != nil && row.Key() == key {
				status = row
			}
		}
	}
	conditions := map[string]kind.Condition{}
	if status, ok := status.(*resource.Object[kind.MeshIdentityStatus]); ok {
		for _, c := range status.Spec.Conditions {
			if other, ok := conditions[c.Type]; ok {
				w.t.Errorf("the condition %s is there twice: %v and %v", c.Type, other, c)
			}
			conditions[c.Type] = c
		}
	}
	return conditions
}

// holds stores a certificate of the signing CA for a proxy.
func (w *world) holds(proxy string, until time.Time) {
	ca, _ := w.plan.State.Tables.SigningCAs.Find(w.reader(), "default", "id")
	parsed, err := pki.ParseCA(ca.Spec.Authority)
	if err != nil {
		w.t.Fatal(err)
	}
	w.put(kind.DataplaneCertificatesList.Make("default", proxy,
		kind.DataplaneCertificates{Certificates: []kind.WorkloadCertificate{{
			SpiffeIDs: kind.SpiffeIDsOf("spiffe://" + domain + "/workload/" + proxy), MeshIdentity: "id",
			Root: pki.Fingerprints(parsed.Root())[0], Until: kind.Time{Time: until},
		}}}))
}

// begun returns a world in which the first CA signs, and its fingerprint.
func begun(t *testing.T) (*world, string) {
	w := newWorld(t, "241.0.0.0/8")
	first := freshCA(w, domain)
	w.put(provided(), w.secret("ca", first))
	w.reconcileIdentity()
	w.ackAll()
	w.reconcileIdentity()
	if w.signing() != fingerprint(w, first) || w.roots() != 1 {
		t.Fatalf("the first CA does not sign: %v", w.conditions())
	}
	return w, first
}

func TestAGeneratedCASignsOnceItsRootIsTrusted(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	w.put(kind.MeshIdentities.Make("default", "id",
		kind.MeshIdentity{Provider: kind.IdentityProvider{Type: "Bundled"}}))
	w.reconcileIdentity()
	trust, ok := w.plan.State.Tables.Trusts.Find(w.reader(), "default", "id")
	if !ok || trust.Spec.TrustDomain != domain || w.roots() != 1 {
		t.Fatalf("MeshTrust is %+v, want one root of %s", trust, domain)
	}
	if w.signing() != "" {
		t.Fatal("it signs before any proxy has acked its root")
	}
	w.ackAll()
	if w.reconcileIdentity(); w.signing() == "" || w.conditions()["Ready"].Status != "True" {
		t.Errorf("it does not sign: %v", w.conditions())
	}
}

// The first CA of a mesh signs without a drain time, unless a proxy may have a certificate already.
func TestTheFirstCADrainsNothing(t *testing.T) {
	signing := kind.SigningCAs.Make("default", "other", kind.SigningCA{TrustDomain: domain, Fingerprint: "another"})
	certificate := kind.DataplaneCertificates{Certificates: []kind.WorkloadCertificate{{MeshIdentity: "other"}}}
	for name, test := range map[string]struct {
		beside  resource.Any
		noDrain bool
	}{
		"the first CA":          {kind.Meshes.Make("", "default", kind.Mesh{}), true},
		"a CA of another mesh":  {kind.SigningCAs.Make("other", "id", signing.Spec), true},
		"beside another CA":     {signing, false},
		"beside SPIRE":          {fromSPIRE("other", domain), false},
		"with a certificate":    {kind.DataplaneCertificatesList.Make("default", "web-1", certificate), false},
		"with one of an egress": {kind.ZoneEgressCertificatesList.Make("default", "egress", certificate), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "241.0.0.0/8")
			w.put(provided(), w.secret("ca", freshCA(w, domain)), test.beside)
			w.reconcileIdentity()
			if len(w.waits) != 1 {
				t.Fatalf("%d waits, want one for the root", len(w.waits))
			}
			for _, wait := range w.waits {
				if wait.NoDrain != test.noDrain {
					t.Errorf("NoDrain is %v, want %v", wait.NoDrain, test.noDrain)
				}
			}
		})
	}
	w, _ := begun(t)
	w.put(w.secret("ca", freshCA(w, domain)))
	w.reconcileIdentity()
	for _, wait := range w.waits {
		if wait.NoDrain {
			t.Error("the second CA signs without a drain time")
		}
	}
}

func TestAReplacedCASignsAfterItsRootIsTrustedAndTheFormerRootIsPruned(t *testing.T) {
	w, first := begun(t)
	w.holds("web-1", w.now.Add(time.Hour))
	second := freshCA(w, domain)
	w.put(w.secret("ca", second))
	w.reconcileIdentity()
	if w.signing() != fingerprint(w, first) || w.roots() != 2 {
		t.Fatalf("%d roots, and %s signs; want two roots and the first CA", w.roots(), w.signing())
	}
	for _, wait := range w.waits {
		w.barrier.Report(wait, kind.NewPendingAcks([]resource.Key{kind.Dataplanes.Key("default", "stuck")}), "")
	}
	w.beginWaits()
	if c := w.conditions()["RotationConverged"]; c.Status != "False" || !strings.Contains(c.Message, "stuck") {
		t.Errorf("condition is %+v, want it to name who is waited for", c)
	}
	w.ackAll()
	requeue := w.reconcileIdentity()
	if w.signing() != fingerprint(w, second) || w.roots() != 2 {
		t.Fatalf("%d roots, and %s signs; want two roots and the second CA", w.roots(), w.signing())
	}
	if c := w.conditions()["RotationConverged"]; c.Reason != "FormerCertificatesRetained" {
		t.Errorf("condition is %+v, want it to say that the former root stays", c)
	}
	if want := w.now.Add(time.Hour + kind.ConnectionLife); !requeue.Equal(want) {
		t.Fatalf("requeued at %s, want %s", requeue, want)
	}
	w.now = requeue.Add(-time.Second)
	if w.reconcileIdentity(); w.roots() != 2 {
		t.Fatal("the former root was removed while a certificate of it is valid")
	}
	w.now = requeue
	if w.reconcileIdentity(); w.roots() != 1 {
		t.Errorf("%d roots after the last certificate of the former one expired, want one", w.roots())
	}
	if _, waits := w.conditions()["RotationConverged"]; waits {
		t.Errorf("a rotation that is over is still told of: %v", w.conditions())
	}
}

func TestARotationContinuesWhenCertificatesOfPendingProxiesHaveExpired(t *testing.T) {
	w, _ := begun(t)
	second := freshCA(w, domain)
	w.put(w.secret("ca", second))
	began := w.now
	if requeue := w.reconcileIdentity(); !requeue.Equal(began.Add(time.Hour)) {
		t.Fatalf("requeued at %s, want after the hour of a certificate lifetime", requeue)
	}
	w.now = began.Add(time.Hour)
	if w.reconcileIdentity(); w.signing() != fingerprint(w, second) {
		t.Error("a disconnected proxy blocks the rotation beyond the expiry of its certificate")
	}
}

// TestCertificatesThatWereNotRecordedKeepTheFormerRoot: after a time in which the store took no writes, the former root
// stays, and a CA whose root some proxies lack waits, until the last certificate that was renewed meanwhile has
// expired.
func TestCertificatesThatWereNotRecordedKeepTheFormerRoot(t *testing.T) {
	w, _ := begun(t)
	w.holds("web-1", w.now.Add(time.Hour))
	second := freshCA(w, domain)
	w.put(w.secret("ca", second))
	w.reconcileIdentity()
	w.now = w.now.Add(2 * time.Hour) // the store takes no writes until now
	until := w.now.Add(time.Hour)
	w.put(kind.UnrecordedCertificatesList.Make("", kind.TheUnrecordedCertificates,
		kind.UnrecordedCertificates{Until: kind.Time{Time: until}}))
	if requeue := w.reconcileIdentity(); w.signing() == fingerprint(w, second) || !requeue.Equal(until) {
		t.Errorf("%s signs, requeued at %s; want the first CA until %s", w.signing(), requeue, until)
	}
	w.ackAll()
	requeue := w.reconcileIdentity()
	if want := until.Add(kind.ConnectionLife); w.signing() != fingerprint(w, second) || !requeue.Equal(want) {
		t.Errorf("%s signs, requeued at %s; want the second CA, and the former root until %s", w.signing(), requeue,
			want)
	}
	w.now = requeue.Add(-time.Second)
	w.reconcile(kind.DataplaneCertificatesList.Name, "web-1")
	if w.reconcileIdentity(); w.roots() != 2 {
		t.Error("the former root was removed while a certificate of it is valid")
	}
	w.now = requeue
	w.reconcile(kind.DataplaneCertificatesList.Name, "web-1")
	if w.reconcileIdentity(); w.roots() != 1 {
		t.Errorf("%d roots after the last certificate of the former one expired, want one", w.roots())
	}
}

func TestAnInvalidCAKeepsTheSigningCA(t *testing.T) {
	w, first := begun(t)
	expired := *w
	expired.now = w.now.Add(-20 * 365 * 24 * time.Hour)
	for name, secret := range map[string]resource.Any{
		"garbage":                    w.secret("ca", "garbage"),
		"a CA without a key":         w.secret("ca", first[:strings.Index(first, "-----BEGIN PRIVATE")]),
		"an expired CA":              w.secret("ca", freshCA(&expired, domain)),
		"a CA of another domain":     w.secret("ca", freshCA(w, "other.local")),
		"a Secret that is not there": nil,
	} {
		if secret != nil {
			w.put(secret)
		} else {
			w.remove(kind.Secrets.Key("default", "ca"))
		}
		w.reconcileIdentity()
		w.ackAll()
		w.reconcileIdentity()
		if w.signing() != fingerprint(w, first) || w.roots() != 1 {
			t.Errorf("%s: %d roots, and %s signs; want the first CA alone", name, w.roots(), w.signing())
		}
		if c := w.conditions()["Ready"]; c.Status != "False" || !strings.Contains(c.Message, "in use before") {
			t.Errorf("%s: condition is %+v, want one that says so, and who signs", name, c)
		}
	}
}

func TestAMissingFirstCAIsAConditionThatNamesIt(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	w.put(provided())
	w.reconcileIdentity()
	if c := w.conditions()["Ready"]; c.Status != "False" || !strings.Contains(c.Message, `"ca"`) {
		t.Errorf("condition is %+v, want one that names the Secret", c)
	}
	if w.signing() != "" {
		t.Error("something signs")
	}
}

func TestARootThatAnOperatorTakesOutStaysOut(t *testing.T) {
	w, _ := begun(t)
	w.holds("web-1", w.now.Add(time.Hour))
	w.put(w.secret("ca", freshCA(w, domain)))
	w.reconcileIdentity()
	w.ackAll()
	w.reconcileIdentity()
	trust, _ := w.plan.State.Tables.Trusts.Find(w.reader(), "default", "id")
	w.put(kind.MeshTrusts.Make("default", "id",
		kind.MeshTrust{TrustDomain: domain, CABundles: trust.Spec.CABundles[:1]}))
	if w.reconcileIdentity(); w.roots() != 1 {
		t.Fatal("a root that was taken out by hand is back")
	}
	if c := w.conditions()["Ready"]; c.Reason != "RootRemoved" {
		t.Errorf("condition is %+v, want it to say that no proxy trusts the CA", c)
	}
}

func TestTheRootOfADeletedMeshIdentityStaysUntilItsCertificatesExpire(t *testing.T) {
	w, _ := begun(t)
	w.holds("web-1", w.now.Add(time.Hour))
	w.remove(kind.MeshIdentities.Key("default", "id"))
	w.now = w.reconcileIdentity().Add(-time.Second)
	if w.reconcileIdentity(); w.roots() != 1 || w.signing() == "" {
		t.Fatal("the root was removed while a proxy has a certificate of it")
	}
	w.now = w.now.Add(time.Second)
	w.reconcileIdentity()
	if _, ok := w.plan.State.Tables.SigningCAs.Find(w.reader(), "default", "id"); ok || w.roots() != 0 {
		t.Errorf("of a MeshIdentity that is gone, %d roots and the CA (%v) stay", w.roots(), ok)
	}
}

// TestTheFormerRootStaysWhenTheNextCABeginsToSign: a certificate of the former CA may be stored shortly after.
func TestTheFormerRootStaysWhenTheNextCABeginsToSign(t *testing.T) {
	w, _ := begun(t)
	w.now = w.now.Add(time.Hour)
	w.reconcileIdentity()
	w.put(w.secret("ca", freshCA(w, domain)))
	w.reconcileIdentity()
	if w.roots() != 2 {
		t.Fatalf("the MeshTrust has %d roots before the acks, want 2", w.roots())
	}
	w.ackAll()
	for range 4 {
		w.reconcile(kind.MeshIdentities.Name, "id")
		if w.roots() != 2 {
			t.Fatalf("the MeshTrust has %d roots when the next CA begins to sign, want 2", w.roots())
		}
	}
}

// TestARootThatAnOperatorRemovesAndAddsAgainIsAwaitedAgain: proxies may have acked the root before it was removed.
func TestARootThatAnOperatorRemovesAndAddsAgainIsAwaitedAgain(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	first, second := freshCA(w, domain), freshCA(w, domain)
	w.put(manual(), w.secret("ca", first), trusting(w, first))
	w.reconcileIdentity()
	w.ackAll()
	if w.reconcileIdentity(); w.signing() != fingerprint(w, first) {
		t.Fatalf("the first CA does not sign: %v", w.conditions())
	}
	w.put(w.secret("ca", second), trusting(w, first, second))
	w.reconcileIdentity()
	former := maps.Clone(w.waits)
	if len(former) != 1 {
		t.Fatalf("%d waits run for the root of the second CA, want one", len(former))
	}
	w.put(trusting(w, first))
	w.put(trusting(w, first, second))
	w.reconcileIdentity()
	for _, wait := range former {
		w.barrier.Finish(wait)
	}
	w.beginWaits()
	if w.reconcileIdentity(); w.signing() != fingerprint(w, first) {
		t.Fatal("the second CA signs by acks of the root that an operator has removed since")
	}
	w.ackAll()
	if w.reconcileIdentity(); w.signing() != fingerprint(w, second) {
		t.Errorf("the second CA does not sign: %v", w.conditions())
	}
}

// TestFormerRootsAreOneCondition: a CA that was replaced twice leaves one condition, which has both former roots.
func TestFormerRootsAreOneCondition(t *testing.T) {
	w, first := begun(t)
	former := []string{fingerprint(w, first)}
	for _, proxy := range []string{"web-1", "web-2"} {
		w.holds(proxy, w.now.Add(time.Hour))
		next := freshCA(w, domain)
		w.put(w.secret("ca", next))
		w.reconcileIdentity()
		w.ackAll()
		w.reconcileIdentity()
		former = append(former, fingerprint(w, next))
	}
	c := w.conditions()["RotationConverged"]
	if c.Reason != "FormerCertificatesRetained" || !strings.Contains(c.Message, former[0]) ||
		!strings.Contains(c.Message, former[1]) {
		t.Errorf("condition is %+v, want it to have the former roots %q", c, former[:2])
	}
}
