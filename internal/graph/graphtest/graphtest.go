// Package graphtest loads the worlds of scenario files into a state of the graph, and writes down what they mean.
package graphtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"weft/internal/golden"
	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// sections are the sections of a scenario that have a row in each line, with the functions that read a line.
var sections = []struct {
	name string
	read func(t *testing.T, line string) resource.Any
}{
	{"ingresses", ingresses},
	{"serving", serving},
	{"certificates", certificates},
	{"authorities", authority},
	{"vips", virtualIP},
	{"zone addresses", zoneAddresses},
	{"egresses", egresses},
	{"trusts", trust},
	{"connections", connection},
}

// Load returns the state of the zone east in the world of a scenario. The section "resources.yaml" has resources as
// users write them; see [sections] for the others.
func Load(t *testing.T, scenario *txtar.Archive) *graph.State {
	t.Helper()
	s := graph.NewState("east")
	s.Tables.DB.Commit(func(tx *table.Tx) {
		for _, o := range Resources(t, golden.Section(scenario, "resources.yaml")) {
			s.Tables.Put(tx, o)
		}
		for _, section := range sections {
			for line := range strings.Lines(golden.Section(scenario, section.name)) {
				s.Tables.Put(tx, section.read(t, strings.TrimSpace(line)))
			}
		}
	})
	for line := range strings.Lines(golden.Section(scenario, "tokens")) {
		vouchToken(t, s, strings.TrimSpace(line))
	}
	return s
}

// Resources returns the resources of a YAML stream, as they are named in the zone east.
func Resources(t *testing.T, documents string) []resource.Any {
	t.Helper()
	var resources []resource.Any
	for doc := range strings.SplitSeq(documents, "\n---\n") {
		resources = append(resources, received(parse(t, []byte(doc))))
	}
	return resources
}

// vouchToken reads "NAME: FACT, FACT ...": a token with these facts registered the Dataplane, in the place of an
// operator. Its mesh exempts no member by itself.
func vouchToken(t *testing.T, s *graph.State, line string) {
	t.Helper()
	name, claimed, _ := strings.Cut(line, ":")
	r := table.Eval(s.Tables.DB.Snapshot())
	before, ok := s.Tables.Dataplanes.Find(r, "default", name)
	mesh, known := s.Tables.Meshes.Find(r, "", "default")
	if !ok || !known {
		t.Fatalf("tokens %q: there is no such Dataplane, or no Mesh", line)
	}
	after, complete := *before, *mesh
	facts := strings.Split(strings.TrimSpace(claimed), ", ")
	slices.Sort(facts)
	kind.VouchToken(nil, &after, facts)
	complete.Vouched.Complete = true
	s.Tables.DB.Commit(func(tx *table.Tx) {
		s.Tables.Put(tx, &after)
		s.Tables.Put(tx, &complete)
	})
}

// connection reads "NAME ADDRESS": the address from which the agent of a Dataplane connects.
func connection(_ *testing.T, line string) resource.Any {
	name, address, _ := strings.Cut(line, " ")
	return kind.DataplaneListenerStatuses.Make("default", name,
		kind.DataplaneListenerStatus{Run: "1", Sources: []string{address}})
}

// authority reads "MESHIDENTITY FINGERPRINT": the certificate authority of an identity.
func authority(_ *testing.T, line string) resource.Any {
	name, fingerprint, _ := strings.Cut(line, " ")
	domain := "default.east.mesh.local"
	if name == kind.MTLSIdentity {
		domain = "default"
	}
	return kind.SigningCAs.Make("default", name, kind.SigningCA{Fingerprint: fingerprint, TrustDomain: domain})
}

// virtualIP reads "SERVICE IP".
func virtualIP(_ *testing.T, line string) resource.Any {
	name, ip, _ := strings.Cut(line, " ")
	return kind.MeshServiceStatuses.Make("default", name, kind.MeshServiceStatus{VIPs: []kind.VIP{{IP: ip}}})
}

