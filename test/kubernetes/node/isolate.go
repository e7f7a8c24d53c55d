package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// numberVariable has the number of the node in the environment of the process that runs in the node's namespaces.
const numberVariable = "WEFT_NODE"

// maxNodes bounds the nodes that run on a machine at once.
const maxNodes = 16

// machine is what a node uses of the machine beside its namespaces. All names follow from its number.
type machine struct {
	number int
	lock   *os.File
	hosts  []*host // those of all clusters, by their numbers
}

// name is the name of the node, of its folder and of its control groups.
func (m *machine) name() string { return "weft-node-" + strconv.Itoa(m.number) }

// address is where API servers are: that of the first host, which has the namespaces of their processes.
func (m *machine) address() string { return m.hosts[0].address() }

// dir is the folder of all files of the node.
func (m *machine) dir() string { return filepath.Join(os.TempDir(), m.name()) }

// IsIsolated returns whether this process runs in the namespaces of a node.
func IsIsolated() bool { return os.Getenv(numberVariable) != "" }

// Isolate runs this program again, with its arguments, in namespaces of its own for the network, mounts and processes,
// and returns its exit code. All processes, mounts and interfaces of the node end with these namespaces. Then its
// control groups and files are removed, also if ctx ends before. An error says what is missing on this machine, or what
// was left on it.
func Isolate(ctx context.Context) (code int, err error) {
	if err := supported(); err != nil {
		return 1, err
	}
	m, err := reserve()
	if err != nil {
		return 1, err
	}
	defer m.lock.Close()
	if err := errors.Join(m.clean(), m.make()); err != nil {
		return 1, errors.Join(err, m.clean())
	}
	// A terminal sends its interrupt to the program itself, which ends in its own order.
	signal.Ignore(os.Interrupt)
	// As the first process of its namespace, the shell ends the processes whose parents have ended.
	arguments := slices.Concat(isolated, []string{"/bin/sh", "-c", `"$@"; exit $?`, m.name(), os.Args[0]}, os.Args[1:])
	command := exec.CommandContext(ctx, "unshare", arguments...)
	// weft finds control planes of its machine by their addresses, which other nodes have too, in this file's folder.
	command.Env = append(os.Environ(), numberVariable+"="+strconv.Itoa(m.number),
		"WEFT_CONFIG="+filepath.Join(m.dir(), "weft", "config"))
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.Cancel = func() error { return killFirst(command.Process.Pid) }
	runErr := command.Run()
	var exit *exec.ExitError
	if runErr != nil && !errors.As(runErr, &exit) {
		return 1, errors.Join(runErr, m.clean())
	}
	return command.ProcessState.ExitCode(), errors.Join(m.clean(), m.left())
}

// killFirst kills the first process of the namespace that unshare has made, the only child of unshare. The kernel
// reports its end after that of all others, so unshare ends when none is left.
func killFirst(unshare int) error {
	processes, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return err
	}
	for _, file := range processes {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// PID (NAME) STATE PARENT; the name may have any character (proc_pid_stat(5)).
		pid, _, _ := strings.Cut(string(text), " ")
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if first, err := strconv.Atoi(pid); err == nil && fields[1] == strconv.Itoa(unshare) {
			return syscall.Kill(first, syscall.SIGKILL)
		}
	}
	return syscall.Kill(unshare, syscall.SIGKILL) // it has made none yet
}

// needed are the programs of a node that packages of the machine have, and the packages in Debian.
var needed = [][2]string{
	{"unshare", "util-linux"}, {"ip", "iproute2"}, {"mount", "mount"}, {"iptables", "iptables"},
	{"conntrack", "conntrack"}, {"nsenter", "util-linux"}, {"containerd", "containerd"}, {"ctr", "containerd"},
	{"runc", "runc"}, {debianPlugins + "/ptp", "containernetworking-plugins"},
}

// supported returns an error that names what this machine lacks.
func supported() error {
	if os.Getuid() != 0 {
		return errors.New("a node needs root: it makes namespaces, interfaces and control groups; with sudo: " +
			"sudo -E make test-kubernetes")
	}
	var packages []string
	for _, n := range needed {
		if _, err := exec.LookPath(n[0]); err != nil && !slices.Contains(packages, n[1]) {
			packages = append(packages, n[1])
		}
	}
	if len(packages) > 0 {
		return fmt.Errorf("a node needs packages that are missing; on Debian: apt-get install -y %s",
			strings.Join(packages, " "))
	}
	var failed []error
	for _, f := range features {
		if err := run("unshare", slices.Concat(isolated, []string{"sh", "-c", f.attempt})...); err != nil {
			failed = append(failed, fmt.Errorf("a node needs %s: %w", f.name, err))
			if f.name == namespaces {
				break // the others need them
			}
		}
	}
	return errors.Join(failed...)
}

// isolated are the arguments of unshare for the namespaces of a node.
var isolated = []string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"}

const namespaces = "namespaces for its network, mounts and processes; a container has the permission with --privileged"

// features are what a node needs of the kernel, and commands that fail without it.
var features = []struct{ name, attempt string }{
	{namespaces, "mount -t tmpfs none /run"},
	{"pairs of virtual interfaces", "ip link add weft-0 type veth peer name weft-1"},
	{"iptables with NAT", "iptables -t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 1"},
	{"iptables with conntrack", "iptables -A OUTPUT -m conntrack --ctstate NEW -m comment --comment weft -j ACCEPT"},
	{"the setting net.ipv4.ip_forward", "echo 1 >/proc/sys/net/ipv4/ip_forward"},
	{"a folder for temporary files on which overlayfs works; TMPDIR names another", `d=$(mktemp -d) && cd "$d" &&
		mkdir lower upper work merged && mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work none merged
		code=$?; umount merged 2>/dev/null; rm -rf "$d"; exit $code`},
}

// reserve reserves the first number that no other node has. The kernel frees it with this process.
func reserve() (*machine, error) {
	for n := range maxNodes {
		m := &machine{number: n}
		lock, err := os.OpenFile(m.dir()+".lock", os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			m.lock = lock
			return m, nil
		}
		lock.Close()
	}
	return nil, fmt.Errorf("%d nodes run on this machine already", maxNodes)
}

// make makes the folder and the control groups.
func (m *machine) make() error {
	if err := os.MkdirAll(m.dir(), 0o755); err != nil {
		return err
	}
	return makeGroup(m.name())
}

// clean removes the control groups and the files of a node whose processes have ended.
func (m *machine) clean() error {
	var failed []error
	for _, root := range controllers() {
		var found []string
		_ = filepath.WalkDir(filepath.Join(root, m.name()), func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				found = append(found, path)
			}
			return nil
		})
		slices.Reverse(found) // the groups below first
		for _, group := range found {
			failed = append(failed, os.Remove(group))
		}
	}
	return errors.Join(append(failed, os.RemoveAll(m.dir()))...)
}

// left returns an error that names what a node has left on the machine.
func (m *machine) left() error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var found []string
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, m.name()+"/") {
			found = append(found, "the mount "+strings.TrimSpace(line))
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return err
	}
	for _, file := range processes {
		if of, err := os.ReadFile(file); err == nil && strings.Contains(string(of), "/"+m.name()) {
			found = append(found, "the process "+filepath.Base(filepath.Dir(file)))
		}
	}
	for _, root := range controllers() {
		if _, err := os.Stat(filepath.Join(root, m.name())); err == nil {
			found = append(found, "the control group "+filepath.Join(root, m.name()))
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("the node has left on this machine: %s", strings.Join(found, "; "))
	}
	return nil
}
