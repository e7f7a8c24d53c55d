package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// fullDisk gives a control plane that is not started yet a small disk for its data directory. fill takes its space, and
// empty gives back what was taken.
func (w *world) fullDisk() (fill, empty func()) {
	w.t.Helper()
	disk := w.plane.Data
	if err := os.Mkdir(disk, 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=8m"); err != nil {
		w.t.Skipf("mounting a small disk, which root may: %v", err)
	}
	w.t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	var taken []string
	fill = func() {
		w.t.Helper()
		path := filepath.Join(disk, fmt.Sprint("ballast-", len(taken)))
		if err := os.WriteFile(path, make([]byte, 16<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			w.t.Fatalf("filling the disk: %v", err)
		}
		taken = append(taken, path)
	}
	empty = func() {
		w.t.Helper()
		for _, path := range taken {
			if err := os.Remove(path); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	return fill, empty
}

// TestAControlPlaneOnAFullDisk: a proxy that restarts gets its session and its certificate, also from a control plane
// that was started on the full disk, and what operators look at says that the store takes no writes.
func TestAControlPlaneOnAFullDisk(t *testing.T) {
	t.Parallel()
	w := newInstance(t, int(subnets.Add(1)))
	fill, empty := w.fullDisk()
	w.startPlane()
	w.apply(secured)
	w.service(2, 18080, "web-1")
	w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	client := w.proxy("default", "client", caller("client", 3, "tags: {kuma.io/service: web}"))
	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("a request passes", func() error { return get(url) })

	const problem = "store-takes-no-writes"
	restart := func(when string) {
		t.Helper()
		client.Kill()
		client = w.proxy("default", "client", caller("client", 3, "tags: {kuma.io/service: web}"))
		w.eventually("a request passes "+when, func() error { return get(url) })
		w.eventually("weft check and /ready say so "+when, func() error {
			if out, _ := w.weft("check"); !strings.Contains(out, problem) { // findings are an error
				return errors.New(out)
			}
			ready, err := fetch(fmt.Sprintf("http://127.0.0.1:%d/ready", w.plane.Ports.Diagnostics))
			if err == nil && !strings.Contains(ready, "the store takes no writes since") {
				err = errors.New(ready)
			}
			return err
		})
	}
	fill()
	restart("once the disk is full")
	w.stops(w.plane.Process)
	fill()
	w.startPlane()
	restart("after a start on the full disk")

	empty()
	w.eventually("the store takes writes again", func() error {
		if out, _ := w.weft("check"); strings.Contains(out, problem) {
			return errors.New(out)
		}
		_, err := os.Stat(filepath.Join(w.plane.Data, "certificates.recorded"))
		return err
	})
	w.eventually("the control plane writes", func() error {
		_, err := w.weftWith("type: Mesh\nname: later\n", "apply", "-f", "-")
		return err
	})
	if err := get(url); err != nil {
		t.Error(err)
	}
}
