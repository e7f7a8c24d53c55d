package cni_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"weft/internal/cni"
)

// TestMain runs the plugin in place of the tests where a container runtime would call it.
func TestMain(m *testing.M) {
	if os.Getenv("CNI_COMMAND") != "" {
		cni.Main("test")
		return
	}
	os.Exit(m.Run())
}

func pemOf(certificate []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
}

// namespace is a network namespace of one thread.
type namespace struct {
	file  string
	calls chan func()
}

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes a network namespace")
	}
	n := &namespace{calls: make(chan func())}
	entered := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		n.file = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), syscall.Gettid())
		entered <- syscall.Unshare(syscall.CLONE_NEWNET)
		for call := range n.calls {
			call()
		}
	}()
	t.Cleanup(func() { close(n.calls) })
	if err := <-entered; err != nil {
		t.Fatalf("this machine makes no network namespace: %v", err)
	}
	return n
}

// rules returns the rules of a namespace, without the comments, which have the time; nil is that of the test.
func (n *namespace) rules(t *testing.T) string {
	t.Helper()
	out, err := n.run("iptables-save", "-t", "nat")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var rules strings.Builder
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "#") {
			rules.WriteString(line)
		}
	}
	return rules.String()
}

func (n *namespace) run(program string, args ...string) (string, error) {
	command := exec.Command(program, args...)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	started := make(chan error)
	start := func() { started <- command.Start() }
	if n == nil {
		go start()
	} else {
		n.calls <- start
	}
	if err := <-started; err != nil {
		return "", err
	}
	err := command.Wait()
	return out.String(), err
}

// injected is the annotation of a Pod as the injector writes it, with an excluded port.
const injected = `{"ipFamilyMode":"dualstack","kumaDPUser":"5678","redirect":{` +
	`"dns":{"enabled":true,"captureAll":true,"port":15053},` +
	`"inbound":{"enabled":true,"port":15006,"excludePorts":["9902"]},"outbound":{"enabled":true,"port":15001}}}`

// call is a call of the plugin by a container runtime.
type call struct {
	command, version string
	annotations      any // nil: the runtime does not give them
	args             string
	netns            string
	noPrevious       bool
}

const pod = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=1"

// run returns the output of the plugin: its result, or the text of its error.
func (c call) run(t *testing.T) (result map[string]any, failure string) {
	t.Helper()
	conf := map[string]any{"cniVersion": c.version, "name": "net", "type": cni.Type}
	if !c.noPrevious {
		conf["prevResult"] = map[string]any{"cniVersion": c.version,
			"interfaces": []any{map[string]any{"name": "eth0"}},
			"ips":        []any{map[string]any{"version": "4", "address": "10.1.0.5/24"}}}
	}
	if c.annotations != nil {
		conf["runtimeConfig"] = map[string]any{"io.kubernetes.cri.pod-annotations": c.annotations}
	}
	input, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program)
	command.Env = append(os.Environ(), "CNI_COMMAND="+c.command, "CNI_CONTAINERID=c", "CNI_NETNS="+c.netns,
		"CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin", "CNI_ARGS="+c.args)
	command.Stdin = bytes.NewReader(input)
	out, err := command.Output()
	if len(out) > 0 {
		if err := json.Unmarshal(out, &result); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err != nil {
		failure = fmt.Sprint(result["msg"], result["details"])
	}
	return result, failure
}

func annotations(config string) map[string]string {
	return map[string]string{"kuma.io/sidecar-injected": "true", "traffic.kuma.io/transparent-proxy-config": config}
}

// TestAdd: the plugin redirects the connections of a Pod in its network namespace, and returns the result of the
// plugin before it, in each version of the specification.
func TestAdd(t *testing.T) {
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		n := newNamespace(t)
		c := call{"ADD", version, annotations(injected), pod, n.file, false}
		result, failure := c.run(t)
		if failure != "" || result["cniVersion"] != version || !strings.Contains(fmt.Sprint(result), "10.1.0.5/24") {
			t.Fatalf("%s: the result is %v, %s", version, result, failure)
		}
		rules := n.rules(t)
		for _, want := range []string{"--to-ports 15006", "--to-ports 15001", "--to-ports 15053",
			"--dport 9902 -j RETURN", "--uid-owner 5678"} {
			if !strings.Contains(rules, want) {
				t.Errorf("%s: the rules lack %s:\n%s", version, want, rules)
			}
		}
		if _, failure := c.run(t); failure != "" || n.rules(t) != rules {
			t.Errorf("%s: a second call: %s\n%s", version, failure, n.rules(t))
		}
		c.command = "DEL"
		if _, failure := c.run(t); failure != "" {
			t.Errorf("%s: DEL: %s", version, failure)
		}
	}
	if rules := (*namespace)(nil).rules(t); strings.Contains(rules, "WEFT") {
		t.Errorf("the node has the rules\n%s", rules)
	}
}

