package dpserver_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/admission"
	"weft/internal/pki"
	"weft/internal/state"
	"weft/internal/wire"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// claims returns claims for the mesh default.
func claims(change func(*pki.DataplaneClaims)) pki.DataplaneClaims {
	c := pki.DataplaneClaims{Mesh: "default"}
	change(&c)
	return c
}

func forName(name string) pki.DataplaneClaims {
	return claims(func(c *pki.DataplaneClaims) { c.Name = name })
}

func services(values ...string) map[string][]string {
	return map[string][]string{kind.ServiceTag: values}
}

// registerAs registers a document and waits until the control plane's memory has it.
func (p *plane) registerAs(ctx context.Context, document string) error {
	p.t.Helper()
	parsed, err := resource.Parse([]byte(document), kind.ByName)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.agent.Register(ctx, &wire.RegisterRequest{Dataplane: []byte(document)}); err != nil {
		return err
	}
	p.awaitKnown(parsed.Key())
	return nil
}

// awaitKnown waits until the control plane's memory has the stored Dataplane.
func (p *plane) awaitKnown(key resource.Key) {
	p.t.Helper()
	row, err := p.rows.Get(p.t.Context(), key)
	if err != nil {
		p.t.Fatal(err)
	}
	p.eventually(func() bool {
		dp, ok := p.server.Rows.Dataplane(state.ProxyKey{Mesh: key.Mesh, Name: key.Name})
		return ok && dp.Version == row.Version
	}, func() any { return key.String() + " is not known" })
}

