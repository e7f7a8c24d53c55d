package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"weft/internal/process"
	"weft/internal/testwait"
)

// host is what a Node runs on: a network and mounts, a folder, control groups, a container runtime, a kubelet and
// kube-proxy. The first one of the machine has the namespaces of this process. Each further one has its own, and a link
// to each other host, on which the addresses of Nodes and of Pods are routed. All addresses follow from its number,
// which no host of another cluster has.
type host struct {
	node       *Node
	number     int
	name       string           // of the Node
	dir        string           // of its files
	group      string           // the control group of its Pods
	namespaces *process.Process // keeps the namespaces of a further host; nil: the first one

	containerd, kubelet *process.Process
}

// addHost makes the next host of the machine, for this cluster.
func (n *Node) addHost() (*host, error) {
	number := len(n.machine.hosts)
	h := &host{node: n, number: number, name: n.machine.name(), dir: n.machine.dir(),
		group: filepath.Join(n.machine.name(), strconv.Itoa(number))}
	if number > 0 {
		h.name += "-" + strconv.Itoa(number)
		h.dir = filepath.Join(h.dir, "host-"+strconv.Itoa(number))
		if err := errors.Join(os.MkdirAll(h.dir, 0o755), h.separate(), h.removeKubeletMounts()); err != nil {
			return nil, err
		}
	}
	if err := h.prepare(); err != nil {
		return nil, err
	}
	for _, other := range n.machine.hosts {
		if err := errors.Join(other.connect(h), other.route(h), h.route(other)); err != nil {
			return nil, err
		}
	}
	if number > 0 {
		if err := h.routeRest(n.machine.hosts[0]); err != nil {
			return nil, err
		}
	}
	n.hosts, n.machine.hosts = append(n.hosts, h), append(n.machine.hosts, h)
	return h, nil
}

// separate starts the process that keeps the namespaces.
func (h *host) separate() (err error) {
	h.namespaces, err = h.node.run(h.dir, "namespaces", "unshare", "--net", "--mount", "sleep", "infinity")
	if err != nil {
		return err
	}
	return h.namespaces.Await(testwait.Timeout, "namespaces of its own", func(context.Context) error {
		program, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", h.namespaces.PID()))
		if err == nil && string(program) != "sleep\n" {
			err = errors.New("unshare runs")
		}
		return err
	})
}

// address is the address of the Node, and of its Services of the type NodePort.
func (h *host) address() string { return "172.30.0." + strconv.Itoa(h.number+1) }

// address6 is the address of the Node in the other family.
func (h *host) address6() string { return fmt.Sprintf("fd00:30::%x", h.number+1) }

// The addresses of Pods of all hosts, of both families.
const podRange, podRange6 = "10.244.0.0/16", "fd00:244::/32"

// pods are the addresses of its Pods.
func (h *host) pods() string { return fmt.Sprintf("10.244.%d.0/24", h.number) }

// pods6 are those of the other family.
func (h *host) pods6() string { return fmt.Sprintf("fd00:244:%x::/64", h.number) }

// pid is a process in the host's namespaces.
func (h *host) pid() int {
	if h.namespaces == nil {
		return os.Getpid()
	}
	return h.namespaces.PID()
}

// root is the folder with the files as the host's programs see them.
func (h *host) root() string { return fmt.Sprintf("/proc/%d/root", h.pid()) }

// command is the command that runs a program in the host's namespaces.
func (h *host) command(name string, args ...string) []string {
	command := append([]string{name}, args...)
	if h.namespaces == nil {
		return command
	}
	return append([]string{"nsenter", "--target", strconv.Itoa(h.pid()), "--net", "--mount", "--"}, command...)
}

func (h *host) run(name string, args ...string) error {
	command := h.command(name, args...)
	return run(command[0], command[1:]...)
}

