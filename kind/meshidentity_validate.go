package kind

import (
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"weft/resource"
)

// Leaves live this long where a MeshIdentity does not say.
const defaultExpiry = 24 * time.Hour

func defaultMeshIdentity(o *resource.Object[MeshIdentity]) {
	if o.Spec.SpiffeID == nil {
		o.Spec.SpiffeID = &SpiffeIDTemplate{}
	}
	if o.Spec.SpiffeID.TrustDomain == "" {
		o.Spec.SpiffeID.TrustDomain = DefaultTrustDomain
	}
	if o.Spec.SpiffeID.Path == "" {
		o.Spec.SpiffeID.Path = DefaultPath
	}
	if o.Spec.Provider.Type != "Bundled" {
		return
	}
	if o.Spec.Provider.Bundled == nil {
		o.Spec.Provider.Bundled = &BundledProvider{}
	}
	defaultBundled(o.Spec.Provider.Bundled)
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

func validateMeshIdentity(o *resource.Object[MeshIdentity]) resource.Problems {
	c := envelope(&o.Meta)
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
	at := "spec.provider"
	if c.oneOf(at+".type", o.Spec.Provider.Type, "Bundled", "Spire") && o.Spec.Provider.Bundled != nil {
		c.bundled(at+".bundled", o.Spec.Provider.Bundled)
	}
	return c.problems
}

func (c *checks) bundled(at string, b *BundledProvider) {
	c.oneOf(at+".meshTrustCreation", b.MeshTrustCreation, "Enabled", "Disabled")
	c.duration(at+".certificateParameters.expiry", b.CertificateParameters.Expiry, 10*time.Second, 365*24*time.Hour)
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

func (c *checks) dataSource(at string, s *DataSource) {
	switch {
	case s == nil:
		c.add(at, "is required: where the value stands")
	case s.Type == "File" || s.Type == "EnvVar":
		c.add(at+".type", "%q is not served by this release; use Secret", s.Type)
	case !c.oneOf(at+".type", s.Type, "Secret", "InsecureInline"):
	case s.Type == "Secret" && s.InsecureInline != nil:
		c.add(at+".insecureInline", "is given with the type Secret; leave it out")
	case s.Type == "InsecureInline" && s.SecretRef != nil:
		c.add(at+".secretRef", "is given with the type InsecureInline; leave it out")
	case s.Type == "InsecureInline":
		if s.InsecureInline == nil || s.InsecureInline.Value == "" {
			c.add(at+".insecureInline.value", "is required with the type InsecureInline")
		}
	case s.SecretRef == nil:
		c.add(at+".secretRef", "is required with the type Secret")
	default:
		c.oneOf(at+".secretRef.kind", s.SecretRef.Kind, "Secret")
		c.name(at+".secretRef.name", s.SecretRef.Name)
	}
}

func (c *checks) trustDomainTemplate(field, template string) {
	text, ok := c.template(field, template, TrustDomainActions, "; a trust domain is the same for all Dataplanes")
	if ok {
		c.trustDomain(field, text)
	}
}

func (c *checks) pathTemplate(field, template string) {
	text, ok := c.template(field, template, PathActions, "")
	if !ok {
		return
	}
	if err := spiffeid.ValidatePath(text); err != nil || text == "" {
		c.add(field, "%s is not the path of a SPIFFE ID: want one like %s", quote(template), DefaultPath)
	}
}
