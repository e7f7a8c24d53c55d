package graph_test

import (
	"bytes"
	stdcmp "cmp"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"weft/internal/graph"
	"weft/internal/match"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

var update = flag.Bool("update", false, "rewrite the expectations; understand each difference first")

// Every file of testdata is a world: resources as users write them, what the proxies serve, and what
// the mesh then means. A file that is dropped there is a new test.
func TestWorlds(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no worlds: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := meaning(t, archive)
			if *update {
				setFile(archive, "meaning", got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(fileOf(archive, "meaning")), got); diff != "" {
				t.Errorf("the world means something else (-want +got); if that is right, run with -update:\n%s", diff)
			}
		})
	}
}

func fileOf(a *txtar.Archive, name string) []byte {
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func setFile(a *txtar.Archive, name, text string) {
	a.Files = slices.DeleteFunc(a.Files, func(f txtar.File) bool { return f.Name == name })
	a.Files = append(a.Files, txtar.File{Name: name, Data: []byte(text)})
}

// load makes the state of a world.
func load(t *testing.T, archive *txtar.Archive) *graph.State {
	t.Helper()
	s := graph.NewState("east")
	s.DB.Commit(func(tx *table.Tx) {
		for _, doc := range bytes.Split(fileOf(archive, "resources.yaml"), []byte("\n---\n")) {
			s.Put(tx, received(parse(t, doc)))
		}
		for _, line := range strings.Split(strings.TrimSpace(string(fileOf(archive, "ingresses"))), "\n") {
			if line != "" {
				s.Put(tx, ingresses(t, line))
			}
		}
		for _, line := range strings.Split(strings.TrimSpace(string(fileOf(archive, "serving"))), "\n") {
			if line != "" {
				s.Put(tx, serving(t, line))
			}
		}
		for _, line := range strings.Split(strings.TrimSpace(string(fileOf(archive, "certificates"))), "\n") {
			if line != "" {
				s.Put(tx, certificates(line))
			}
		}
		for _, line := range strings.Split(strings.TrimSpace(string(fileOf(archive, "authorities"))), "\n") {
			if name, fingerprint, ok := strings.Cut(line, " "); ok {
				domain := "default.east.mesh.local"
				if name == kind.MTLSIdentity {
					domain = "default"
				}
				s.Put(tx,
					kind.SigningCAs.Make("default", name,
						kind.SigningCA{Fingerprint: fingerprint, TrustDomain: domain}))
			}
		}
		for _, line := range strings.Split(strings.TrimSpace(string(fileOf(archive, "vips"))), "\n") {
			if name, ip, ok := strings.Cut(line, " "); ok {
				s.Put(tx,
					kind.MeshServiceStatuses.Make("default", name, kind.MeshServiceStatus{VIPs: []kind.VIP{{IP: ip}}}))
			}
		}
		for _, line := range strings.Split(strings.TrimSpace(string(fileOf(archive, "zone addresses"))), "\n") {
			if line != "" {
				s.Put(tx, zoneAddresses(t, line))
			}
		}
		if line := string(fileOf(archive, "egresses")); line != "" {
			s.Put(tx, egresses(t, line))
		}
		for _, line := range strings.Split(strings.TrimSpace(string(fileOf(archive, "trusts"))), "\n") {
			if name, domain, ok := strings.Cut(line, " "); ok {
				s.Put(tx, trustIn(name, domain))
			}
		}
	})
	return s
}

// trustIn is a MeshTrust of the zone of its trust domain, where that names one.
func trustIn(name, domain string) *resource.Object[kind.MeshTrust] {
	bundle := kind.CABundle{Type: "Pem", PEM: &kind.PEMBundle{Value: "the roots of " + name}}
	trust := kind.MeshTrusts.Make("default", name,
		kind.MeshTrust{TrustDomain: domain, CABundles: []kind.CABundle{bundle}})
	if zone, ok := strings.CutSuffix(strings.TrimPrefix(domain, "default."), ".mesh.local"); ok {
		trust.Labels = map[string]string{kind.OriginLabel: kind.OriginZone, kind.ZoneLabel: zone}
	}
	return trust
}

// meaning writes down what a world means, one line a fact.
func meaning(t *testing.T, archive *txtar.Archive) string {
	s := load(t, archive)
	var b strings.Builder
	r := table.Eval(s.DB.Snapshot())
	for dp := range s.Dataplanes.All(s.DB.Snapshot()) {
		describeProxy(&b, s, r, s.Proxy.Get(r, graph.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}))
	}
	for _, route := range slices.Concat(s.SNIRoutes.Get(r, "default"), s.CrossZoneSNIRoutes.Get(r, "default")) {
		fmt.Fprintf(&b, "SNI route %s to %s%s\n", route.SNI, route.Destination,
			map[bool]string{true: " cross-zone"}[route.CrossZone])
		for _, e := range s.SNIRouteBackends(r, route) {
			fmt.Fprintf(&b, "  served by %s at %s:%d\n", stdcmp.Or(e.Proxy.Name, "the ingress of "+e.Zone), e.Address,
				e.Port)
		}
	}
	services := s.Destinations.Get(r, "default")
	slices.SortFunc(services, graph.CompareDestinations)
	for _, service := range services {
		for _, port := range s.Ports.Get(r, service) {
			describeDestination(&b, s, r, service.At(port))
		}
	}
	return b.String()
}