// putAsOperator writes a Dataplane as the API does.
func (p *plane) putAsOperator(document string) {
	p.t.Helper()
	parsed, err := resource.Parse([]byte(document), kind.ByName)
	if err == nil {
		_, err = p.writer.Put(p.t.Context(), parsed, admission.Change{})
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.awaitKnown(parsed.Key())
}

// sign returns the SPIFFE IDs of a certificate for a Dataplane.
func (p *plane) sign(ctx context.Context, name string) ([]string, error) {
	p.t.Helper()
	response, err := p.agent.Sign(ctx, &wire.SignRequest{Mesh: "default", Name: name, Request: newRequest(p.t)})
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(response.Chain[0])
	if err != nil {
		p.t.Fatal(err)
	}
	var ids []string
	for _, id := range certificate.URIs {
		ids = append(ids, id.String())
	}
	return ids, nil
}

// underMTLS returns the mesh default with mtls and a CA.
func underMTLS(t *testing.T) []resource.Any {
	t.Helper()
	cert, key, err := pki.NewCA(time.Now(), "default")
	if err != nil {
		t.Fatal(err)
	}
	return []resource.Any{
		kind.Meshes.Make("", "default",
			kind.Mesh{MTLS: &kind.MeshMTLS{EnabledBackend: "ca-1",
				Backends: []kind.MTLSBackend{{Name: "ca-1", Type: "builtin"}}}}),
		kind.SigningCAs.Make("default", kind.MTLSIdentity, kind.SigningCA{
			TrustDomain: "default", Life: kind.Duration(time.Hour), Authority: append(cert, key...),
			Fingerprint: "first", Backend: "ca-1",
		}),
	}
}

// identityOf replaces the MeshIdentity of [withIdentity].
func identityOf(t *testing.T, path string, labels map[string]string) []resource.Any {
	t.Helper()
	given := withIdentity(t)
	mi := given[1].(*resource.Object[kind.MeshIdentity])
	mi.Spec.Selector.Dataplane.MatchLabels = labels
	mi.Spec.SpiffeID = &kind.SpiffeIDTemplate{Path: path}
	return given
}

// TestASpiffeIDRestsOnWhatTheTokenVouchesFor: a certificate contains facts that a token vouches for, and none that only
// the Dataplane claims.
func TestASpiffeIDRestsOnWhatTheTokenVouchesFor(t *testing.T) {
	const header = "type: Dataplane\nmesh: default\nname: d-1\nnetworking: {address: 10.0.0.9, inbound: [{port: 80, " +
		"tags: {kuma.io/service: web}}]}\n"
	const bare = "type: Dataplane\nmesh: default\nname: d-1\nnetworking: {address: 10.0.0.9}\n"
	workload := header + "labels: {kuma.io/workload: web}\n"
	team := bare + "labels: {team: pay}\n"
	all := map[string]string{}
	for name, c := range map[string]struct {
		given    []resource.Any
		document string
		claims   pki.DataplaneClaims
		want     string // a SPIFFE ID, or part of the error
	}{
		"label, by name": {withIdentity(t), workload, forName("d-1"),
			"vouches for the label kuma.io/workload: web; make a token that does with `weft generate dataplane-token " +
				"--mesh default --name d-1 --workload web --tag kuma.io/service=web`"},
		"label, by workload": {withIdentity(t), workload,
			claims(func(c *pki.DataplaneClaims) { c.Workload = "web" }),
			"spiffe://default.east.mesh.local/workload/web"},
		"label, by another tag": {withIdentity(t), workload,
			claims(func(c *pki.DataplaneClaims) { c.Tags = services("web") }),
			"vouches for the label kuma.io/workload: web"},
		"tag, by name": {withIdentity(t), header, forName("d-1"),
			"vouches for the tag kuma.io/service: web"},
		"tag, by tag": {withIdentity(t), header,
			claims(func(c *pki.DataplaneClaims) { c.Tags = services("web") }),
			"spiffe://default.east.mesh.local/workload/web"},
		"name, by name": {withIdentity(t), bare, forName("d-1"),
			"spiffe://default.east.mesh.local/workload/d-1"},
		"name, by any of mesh": {withIdentity(t), bare, claims(func(*pki.DataplaneClaims) {}),
			"vouches for the name d-1"},
		"template, by name": {identityOf(t, `/team/{{ label "team" }}`, all), team, forName("d-1"),
			"vouches for the label team: pay; make a token that does with `weft generate dataplane-token --mesh " +
				"default --name d-1 --label team=pay`"},
		"template, by label": {identityOf(t, `/team/{{ label "team" }}`, all), team,
			claims(func(c *pki.DataplaneClaims) { c.Labels = map[string]string{"team": "pay"} }),
			"spiffe://default.east.mesh.local/team/pay"},
		"display name, by none": {identityOf(t, `/i/{{ label "kuma.io/display-name" }}`, all), bare,
			claims(func(*pki.DataplaneClaims) {}), "vouches for the name d-1"},
		"selection, by name": {identityOf(t, "/payments", map[string]string{"team": "pay"}), team, forName("d-1"),
			"vouches for the label team: pay"},
		"selection, by label": {identityOf(t, "/payments", map[string]string{"team": "pay"}), team,
			claims(func(c *pki.DataplaneClaims) { c.Name, c.Labels = "d-1", map[string]string{"team": "pay"} }),
			"spiffe://default.east.mesh.local/payments"},
		"mtls, by name": {underMTLS(t), header, forName("d-1"), "vouches for the tag kuma.io/service: web"},
		"mtls, by tag": {underMTLS(t), header,
			claims(func(c *pki.DataplaneClaims) { c.Name, c.Tags = "d-1", services("web", "api") }),
			"spiffe://default/web"},
		"mtls, workload by name": {underMTLS(t), bare + "labels: {kuma.io/workload: web}\n", forName("d-1"),
			"vouches for the label kuma.io/workload: web"},
		"mtls, workload": {underMTLS(t), bare + "labels: {kuma.io/workload: web}\n",
			claims(func(c *pki.DataplaneClaims) { c.Workload = "web" }), "spiffe://default/workload/web"},
		"mtls, name by a service": {underMTLS(t), bare, claims(func(*pki.DataplaneClaims) {}),
			"vouches for the name d-1"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t, c.given...)
			ctx := p.tokenWithClaims(c.claims)
			if err := p.registerAs(ctx, c.document); err != nil {
				t.Fatal(err)
			}
			ids, err := p.sign(ctx, "d-1")
			if strings.HasPrefix(c.want, "spiffe://") {
				if err != nil || len(ids) != 1 || ids[0] != c.want {
					t.Errorf("the certificate is for %v, %v; want %s", ids, err, c.want)
				}
				return
			}
			wantStatus(t, err, codes.PermissionDenied, c.want)
			proxy, _ := p.server.Rows.Proxy(state.ProxyKey{Mesh: "default", Name: "d-1"})
			if proxy == nil || proxy.Identity == nil || len(proxy.Identity.List()) > 0 ||
				!strings.Contains(proxy.Identity.Problem, c.want) {
				t.Errorf("its identity is %+v; want one without a SPIFFE ID, and why", proxy.Identity)
			}
		})
	}
}

