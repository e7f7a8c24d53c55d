package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
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
	logs, err := filepath.Glob(filepath.Join(n.Dir, "*.log"))
	failed = append(failed, err)
	for _, log := range logs {
		text, err := os.ReadFile(log)
		failed = append(failed, err, os.WriteFile(filepath.Join(dir, filepath.Base(log)), text, 0o644))
	}
	failed = append(failed, os.CopyFS(filepath.Join(dir, "pods"), os.DirFS(filepath.Join(n.Dir, "pod-logs"))),
		n.dumpEnvoys(ctx, dir))
	return errors.Join(failed...)
}

// dumpEnvoys writes the configuration and the statistics of each Envoy, from the socket in the sidecar's volume.
func (n *Node) dumpEnvoys(ctx context.Context, dir string) error {
	sockets, err := filepath.Glob(filepath.Join(n.Dir, "kubelet", "pods", "*", "volumes", "kubernetes.io~empty-dir",
		"*", "weft-dp-*", "admin.sock"))
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
