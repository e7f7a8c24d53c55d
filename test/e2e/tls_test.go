package e2e

import (
	"errors"
	"fmt"
	"testing"

	"weft/internal/traffic"
)

// tlsPolicy is a MeshTLS of the whole mesh with a conf.
func tlsPolicy(conf string) string {
	return fmt.Sprintf("type: MeshTLS\nmesh: default\nname: t\nspec: {rules: [{default: {%s}}]}\n", conf)
}

// TestTLSHasItsEffect: each field of a MeshTLS does to connections what it says, and requests of the mesh pass with
// every value.
func TestTLSHasItsEffect(t *testing.T) {
	w := newWorld(t)
	w.apply(secured)
	w.service(2, 18080, "web-1")
	w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	w.proxy("default", "client", caller("client", 3, "tags: {kuma.io/service: web}"))
	inMesh := fmt.Sprintf("http://%s:10001/", w.address(3))
	plain := fmt.Sprintf("http://%s:20080/", w.address(2))
	w.eventually("a request passes", func() error { return get(inMesh) })

	rejected := func() error {
		if get(plain) == nil {
			return errors.New("a plaintext request is served")
		}
		return nil
	}
	served := func() error { return get(plain) }
	for _, c := range []struct {
		conf string
		// holds is the effect on a plaintext client, or nil where new connections of the mesh count in the statistic.
		holds      func() error
		negotiated string
	}{
		{"mode: Strict", rejected, ""},
		{"mode: Permissive", served, ""},
		{"mode: Strict", rejected, ""},
		{"tlsVersion: {max: TLS12}", nil, `versions\.TLSv1\.2`},
		{"tlsVersion: {min: TLS13}", nil, `versions\.TLSv1\.3`},
		{"tlsVersion: {max: TLS12}, tlsCiphers: [ECDHE-ECDSA-CHACHA20-POLY1305]", nil,
			`ciphers\.ECDHE-ECDSA-CHACHA20-POLY1305`},
		{"tlsVersion: {max: TLS12}, tlsCiphers: [ECDHE-ECDSA-AES256-GCM-SHA384]", nil,
			`ciphers\.ECDHE-ECDSA-AES256-GCM-SHA384`},
	} {
		statistic := `listener\.[^ ]*_20080\.ssl\.` + c.negotiated
		before := w.counter("web-1", statistic)
		w.apply(tlsPolicy(c.conf))
		w.eventually(c.conf, func() error {
			if c.holds != nil {
				return c.holds()
			}
			if err := get(inMesh); err != nil {
				return err
			}
			if now := w.counter("web-1", statistic); now <= before {
				return fmt.Errorf("%s is %d", statistic, now)
			}
			return nil
		})
		if err := get(inMesh); err != nil {
			t.Errorf("%s: a request of the mesh fails: %v", c.conf, err)
		}
	}
}

// editTLS edits the mode, which leaves connections with TLS alone, and the versions, which fail no request.
func (w *world) editTLS(inMesh string) {
	plain := fmt.Sprintf("http://%s:20080/", w.address(2))

	// The chain of connections with TLS stays, so the server ends no connection of the client.
	const ended = `cluster\.kri_msvc_[^ ]*\.upstream_cx_close_notify`
	w.apply(tlsPolicy("mode: Strict"))
	d := w.drill("the mode of a MeshTLS is edited, ten times", traffic.Get(inMesh))
	d.more(50)
	before := w.counter("client", ended)
	for i := range 10 {
		mode := []string{"Permissive", "Strict"}[i%2]
		w.apply(tlsPolicy("mode: " + mode))
		w.eventually("plaintext connections follow the mode", func() error {
			if served := get(plain) == nil; served != (mode == "Permissive") {
				return fmt.Errorf("served: %v", served)
			}
			return nil
		})
		d.more(20)
	}
	d.more(50)
	d.end()
	if after := w.counter("client", ended); after != before {
		w.t.Errorf("the server ended %d connections while the mode changed", after-before)
	}

	d = w.drill("the versions of a MeshTLS are edited, four times", traffic.Get(inMesh))
	for i := range 4 {
		clusters := w.counter("client", clusterChanges)
		w.apply(tlsPolicy("tlsVersion: " + []string{"{max: TLS12}", "{min: TLS13}"}[i%2]))
		w.eventually("the edit has arrived", func() error {
			if now := w.counter("client", clusterChanges); now <= clusters {
				return fmt.Errorf("%d modified clusters", now)
			}
			return nil
		})
		d.more(20)
	}
	d.more(50)
	d.end()
}
