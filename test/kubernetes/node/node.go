// Package node runs a Kubernetes node with its cluster on this machine: etcd, kube-apiserver, the controllers, the
// scheduler, containerd, a kubelet, kube-proxy, and CoreDNS as a Pod. Images are archives, so it needs no registry.
//
// A node runs in namespaces of its own ([Isolate]), so its rules, interfaces, mounts and processes are no part of the
// machine and end with them. It needs Linux and root. The programs of Kubernetes are those that `make node` builds.
package node

import (
	"bytes"
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"weft/internal/image"
	"weft/test/kubernetes/cluster"
)

const (
	// Address is the address of the node, of its API server, and of Services of the type NodePort.
	Address = "172.30.0.1"
	// plugins is the folder of the CNI plugins of Debian.
	plugins    = "/usr/lib/cni"
	containerd = "/run/containerd/containerd.sock"
	// TestImage is the image of the tests' application, which also is that of the containers of sandboxes.
	TestImage = "weft-test/application:latest"
	dnsImage  = "weft-test/coredns:latest"
)

// Node is a running node.
type Node struct {
	*cluster.Server
	name     string
	programs map[string]string
	running  []*cluster.Process // in the order of their start
}

// Options are the options of a node.
type Options struct {
	// Images are archives of images that Pods may name, beside [TestImage].
	Images []string
}

// Start starts a node in this process's namespaces, and returns when it is Ready and the cluster resolves names. The
// caller stops it.
func Start(ctx context.Context, o Options) (*Node, error) {
	number, err := strconv.Atoi(os.Getenv(numberVariable))
	if err != nil {
		return nil, errors.New("a node starts in namespaces of its own: see Isolate")
	}
	m := &machine{number: number}
	n := &Node{name: m.name()}
	if n.programs, err = programs(); err != nil {
		return nil, err
	}
	for _, start := range []func(context.Context) error{
		func(context.Context) error { return n.prepare(m.dir()) },
		func(context.Context) error { return n.startAPIServer(m.dir()) },
		n.startControllers,
		n.startContainerd,
		func(ctx context.Context) error { return n.loadImages(ctx, o.Images) },
		n.startKubelet,
		n.startDNS,
	} {
		if err := start(ctx); err != nil {
			return nil, errors.Join(err, n.Stop())
		}
	}
	return n, nil
}

// programs returns the paths of the node's programs by their names.
func programs() (map[string]string, error) {
	_, file, _, _ := runtime.Caller(0)
	build := filepath.Join(filepath.Dir(file), "build")
	out, err := exec.Command(build, "--print", "argo").Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", build, err)
	}
	found := map[string]string{}
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		if _, err := os.Stat(path); err != nil && filepath.Base(path) != argo {
			return nil, fmt.Errorf("%s is not built, `make node` does so once: %w", filepath.Base(path), err)
		}
		found[filepath.Base(path)] = path
	}
	return found, nil
}

// sysctls are the files of the machine's settings that a kubelet writes. It gets copies.
var sysctls = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"}

// prepare makes the node's view of the machine: folders with fixed names that its programs write, and the network.
func (n *Node) prepare(dir string) error {
	for _, folder := range []string{"/run", "/var/lib", "/var/log"} {
		if err := run("mount", "-t", "tmpfs", "none", folder); err != nil {
			return err
		}
	}
	for _, name := range sysctls {
		value, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			return err
		}
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, value, 0o600); err != nil {
			return err
		}
		if err := run("mount", "--bind", file, "/proc/sys/"+name); err != nil {
			return err
		}
	}
	return errors.Join(
		run("ip", "link", "set", "lo", "up"),
		run("ip", "address", "add", Address+"/32", "dev", "lo"),
		// Without a default route, no packet for the address of a Service reaches the rules of kube-proxy.
		run("ip", "route", "add", "default", "dev", "lo"),
		os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644))
}

func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

