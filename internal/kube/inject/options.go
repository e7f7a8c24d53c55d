package inject

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"weft/internal/kube/convert"
	"weft/internal/kube/podmeta"
	"weft/internal/settings"
)

// Labels and annotations that have a meaning for injection.
const (
	injectionLabel = convert.InjectionLabel
	meshLabel      = podmeta.MeshKey
	zoneProxyLabel = convert.ZoneProxyLabel
	workloadLabel  = "kuma.io/workload"

	defaultContainerAnnotation = "kubectl.kubernetes.io/default-container"
)

// withoutMeaning are annotations of Kuma that have no effect on a Pod, each with what to do. A trailing "*" stands for
// all with the prefix.
var withoutMeaning = []struct{ name, advice string }{
	{"kuma.io/transparent-proxying-reachable-services", "use kuma.io/reachable-backends"},
	{"kuma.io/virtual-probes", "probes are rewritten; see " + podmeta.ProbePort},
	{"kuma.io/virtual-probes-port", "use " + podmeta.ProbePort},
	{"kuma.io/builtin-dns-logging", "queries are not logged"},
	{"kuma.io/builtindns", "use " + podmeta.DNS},
	{"kuma.io/builtindnsport", "use " + podmeta.DNSPort},
	{"kuma.io/transparent-proxying", "every Pod with a sidecar is redirected"},
	{"kuma.io/transparent-proxying-ebpf*", "connections are redirected by iptables"},
	{"kuma.io/service-account-token-volume", "the sidecar has a token of its own"},
	{"kuma.io/sidecar-drain-time", "the setting dpServer.drainTime is the drain time of all proxies"},
	{"kuma.io/xds-transport-protocol-variant", "there is only the delta protocol"},
	{"kuma.io/tags", "labels of the Pod are the tags of its inbounds"},
	{"kuma.io/direct-access-services", "use a headless Service, or MeshPassthrough"},
	{"traffic.kuma.io/drop-invalid-packets", "invalid packets are not dropped"},
	{"traffic.kuma.io/iptables-logs", "iptables does not log"},
	{"prometheus.metrics.kuma.io/*", "the metrics of Envoy are on its administration interface"},
}

// replaced are annotations that would open or close a Pod if they had no effect, so the Pod is denied.
var replaced = map[string]string{
	"kuma.io/ingress": "run weft-dp in a Pod of the system namespace, without the label " + injectionLabel +
		", or label the Service with " + zoneProxyLabel + ": ingress",
	"kuma.io/egress": "run weft-dp in a Pod of the system namespace, without the label " + injectionLabel +
		", or label the Service with " + zoneProxyLabel + ": egress",
	"traffic.kuma.io/transparent-proxy-configmap-name": "use the annotations traffic.kuma.io/exclude-*, or the " +
		"settings runtime.kubernetes.injector.sidecarTraffic",
}

// options are what the labels and annotations of a Pod and its Namespace say.
type options struct {
	mesh      string
	zoneProxy string
	gateway   bool

	patches, operatorPatches []string
	env                      map[string]string
	resources                settings.Resources // of the sidecar
	concurrency              int
	waitForReady, initFirst  bool
	logLevel, logLevels      string
	// The ports of the sidecar. An administration interface without a port is a socket.
	readinessPort, adminPort, probePort, dnsPort uint16
	dns                                          bool
	spire                                        bool

	excludeInboundPorts, excludeOutboundPorts []string
	excludeInboundIPs, excludeOutboundIPs     []string
	excludeUsers                              []string
}

