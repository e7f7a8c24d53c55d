package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Collect writes what explains a failure to a folder: all objects and events, the logs of the node's programs and of
// the containers, and the configuration of each Envoy.
func (n *Node) Collect(ctx context.Context, dir string) error {
	var failed []error
	for name, args := range map[string][]string{
		"objects.yaml":   {"get", "all,configmaps,serviceaccounts,endpointslices", "-A", "-o", "yaml"},
		"events.txt":     {"get", "events", "-A", "--sort-by", ".lastTimestamp"},
		"resources.yaml": {"get", "kuma", "-A", "-o", "yaml"},
		"webhooks.yaml":  {"get", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "-o", "yaml"},
	} {
		out, err := n.Kubectl(ctx, "", args...)
		failed = append(failed, err, os.WriteFile(filepath.Join(dir, name), []byte(out), 0o644))
	}
	for _, h := range n.hosts {
		failed = append(failed, h.collect(ctx, filepath.Join(dir, h.name)))
	}
	return errors.Join(failed...)
}

// collect writes the logs of the host's programs and of its containers, and the configuration of its Envoys.
func (h *host) collect(ctx context.Context, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	logs, err := filepath.Glob(filepath.Join(h.dir, "*.log"))
	failed := []error{err}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		failed = append(failed, err, os.WriteFile(filepath.Join(dir, filepath.Base(log)), text, 0o644))
	}
	containers := os.CopyFS(filepath.Join(dir, "pods"), os.DirFS(filepath.Join(h.dir, "pod-logs")))
	return errors.Join(append(failed, containers, h.dumpEnvoys(ctx, dir))...)
}

// admin returns the sockets of the Envoys of a Pod, by its UID, or * for all.
func (h *host) admin(pod string) ([]string, error) {
	return filepath.Glob(filepath.Join(h.root(), kubeletDir, "pods", pod, "volumes", "kubernetes.io~empty-dir",
		"*", "weft-dp-*", "admin.sock"))
}

// dumpEnvoys writes the configuration and the statistics of each Envoy, from the socket in the sidecar's volume.
func (h *host) dumpEnvoys(ctx context.Context, dir string) error {
	sockets, err := h.admin("*")
	failed := []error{err}
	for i, socket := range sockets {
		for _, path := range []string{"config_dump", "clusters", "stats"} {
			text, err := fromSocket(ctx, socket, path)
			failed = append(failed, err,
				os.WriteFile(filepath.Join(dir, fmt.Sprintf("envoy-%d-%s", i, path)), text, 0o644))
		}
	}
	return errors.Join(failed...)
}

// Stats returns the statistics of a Pod's Envoy whose names match a regular expression, one a line.
func (n *Node) Stats(ctx context.Context, namespace, pod, filter string) (string, error) {
	h, err := n.hostOf(ctx, namespace, pod)
	if err != nil {
		return "", err
	}
	uid, err := n.Kubectl(ctx, "", "get", "pod", pod, "-n", namespace, "-o", "jsonpath={.metadata.uid}")
	if err != nil {
		return "", err
	}
	sockets, err := h.admin(uid)
	if err != nil || len(sockets) != 1 {
		return "", fmt.Errorf("the Pod %s/%s has %d sockets of Envoys, want one: %w", namespace, pod, len(sockets), err)
	}
	text, err := fromSocket(ctx, sockets[0], "stats?filter="+url.QueryEscape(filter))
	return string(text), err
}

// Logs returns the logs of the containers of Pods, by the beginning of their names. It needs no API server.
func (n *Node) Logs(namespace, prefix string) (string, error) {
	var all strings.Builder
	for _, h := range n.hosts {
		logs, err := filepath.Glob(filepath.Join(h.dir, "pod-logs", namespace+"_"+prefix+"*", "*", "*.log"))
		if err != nil {
			return "", err
		}
		for _, log := range logs {
			text, err := os.ReadFile(log)
			if err != nil {
				return "", err
			}
			all.Write(text)
		}
	}
	return all.String(), nil
}

// fromSocket gets a path from a server at a unix socket. The socket is found from its open folder, since its path is
// longer than the kernel accepts.
func fromSocket(ctx context.Context, socket, path string) ([]byte, error) {
	folder, err := os.Open(filepath.Dir(socket))
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	short := fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), filepath.Base(socket))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", short)
		}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://envoy/"+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}