// TestAnOperatorVouchesForWhatItWrites: facts of an operator count for a token that names the Dataplane, and an agent
// can't change them.
func TestAnOperatorVouchesForWhatItWrites(t *testing.T) {
	p := newPlane(t, withIdentity(t)...)
	p.putAsOperator(web)
	const id = "spiffe://default.east.mesh.local/workload/web"
	if ids, err := p.sign(p.dataplaneToken("web-1"), "web-1"); err != nil || ids[0] != id {
		t.Errorf("the Dataplane that an operator wrote is %v, %v", ids, err)
	}
	_, err := p.sign(p.dataplaneToken(""), "web-1")
	wantStatus(t, err, codes.PermissionDenied, "does not vouch for the name web-1")
	_, err = p.sign(p.tokenWithClaims(claims(func(c *pki.DataplaneClaims) { c.Workload = "web" })), "web-1")
	wantStatus(t, err, codes.PermissionDenied, "does not vouch for the name web-1")

	for what, document := range map[string]string{
		"the label kuma.io/workload: web": strings.Replace(web, "kuma.io/workload: web", "kuma.io/workload: db", 1),
		"the tag kuma.io/service: web":    strings.Replace(web, "kuma.io/service: web", "kuma.io/service: db", 1),
	} {
		wantStatus(t, p.registerAs(p.dataplaneToken("web-1"), document), codes.PermissionDenied,
			"an operator vouches for "+what+" of Dataplane default/web-1")
	}
	if err := p.registerAs(p.dataplaneToken("web-1"), strings.Replace(web, "labels: {", "labels: {color: blue, ",
		1)); err != nil {
		t.Errorf("a label that no identity rests on: %v", err)
	}
	if ids, err := p.sign(p.dataplaneToken("web-1"), "web-1"); err != nil || ids[0] != id {
		t.Errorf("after its agent registered it, it is %v, %v", ids, err)
	}
}

// TestAnOperatorDoesNotVouchForWhatAnAgentWrote: an operator who changes one fact of a registered Dataplane vouches for
// that fact alone.
func TestAnOperatorDoesNotVouchForWhatAnAgentWrote(t *testing.T) {
	p := newPlane(t, withIdentity(t)...)
	if err := p.registerAs(p.dataplaneToken("web-1"), web); err != nil {
		t.Fatal(err)
	}
	p.putAsOperator(strings.Replace(web, "labels: {", "labels: {color: blue, ", 1))
	_, err := p.sign(p.dataplaneToken("web-1"), "web-1")
	wantStatus(t, err, codes.PermissionDenied, "vouches for the label kuma.io/workload: web")
	p.putAsOperator(strings.Replace(web, "kuma.io/workload: web", "kuma.io/workload: shop", 1))
	if ids, err := p.sign(p.dataplaneToken("web-1"), "web-1"); err != nil ||
		ids[0] != "spiffe://default.east.mesh.local/workload/shop" {
		t.Errorf("the workload that an operator wrote: %v, %v", ids, err)
	}
}

// TestVouchedFactsAreNotWritten: neither an agent nor the API can write the record of vouched facts.
func TestVouchedFactsAreNotWritten(t *testing.T) {
	forged := strings.Replace(web, "networking:",
		`vouched: {operator: ["label kuma.io/workload=web", "name web-1"]}, networking:`, 1)
	p := newPlane(t, withIdentity(t)...)
	_, err := p.agent.Register(p.dataplaneToken("web-1"), &wire.RegisterRequest{Dataplane: []byte(forged)})
	wantStatus(t, err, codes.InvalidArgument, "vouched")
	if _, err := resource.Parse([]byte(forged), kind.ByName); err == nil {
		t.Error("the API reads it")
	}
}

// TestATokenThatVouchesLaterIsRecorded: a new token that vouches for more needs no new registration.
func TestATokenThatVouchesLaterIsRecorded(t *testing.T) {
	p := newPlane(t, withIdentity(t)...)
	if err := p.registerAs(p.dataplaneToken("web-1"), web); err != nil {
		t.Fatal(err)
	}
	_, err := p.sign(p.web1Token(), "web-1")
	wantStatus(t, err, codes.Unavailable, "try again")
	p.eventually(func() bool { _, err = p.sign(p.web1Token(), "web-1"); return err == nil }, func() any { return err })
	_, err = p.sign(p.dataplaneToken("web-1"), "web-1")
	wantStatus(t, err, codes.PermissionDenied, "does not vouch for the label kuma.io/workload: web")
}