// readOptions reads the labels and annotations, and adds the invalid ones to the problems.
func (i *injection) readOptions() {
	s, o := i.Settings, &i.options
	o.mesh = i.mesh()
	o.zoneProxy = i.pod.Labels[zoneProxyLabel]
	i.readGateway()
	o.operatorPatches, o.patches = s.Patches, splitList(i.pod.Annotations[podmeta.Patches])
	o.env = i.environment()
	o.resources = i.readResources()
	o.concurrency = i.concurrency()
	o.waitForReady = i.boolean(podmeta.Wait, s.WaitForReady)
	o.initFirst = i.boolean(podmeta.InitFirst, false)
	o.logLevel = i.choice(podmeta.LogLevel, "trace", "debug", "info", "warning", "error", "critical", "off")
	o.logLevels = i.matching(podmeta.LogLevels, componentLevels, "upstream:debug,connection:trace")
	o.readinessPort = readinessPort
	o.adminPort = i.port(podmeta.AdminPort, 0, 1)
	o.probePort = i.port(podmeta.ProbePort, s.ProbeProxyPort, 0)
	o.dns = i.boolean(podmeta.DNS, s.DNS)
	o.dnsPort = i.port(podmeta.DNSPort, s.DNSPort, 1)
	o.spire = i.boolean(podmeta.SPIRE, s.SPIRE)
	o.excludeInboundPorts = i.list(podmeta.ExcludedInboundPorts, s.ExcludeInboundPorts, "80,1000-1100", isPorts)
	o.excludeOutboundPorts = i.list(podmeta.ExcludedOutboundPorts, s.ExcludeOutboundPorts, "80,1000-1100", isPorts)
	o.excludeInboundIPs = i.list(podmeta.ExcludedInboundIPs, s.ExcludeInboundIPs, "10.0.0.1,10.1.0.0/16", isNetwork)
	o.excludeOutboundIPs = i.list(podmeta.ExcludedOutboundIPs, s.ExcludeOutboundIPs, "10.0.0.1,10.1.0.0/16", isNetwork)
	o.excludeUsers = i.users()
	if uid, ok := i.pod.Annotations[podmeta.UID]; ok && uid != fmt.Sprint(s.UID) {
		i.warn("the annotation %s has no effect: the sidecar's user is the setting "+
			"runtime.kubernetes.injector.sidecarContainer.uid", podmeta.UID)
	}
	i.reportMeaningless()
	i.reportUnknown()
}

// reportMeaningless warns about annotations without effect, and denies those whose effect is missed.
func (i *injection) reportMeaningless() {
	for _, key := range sortedKeys(i.pod.Annotations) {
		if advice, ok := replaced[key]; ok {
			i.invalid(key, "is not supported; %s", advice)
		}
		for _, known := range withoutMeaning {
			prefix, all := strings.CutSuffix(known.name, "*")
			if key == known.name || all && strings.HasPrefix(key, prefix) {
				i.warn("the annotation %s has no effect: %s", key, known.advice)
			}
		}
	}
}

// mesh returns the mesh of the Pod: its label, else that of the Namespace, else the default. The annotations are older.
func (i *injection) mesh() string {
	for _, from := range []struct {
		values map[string]string
		of     string
	}{{i.pod.Annotations, "Pod"}, {i.Namespace.Annotations, "Namespace"}} {
		if _, ok := from.values[meshLabel]; ok {
			i.warn("the annotation %s of the %s is deprecated; use a label", meshLabel, from.of)
		}
	}
	return cmp.Or(i.pod.Labels[meshLabel], i.pod.Annotations[meshLabel], i.Namespace.Labels[meshLabel],
		i.Namespace.Annotations[meshLabel], i.DefaultMesh, "default")
}

func (i *injection) readGateway() {
	gateway, problem := convert.Gateway(i.pod.Annotations)
	if problem != "" {
		i.invalid(podmeta.Gateway, "%s", problem)
	}
	i.options.gateway = gateway
}

// environment returns the environment variables of the settings and of the annotation, which has precedence.
func (i *injection) environment() map[string]string {
	env := map[string]string{}
	for name, value := range i.Settings.EnvVars {
		env[name] = value
	}
	for item := range strings.SplitSeq(i.pod.Annotations[podmeta.Env], ";") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		name, value, ok := strings.Cut(item, "=")
		if name = strings.TrimSpace(name); !ok || !environmentName.MatchString(name) {
			i.invalid(podmeta.Env, "has %q; want NAME=VALUE;NAME=VALUE", item)
			continue
		}
		env[name] = value
	}
	return env
}

var (
	environmentName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	componentLevels = regexp.MustCompile(`^[a-z0-9_]+:[a-z]+(,[a-z0-9_]+:[a-z]+)*$`)
	userPorts       = regexp.MustCompile(`^(tcp|udp|\*):(\*|[0-9,-]+):([0-9]+)(-([0-9]+))?$`)
)

