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
	"slices"
	"strconv"
	"strings"

	"weft/internal/image"
	"weft/internal/process"
	"weft/internal/testnet"
	"weft/internal/testwait"
	"weft/test/kubernetes/cluster"
)

const (
	// debianPlugins is the folder of the CNI plugins of Debian.
	debianPlugins = "/usr/lib/cni"
	containerd    = "/run/containerd/containerd.sock"
	// TestImage is the image of the tests' application, which also is that of the containers of sandboxes.
	TestImage = "weft-test/application:latest"
	dnsImage  = "weft-test/coredns:latest"
	// serviceRange6 has the IPv6 addresses of Services that ask for both families.
	serviceRange6 = "fd00:96::/112"
)

// Node is a running cluster with one node, until others join.
type Node struct {
	*cluster.Server
	machine  *machine
	hosts    []*host // those of this cluster
	programs map[string]string
	images   []string           // archives
	running  []*process.Process // in the order of their start
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
	n := &Node{machine: &machine{number: number}, images: o.Images}
	if n.programs, err = programs(); err != nil {
		return nil, err
	}
	if err := n.start(ctx, n.writeImages); err != nil {
		return nil, err
	}
	return n, nil
}

// StartCluster starts another cluster beside this one, with the same images, and returns when it is ready. Its node is
// linked to the others of the machine. The caller stops it before this one.
func (n *Node) StartCluster(ctx context.Context) (*Node, error) {
	beside := &Node{machine: n.machine, programs: n.programs}
	if err := beside.start(ctx, func(context.Context) error {
		beside.images = slices.Clone(n.images)
		return nil
	}); err != nil {
		return nil, err
	}
	return beside, nil
}

// start starts the cluster and its first node.
func (n *Node) start(ctx context.Context, provideImages func(context.Context) error) error {
	first, err := n.addHost()
	if err != nil {
		return err
	}
	for _, start := range []func(context.Context) error{n.startAPIServer, n.startControllers, provideImages, first.join,
		n.startDNS} {
		if err := start(ctx); err != nil {
			return errors.Join(err, n.Stop())
		}
	}
	return nil
}

// Name is the name of the first Node.
func (n *Node) Name() string { return n.hosts[0].name }

// Command is the command that runs a program of this machine where the first Node is: in its network, and with its
// mounts.
func (n *Node) Command(name string, args ...string) []string {
	return n.hosts[0].command(name, args...)
}

