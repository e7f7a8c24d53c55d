package kind

import (
	"fmt"
	"slices"
	"strings"

	"weft/resource"
)

// MeshTLS sets what connections the inbounds of the proxies that it targets accept, and the TLS of a mesh.
//
// For each field, the policy with the most specific target that has the field decides. A field that no policy has keeps
// the value of the Mesh, or the default of docs/defaults.md. A policy with the label kuma.io/effect: shadow has no
// effect.
type MeshTLS struct {
	// the target proxies; by default the whole mesh
	TargetRef *TargetRef `json:"targetRef,omitempty"`
	// the settings of received connections; a later rule decides
	Rules []ReceivedItem[TLSConf] `json:"rules,omitempty" schema:"maxItems=16"`
	// the older form of rules; it is read and never written
	From []FromItem[TLSConf] `json:"from,omitempty" schema:"maxItems=16 deprecated"`
}

// TLSConf has settings of TLS. A field that is left out keeps the value of a less specific policy.
type TLSConf struct {
	// Mode is Strict for mutual TLS only, and Permissive for plaintext connections too. A plaintext connection has no
	// identity, so permissions do not apply to it.
	Mode string `json:"mode,omitempty" schema:"enum=Strict|Permissive"`
	// TLSVersion are the versions of connections between proxies, at both ends. It needs a targetRef of the whole mesh.
	TLSVersion *TLSVersions `json:"tlsVersion,omitempty"`
	// TLSCiphers are the cipher suites of TLS 1.2 and older, at both ends, by preference: ECDHE-ECDSA- or ECDHE-RSA-
	// with AES128-GCM-SHA256, AES256-GCM-SHA384 or CHACHA20-POLY1305. TLS 1.3 has its own, which always hold. It needs
	// a targetRef of the whole mesh.
	TLSCiphers []string `json:"tlsCiphers,omitempty" schema:"maxItems=6 maxLength=64"`
}

// Modes of a MeshTLS.
const (
	TLSStrict     = "Strict"
	TLSPermissive = "Permissive"
)

// ecdsaCiphers are the cipher suites for certificates with ECDSA keys, such as those that the control plane signs, and
// rsaCiphers those for certificates with RSA keys.
var (
	ecdsaCiphers = []string{"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384",
		"ECDHE-ECDSA-CHACHA20-POLY1305"}
	rsaCiphers = []string{"ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384",
		"ECDHE-RSA-CHACHA20-POLY1305"}
)

// MeshTLSes is the kind of [MeshTLS].
var MeshTLSes = NewPolicy(PolicyKind[MeshTLS, TLSConf]{
	Kind: resource.Kind[MeshTLS]{
		Info: resource.Info{
			Name: "MeshTLS", Plural: "meshtlses", ShortName: "mtls",
			Replaced: inboundReplaced(replacedInTargets(map[string]string{
				"rules.matches": "has no meaning here: TLS is set up before the caller is known; leave it out",
				"to":            "has no meaning here: clients use the TLS of their servers; use `rules`",
			})),
		},
		Validate: validateMeshTLS,
	},
	Restrictive: true,
	Content:     tlsWarnings,
})

func validateMeshTLS(o *resource.Object[MeshTLS], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	ofMesh := o.Spec.TargetRef == nil || o.Spec.TargetRef.Kind == "Mesh"
	if o.Spec.TargetRef != nil {
		c.targetRef("spec.targetRef", o.Spec.TargetRef)
	}
	checkFrom(c, o.Spec.From)
	checkReceived(c, o.Spec.Rules, func(c *checks, at string, conf *TLSConf) { c.tlsConf(at, conf, ofMesh) })
	return c.problems
}

func (c *checks) tlsConf(at string, conf *TLSConf, ofMesh bool) {
	if v := conf.TLSVersion; v != nil {
		c.ofWholeMesh(at+".tlsVersion", ofMesh)
		c.tlsVersions(at+".tlsVersion", v)
	}
	if len(conf.TLSCiphers) == 0 {
		return
	}
	c.ofWholeMesh(at+".tlsCiphers", ofMesh)
	for i, suite := range conf.TLSCiphers {
		if !slices.Contains(ecdsaCiphers, suite) && !slices.Contains(rsaCiphers, suite) {
			c.add(at+".tlsCiphers", "has %s at %d, want some of %s; suites of TLS 1.3 can't be chosen", quote(suite), i,
				strings.Join(slices.Concat(ecdsaCiphers, rsaCiphers), ", "))
			return
		}
		if slices.Contains(conf.TLSCiphers[:i], suite) {
			c.add(at+".tlsCiphers", "has %s twice", suite)
			return
		}
	}
}

func (c *checks) ofWholeMesh(at string, ofMesh bool) {
	if !ofMesh {
		c.add(at, "needs a targetRef of the kind Mesh: both ends of a connection have to agree")
	}
}

// FitsECDSA returns whether a list of cipher suites has one for certificates with ECDSA keys, or is empty.
func (c *TLSConf) FitsECDSA() bool {
	return len(c.TLSCiphers) == 0 || slices.ContainsFunc(c.TLSCiphers, func(suite string) bool {
		return slices.Contains(ecdsaCiphers, suite)
	})
}

// tlsWarnings warns of confs that expose inbounds, or with which no handshake succeeds.
func tlsWarnings(p *MeshTLS) []string {
	var warnings []string
	for i := range p.Rules {
		conf := &p.Rules[i].Default
		if conf.Mode == TLSPermissive {
			warnings = append(warnings, fmt.Sprintf("spec.rules[%d].default.mode: is Permissive: a plaintext "+
				"connection has no identity, so no MeshTrafficPermission applies to it", i))
		}
		if !conf.FitsECDSA() {
			warnings = append(warnings, fmt.Sprintf("spec.rules[%d].default.tlsCiphers: has none for ECDSA keys, "+
				"which the certificates of this control plane have: their connections fail with TLS 1.2", i))
		}
	}
	return warnings
}