// TestVouchedFactsStayWhenATokenVouchesForMore: a token that vouches for one more fact at a certificate request removes
// no recorded fact.
func TestVouchedFactsStayWhenATokenVouchesForMore(t *testing.T) {
	const unlabelled = "type: Dataplane\nmesh: default\nname: web-1\nnetworking: {address: 10.0.0.1, inbound: " +
		"[{port: 80, tags: {kuma.io/service: web}}]}\n"
	const labeled = unlabelled + "labels: {kuma.io/workload: web}\n"
	byWorkload := claims(func(c *pki.DataplaneClaims) { c.Workload = "web" })
	p := newPlane(t, withIdentity(t)...)
	p.putAsOperator(unlabelled)
	if err := p.registerAs(p.dataplaneToken("web-1"), labeled); err != nil {
		t.Fatal(err)
	}
	_, err := p.sign(p.tokenWithClaims(byWorkload), "web-1")
	wantStatus(t, err, codes.PermissionDenied, "an operator vouches for its name")
	wantStatus(t, p.registerAs(p.tokenWithClaims(byWorkload), labeled), codes.PermissionDenied,
		"an operator vouches for its name")

	byWorkload.Name = "web-1"
	_, err = p.sign(p.tokenWithClaims(byWorkload), "web-1")
	wantStatus(t, err, codes.Unavailable, "try again")
	dp := p.dataplane("web-1")
	if operator := []string{kind.AddressFact("10.0.0.1"), kind.NameFact("web-1"),
		kind.ServiceFact("web")}; !slices.Equal(dp.Vouched.Operator, operator) {
		t.Errorf("an operator vouches for %q, want %q", dp.Vouched.Operator, operator)
	}
	if token := []string{kind.LabelFact(kind.WorkloadLabel, "web"),
		kind.NameFact("web-1")}; !slices.Equal(dp.Vouched.Token, token) {
		t.Errorf("the token vouches for %q, want %q", dp.Vouched.Token, token)
	}
}

// TestAReplacedFactIsNotVouchedFor: a replaced fact is no longer vouched for, even if its value returns.
func TestAReplacedFactIsNotVouchedFor(t *testing.T) {
	p := newPlane(t, withIdentity(t)...)
	p.putAsOperator(web)
	db := strings.Replace(web, "kuma.io/workload: web", "kuma.io/workload: db", 1)
	if err :=
		p.registerAs(p.tokenWithClaims(claims(func(c *pki.DataplaneClaims) { c.Name, c.Workload = "web-1", "db" })),
			db); err != nil {
		t.Fatal(err)
	}
	if fact := kind.LabelFact(kind.WorkloadLabel, "web"); slices.Contains(p.dataplane("web-1").Vouched.Operator, fact) {
		t.Errorf("an operator vouches for %s, which the Dataplane does not have", fact)
	}
}

// dataplane returns the stored Dataplane of the mesh default.
func (p *plane) dataplane(name string) *resource.Object[kind.Dataplane] {
	p.t.Helper()
	row, err := p.rows.Get(p.t.Context(), kind.Dataplanes.Key("default", name))
	if err != nil {
		p.t.Fatal(err)
	}
	o, err := admission.Decode(row)
	if err != nil {
		p.t.Fatal(err)
	}
	return o.(*resource.Object[kind.Dataplane])
}

