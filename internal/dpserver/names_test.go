package dpserver_test

import (
	"context"
	"testing"

	"weft/internal/admission"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

// clientOfWeb is a Dataplane that reaches the service web at its virtual IP, by its host name.
func clientOfWeb(host, ip string) []resource.Any {
	return []resource.Any{
		kind.Dataplanes.Make("default", "web-1", kind.Dataplane{Networking: kind.Networking{
			Address: "10.0.0.1", TransparentProxying: &kind.TransparentProxying{},
		}}),
		kind.MeshServices.Make("default", "web", kind.MeshService{
			Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "web"}},
			Ports:    []kind.ServicePort{{Port: 80}},
		}),
		webService(host, ip),
	}
}

func webService(host, ip string) resource.Any {
	return kind.MeshServiceStatuses.Make("default", "web", kind.MeshServiceStatus{
		VIPs: []kind.VIP{{IP: ip}}, Addresses: []kind.Address{{Hostname: host}},
	})
}

func (p *plane) watchHostNames(ctx context.Context, version string) wire.Agent_HostNamesClient {
	p.t.Helper()
	stream, err := p.agent.HostNames(ctx, &wire.HostNamesRequest{Mesh: "default", Name: "web-1", Version: version})
	if err != nil {
		p.t.Fatal(err)
	}
	return stream
}

func (p *plane) nextUpdate(stream wire.Agent_HostNamesClient) *wire.HostNamesUpdate {
	p.t.Helper()
	update, err := stream.Recv()
	if err != nil {
		p.t.Fatal(err)
	}
	return update
}

func TestHostNamesAreSentOnceAndThenTheChanges(t *testing.T) {
	p := newPlane(t, clientOfWeb("web.mesh.local", "241.0.0.1")...)
	ctx, leave := context.WithCancel(p.dataplaneToken("web-1"))
	stream := p.watchHostNames(ctx, "")
	first := p.nextUpdate(stream)
	if !first.Complete || len(first.Changed) != 1 || first.Changed[0].Name != "web.mesh.local" ||
		string(first.Changed[0].Addresses[0]) != "\xf1\x00\x00\x01" {
		t.Fatalf("told %v, want all names", first)
	}
	p.put(webService("www.mesh.local", "241.0.0.1"))
	second := p.nextUpdate(stream)
	if second.Complete || len(second.Changed) != 1 || second.Changed[0].Name != "www.mesh.local" ||
		len(second.Removed) != 1 {
		t.Fatalf("told %v, want the new name and the end of the old one", second)
	}
	leave()

	again := p.watchHostNames(p.dataplaneToken("web-1"), second.Version)
	p.put(webService("api.mesh.local", "241.0.0.1"))
	if third := p.nextUpdate(again); third.Version == second.Version || third.Changed[0].Name != "api.mesh.local" {
		t.Errorf("who came back with the right version is told %v, want nothing before the next change", third)
	}
	if lost := p.nextUpdate(p.watchHostNames(p.dataplaneToken("web-1"), first.Version)); !lost.Complete {
		t.Errorf("who came back with an older version is told %v, want all names", lost)
	}
}

func TestHostNamesNeedAToken(t *testing.T) {
	p := newPlane(t, clientOfWeb("web.mesh.local", "241.0.0.1")...)
	for what, ctx := range map[string]context.Context{"no token": t.Context(),
		"another's token": p.dataplaneToken("web-2")} {
		if update, err := p.watchHostNames(ctx, "").Recv(); err == nil {
			t.Errorf("with %s it is told %v", what, update)
		}
	}
	stream := p.watchHostNames(p.dataplaneToken("web-1"), "")
	p.nextUpdate(stream)
	if err := p.writer.Delete(t.Context(), kind.Dataplanes.Key("default", "web-1"), admission.Change{}); err != nil {
		t.Fatal(err)
	}
	if update, err := stream.Recv(); err == nil {
		t.Errorf("a Dataplane that is deleted is told %v", update)
	}
}