// trust reads "NAME TRUSTDOMAIN": a MeshTrust of the zone of its trust domain, where the domain names one.
func trust(_ *testing.T, line string) resource.Any {
	name, domain, _ := strings.Cut(line, " ")
	bundle := kind.CABundle{Type: "Pem", PEM: &kind.PEMBundle{Value: "the roots of " + name}}
	trust := kind.MeshTrusts.Make("default", name,
		kind.MeshTrust{TrustDomain: domain, CABundles: []kind.CABundle{bundle}})
	if zone, ok := strings.CutSuffix(strings.TrimPrefix(domain, "default."), ".mesh.local"); ok {
		trust.Labels = map[string]string{kind.OriginLabel: kind.OriginZone, kind.ZoneLabel: zone}
	}
	return trust
}

// received names a resource of another zone, or of global, as it is named where it has been received; one with a
// display name is written so already.
func received(o resource.Any) resource.Any {
	meta := o.Envelope()
	owner, remote := kind.OwnerOf(meta), meta.Label(kind.OriginLabel) == kind.OriginGlobal
	if remote = remote || owner.Zone != "" && owner.Zone != "east"; remote &&
		meta.Label(kind.DisplayName) == "" {
		meta.Labels[kind.DisplayName] = meta.Name
		meta.Name = kind.SyncedName(kind.ByName(o.Key().Kind).Describe(), meta.Mesh, meta.Name, owner)
	}
	if dp, ok := o.(*resource.Object[kind.Dataplane]); ok {
		kind.VouchOperator(nil, dp)
	}
	return o
}

// ingresses reads "ZONE ADDRESS:PORT [healthy] ...".
func ingresses(t *testing.T, line string) resource.Any {
	words := strings.Fields(line)
	name := kind.SyncedName(&kind.MeshZoneAddresses.Info, "default", words[0], kind.Owner{Zone: words[0]})
	row := kind.MeshZoneAddresses.Make("default", name, kind.MeshZoneAddress{})
	for _, word := range words[1:] {
		if word == "healthy" {
			row.Spec.Ingresses[len(row.Spec.Ingresses)-1].Healthy = true
			continue
		}
		at, err := netip.ParseAddrPort(word)
		if err != nil {
			t.Fatal(err)
		}
		row.Spec.Ingresses = append(row.Spec.Ingresses,
			kind.ZoneProxyAddress{Address: at.Addr().String(), Port: uint32(at.Port())})
	}
	return row
}

// parse reads a resource as users write it, or a row that they cannot write, with its spec.
func parse(t *testing.T, doc []byte) resource.Any {
	var row struct {
		resource.Meta
		Type string
		Spec json.RawMessage
	}
	if err := yaml.Unmarshal(doc, &row); err != nil {
		t.Fatalf("%s\n%s", err, doc)
	}
	if d := kind.ByName(row.Type); d != nil && d.Describe().Hidden {
		o := d.New()
		o.Envelope().Mesh, o.Envelope().Name, o.Envelope().Labels = row.Mesh, row.Name, row.Labels
		if err := json.Unmarshal(row.Spec, resource.SpecOf(o)); err != nil {
			t.Fatalf("%s\n%s", err, doc)
		}
		return o
	}
	o, err := resource.Parse(doc, kind.ByName)
	if err != nil {
		t.Fatalf("%s\n%s", err, doc)
	}
	if problems := kind.ByName(o.Key().Kind).Prepare(o); len(problems) > 0 {
		t.Fatalf("%s: %v", o.Key(), problems)
	}
	return o
}