func (n *Node) startAPIServer(dir string) error {
	folder, err := cluster.Programs()
	if err != nil {
		return err
	}
	n.Server, err = cluster.Start(cluster.Options{Programs: folder, Dir: dir, Address: Address, Flags: []string{
		"--allow-privileged",
		// Webhooks are called at the Pods of their Service, without kube-proxy.
		"--enable-aggregator-routing",
		"--kubelet-preferred-address-types", "InternalIP",
	}})
	if err != nil {
		return err
	}
	return os.WriteFile(n.Kubeconfig(), fmt.Appendf(nil, kubeconfig, n.Config().Host, n.Config().CAFile,
		cluster.AdminToken), 0o600)
}

//go:embed kubeconfig.yaml
var kubeconfig string

// Kubeconfig is the file with the configuration of an administrator's client.
func (n *Node) Kubeconfig() string { return filepath.Join(n.Dir, "kubeconfig") }

// start starts a program, which [Node.Stop] ends.
func (n *Node) start(name string, args ...string) (*cluster.Process, error) {
	path, ok := n.programs[name]
	if !ok {
		var err error
		if path, err = exec.LookPath(name); err != nil {
			return nil, err
		}
	}
	process, err := cluster.StartProcess(n.Dir, path, args...)
	if err == nil {
		n.running = append(n.running, process)
	}
	return process, err
}

// local is a client of the programs' own health checks, whose certificates no CA has signed.
var local = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

func (n *Node) startControllers(context.Context) error {
	for _, c := range []struct {
		name, health string
		args         []string
	}{
		{"kube-controller-manager", "https://127.0.0.1:10257/healthz", []string{
			"--service-account-private-key-file", n.ServiceAccountKey(), "--root-ca-file", n.Config().CAFile,
			"--use-service-account-credentials", "--kube-api-qps", "500", "--kube-api-burst", "1000"}},
		{"kube-scheduler", "https://127.0.0.1:10259/healthz", nil},
	} {
		process, err := n.start(c.name, append(c.args, "--kubeconfig", n.Kubeconfig(), "--leader-elect=false",
			"--bind-address", "127.0.0.1")...)
		if err != nil {
			return err
		}
		if err := process.Ready(c.health, local); err != nil {
			return err
		}
	}
	return nil
}

//go:embed containerd.toml
var containerdConfig string

//go:embed network.json
var networkConfig string

func (n *Node) startContainerd(context.Context) error {
	network := filepath.Join(n.Dir, "network")
	config := filepath.Join(n.Dir, "containerd.toml")
	err := errors.Join(
		os.MkdirAll(network, 0o755),
		os.WriteFile(filepath.Join(network, "10-node.conflist"), []byte(networkConfig), 0o644),
		os.WriteFile(config, fmt.Appendf(nil, containerdConfig, filepath.Join(n.Dir, "containerd"), containerd,
			"docker.io/"+pauseImage, plugins, network), 0o644))
	if err != nil {
		return err
	}
	process, err := n.start("containerd", "--config", config)
	if err != nil {
		return err
	}
	return process.Await("ctr version", func(context.Context) error {
		return run("ctr", "--address", containerd, "version")
	})
}

// pauseImage is the image of the containers that keep the namespaces of Pods.
const pauseImage = "weft-test/pause:latest"

// loadImages writes the images of the tests, and loads all images.
func (n *Node) loadImages(ctx context.Context, archives []string) error {
	application := filepath.Join(n.Dir, "application")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", application, "weft/test/kubernetes/application")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", build, err, out)
	}
	for i, image := range []image.Image{
		{Name: TestImage, Entrypoint: []string{"/application"}, Files: map[string]image.File{
			"/application": {Source: application}}},
		{Name: pauseImage, Entrypoint: []string{"/application", "pause"}, Files: map[string]image.File{
			"/application": {Source: application}}},
		{Name: dnsImage, Entrypoint: []string{"/coredns", "-conf", "/Corefile"}, Files: map[string]image.File{
			"/coredns": {Source: n.programs["coredns"]}, "/Corefile": {Content: corefile}}},
	} {
		image.Architecture = runtime.GOARCH
		file := filepath.Join(n.Dir, fmt.Sprintf("image-%d.tar", i))
		if err := image.WriteFile(file); err != nil {
			return err
		}
		archives = append(archives, file)
	}
	for _, file := range archives {
		if err := run("ctr", "--address", containerd, "--namespace", "k8s.io", "images", "import", file); err != nil {
			return err
		}
	}
	return nil
}

