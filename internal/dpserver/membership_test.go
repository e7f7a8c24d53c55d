package dpserver_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	"weft/internal/wire"
	"weft/kind"
)

// TestWhomTheMeshPutsOut loses stream and session, gets nothing more, is told the same everywhere, and is back
// once the mesh admits it.
func TestWhomTheMeshPutsOut(t *testing.T) {
	const says = "mesh default does not admit Dataplane web-1: networking.inbound[0] is blocked by dataplaneProxyMembership.blocked[0] {kuma.io/service: web}"
	p := newPlane(t, secured(t)...)
	p.register()
	session, _ := p.session("run-1")
	stream, err := p.discover(p.as("web-1"), "default.web-1")
	if err != nil {
		t.Fatal(err)
	}
	acknowledge(t, stream)

	p.put(kind.Meshes.Make("", "default", kind.Mesh{DataplaneProxyMembership: &kind.Membership{
		Blocked: []kind.MembershipRule{{Tags: map[string]string{kind.ServiceTag: "web"}}},
	}}))
	refused := func(what string, call func() error) {
		t.Helper()
		t.Run(what, func(t *testing.T) { wantStatus(t, call(), codes.PermissionDenied, says) })
	}
	receive := func(recv func() error) func() error {
		return func() error {
			for {
				if err := recv(); err != nil {
					return err
				}
			}
		}
	}
	refused("the open stream", receive(func() error { _, err := stream.Recv(); return err }))
	refused("the open session", receive(func() error { _, err := session.Recv(); return err }))
	refused("a certificate", func() error {
		_, err := p.agent.Sign(p.as("web-1"), &wire.SignRequest{Mesh: "default", Name: "web-1", Request: newRequest(t)})
		return err
	})
	refused("a registration", func() error {
		_, err := p.agent.Register(p.as("web-1"), &wire.RegisterRequest{Dataplane: []byte(web)})
		return err
	})
	refused("another stream", func() error {
		again, err := p.discover(p.as("web-1"), "default.web-1")
		if err == nil {
			_, err = again.Recv()
		}
		return err
	})
	refused("another session", func() error {
		again, err := p.agent.Session(p.as("web-1"))
		if err == nil {
			p.send(again, &wire.Report{Run: "run-1"})
			_, err = again.Recv()
		}
		return err
	})

	p.put(kind.Meshes.Make("", "default", kind.Mesh{}))
	p.eventually(func() bool { return p.server.Hub.NotAdmittedReason(web1) == "" }, func() any { return "it is refused still" })
	p.session("run-1")
}
