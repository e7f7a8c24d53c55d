package cni_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weft/internal/cni"
	"weft/internal/testwait"
)

// calico is a configuration with the form in which its owner wrote it.
const calico = `{
  "name": "k8s-pod-network", "cniVersion": "0.3.1",
  "plugins": [
    {"type": "calico", "mtu": 1e3, "ipam": {"type": "calico-ipam"}},
    {"type": "portmap", "snat": true, "capabilities": {"portMappings": true}}
  ] ,
  "disableCheck": true
}
`

// single is a configuration of the older form, with one plugin.
const single = `{"cniVersion": "0.4.0", "name": "bridge",
  "type": "bridge"}
`

func newNode(t testing.TB, files map[string]string) *cni.Node {
	t.Helper()
	n := &cni.Node{NetDir: t.TempDir(), BinDir: t.TempDir()}
	for name, text := range files {
		write(t, n, name, text)
	}
	if err := n.InstallProgram(os.Args[0]); err != nil {
		t.Fatal(err)
	}
	return n
}

func write(t testing.TB, n *cni.Node, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(n.NetDir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// stored returns the files of the network configurations.
func stored(t testing.TB, n *cni.Node) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(n.NetDir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(n.NetDir, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // it was replaced now
		} else if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(text)
	}
	return files
}

// types returns the types of the plugins of a list.
func types(t testing.TB, text string) (all []string) {
	t.Helper()
	var list struct{ Plugins []struct{ Type string } }
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, p := range list.Plugins {
		all = append(all, p.Type)
	}
	return all
}

// TestChain: the plugin is the last one of the configuration that the container runtime uses, and of no other. After it
// is removed, all files are as they were.
func TestChain(t *testing.T) {
	for name, c := range map[string]struct {
		files    map[string]string
		confName string
		file     string // that has the plugin
		want     string
	}{
		"a list": {map[string]string{"10-calico.conflist": calico, "99-loopback.conf": single}, "",
			"10-calico.conflist", "calico portmap kuma-cni"},
		"a single plugin": {map[string]string{"10-bridge.conf": single, "20-calico.conflist": calico}, "",
			"10-bridge.conflist", "bridge kuma-cni"},
		"a named file": {map[string]string{"10-bridge.conf": single, "20-calico.conflist": calico},
			"20-calico.conflist", "20-calico.conflist", "calico portmap kuma-cni"},
		"a named single plugin": {map[string]string{"05-calico.conflist": calico, "10-bridge.conf": single},
			"10-bridge.conf", "10-bridge.conflist", "bridge kuma-cni"},
		"invalid files": {map[string]string{"00-broken.conflist": "{", "01-old.conf": `{"name": "a", "type": "b"}`,
			"02-calico.conflist": calico, "README": "{"}, "", "02-calico.conflist", "calico portmap kuma-cni"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, c.files)
			n.ConfName = c.confName
			if err := n.CheckInstalled(); err == nil {
				t.Error("the plugin is installed before it is chained")
			}
			if file, err := n.Chain(); err != nil || file != c.file {
				t.Fatalf("%q is changed, %v; want %q", file, err, c.file)
			}
			if err := n.CheckInstalled(); err != nil {
				t.Error(err)
			}
			if file, err := n.Chain(); err != nil || file != "" {
				t.Errorf("a second time, %q is changed, %v", file, err)
			}
			for file, text := range stored(t, n) {
				if strings.Contains(text, cni.Type) != (file == c.file) {
					t.Errorf("%s has\n%s", file, text)
				}
			}
			if got := strings.Join(types(t, stored(t, n)[c.file]), " "); got != c.want {
				t.Errorf("the plugins are %s, want %s", got, c.want)
			}
			info, err := os.Stat(filepath.Join(n.NetDir, c.file))
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the mode of the file is %v, %v", info.Mode(), err)
			}
			if err := n.Remove(); err != nil {
				t.Fatal(err)
			}
			if got := stored(t, n); !maps.Equal(got, c.files) {
				t.Errorf("the files are %q, want %q", got, c.files)
			}
			if _, err := os.Stat(filepath.Join(n.BinDir, cni.Type)); !os.IsNotExist(err) {
				t.Errorf("the program is still there: %v", err)
			}
			if err := n.Remove(); err != nil {
				t.Errorf("a second removal: %v", err)
			}
		})
	}
}