// TestAnAbsentClaimDoesNotVouchForAnEmptyLabel: an absent claim differs from a label with an empty value.
func TestAnAbsentClaimDoesNotVouchForAnEmptyLabel(t *testing.T) {
	const document = "type: Dataplane\nmesh: default\nname: d-1\nlabels: {pci: \"\"}\nnetworking: {address: 10.0.0.9}\n"
	p := newPlane(t, identityOf(t, "/cardholder", map[string]string{"pci": ""})...)
	if err := p.registerAs(p.dataplaneToken("d-1"), document); err != nil {
		t.Fatal(err)
	}
	_, err := p.sign(p.dataplaneToken("d-1"), "d-1")
	wantStatus(t, err, codes.PermissionDenied, "vouches for the label pci: ")
	ctx := p.tokenWithClaims(claims(func(c *pki.DataplaneClaims) {
		c.Name, c.Labels = "d-1", map[string]string{"pci": ""}
	}))
	if err := p.registerAs(ctx, document); err != nil {
		t.Fatal(err)
	}
	if ids, err := p.sign(ctx, "d-1"); err != nil || ids[0] != "spiffe://default.east.mesh.local/cardholder" {
		t.Errorf("the token that claims the empty label gets %v, %v", ids, err)
	}
}

// TestAPresentedSpiffeIDIsNotSignedAgainOnceItsFactsAreGone: while a proxy has no next SPIFFE IDs, its present ones are
// signed again only if their facts are vouched for now.
func TestAPresentedSpiffeIDIsNotSignedAgainOnceItsFactsAreGone(t *testing.T) {
	document := func(services ...string) string {
		var inbounds []string
		for i, service := range services {
			inbounds = append(inbounds, fmt.Sprintf("{port: %d, tags: {kuma.io/service: %s}}", 80+i, service))
		}
		return "type: Dataplane\nmesh: default\nname: web-1\nnetworking: {address: 10.0.0.9, inbound: [" +
			strings.Join(inbounds, ", ") + "]}\n"
	}
	p := newPlane(t, underMTLS(t)...)
	p.putAsOperator(document("admin"))
	if ids, err := p.sign(p.dataplaneToken("web-1"), "web-1"); err != nil ||
		!slices.Equal(ids, []string{"spiffe://default/admin"}) {
		t.Fatalf("the certificate is for %v, %v", ids, err)
	}
	holdsOn := func() bool {
		proxy, _ := p.server.Rows.Proxy(web1)
		return proxy.Identity.Problem != "" && proxy.Certificate != nil
	}
	if err := p.registerAs(p.dataplaneToken("web-1"), document("admin", "zone-egress")); err != nil {
		t.Fatal(err)
	}
	p.eventually(holdsOn, func() any { return "the proxy has no problem" })
	if ids, err := p.sign(p.dataplaneToken("web-1"), "web-1"); err != nil ||
		!slices.Equal(ids, []string{"spiffe://default/admin"}) {
		t.Errorf("while an operator vouches for its service it gets %v, %v", ids, err)
	}

	p.putAsOperator(document("web"))
	if err := p.registerAs(p.dataplaneToken("web-1"), document("web", "zone-egress")); err != nil {
		t.Fatal(err)
	}
	p.eventually(holdsOn, func() any { return "the proxy has no problem" })
	_, err := p.sign(p.dataplaneToken("web-1"), "web-1")
	wantStatus(t, err, codes.PermissionDenied, "does not vouch for the tag kuma.io/service: admin")
	claimed := claims(func(c *pki.DataplaneClaims) {
		c.Name, c.Tags = "web-1", services("admin", "web", "zone-egress")
	})
	if ids, err := p.sign(p.tokenWithClaims(claimed), "web-1"); err != nil ||
		!slices.Equal(ids, []string{"spiffe://default/admin"}) {
		t.Errorf("the token that claims the service gets %v, %v", ids, err)
	}
}

// TestAnOperatorDoesNotVouchForWhatAnAgentWroteAndRemoved: a fact that an agent wrote is not the operator's if the
// agent removed it before the operator's write.
func TestAnOperatorDoesNotVouchForWhatAnAgentWroteAndRemoved(t *testing.T) {
	p := newPlane(t, withIdentity(t)...)
	bare := strings.Replace(web, "labels: {kuma.io/workload: web},", "", 1)
	for _, document := range []string{bare, web, bare} {
		if err := p.registerAs(p.dataplaneToken("web-1"), document); err != nil {
			t.Fatal(err)
		}
	}
	p.putAsOperator(strings.Replace(web, "labels: {", "labels: {color: blue, ", 1))
	_, err := p.sign(p.dataplaneToken("web-1"), "web-1")
	wantStatus(t, err, codes.PermissionDenied, "vouches for the label kuma.io/workload: web")
	if color := kind.LabelFact("color", "blue"); !slices.Contains(p.dataplane("web-1").Vouched.Operator, color) {
		t.Errorf("an operator does not vouch for %s", color)
	}
}