// received names a resource of another zone, or of global, as it is named where it has been received; one with a
// display name is written so already.
func received(o resource.Any) resource.Any {
	meta := o.Envelope()
	owner, remote := kind.OwnerOf(meta), meta.Label(kind.OriginLabel) == kind.OriginGlobal
	if remote = remote || owner.Zone != "" && owner.Zone != "east"; remote &&
		meta.Label(kind.DisplayName) == "" {
		meta.Labels[kind.DisplayName] = meta.Name
		meta.Name = kind.SyncedName(kind.ByName(o.Key().Kind).Describe(), meta.Name, owner)
	}
	if dp, ok := o.(*resource.Object[kind.Dataplane]); ok {
		kind.VouchOperator(nil, dp)
	}
	return o
}

// ingresses reads "ZONE ADDRESS:PORT [healthy] ...".
func ingresses(t *testing.T, line string) resource.Any {
	words := strings.Fields(line)
	name := kind.SyncedName(&kind.MeshZoneAddresses.Info, words[0], kind.Owner{Zone: words[0]})
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
			in := kind.ServedInbound{Inbound: kind.Inbound{Address: address, Name: stdcmp.Or(section, port),
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
func certificates(line string) resource.Any {
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

func describeOtherIDs(rule match.Rule) string {
	if len(rule.Also) == 0 {
		return ""
	}
	return fmt.Sprintf(" and %v", rule.Also)
}

func describeProxy(b *strings.Builder, s *graph.State, r *table.Reader, p *graph.Proxy) {
	fmt.Fprintf(b, "proxy %s\n", p.Key)
	if id := p.Identity; id != nil {
		fmt.Fprintf(b, "  is %s by %s %s\n", strings.Join(id.List(), " and "), id.MeshIdentity, id.Problem)
	} else {
		fmt.Fprintf(b, "  is plain\n")
	}
	if cert := p.Certificate; cert != nil && (!cert.Same(p.Identity.SpiffeIDs) || cert.Authority != "") {
		fmt.Fprintf(b, "  its next certificate is %s by %s %s\n", strings.Join(cert.List(), " and "), cert.MeshIdentity,
			cert.Authority)
	}
	for _, l := range p.Listeners {
		fmt.Fprintf(b, "  listens on %s:%d (%s) section %s for %s:%d\n", l.Address, l.Port, l.Protocol, l.Section,
			l.ServiceAddress, l.ServicePort)
		if l.AlsoPlaintext {
			fmt.Fprintf(b, "    takes plain connections too\n")
		}
		if l.Permissions != nil {
			for _, rule := range l.Permissions.Deny {
				fmt.Fprintf(b, "    denies %s%s%s by %s\n", rule.Exact, rule.Prefix, describeOtherIDs(rule),
					rule.Origin)
			}
			for _, rule := range l.Permissions.Allow {
				fmt.Fprintf(b, "    allows %s%s%s by %s\n", rule.Exact, rule.Prefix, describeOtherIDs(rule),
					rule.Origin)
			}
		}
	}
	for _, l := range p.Ingresses {
		fmt.Fprintf(b, "  is an ingress of %v at %s:%d\n", p.Passes, l.Address, l.Port)
	}
	for _, o := range p.Outbounds {
		fmt.Fprintf(b, "  reaches %s (%s) at %s:%d\n", o.Destination, o.Protocol, o.Address, o.Port)
	}
	fmt.Fprintf(b, "  proxy group reaches %v\n", s.Reached.Get(r, p.Group))
	if gone := s.Draining.Get(r, p.Key); len(gone) > 0 {
		fmt.Fprintf(b, "  is draining %v\n", gone)
	}
}

func describeDestination(b *strings.Builder, s *graph.State, r *table.Reader, key graph.DestinationKey) {
	d := s.DestinationOf(r, key)
	fmt.Fprintf(b, "destination %s (%s) at %v\n", key, d.Protocol, d.VIPs)
	if key.Kind != graph.MultiZoneService {
		describeServers(b, "servers", &d.Servers)
	}
	if d.Local != nil {
		describeServers(b, "servers here", d.Local)
	}
	for i := range d.Zones {
		describeServers(b, "servers", &d.Zones[i])
	}
	for _, secured := range []bool{true, false} {
		if reason := d.UnreachableReason(secured); reason != "" {
			fmt.Fprintf(b, "  unreachable for secured=%v: %s\n", secured, reason)
		}
	}
	for _, list := range d.Lists(true) {
		for _, e := range s.EndpointsOf(r, list).Endpoints {
			fmt.Fprintf(b, "  served by %s at %s:%d\n", stdcmp.Or(e.Proxy.Name, "the ingress of "+e.Zone), e.Address,
				e.Port)
		}
	}
	switch key.Kind {
	case graph.MultiZoneService:
		describeSelected(b, s, r, key)
		return
	case graph.ExternalService:
		return
	}
	backing := s.Backing(r, s.Row(key))
	for _, server := range backing.Servers {
		if server.Port == key.Port && server.Status != graph.EndpointPublished {
			fmt.Fprintf(b, "  not by %s at %s: %s\n", server.Dataplane, server.Address, server.Status)
		}
	}
	fmt.Fprintf(b, "  called by %v and %d more\n", backing.Callers, backing.Transparent)
}

func describeServers(b *strings.Builder, who string, servers *graph.Servers) {
	if servers.Way != graph.Direct {
		who += " " + fmt.Sprintf("in %s by %s", stdcmp.Or(servers.Zone, "no zone"), servers.Way)
		fmt.Fprintf(b, "  %s have the SNI %q\n", who, servers.SNI)
	}
	for _, id := range servers.Identities {
		fmt.Fprintf(b, "  %s are %s\n", who, id)
	}
	if servers.TrustDomain != "" {
		fmt.Fprintf(b, "  %s are trusted as of %s\n", who, servers.TrustDomain)
	}
}

func describeSelected(b *strings.Builder, s *graph.State, r *table.Reader, key graph.DestinationKey) {
	service, _ := s.MultiZoneServices.Find(r, key.Mesh, key.Service)
	for _, port := range service.Spec.Ports {
		for _, selected := range s.SelectedServices(r, service, port) {
			if port.Port == key.Port {
				fmt.Fprintf(b, "  selects %s %s\n", selected.Service, selected.Excluded)
			}
		}
	}
}