// TestChainIsLast: the plugin is the last one again after others were added. Without its program it is not installed.
func TestChainIsLast(t *testing.T) {
	n := newNode(t, map[string]string{"10-calico.conflist": calico})
	if _, err := n.Chain(); err != nil {
		t.Fatal(err)
	}
	longer := strings.NewReplacer("\n  ] ,", `, {"type": "bandwidth"}`+"\n  ] ,")
	write(t, n, "10-calico.conflist", longer.Replace(stored(t, n)["10-calico.conflist"]))
	if err := n.CheckInstalled(); err == nil {
		t.Error("a plugin that is not the last one counts as installed")
	}
	if _, err := n.Chain(); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(types(t, stored(t, n)["10-calico.conflist"]), " ")
	if err := n.CheckInstalled(); err != nil || got != "calico portmap bandwidth kuma-cni" {
		t.Errorf("the plugins are %s, %v", got, err)
	}
	if err := os.Remove(filepath.Join(n.BinDir, cni.Type)); err != nil {
		t.Fatal(err)
	}
	if err := n.CheckInstalled(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without its program: %v", err)
	}
	if err := n.Remove(); err != nil || stored(t, n)["10-calico.conflist"] != longer.Replace(calico) {
		t.Errorf("the file has\n%s\n%v", stored(t, n)["10-calico.conflist"], err)
	}
}

// TestChainAndRemove: a list of any form is as it was after the plugin is removed.
func TestChainAndRemove(t *testing.T) {
	n := newNode(t, nil)
	rapid.Check(t, func(r *rapid.T) {
		space := rapid.StringMatching(`[ \n\t]{0,3}`)
		var plugins []string
		for range rapid.IntRange(1, 3).Draw(r, "plugins") {
			plugins = append(plugins, space.Draw(r, "before")+`{"type":"p",`+space.Draw(r, "in")+`"n":[1.50,"],}"]}`)
		}
		text := space.Draw(r, "start") + `{"plugins":` + space.Draw(r, "open") + "[" + strings.Join(plugins, ",") +
			space.Draw(r, "close") + `],"name":"n","cniVersion":"1.0.0"}` + space.Draw(r, "end")
		write(t, n, "10.conflist", text)
		if _, err := n.Chain(); err != nil {
			r.Fatal(err)
		}
		if got := types(t, stored(t, n)["10.conflist"]); len(got) != len(plugins)+1 || got[len(plugins)] != cni.Type {
			r.Fatalf("the plugins are %v", got)
		}
		if err := n.Remove(); err != nil {
			r.Fatal(err)
		}
		if got := stored(t, n)["10.conflist"]; got != text {
			r.Fatalf("the file has\n%s\nwant\n%s", got, text)
		}
	})
}

// TestChainErrors: a configuration that can't have the plugin stays as it is, with the reason.
func TestChainErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":            "there is no network configuration",
		"[]":          "10.conflist: ",
		"{} x":        "10.conflist: ",
		`{"name":""}`: "it has neither plugins nor a type",
		`{"name":"a","cniVersion":"1.0.0","plugins":[]}`:                                       "it has no plugins",
		`{"name":"a","cniVersion":"0.2.0","plugins":[{"type":"p"}]}`:                           `its cniVersion is "0.2.0"`,
		`{"cniVersion":"1.0.0","plugins":[{"type":"p"}]}`:                                      "it has no name",
		`{"name":"a","cniVersion":"1.0.0","plugins":{"type":"p"}}`:                             "plugins is no list",
		`{"name":"a","cniVersion":"1.0.0","plugins":[{"type":"kuma-cni"}]}`:                    "it has no other plugin",
		`{"name":"a","cniVersion":"1.0.0","plugins":[{"type":"` + strings.Repeat("a", 3) + `"`: "10.conflist: ",
	} {
		files := map[string]string{"10.conflist": text}
		if text == "" {
			files = nil
		}
		n := newNode(t, files)
		if _, err := n.Chain(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if err := n.CheckInstalled(); err == nil {
			t.Errorf("%s counts as installed", text)
		}
		if got := stored(t, n); len(got) != len(files) || got["10.conflist"] != text {
			t.Errorf("%s: the files are %q", text, got)
		}
	}
}