const egressSection = "zoneEgress: {address: 10.0.0.9, port: 10002}"
const ingressSection = "zoneIngress: {address: 10.0.0.9, port: 10001, advertisedAddress: 192.168.1.9, " +
	"advertisedPort: 30001}"

func zoneProxy(sections ...string) string {
	return "type: Dataplane\nmesh: default\nname: web-1\nnetworking: {" + strings.Join(sections, ", ") + "}\n"
}

func ofType(name, roles string) pki.DataplaneClaims {
	return claims(func(c *pki.DataplaneClaims) { c.Name, c.Type = name, roles })
}

// TestATokenOfARoleRegistersThatRole: a zone proxy section requires a token of its role, which is valid for no other
// section.
func TestATokenOfARoleRegistersThatRole(t *testing.T) {
	const inbound = "address: 10.0.0.9, inbound: [{port: 80}]"
	p := newPlane(t)
	for name, c := range map[string]struct {
		document, roles string
		want            string // part of the error; empty: it is registered
	}{
		"egress, dataplane": {zoneProxy(egressSection), "",
			"does not vouch for networking.zoneEgress of Dataplane default/web-1; make one that does with `weft " +
				"generate dataplane-token --mesh default --name web-1 --proxy-type egress`"},
		"ingress, dataplane": {zoneProxy(ingressSection), "dataplane",
			"does not vouch for networking.zoneIngress"},
		"ingress, egress": {zoneProxy(ingressSection), "egress",
			"does not vouch for networking.zoneIngress"},
		"both, egress": {zoneProxy(ingressSection, egressSection), "egress",
			"does not vouch for networking.zoneIngress"},
		"inbound, egress":            {zoneProxy(inbound), "egress", "has more than zone proxy sections"},
		"inbound and egress, egress": {zoneProxy(inbound, egressSection), "egress", "--proxy-type dataplane,egress"},
		"nothing, ingress":           {zoneProxy("address: 10.0.0.9"), "ingress", "has more than zone proxy sections"},
		"egress":                     {zoneProxy(egressSection), "egress", ""},
		"ingress":                    {zoneProxy(ingressSection), "ingress", ""},
		"all": {zoneProxy(inbound, ingressSection, egressSection), "dataplane,egress,ingress",
			""},
	} {
		t.Run(name, func(t *testing.T) {
			err := p.registerAs(p.tokenWithClaims(ofType("web-1", c.roles)), c.document)
			if c.want != "" {
				wantStatus(t, err, codes.PermissionDenied, c.want)
			} else if err != nil {
				t.Error(err)
			}
			if err := p.writer.Delete(t.Context(), kind.Dataplanes.Key("default", "web-1"),
				admission.Change{}); err == nil {
				p.eventually(func() bool { _, known := p.server.Rows.Dataplane(web1); return !known }, func() any {
					return "it stays"
				})
			}
		})
	}
}

// TestAnAgentRunsTheSectionThatAnOperatorWrote: a token that names the Dataplane is valid for sections of an operator,
// unchanged.
func TestAnAgentRunsTheSectionThatAnOperatorWrote(t *testing.T) {
	p := newPlane(t)
	p.putAsOperator(zoneProxy("address: 10.0.0.9", egressSection, "inbound: [{port: 80}]"))
	stream, err := p.discover(p.dataplaneToken("web-1"), "default.web-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Errorf("a token that names it: %v", err)
	}
	other, _ := p.discover(p.dataplaneToken(""), "default.web-1")
	_, err = other.Recv()
	wantStatus(t, err, codes.PermissionDenied, "does not vouch for networking.zoneEgress")
	moved := strings.Replace(zoneProxy("address: 10.0.0.9", egressSection, "inbound: [{port: 80}]"), "port: 10002",
		"port: 10003", 1)
	wantStatus(t, p.registerAs(p.dataplaneToken("web-1"), moved), codes.PermissionDenied,
		"does not vouch for networking.zoneEgress")
	dropped := zoneProxy("address: 10.0.0.9", "inbound: [{port: 80}]")
	wantStatus(t, p.registerAs(p.dataplaneToken("web-1"), dropped), codes.PermissionDenied,
		"an operator vouches for networking.zoneEgress")
	wantStatus(t, p.registerAs(p.tokenWithClaims(ofType("web-1", "dataplane,ingress")),
		strings.Replace(moved, "10003", "10002", 1)), codes.OK, "")
}