// serving reads "NAME [draining] ADDRESS:PORT[/SECTION] [unhealthy|tls|as:SPIFFEIDS] ...", names joined with "+", and
// "ingress:" before an ingress's address.
func serving(t *testing.T, line string) resource.Any {
	words := strings.Fields(line)
	row := kind.DataplaneListenerStatuses.Make("default", words[0], kind.DataplaneListenerStatus{})
	for _, word := range words[1:] {
		switch last := len(row.Spec.Inbounds) - 1; {
		case word == "draining":
			row.Spec.Draining = true
		case word == "unhealthy":
			row.Spec.Inbounds[last].Unhealthy = true
		case word == "tls":
			row.Spec.Inbounds[last].Serial = "5e"
		case strings.HasPrefix(word, "as:"):
			row.Spec.Inbounds[last].Serial = "5e"
			row.Spec.Inbounds[last].SpiffeIDs = strings.Split(strings.TrimPrefix(word, "as:"), "+")
		case strings.HasPrefix(word, "ingress:"):
			section := kind.ZoneIngressSection{}
			address, port, _ := strings.Cut(strings.TrimPrefix(word, "ingress:"), ":")
			if _, err := fmt.Sscan(port, &section.Port); err != nil {
				t.Fatalf("serving %q: %v", line, err)
			}
			section.Address = address
			row.Spec.Ingresses = append(row.Spec.Ingresses, section)
		default:
			address, port, _ := strings.Cut(word, ":")
			port, section, _ := strings.Cut(port, "/")
			in := kind.ServedInbound{Inbound: kind.Inbound{Address: address, Name: cmp.Or(section, port),
				Protocol: kind.TCP, ServiceAddress: "127.0.0.1"}}
			if _, err := fmt.Sscan(port, &in.Port); err != nil {
				t.Fatalf("serving %q: %v", line, err)
			}
			in.ServicePort = in.Port
			row.Spec.Inbounds = append(row.Spec.Inbounds, in)
		}
	}
	return row
}

// certificates parses "NAME SPIFFEIDS by MESHIDENTITY ... [next|accepted SPIFFEIDS by MESHIDENTITY]", names joined with
// "+".
func certificates(_ *testing.T, line string) resource.Any {
	words := strings.Fields(line)
	row := kind.DataplaneCertificatesList.Make("default", words[0], kind.DataplaneCertificates{})
	for words = words[1:]; len(words) > 0; {
		switch words[0] {
		case "next", "accepted":
			row.Spec.Next = &kind.NextIdentity{SpiffeIDs: kind.SpiffeIDsOf(strings.Split(words[1], "+")...),
				MeshIdentity: words[3], Accepted: words[0] == "accepted"}
			words = words[4:]
		default:
			row.Spec.Certificates = append(row.Spec.Certificates,
				kind.WorkloadCertificate{SpiffeIDs: kind.SpiffeIDsOf(strings.Split(words[0], "+")...),
					MeshIdentity: words[2]})
			words = words[3:]
		}
	}
	return row
}

// zoneAddresses parses the name of a MeshZoneAddress and "NAME ADDRESS:PORT [healthy]" of its ingresses.
func zoneAddresses(t *testing.T, line string) resource.Any {
	words := strings.Fields(line)
	row := kind.MeshZoneAddresses.Make("default", words[0], kind.MeshZoneAddress{})
	for words = words[1:]; len(words) > 0; {
		if words[0] == "healthy" {
			row.Spec.Ingresses[len(row.Spec.Ingresses)-1].Healthy = true
			words = words[1:]
			continue
		}
		address, port, _ := strings.Cut(words[1], ":")
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			t.Fatalf("zone addresses %q: %v", line, err)
		}
		row.Spec.Ingresses = append(row.Spec.Ingresses, kind.ZoneProxyAddress{Name: words[0], Address: address,
			Port: uint32(number)})
		words = words[2:]
	}
	return row
}

// egresses parses "NAME ADDRESS:PORT [healthy] ...", as zoneAddresses does.
func egresses(t *testing.T, line string) resource.Any {
	row := kind.MeshEgressAddresses.Make("default", "east", kind.MeshEgressAddress{})
	for _, e := range zoneAddresses(t, "east "+line).(*resource.Object[kind.MeshZoneAddress]).Spec.Ingresses {
		row.Spec.Egresses = append(row.Spec.Egresses, e)
	}
	return row
}