// Join makes a further node of the cluster on this machine, linked to the others, and returns its name when it is
// Ready.
func (n *Node) Join(ctx context.Context) (string, error) {
	h, err := n.addHost()
	if err != nil {
		return "", err
	}
	return h.name, h.join(ctx)
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

func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

func (n *Node) startAPIServer(context.Context) error {
	folder, err := cluster.Programs()
	if err != nil {
		return err
	}
	n.Server, err = cluster.Start(cluster.Options{Programs: folder, Dir: n.hosts[0].dir, Address: n.machine.address(),
		Audit: true, Flags: []string{
			"--allow-privileged",
			// Webhooks are called at the Pods of their Service, without kube-proxy.
			"--enable-aggregator-routing",
			"--service-cluster-ip-range", cluster.ServiceRange + "," + serviceRange6,
			"--kubelet-preferred-address-types", "InternalIP",
		}})
	if err != nil {
		return err
	}
	return os.WriteFile(n.Kubeconfig(), fmt.Appendf(nil, kubeconfig, n.Name(), n.Config().Host, n.Config().CAFile,
		cluster.AdminToken), 0o600)
}

//go:embed kubeconfig.yaml
var kubeconfig string

// Kubeconfig is the file with the configuration of an administrator's client. Its context has the name of the node.
func (n *Node) Kubeconfig() string { return filepath.Join(n.Dir, "kubeconfig") }

// run starts a program by its command, which [Node.Stop] ends.
func (n *Node) run(dir, name string, command ...string) (*process.Process, error) {
	started, err := process.Start(dir, name, command...)
	if err == nil {
		n.running = append(n.running, started)
	}
	return started, err
}

// local is a client of the programs' own health checks, whose certificates no CA has signed.
var local = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

func (n *Node) startControllers(context.Context) error {
	for name, args := range map[string][]string{
		"kube-controller-manager": {
			"--service-account-private-key-file", n.ServiceAccountKey(), "--root-ca-file", n.Config().CAFile,
			"--use-service-account-credentials", "--kube-api-qps", "500", "--kube-api-burst", "1000",
			// A quota of a kind that the controller did not know yet is counted at the next of these syncs.
			"--resource-quota-sync-period", "10s"},
		"kube-scheduler": nil,
	} {
		ports, err := testnet.Ports(1)
		if err != nil {
			return err
		}
		controller, err := n.control(name, append(args, "--kubeconfig", n.Kubeconfig(), "--leader-elect=false",
			"--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(ports[0]))...)
		if err != nil {
			return err
		}
		url := fmt.Sprintf("https://127.0.0.1:%d/healthz", ports[0])
		if err := controller.Ready(testwait.Timeout, url, local); err != nil {
			return err
		}
	}
	return nil
}

// control starts a program of the control plane of Kubernetes, in the namespaces of this process.
func (n *Node) control(name string, args ...string) (*process.Process, error) {
	return n.run(n.Dir, name, append([]string{n.programs[name]}, args...)...)
}

//go:embed containerd.toml
var containerdConfig string

//go:embed network.json
var networkConfig string

// Network is the file with the configuration of the network of Pods, on each host.
func (n *Node) Network() string { return filepath.Join(n.machine.dir(), "network", "10-node.conflist") }

// Plugins is the folder of the CNI plugins, on each host.
func (n *Node) Plugins() string { return filepath.Join(n.machine.dir(), "plugins") }

// pauseImage is the image of the containers that keep the namespaces of Pods.
const pauseImage = "weft-test/pause:latest"

// build builds a program of the tests, linked statically, and returns its path.
func (n *Node) build(ctx context.Context, name string) (string, error) {
	program := filepath.Join(n.Dir, name)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", program, "weft/test/kubernetes/"+name)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", build, err, out)
	}
	return program, nil
}

// write writes an image of the node's.
func (n *Node) write(i image.Image) error {
	i.Architecture = runtime.GOARCH
	file := filepath.Join(n.Dir, fmt.Sprintf("image-%d.tar", len(n.images)))
	if err := i.WriteFile(file); err != nil {
		return err
	}
	n.images = append(n.images, file)
	return nil
}

// writeImages writes the images of the tests.
func (n *Node) writeImages(ctx context.Context) error {
	application, err := n.build(ctx, "application")
	if err != nil {
		return err
	}
	for _, image := range []image.Image{
		{Name: TestImage, Entrypoint: []string{"/application"}, Files: map[string]image.File{
			"/application": {Source: application}}},
		{Name: pauseImage, Entrypoint: []string{"/application", "pause"}, Files: map[string]image.File{
			"/application": {Source: application}}},
		{Name: dnsImage, Entrypoint: []string{"/coredns", "-conf", "/Corefile"}, Files: map[string]image.File{
			"/coredns": {Source: n.programs["coredns"]}, "/Corefile": {Content: corefile}}},
	} {
		if err := n.write(image); err != nil {
			return err
		}
	}
	return nil
}

// AddEcho adds the image of the test program echo under a name.
func (n *Node) AddEcho(ctx context.Context, name string) error {
	echo, err := n.build(ctx, "echo")
	if err != nil {
		return err
	}
	return n.addImage(image.Image{Name: name, Entrypoint: []string{"/usr/local/bin/server"},
		Files: map[string]image.File{
			"/usr/local/bin/server": {Source: echo}, "/usr/local/bin/client": {Link: "server"}}})
}

// AddAgnhost adds the image of the test program agnhost under a name.
func (n *Node) AddAgnhost(ctx context.Context, name string) error {
	agnhost, err := n.build(ctx, "agnhost")
	if err != nil {
		return err
	}
	return n.addImage(image.Image{Name: name, Entrypoint: []string{"/agnhost"},
		Files: map[string]image.File{"/agnhost": {Source: agnhost}, "/usr/bin/curl": {Link: "/agnhost"}}})
}

// addImage adds an image to all hosts.
func (n *Node) addImage(i image.Image) error {
	if err := n.write(i); err != nil {
		return err
	}
	added := n.images[len(n.images)-1:]
	for _, h := range n.hosts {
		if err := h.loadImages(added); err != nil {
			return err
		}
	}
	return nil
}

//go:embed kubelet.yaml
var kubeletConfig string

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

// hostOf returns the host that runs a Pod.
func (n *Node) hostOf(ctx context.Context, namespace, pod string) (*host, error) {
	name, err := n.Kubectl(ctx, "", "get", "pod", pod, "-n", namespace, "-o", "jsonpath={.spec.nodeName}")
	if err != nil {
		return nil, err
	}
	for _, h := range n.hosts {
		if h.name == name {
			return h, nil
		}
	}
	return nil, fmt.Errorf("the Pod %s/%s has no node", namespace, pod)
}

// KillSidecar kills all processes of a Pod's sidecar.
func (n *Node) KillSidecar(ctx context.Context, namespace, pod string) error {
	return n.sidecarTask(ctx, namespace, pod, "kill", "--all", "--signal", "SIGKILL")
}

// FreezeSidecar stops all processes of a Pod's sidecar from running until ThawSidecar. Their connections stay open.
func (n *Node) FreezeSidecar(ctx context.Context, namespace, pod string) error {
	return n.sidecarTask(ctx, namespace, pod, "pause")
}

// ThawSidecar continues a frozen sidecar.
func (n *Node) ThawSidecar(ctx context.Context, namespace, pod string) error {
	return n.sidecarTask(ctx, namespace, pod, "resume")
}

// sidecarTask runs a command of `ctr tasks` for a Pod's sidecar.
func (n *Node) sidecarTask(ctx context.Context, namespace, pod string, command ...string) error {
	h, err := n.hostOf(ctx, namespace, pod)
	if err != nil {
		return err
	}
	container, err := n.Kubectl(ctx, "", "get", "pod", pod, "-n", namespace, "-o",
		`jsonpath={.status.initContainerStatuses[?(@.name=="kuma-sidecar")].containerID}`)
	if err != nil {
		return err
	}
	return h.ctr(append(append([]string{"tasks"}, command...), strings.TrimPrefix(container, "containerd://"))...)
}

// Kubelet is the kubelet of the first Node.
func (n *Node) Kubelet() *process.Process { return n.hosts[0].kubelet }

// RestartContainerd kills the container runtime of the first Node, and starts it again. Containers run on.
func (n *Node) RestartContainerd() error {
	h := n.hosts[0]
	h.containerd.Kill()
	if err := h.containerd.Start(); err != nil {
		return err
	}
	return h.awaitContainerd()
}

// Wait waits for a condition of an object, as `kubectl wait --for` has it. After [testwait.Timeout] it returns an
// error.
func (n *Node) Wait(ctx context.Context, object, condition string, args ...string) error {
	_, err := n.Kubectl(ctx, "", append([]string{"wait", object, "--for", condition, "--timeout",
		testwait.Timeout.String()}, args...)...)
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