// start starts a program of the node or of this machine, which [Node.Stop] ends.
func (h *host) start(name string, args ...string) (*process.Process, error) {
	path, ok := h.node.programs[name]
	if !ok {
		var err error
		if path, err = exec.LookPath(name); err != nil {
			return nil, err
		}
	}
	return h.node.run(h.dir, name, h.command(path, args...)...)
}

// sysctls are the files of the machine's settings that a kubelet writes. It gets copies.
var sysctls = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"}

// prepare makes the host's view of the machine: folders with fixed names that its programs write, its control groups,
// and the network.
func (h *host) prepare() error {
	for _, folder := range []string{"/run", "/var/lib", "/var/log"} {
		if err := h.run("mount", "-t", "tmpfs", "none", folder); err != nil {
			return err
		}
	}
	for _, name := range sysctls {
		value, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			return err
		}
		file := filepath.Join(h.dir, strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, value, 0o600); err != nil {
			return err
		}
		if err := h.run("mount", "--bind", file, "/proc/sys/"+name); err != nil {
			return err
		}
	}
	return errors.Join(
		makeGroup(h.group),
		h.run("ip", "link", "set", "lo", "up"),
		h.run("ip", "address", "add", h.address()+"/32", "dev", "lo"),
		// Without a default route, no packet for the address of a Service reaches the rules of kube-proxy.
		h.run("ip", "route", "add", "default", "dev", "lo"),
		h.run("ip", "address", "add", h.address6()+"/128", "dev", "lo"),
		h.run("ip", "-6", "route", "add", "default", "dev", "lo"),
		h.run("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward && echo 1 >/proc/sys/net/ipv6/conf/all/forwarding"))
}

// connect makes the link to another host. Each end has the name of the other host.
func (h *host) connect(to *host) error {
	return h.run("ip", "link", "add", to.link(), "type", "veth", "peer", "name", h.link(), "netns",
		strconv.Itoa(to.pid()))
}

// link is the name of the interfaces that lead to the host.
func (h *host) link() string { return "host-" + strconv.Itoa(h.number) }

// route sends packets for the addresses of another host over the link to it.
func (h *host) route(to *host) error {
	if err := h.run("ip", "link", "set", to.link(), "up"); err != nil {
		return err
	}
	return errors.Join(
		h.run("ip", "route", "add", to.address(), "dev", to.link(), "src", h.address()),
		h.run("ip", "route", "add", to.pods(), "via", to.address(), "dev", to.link(), "src", h.address()),
		// Neighbors find an IPv6 address only at the interface that has it.
		h.run("ip", "address", "add", h.address6()+"/128", "dev", to.link(), "nodad"),
		h.run("ip", "-6", "route", "add", to.address6(), "dev", to.link(), "src", h.address6()),
		h.run("ip", "-6", "route", "add", to.pods6(), "via", to.address6(), "dev", to.link(), "src", h.address6()))
}

// routeRest sends all other packets to the first host, which has addresses of machines outside the clusters.
func (h *host) routeRest(to *host) error {
	return h.run("ip", "route", "replace", "default", "via", to.address(), "dev", to.link(), "src", h.address())
}

// join starts the programs of a node of the cluster, and returns when the Node is Ready.
func (h *host) join(ctx context.Context) error {
	if err := h.startContainerd(); err != nil {
		return err
	}
	if err := h.loadImages(h.node.images); err != nil {
		return err
	}
	return h.startKubelet(ctx)
}

func (h *host) startContainerd() (err error) {
	config := filepath.Join(h.dir, "containerd.toml")
	network, plugins := filepath.Dir(h.node.Network()), h.node.Plugins()
	err = errors.Join(
		os.MkdirAll(h.own(network), 0o755),
		os.WriteFile(h.own(h.node.Network()), fmt.Appendf(nil, networkConfig, h.pods(), h.pods6()), 0o644),
		os.CopyFS(h.own(plugins), os.DirFS(debianPlugins)),
		os.WriteFile(config, fmt.Appendf(nil, containerdConfig, filepath.Join(h.dir, "containerd"), containerd,
			"docker.io/"+pauseImage, plugins, network), 0o644))
	for _, folder := range []string{network, plugins} {
		if h.number > 0 && err == nil {
			err = h.run("mount", "--bind", h.own(folder), folder)
		}
	}
	if err != nil {
		return err
	}
	if h.containerd, err = h.start("containerd", "--config", config); err != nil {
		return err
	}
	return h.awaitContainerd()
}