// TestCheck: a Pod without its rules is an error.
func TestCheck(t *testing.T) {
	n := newNamespace(t)
	c := call{"CHECK", "1.1.0", annotations(injected), pod, n.file, false}
	if _, failure := c.run(t); !strings.Contains(failure, "are not redirected") {
		t.Errorf("without rules: %q", failure)
	}
	c.command = "ADD"
	if _, failure := c.run(t); failure != "" {
		t.Fatal(failure)
	}
	c.command = "CHECK"
	if _, failure := c.run(t); failure != "" {
		t.Errorf("with its rules: %s", failure)
	}
	if out, err := n.run("iptables", "-t", "nat", "-F", "WEFT_OUTBOUND"); err != nil {
		t.Fatal(out)
	}
	if _, failure := c.run(t); failure == "" {
		t.Error("with a chain that is empty, there is no error")
	}
}

// TestOtherCalls: calls that change nothing succeed without the annotations of a Pod.
func TestOtherCalls(t *testing.T) {
	for _, command := range []string{"VERSION", "GC", "STATUS", "DEL"} {
		result, failure := call{command, "1.1.0", nil, pod, "", false}.run(t)
		if failure != "" {
			t.Errorf("%s: %s", command, failure)
		}
		if command == "VERSION" && !strings.Contains(fmt.Sprint(result["supportedVersions"]), "1.1.0") {
			t.Errorf("the versions are %v", result)
		}
	}
}

// TestNotRedirected: other Pods, and containers that are no Pods, start as they are.
func TestNotRedirected(t *testing.T) {
	for name, c := range map[string]call{
		"a Pod without a sidecar":      {annotations: map[string]string{"a": "b"}, args: pod},
		"a Pod of no annotations":      {annotations: map[string]string{}, args: pod},
		"a zone proxy":                 {annotations: map[string]string{"kuma.io/sidecar-injected": "true"}, args: pod},
		"a Pod of kube-system":         {args: strings.ReplaceAll(pod, "shop", "kube-system")},
		"a container that isn't a Pod": {args: "IgnoreUnknown=1;A=b"},
	} {
		n := newNamespace(t)
		c.command, c.version, c.netns = "ADD", "1.0.0", n.file
		if _, failure := c.run(t); failure != "" {
			t.Errorf("%s: %s", name, failure)
		}
		if rules := n.rules(t); strings.Contains(rules, "WEFT") {
			t.Errorf("%s has the rules\n%s", name, rules)
		}
	}
}

// TestFailsClosed: a Pod whose redirection is not known, or can't be installed, does not start.
func TestFailsClosed(t *testing.T) {
	config := func(old, with string) any { return annotations(strings.Replace(injected, old, with, 1)) }
	for want, c := range map[string]call{
		"use containerd or CRI-O":   {args: pod},
		"is the first plugin":       {annotations: annotations(injected), args: pod, noPrevious: true},
		"no such file":              {annotations: annotations(injected), args: pod, netns: "/run/none"},
		"is that of the node":       {annotations: annotations(injected), args: pod, netns: "/proc/self/ns/net"},
		"unexpected EOF":            {annotations: annotations("{"), args: pod},
		`unknown field "retry"`:     {annotations: config(`"redirect":`, `"retry":1,"redirect":`), args: pod},
		`kumaDPUser: "root"`:        {annotations: config("5678", "root"), args: pod},
		`"80\n-A INPUT" is no port`: {annotations: config("9902", `80\n-A INPUT`), args: pod},
		"--redirect-inbound-port":   {annotations: config("15006", "15001"), args: pod},
		"redirect.outbound.enabled": {annotations: config(`"outbound":{"enabled":true`,
			`"outbound":{"enabled":false`), args: pod},
		"redirect.dns.captureAll":               {annotations: config(`"captureAll":true`, `"captureAll":false`), args: pod},
		"redirect.dns.port":                     {annotations: config("15053", "0"), args: pod},
		`the IP family mode is "ipv5"`:          {annotations: config("dualstack", "ipv5"), args: pod},
		"cannot unmarshal number into Go value": {annotations: 1, args: pod},
	} {
		n := newNamespace(t)
		c.command, c.version = "ADD", "1.0.0"
		if c.netns == "" {
			c.netns = n.file
		}
		if _, failure := c.run(t); !strings.Contains(failure, want) {
			t.Errorf("the error is %q, want %q", failure, want)
		}
		if rules := n.rules(t); strings.Contains(rules, "WEFT") {
			t.Errorf("%s: there are rules:\n%s", want, rules)
		}
	}
}