// externalService is an external service with a client key, and the identity that an egress needs to serve it.
func externalService(t *testing.T) []resource.Any {
	t.Helper()
	inline := func(value string) *kind.DataSource {
		return &kind.DataSource{Type: "Secret", SecretRef: &kind.SecretRef{Kind: "Secret", Name: value}}
	}
	verification := &kind.ExternalVerification{ClientCert: inline("cert"), ClientKey: inline("key")}
	endpoints := []kind.ExternalEndpoint{{Address: "10.9.9.9", Port: 443}}
	return append(identityOf(t, "/proxy", map[string]string{}),
		kind.MeshExternalServices.Make("default", "bank", kind.MeshExternalService{
			Match: kind.ExternalMatch{Type: "HostnameGenerator", Port: 443, Protocol: kind.TCP}, Endpoints: endpoints,
			TLS: &kind.ExternalTLS{Enabled: true, Verification: verification},
		}),
		kind.ExternalMaterials.Make("default", "bank", kind.ExternalMaterial{
			Endpoints: endpoints, TLS: &kind.ExternalTLS{Enabled: true}, ClientCert: []byte("CERTIFICATE-OF-THE-MESH"),
			ClientKey: []byte(clientKey),
		}),
	)
}

const clientKey = "KEY-OF-THE-BANK"

// keyStream is a configuration stream of web-1 that subscribes to everything, and records the client key.
type keyStream struct {
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

func (p *plane) openKeyStream(ctx context.Context) keyStream {
	p.t.Helper()
	stream, err := p.discover(ctx, "default.web-1")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, t := range []xds.Type{xds.Secret} {
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: t.URL(),
			ResourceNamesSubscribe: []string{"*"}}); err != nil && err != io.EOF {
			// Recv returns the reason why it was closed
			p.t.Fatal(err)
		}
	}
	return keyStream{stream}
}

// until receives until a response is right, or the stream ends. It acks every response: the next one of the same type
// waits for that.
func (s keyStream) until(right func(*discoveryv3.DeltaDiscoveryResponse) bool) error {
	for {
		response, err := s.Recv()
		if err != nil {
			return err
		}
		// Recv returns the reason why a send fails.
		_ = s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: response.TypeUrl, ResponseNonce: response.Nonce})
		if right(response) {
			return nil
		}
	}
}

func shows(response *discoveryv3.DeltaDiscoveryResponse, word string) bool {
	return slices.ContainsFunc(response.Resources, func(r *discoveryv3.Resource) bool {
		return bytes.Contains(r.Resource.GetValue(), []byte(word))
	})
}

// await receives until a response has a word, or the stream ends.
func (s keyStream) await(word string) error {
	return s.until(func(response *discoveryv3.DeltaDiscoveryResponse) bool { return shows(response, word) })
}