// awaitContainerd returns when containerd responds.
func (h *host) awaitContainerd() error {
	return h.containerd.Await(testwait.Timeout, "ctr version", func(context.Context) error { return h.ctr("version") })
}

// ctr runs ctr for the containers of Pods.
func (h *host) ctr(args ...string) error {
	return h.run("ctr", append([]string{"--address", containerd, "--namespace", "k8s.io"}, args...)...)
}

// loadImages loads archives of images.
func (h *host) loadImages(files []string) error {
	for _, file := range files {
		if err := h.ctr("images", "import", file); err != nil {
			return err
		}
	}
	return nil
}

// own is the path, in the view of the first host, of a file that each host has at the same path.
func (h *host) own(file string) string {
	path, err := filepath.Rel(h.node.machine.dir(), file)
	if err != nil {
		panic(err) // both are absolute
	}
	return filepath.Join(h.dir, path)
}

// kubeletDir is the folder of a kubelet, at the path where Pods such as those of CSI drivers expect it.
const kubeletDir = "/var/lib/kubelet"

// removeKubeletMounts removes the mounts of the first host's kubelet from the view of a further one. Hidden below the
// host's own mounts, they would stay in the list where containerd looks a folder up by its path.
func (h *host) removeKubeletMounts() error {
	return h.run("sh", "-c", "! mountpoint -q "+kubeletDir+" || umount --recursive --lazy "+kubeletDir)
}

// startKubelet starts the kubelet and kube-proxy, and returns when the Node is Ready.
func (h *host) startKubelet(ctx context.Context) error {
	config := filepath.Join(h.dir, "kubelet.yaml")
	files := filepath.Join(h.dir, "kubelet")
	err := errors.Join(
		os.WriteFile(config, fmt.Appendf(nil, kubeletConfig, h.group, containerd, filepath.Join(h.dir, "pod-logs")),
			0o644),
		os.Mkdir(files, 0o755),
		h.run("mkdir", kubeletDir),
		h.run("mount", "--bind", files, kubeletDir),
		h.run("mount", "--make-shared", kubeletDir)) // the Pod of a CSI driver mounts volumes there
	if err != nil {
		return err
	}
	h.kubelet, err = h.start("kubelet", "--config", config, "--kubeconfig", h.node.Kubeconfig(),
		"--hostname-override", h.name, "--node-ip", h.address()+","+h.address6(), "--root-dir", kubeletDir)
	if err != nil {
		return err
	}
	if err := h.kubelet.Ready(testwait.Timeout, "http://"+h.address()+":10248/healthz", local); err != nil {
		return err
	}
	proxy, err := h.start("kube-proxy", "--kubeconfig", h.node.Kubeconfig(), "--hostname-override", h.name,
		"--proxy-mode", "iptables", "--conntrack-max-per-core", "0", "--conntrack-tcp-timeout-established", "0",
		"--conntrack-tcp-timeout-close-wait", "0", "--oom-score-adj", "0", "--cluster-cidr", podRange+","+podRange6)
	if err != nil {
		return err
	}
	if err := proxy.Ready(testwait.Timeout, "http://"+h.address()+":10256/healthz", local); err != nil {
		return err
	}
	if err := h.node.Wait(ctx, "node/"+h.name, "create"); err != nil {
		return err
	}
	return h.node.Wait(ctx, "node/"+h.name, "condition=Ready")
}
