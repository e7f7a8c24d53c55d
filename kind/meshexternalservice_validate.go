package kind

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"weft/resource"
)

func defaultMeshExternalService(o *resource.Object[MeshExternalService]) {
	m := &o.Spec.Match
	m.Type = cmp.Or(m.Type, "HostnameGenerator")
	m.Protocol = cmp.Or(m.Protocol, TCP)
	for i := range o.Spec.Endpoints {
		o.Spec.Endpoints[i].Address = canonicalName(o.Spec.Endpoints[i].Address)
	}
	t := o.Spec.TLS
	if t == nil || !t.Enabled {
		return
	}
	if t.Verification == nil {
		t.Verification = &ExternalVerification{}
	}
	t.Verification.ServerName = canonicalName(t.Verification.ServerName)
	t.Verification.Mode = cmp.Or(t.Verification.Mode, Secured)
	for i := range t.Verification.SubjectAltNames {
		san := &t.Verification.SubjectAltNames[i]
		san.Type = cmp.Or(san.Type, "Exact")
	}
}

func validateMeshExternalService(o *resource.Object[MeshExternalService], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	c.externalEndpoints("spec.endpoints", o.Spec.Endpoints)
	if o.Spec.TLS != nil {
		c.externalTLS("spec.tls", o.Spec.TLS, o.Spec.Match.Protocol)
	}
	return c.problems
}

func (c *checks) externalEndpoints(at string, endpoints []ExternalEndpoint) {
	first := map[string]int{}
	for i, e := range endpoints {
		field := fmt.Sprintf("%s[%d]", at, i)
		c.externalAddress(field+".address", e.Address)
		server := HostPort(e.Address, e.Port)
		if j, taken := first[server]; taken {
			c.add(field, "%s is %s[%d] too; name each server once", server, at, j)
			continue
		}
		first[server] = i
	}
}

// externalAddress requires an IP address or a host name in canonical form.
func (c *checks) externalAddress(field, address string) {
	if _, err := netip.ParseAddr(address); err == nil {
		c.address(field, address)
	} else {
		c.dnsName(field, address, "neither an IP address nor a host name")
		if longest := maxName - len(ExternalSuffix); len(address) > longest && len(address) <= maxName {
			c.add(field, "has %d characters, want %d at most: zone egresses look it up with a suffix", len(address),
				longest)
		}
	}
}

// hostname requires a host name. notOne describes an invalid value.
func (c *checks) hostname(field, name, notOne string) bool {
	if !IsHostname(name) {
		return c.add(field,
			"%s is %s: want lower case letters, digits and '-', in parts between dots, the last not a number",
			quote(name), notOne)
	}
	return true
}

// dnsName requires a name of a server outside the mesh. notOne describes an invalid value.
func (c *checks) dnsName(field, name, notOne string) bool {
	if !IsDNSName(name) {
		return c.add(field,
			"%s is %s: want lower case letters, digits, '-' and '_', in parts between dots, the last not a number",
			quote(name), notOne)
	}
	return true
}

func (c *checks) externalTLS(at string, t *ExternalTLS, protocol Protocol) {
	if !t.Enabled {
		if t.Version != nil || t.AllowRenegotiation || t.Verification != nil {
			c.add(at+".enabled",
				"is not true, so that what else stands in tls has no effect; enable it, or leave tls out")
		}
		return
	}
	if protocol == TLS {
		c.add(at+".enabled", "is true, while match.protocol is tls: the application speaks TLS with the endpoints "+
			"itself; leave tls out, or write another protocol")
	}
	if t.Version != nil {
		c.tlsVersions(at+".version", t.Version)
	}
	c.verification(at+".verification", t.Verification)
}

var tlsVersions = []string{TLSAuto, TLS10, TLS11, TLS12, TLS13}

func (c *checks) tlsVersions(at string, v *TLSVersions) {
	auto := cmp.Or(v.Max, TLSAuto) == TLSAuto
	if c.valid(at+".min") && c.valid(at+".max") && !auto &&
		slices.Index(tlsVersions, v.Min) > slices.Index(tlsVersions, v.Max) {
		c.add(at+".max", "is %s, older than min, which is %s", v.Max, v.Min)
	}
}

func (c *checks) verification(at string, v *ExternalVerification) {
	if v.ServerName != "" {
		c.dnsName(at+".serverName", v.ServerName, "not a host name")
	}
	if c.valid(at + ".mode") {
		c.skipped(at, v)
	}
	c.optionalDataSource(at+".caCert", v.CACert)
	if ca := v.CACert.Value(); ca != "" {
		c.certificates(at+".caCert.insecureInline.value", ca)
	}
	c.clientCertificate(at, v)
}

// skipped rejects a field that has no effect in the mode.
func (c *checks) skipped(at string, v *ExternalVerification) {
	if len(v.SubjectAltNames) > 0 && v.Mode != Secured {
		c.add(at+".subjectAltNames",
			"has no effect with the mode %s, which checks no name; leave it out, or use Secured", v.Mode)
	}
	if v.CACert != nil && (v.Mode == SkipCA || v.Mode == SkipAll) {
		c.add(at+".caCert",
			"has no effect with the mode %s, which trusts every certificate; leave it out, or use Secured", v.Mode)
	}
}

// clientCertificate requires both the certificate and its key, or neither.
func (c *checks) clientCertificate(at string, v *ExternalVerification) {
	if (v.ClientCert == nil) != (v.ClientKey == nil) {
		missing, given := "clientCert", "clientKey"
		if v.ClientKey == nil {
			missing, given = given, missing
		}
		c.add(at+"."+missing, "is required where %s is given", given)
	}
	c.optionalDataSource(at+".clientCert", v.ClientCert)
	c.optionalDataSource(at+".clientKey", v.ClientKey)
	cert, key := v.ClientCert.Value(), v.ClientKey.Value()
	if IsAuthority([]byte(cert)) {
		c.add(at+".clientCert.insecureInline.value", AuthorityIsNoClient)
		return
	}
	right := cert == "" || c.certificates(at+".clientCert.insecureInline.value", cert)
	right = (key == "" || c.privateKey(at+".clientKey.insecureInline.value", []byte(key))) && right
	if right && cert != "" && key != "" {
		c.pair(at+".clientKey.insecureInline.value", []byte(cert), []byte(key))
	}
}