//go:embed kubelet.yaml
var kubeletConfig string

func (n *Node) startKubelet(ctx context.Context) error {
	config := filepath.Join(n.Dir, "kubelet.yaml")
	err := os.WriteFile(config, fmt.Appendf(nil, kubeletConfig, n.name, containerd, filepath.Join(n.Dir, "pod-logs")),
		0o644)
	if err != nil {
		return err
	}
	kubelet, err := n.start("kubelet", "--config", config, "--kubeconfig", n.Kubeconfig(),
		"--hostname-override", n.name, "--node-ip", Address, "--root-dir", filepath.Join(n.Dir, "kubelet"))
	if err != nil {
		return err
	}
	if err := kubelet.Ready("http://127.0.0.1:10248/healthz", local); err != nil {
		return err
	}
	proxy, err := n.start("kube-proxy", "--kubeconfig", n.Kubeconfig(), "--hostname-override", n.name,
		"--proxy-mode", "iptables", "--conntrack-max-per-core", "0", "--conntrack-tcp-timeout-established", "0",
		"--conntrack-tcp-timeout-close-wait", "0", "--oom-score-adj", "0", "--cluster-cidr", "10.244.0.0/16")
	if err != nil {
		return err
	}
	if err := proxy.Ready("http://127.0.0.1:10256/healthz", local); err != nil {
		return err
	}
	if err := n.Wait(ctx, "node/"+n.name, "create"); err != nil {
		return err
	}
	return n.Wait(ctx, "node/"+n.name, "condition=Ready")
}

//go:embed coredns.yaml
var corednsManifest string

//go:embed Corefile
var corefile string

func (n *Node) startDNS(ctx context.Context) error {
	if err := n.Apply(ctx, corednsManifest); err != nil {
		return err
	}
	return n.Wait(ctx, "deployment/coredns", "condition=Available", "-n", "kube-system")
}

// Kubectl runs kubectl as an administrator, and returns its output.
func (n *Node) Kubectl(ctx context.Context, input string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, n.programs["kubectl"],
		append([]string{"--kubeconfig", n.Kubeconfig()}, args...)...)
	command.Stdin = strings.NewReader(input)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err,
			strings.TrimSpace(problems.String()))
	}
	return out.String(), nil
}

// Apply applies objects.
func (n *Node) Apply(ctx context.Context, yaml string) error {
	_, err := n.Kubectl(ctx, yaml, "apply", "--server-side", "-f", "-")
	return err
}

// PodIP returns the address of a Pod.
func (n *Node) PodIP(ctx context.Context, namespace, pod string) (string, error) {
	return n.Kubectl(ctx, "", "get", "pod", pod, "-n", namespace, "-o", "jsonpath={.status.podIP}")
}

// KillContainer kills all processes of a container, by its ID as the status of its Pod has it.
func (n *Node) KillContainer(id string) error {
	return run("ctr", "--address", containerd, "--namespace", "k8s.io", "tasks", "kill", "--all", "--signal", "SIGKILL",
		strings.TrimPrefix(id, "containerd://"))
}

// waitTimeout bounds the wait for a condition of an object.
const waitTimeout = 3 * time.Minute

// Wait waits for a condition of an object, as `kubectl wait --for` has it. After 3 minutes it returns an error.
func (n *Node) Wait(ctx context.Context, object, condition string, args ...string) error {
	_, err := n.Kubectl(ctx, "", append([]string{"wait", object, "--for", condition, "--timeout",
		waitTimeout.String()}, args...)...)
	return err
}

// Stop ends the programs in the opposite order of their start, and the API server and etcd last. The containers of Pods
// end with the namespaces.
func (n *Node) Stop() error {
	for len(n.running) > 0 {
		last := len(n.running) - 1
		n.running[last].Stop()
		n.running = n.running[:last]
	}
	if n.Server != nil {
		n.Close()
	}
	return nil
}