// without receives until a response is right, and fails if one has the word before.
func (s keyStream) without(t *testing.T, word string, right func(*discoveryv3.DeltaDiscoveryResponse) bool) {
	t.Helper()
	err := s.until(func(response *discoveryv3.DeltaDiscoveryResponse) bool {
		if shows(response, word) {
			t.Fatalf("the stream shows %s", word)
		}
		return right(response)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAnEgressLosesTheKeysOfExternalServices: a stream whose proxy is no longer an egress loses the keys, or is closed,
// whatever the change.
func TestAnEgressLosesTheKeysOfExternalServices(t *testing.T) {
	const other = "ANOTHER-KEY"
	rotate := func(p *plane) {
		p.put(kind.ExternalMaterials.Make("default", "bank", kind.ExternalMaterial{
			Endpoints: []kind.ExternalEndpoint{{Address: "10.9.9.9", Port: 443}}, TLS: &kind.ExternalTLS{Enabled: true},
			ClientCert: []byte("CERTIFICATE-OF-THE-MESH"), ClientKey: []byte(other),
		}))
	}
	egress := zoneProxy("address: 10.0.0.9", egressSection, "inbound: [{port: 80}]")
	plain := zoneProxy("address: 10.0.0.9", "inbound: [{port: 80}]")
	key := kind.Dataplanes.Key("default", "web-1")
	for name, c := range map[string]struct {
		end  func(t *testing.T, p *plane, token string)
		code codes.Code // of the closed stream; OK: it stays open without the keys
		says string
	}{
		"the Dataplane is deleted": {func(t *testing.T, p *plane, _ string) {
			if err := p.writer.Delete(t.Context(), key, admission.Change{}); err != nil {
				t.Fatal(err)
			}
		}, codes.NotFound, "was deleted"},
		"its token is revoked": {func(_ *testing.T, p *plane, id string) {
			p.put(kind.Secrets.Make("default", pki.DataplaneRealm("default").Revocations().Name,
				kind.Secret{Data: []byte("x, " + id)}))
		}, codes.Unauthenticated, "is revoked"},
		"its signing key is deleted": {func(t *testing.T, p *plane, _ string) {
			if err := p.writer.Delete(t.Context(), pki.DataplaneRealm("default").SigningKey("1"),
				admission.Change{}); err != nil {
				t.Fatal(err)
			}
		}, codes.Unauthenticated, "a key that does not exist here"},
		"its mesh evicts it": {func(_ *testing.T, p *plane, _ string) {
			p.put(kind.Meshes.Make("", "default", kind.Mesh{DataplaneProxyMembership: &kind.Membership{
				Allowed: []kind.MembershipRule{{Tags: map[string]string{"team": "a"}}},
			}}))
		}, codes.PermissionDenied, "does not admit"},
		"its section is removed": {func(_ *testing.T, p *plane, _ string) { p.putAsOperator(plain) }, codes.OK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t, externalService(t)...)
			p.putAsOperator(egress)
			serves := kind.ServedEgress{ZoneEgressSection: kind.ZoneEgressSection{Address: "10.0.0.9", Port: 10002}}
			p.put(kind.DataplaneListenerStatuses.Make("default", "web-1",
				kind.DataplaneListenerStatus{Run: "a", Egresses: []kind.ServedEgress{serves}}))
			ctx, id := p.tokenAndID(forName("web-1"))
			stream := p.openKeyStream(ctx)
			if err := stream.await(clientKey); err != nil {
				t.Fatalf("the egress has no key: %v", err)
			}
			c.end(t, p, id)
			if c.code == codes.OK {
				stream.without(t, clientKey, func(r *discoveryv3.DeltaDiscoveryResponse) bool {
					return len(r.RemovedResources) > 0
				})
				rotate(p)
				p.putAsOperator(strings.Replace(plain, "port: 80", "port: 81", 1))
				// The listener of the later change waits for its cluster, so it comes after the key, if that came.
				stream.without(t, other, func(r *discoveryv3.DeltaDiscoveryResponse) bool {
					return r.TypeUrl == xds.Listener.URL() && shows(r, "self_inbound_10.0.0.9_81")
				})
				return
			}
			err := stream.await(other)
			wantStatus(t, err, c.code, c.says)
		})
	}
}

// TestAStreamWithoutTheRoleEndsWhenItsProxyBecomesAnEgress: the stream is closed before another token makes its proxy
// an egress.
func TestAStreamWithoutTheRoleEndsWhenItsProxyBecomesAnEgress(t *testing.T) {
	p := newPlane(t, externalService(t)...)
	plain := zoneProxy("address: 10.0.0.9", "inbound: [{port: 80}]")
	if err := p.registerAs(p.dataplaneToken("web-1"), plain); err != nil {
		t.Fatal(err)
	}
	stream := p.openKeyStream(p.dataplaneToken("web-1"))
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	egress := zoneProxy("address: 10.0.0.9", egressSection, "inbound: [{port: 80}]")
	if err := p.registerAs(p.tokenWithClaims(ofType("web-1", "dataplane,egress")), egress); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, stream.await(clientKey), codes.PermissionDenied, "does not vouch for networking.zoneEgress")
	entitled := p.openKeyStream(p.tokenWithClaims(ofType("web-1", "dataplane,egress")))
	if err := entitled.await(clientKey); err != nil {
		t.Errorf("the token of the role has no key: %v", err)
	}
	if again := p.openKeyStream(p.dataplaneToken("web-1")); status.Code(
		again.await(clientKey)) != codes.PermissionDenied {
		t.Error("the token without the role comes back")
	}
}
