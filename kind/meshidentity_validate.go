package kind

import (
	"cmp"
	"path"
	"strings"
	"time"
	"unicode"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"weft/resource"
)

// defaultExpiry is the validity of workload certificates.
const defaultExpiry = 24 * time.Hour

func defaultMeshIdentity(o *resource.Object[MeshIdentity]) {
	if o.Spec.SpiffeID == nil {
		o.Spec.SpiffeID = &SpiffeIDTemplate{}
	}
	if o.Spec.SpiffeID.TrustDomain == "" {
		o.Spec.SpiffeID.TrustDomain = DefaultTrustDomain
	}
	switch p := &o.Spec.Provider; p.Type {
	case Bundled:
		if p.Bundled == nil {
			p.Bundled = &BundledProvider{}
		}
		defaultBundled(p.Bundled)
	case Spire:
		if p.Spire == nil {
			p.Spire = &SpireProvider{}
		}
		defaultSpire(p.Spire)
	}
}

func defaultSpire(s *SpireProvider) {
	if s.Agent == nil {
		s.Agent = &SpireAgent{}
	}
	s.Agent.Timeout = cmp.Or(s.Agent.Timeout, defaultSpireTimeout)
}

func defaultBundled(b *BundledProvider) {
	if b.MeshTrustCreation == "" {
		b.MeshTrustCreation = "Enabled"
	}
	if b.Autogenerate == nil {
		b.Autogenerate = &Autogenerate{}
	}
	if b.Autogenerate.Enabled == nil {
		enabled := b.CA == nil
		b.Autogenerate.Enabled = &enabled
	}
	if b.InsecureAllowSelfSigned == nil {
		allowed := *b.Autogenerate.Enabled
		b.InsecureAllowSelfSigned = &allowed
	}
	if b.CertificateParameters == nil {
		b.CertificateParameters = &CertificateParameters{}
	}
	if b.CertificateParameters.Expiry == 0 {
		b.CertificateParameters.Expiry = Duration(defaultExpiry)
	}
}

func validateMeshIdentity(o *resource.Object[MeshIdentity], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	if o.Name == MTLSIdentity {
		c.add("name", "%q stands for the mtls of the mesh; choose another", o.Name)
	}
	if s := o.Spec.Selector; s != nil && s.Dataplane != nil {
		c.labels("spec.selector.dataplane.matchLabels", s.Dataplane.MatchLabels)
	}
	if id := o.Spec.SpiffeID; id != nil {
		c.trustDomainTemplate("spec.spiffeID.trustDomain", id.TrustDomain)
		c.pathTemplate("spec.spiffeID.path", id.Path)
	}
	c.provider("spec.provider", &o.Spec.Provider)
	return c.problems
}

func (c *checks) provider(at string, p *IdentityProvider) {
	switch {
	case !c.valid(at + ".type"):
	case p.Type == Bundled && p.Spire != nil:
		c.add(at+".spire", "is given with the type Bundled; leave it out")
	case p.Type == Bundled:
		c.bundled(at+".bundled", p.Bundled)
	case p.Bundled != nil:
		c.add(at+".bundled", "is given with the type Spire; leave it out: SPIRE signs, and its own settings say how")
	default:
		c.spireAgent(at+".spire.agent", p.Spire.Agent)
	}
}

func (c *checks) spireAgent(at string, a *SpireAgent) {
	if p := a.SocketPath; p != "" && (!path.IsAbs(p) || path.Clean(p) != p || !printable(p)) {
		c.add(at+".socketPath", "%s is not the path of a socket: want an absolute one, such as %s", quote(p),
			SpireSocket)
	}
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

func (c *checks) bundled(at string, b *BundledProvider) {
	generated := *b.Autogenerate.Enabled
	switch {
	case generated && b.CA != nil:
		c.add(at+".ca", "is given while autogenerate is enabled; leave one out")
	case generated && !*b.InsecureAllowSelfSigned:
		c.add(at+".insecureAllowSelfSigned", "is false, and a generated CA is self-signed; allow it, or give a `ca`")
	case !generated && b.CA == nil:
		c.add(at+".ca", "is required where autogenerate is not enabled")
	case !generated:
		c.dataSource(at+".ca.certificate", b.CA.Certificate)
		c.dataSource(at+".ca.privateKey", b.CA.PrivateKey)
	}
}

// maxTrustDomain is the length of a trust domain (SPIFFE-ID, section 2.1).
const maxTrustDomain = 255

func (c *checks) trustDomainTemplate(field, template string) {
	text, ok := c.template(field, template, TrustDomainActions, "; a trust domain is the same for all Dataplanes")
	switch {
	case ok && len(text) > maxTrustDomain:
		c.add(field, "is a trust domain of %d characters, want %d at most", len(text), maxTrustDomain)
	case ok:
		c.trustDomain(field, text)
	}
}

func (c *checks) pathTemplate(field, template string) {
	if template == "" {
		return // the default
	}
	text, ok := c.template(field, template, PathActions, "")
	if !ok {
		return
	}
	if err := spiffeid.ValidatePath(text); err != nil || text == "" {
		c.add(field, "%s is not the path of a SPIFFE ID: want one like %s or %s", quote(template), DefaultPath,
			DefaultPodPath)
	}
}
