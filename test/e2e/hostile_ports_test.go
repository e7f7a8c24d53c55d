package e2e

import (
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weft/internal/adminsocket"
	"weft/internal/testwait"
)

// The ports of weft-dp tell strangers only whether it is ready, before and after. Envoy's administration interface has
// no port, and no program listens at an undocumented port.
func TestHostileStrangersAtEveryPort(t *testing.T) {
	a := newAttack(t, "a stranger or an application learns or changes something at a port of weft-dp or Envoy")
	w := newWorld(t)
	w.apply(secured)
	w.service(2, 18080, "web-1")
	taken := w.listen(2, 20080) // so that Envoy cannot bind yet
	p, port := w.begin(nil, "default", "web-1", server("web-1", "web", "http", 2, 20080))
	url := fmt.Sprintf("http://%s:%d", w.address(2), port)
	w.eventually("the readiness port responds", func() error {
		_, _, err := tellsStranger("GET", url+"/live")
		return err
	})
	strangers := func(state string, status int) {
		for path, want := range map[string]string{"/ready": state, "/live": "live", "/": "404 page not found",
			"/stats": "404 page not found", "/config_dump": "404 page not found", "/ready/x": "404 page not found"} {
			code, body, err := tellsStranger("GET", url+path)
			if err != nil {
				t.Fatal(err)
			}
			if body != want || path == "/ready" && code != status {
				a.fellTo("GET %s tells %d %q, want %q", path, code, body, want)
				continue
			}
			a.repelled()
		}
		if code, body, _ := tellsStranger("POST", url+"/ready"); code != http.StatusMethodNotAllowed {
			a.fellTo("POST /ready: %d %s", code, body)
		}
	}
	w.eventually("the log says why it is not ready", func() error {
		text, _ := os.ReadFile(p.Log)
		if !strings.Contains(string(text), "0 of 1 listeners serve") {
			return fmt.Errorf("it says %s", text)
		}
		return nil
	})
	strangers("not ready", http.StatusServiceUnavailable)
	taken.Close()
	w.kickListener()
	w.ready(nil, p, port)
	strangers("ready", http.StatusOK)

	agent, envoy := p.PID(), child(t, p.PID())
	for _, c := range []struct {
		name string
		pid  int
		want []string
	}{
		{"weft", w.plane.PID(), []string{"any", "any", "any", "any"}}, // 5678, 5680, 5681, 5682
		{"weft-dp", agent, []string{fmt.Sprintf("any:%d", port)}},
		{"Envoy", envoy, []string{w.address(2) + ":20080"}},
	} {
		got := listening(t, c.pid)
		if c.name == "weft" {
			for i := range got {
				got[i], _, _ = strings.Cut(got[i], ":")
			}
		}
		if !slices.Equal(got, c.want) {
			a.fellTo("%s listens at %v, want %v", c.name, got, c.want)
			continue
		}
		a.repelled()
	}
	sockets, err := filepath.Glob(filepath.Join(os.TempDir(), "weft-dp-*"))
	if err != nil || len(sockets) == 0 {
		t.Fatalf("the agent has no folder of its own: %v", err)
	}
	for _, folder := range sockets {
		if info, err := os.Stat(folder); err == nil && info.Mode().Perm() != 0o700 {
			a.fellTo("the folder of Envoy's administration socket, %s, has mode %v", folder, info.Mode())
			continue
		}
		a.repelled()
	}
	if info, err := os.Stat(filepath.Join(w.plane.Data, "admin.sock")); err != nil || info.Mode().Perm() != 0o600 {
		a.fellTo("the administrator's socket has mode %v, %v", info.Mode(), err)
	}
	// A MeshIdentity has the path of the socket at which an Envoy of the same user gets its certificates, over HTTP/2.
	if c, err := adminsocket.Dial(t.Context(), filepath.Join(w.plane.Data, adminsocket.Name)); err != nil {
		t.Fatal(err)
	} else {
		io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		c.SetDeadline(testwait.Deadline())
		said, _ := io.ReadAll(c)
		c.Close()
		if len(said) > 0 && !strings.HasPrefix(string(said), "HTTP/1.1 4") &&
			!strings.HasPrefix(string(said), "HTTP/1.1 505") {
			a.fellTo("the administrator's socket speaks HTTP/2 with a proxy: %q", said)
		} else {
			a.repelled()
		}
	}
	for path, want := range map[string]string{"/ready": "OK", "/healthy": "OK"} {
		code, body, err := tellsStranger("GET", fmt.Sprintf("http://127.0.0.1:%d%s", w.plane.Ports.Diagnostics, path))
		if err != nil || code != http.StatusOK || body != want {
			a.fellTo("GET %s of the control plane: %d %q %v", path, code, body, err)
			continue
		}
		a.repelled()
	}
}

// kickListener has the control plane send the listeners anew: an Envoy that could not bind retries with the next ones.
func (w *world) kickListener() {
	w.t.Helper()
	w.apply(strings.Replace(server("web-1", "web", "http", 2, 20080), "labels: {", "labels: {again: \"1\", ", 1))
}

func tellsStranger(method, url string) (status int, body string, err error) {
	request, err := http.NewRequest(method, url, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, strings.TrimSpace(string(text)), err
}

// child returns the child of a process.
func child(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		more, _ := os.ReadFile(task)
		text = append(append(text, ' '), more...)
	}
	fields := strings.Fields(string(text))
	if len(fields) == 0 {
		t.Skipf("the kernel does not tell the children of %d: %v", pid, err)
	}
	found, err := strconv.Atoi(fields[0])
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// listening returns the sorted addresses at which a process accepts TCP connections and UDP packets; "any" is every
// address of the machine.
func listening(t *testing.T, pid int) []string {
	t.Helper()
	inodes := map[string]bool{}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && strings.HasPrefix(target, "socket:[") {
			inodes[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] = true
		}
	}
	found := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6"} {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) < 10 || !inodes[fields[9]] ||
				fields[3] != map[bool]string{true: "0A", false: "07"}[strings.HasPrefix(table, "tcp")] {
				continue
			}
			found[socketAt(t, fields[1])] = true
		}
	}
	var all []string
	for address := range found {
		all = append(all, address)
	}
	slices.Sort(all)
	return all
}

// socketAt parses an address of /proc/net, such as "0100007F:1631".
func socketAt(t *testing.T, text string) string {
	t.Helper()
	host, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	number, errPort := strconv.ParseUint(port, 16, 16)
	if err != nil || errPort != nil {
		t.Fatalf("%q is no address", text)
	}
	for i := 0; i+4 <= len(raw); i += 4 {
		slices.Reverse(raw[i : i+4])
	}
	address, _ := netip.AddrFromSlice(raw)
	if address.IsUnspecified() {
		return fmt.Sprintf("any:%d", number)
	}
	return net.JoinHostPort(address.Unmap().String(), fmt.Sprint(number))
}