// TestKeep: the plugin is chained when a configuration appears, and again after its owner has written it, added another
// plugin, or added a file that comes first.
func TestKeep(t *testing.T) {
	n := newNode(t, nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- n.Keep(ctx, slog.New(slog.DiscardHandler)) }()
	longer := strings.Replace(calico, `{"type": "calico"`, `{"type": "kuma-cni"}, {"type": "calico"`, 1)
	for _, step := range []struct{ name, text string }{
		{"20-calico.conflist", calico}, {"20-calico.conflist", longer}, {"10-bridge.conf", single},
		{"20-calico.conflist", calico}, {"10-bridge.conf", single}, {"05-new.conflist", calico},
	} {
		write(t, n, step.name, step.text)
		testwait.Until(t, "the plugin is chained after a write of "+step.name, func() error {
			if err := n.CheckInstalled(); err != nil {
				return err
			}
			files, chained := stored(t, n), 0
			for _, text := range files {
				chained += strings.Count(text, cni.Type)
			}
			if chained != 1 {
				return fmt.Errorf("the files are %q", files)
			}
			return nil
		})
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := n.CheckInstalled(); err != nil {
		t.Errorf("the plugin does not stay: %v", err)
	}
	if err := n.Remove(); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"05-new.conflist": calico, "10-bridge.conf": single, "20-calico.conflist": calico}
	if got := stored(t, n); !maps.Equal(got, want) {
		t.Errorf("the files are %q", got)
	}
}

// TestDeleted: a DaemonSet is deleted if the API server says so, or does not accept its account any more. A failure
// says nothing.
func TestDeleted(t *testing.T) {
	var status int
	var body string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/apps/v1/namespaces/kube-system/daemonsets/node" ||
			r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s with %s", r.URL, r.Header)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	defer server.Close()
	account := t.TempDir()
	ca := pemOf(server.Certificate().Raw)
	for name, text := range map[string][]byte{"token": []byte("secret\n"), "ca.crt": ca} {
		if err := os.WriteFile(filepath.Join(account, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := cni.DaemonSet{Namespace: "kube-system", Name: "node", Server: server.Listener.Addr().String(),
		Account: account}
	for _, c := range []struct {
		status        int
		body          string
		deleted, fail bool
	}{
		{200, `{"metadata": {"name": "node"}}`, false, false},
		{200, `{"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}`, true, false},
		{200, `{`, false, true}, {401, "", true, false}, {403, "", true, false}, {404, "", true, false},
		{429, "", false, true}, {500, "", false, true},
	} {
		status, body = c.status, c.body
		if deleted, err := d.IsDeleted(t.Context()); deleted != c.deleted || (err != nil) != c.fail {
			t.Errorf("%d %s: deleted %v, %v", c.status, c.body, deleted, err)
		}
	}
	server.Close()
	if deleted, err := d.IsDeleted(t.Context()); deleted || err == nil {
		t.Errorf("without an API server: deleted %v, %v", deleted, err)
	}
}

// TestInstallProgram: a program in use is replaced.
func TestInstallProgram(t *testing.T) {
	n := newNode(t, nil)
	if err := n.InstallProgram("/bin/sh"); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(n.BinDir)
	if err != nil || len(entries) != 1 || entries[0].Name() != cni.Type {
		t.Fatalf("the folder has %v, %v", entries, err)
	}
	got, err := os.ReadFile(filepath.Join(n.BinDir, cni.Type))
	want, err2 := os.ReadFile("/bin/sh")
	if err != nil || err2 != nil || !slices.Equal(got, want) {
		t.Errorf("the program is another one: %v, %v", err, err2)
	}
	if info, err := entries[0].Info(); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
}
