package dpserver_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	"weft/internal/wire"
	"weft/kind"
)

// TestAnEvictedProxy loses its stream and session, gets no configuration, gets the same error from every call, and is
// accepted once the mesh admits it.
func TestAnEvictedProxy(t *testing.T) {
	const says = "mesh default does not admit Dataplane web-1: networking.inbound[0] is blocked by " +
		"dataplaneProxyMembership.blocked[0] {kuma.io/service: web}"
	p := newPlane(t, withIdentity(t)...)
	p.register()
	session, _ := p.session("run-1")
	stream, err := p.discover(p.dataplaneToken("web-1"), "default.web-1")
	if err != nil {
		t.Fatal(err)
	}
	acknowledge(t, stream)

	p.put(kind.Meshes.Make("", "default", kind.Mesh{DataplaneProxyMembership: &kind.Membership{
		Blocked: []kind.MembershipRule{{Tags: map[string]string{kind.ServiceTag: "web"}}},
	}}))
	rejected := func(what string, call func() error) {
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
	rejected("the open stream", receive(func() error { _, err := stream.Recv(); return err }))
	rejected("the open session", receive(func() error { _, err := session.Recv(); return err }))
	rejected("a certificate", func() error {
		_, err := p.agent.Sign(p.dataplaneToken("web-1"),
			&wire.SignRequest{Mesh: "default", Name: "web-1", Request: newRequest(t)})
		return err
	})
	rejected("a registration", func() error {
		_, err := p.agent.Register(p.dataplaneToken("web-1"), &wire.RegisterRequest{Dataplane: []byte(web)})
		return err
	})
	rejected("another stream", func() error {
		again, err := p.discover(p.dataplaneToken("web-1"), "default.web-1")
		if err == nil {
			_, err = again.Recv()
		}
		return err
	})
	rejected("another session", func() error {
		again, err := p.agent.Session(p.dataplaneToken("web-1"))
		if err == nil {
			p.send(again, &wire.Report{Run: "run-1"})
			_, err = again.Recv()
		}
		return err
	})

	p.put(kind.Meshes.Make("", "default", kind.Mesh{}))
	p.eventually(func() bool { return p.server.Rows.NotAdmittedReason(web1) == "" }, func() any {
		return "it is still rejected"
	})
	p.session("run-1")
}