// concurrency returns the number of Envoy's threads: the annotation, or else the limit of whole CPUs, at least 2. 0 is
// Envoy's default, the number of CPUs.
func (i *injection) concurrency() int {
	if text, ok := i.pod.Annotations[podmeta.Concurrency]; ok {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			i.invalid(podmeta.Concurrency, "is %q; want a number, 0 for all CPUs", text)
		}
		return int(n)
	}
	if limit := quantityOf(i.options.resources.LimitCPU); !limit.IsZero() {
		return max(2, int(limit.MilliValue()/1000))
	}
	return 0
}

// users reads the ports that are not redirected for some users. Items are separated by semicolons.
func (i *injection) users() []string {
	var all []string
	for item := range strings.SplitSeq(i.pod.Annotations[podmeta.ExcludedUsers], ";") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		if parts := userPorts.FindStringSubmatch(item); parts == nil || !arePorts(parts[2]) {
			i.invalid(podmeta.ExcludedUsers,
				"has %q; want PROTOCOL:PORTS:USERS;..., such as tcp:22:1000;*:53:0-999", item)
			continue
		}
		all = append(all, item)
	}
	return all
}

func arePorts(text string) bool {
	return text == "*" || !slices.ContainsFunc(strings.Split(text, ","), func(p string) bool { return !isPorts(p) })
}

// boolean returns the value of an annotation, or the fallback.
func (i *injection) boolean(annotation string, fallback bool) bool {
	text, ok := i.pod.Annotations[annotation]
	if !ok {
		return fallback
	}
	on, known := i.truth(text)
	if !known {
		i.invalid(annotation, "is %q; use enabled or disabled", text)
	}
	return on
}

// truth returns the meaning of a text, and whether it has one.
func (i *injection) truth(text string) (on, known bool) {
	switch text {
	case "enabled", "true":
		return true, true
	case "disabled", "false":
		return false, true
	case "yes", "no":
		i.warnDeprecated(text)
		return text == "yes", true
	}
	return false, false
}

func (i *injection) warnDeprecated(value string) {
	i.warn("the value %q is deprecated; use enabled or disabled", value)
}

func (i *injection) choice(annotation string, values ...string) string {
	text, ok := i.pod.Annotations[annotation]
	if ok && !slices.Contains(values, text) {
		i.invalid(annotation, "is %q; use one of %s", text, strings.Join(values, ", "))
	}
	return text
}

func (i *injection) matching(annotation string, pattern *regexp.Regexp, example string) string {
	text, ok := i.pod.Annotations[annotation]
	if ok && !pattern.MatchString(text) {
		i.invalid(annotation, "is %q; want a value such as %s", text, example)
	}
	return text
}

// port returns the value of an annotation, or the fallback.
func (i *injection) port(annotation string, fallback uint16, least uint64) uint16 {
	text, ok := i.pod.Annotations[annotation]
	if !ok {
		return fallback
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n < least {
		i.invalid(annotation, "is %q; want a port, %d to 65535", text, least)
	}
	return uint16(n)
}

// written returns the port of an annotation that the injector wrote.
func (i *injection) written(annotation string) uint16 {
	n, _ := strconv.ParseUint(i.pod.Annotations[annotation], 10, 16)
	return uint16(n)
}

// list returns the items of an annotation, or the fallback, which the annotation replaces.
func (i *injection) list(annotation string, fallback []string, example string, valid func(string) bool) []string {
	items, of := fallback, "the settings runtime.kubernetes.injector.sidecarTraffic"
	if text, ok := i.pod.Annotations[annotation]; ok {
		items, of = splitList(text), ""
	}
	for _, item := range items {
		switch {
		case valid(item):
		case of != "":
			i.problems.Add("", "%s have %q, want items such as %s; an operator must correct them", of, item, example)
		default:
			i.invalid(annotation, "has %q; want a list such as %s", item, example)
		}
	}
	return items
}

func isPorts(text string) bool {
	first, last, ranged := strings.Cut(text, "-")
	if !ranged {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 16)
	to, err2 := strconv.ParseUint(last, 10, 16)
	return err == nil && err2 == nil && from > 0 && from <= to
}

func isNetwork(text string) bool {
	_, err := netip.ParseAddr(text)
	_, err2 := netip.ParsePrefix(text)
	return err == nil || err2 == nil
}

func (i *injection) invalid(annotation, format string, args ...any) {
	i.problems.Add("metadata.annotations["+annotation+"]", format, args...)
}

// splitList parses "a, b"; an empty text is an empty list.
func splitList(text string) []string {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

func itoa(n int) string { return strconv.Itoa(n) }
