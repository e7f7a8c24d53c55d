package settings

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// AdmissionServer is the server of admission webhooks.
type AdmissionServer struct {
	Address
	// CertDir has tls.crt and tls.key. Empty: the control plane makes a certificate, and keeps it in a Secret.
	CertDir string
	// ClientCAFile has the CAs of the certificates that API servers present. Empty: they present none.
	ClientCAFile string
}

// Injector configures the sidecars that the control plane adds to Pods.
type Injector struct {
	Service string // the name of the control plane's Service in the system namespace
	// CACertFile has the CA of the server for proxies, in PEM. Empty: the control plane's own CA.
	CACertFile string

	SidecarImage string
	InitImage    string // empty: SidecarImage
	// UID and GID are the user and the group of weft-dp and Envoy.
	UID, GID int
	// NativeSidecars makes the sidecar an init container with restartPolicy Always.
	NativeSidecars bool
	// WaitForReady makes the containers after a sidecar that is not native wait until it is ready.
	WaitForReady bool
	EnvVars      map[string]string
	Patches      []string // names of ContainerPatches for all Pods
	CNI          bool
	// Exceptions are labels of Pods that are never injected, with a value, or "*" for any.
	Exceptions map[string]string

	Sidecar, Init, Validation Resources
	Startup, Readiness, Live  Probe

	InboundPort, OutboundPort uint16
	IPFamilyMode              string // dualstack, ipv4 or ipv6
	ProbeProxyPort            uint16 // 0: probes are not rewritten
	DNS                       bool
	DNSPort                   uint16
	// Connections that are not redirected: ports and ranges of ports, addresses and networks.
	ExcludeInboundPorts, ExcludeOutboundPorts []string
	ExcludeInboundIPs, ExcludeOutboundIPs     []string

	SPIRE          bool
	SPIREHostPath  string // empty: the SPIFFE CSI volume
	SPIREMountPath string
	SPIRESocket    string // the name of the socket's file
}

// Resources are the resources of a container, quantities of Kubernetes. "0" is none.
type Resources struct{ RequestCPU, RequestMemory, LimitCPU, LimitMemory string }

// Probe is a probe of a container. Numbers are seconds, except for the thresholds.
type Probe struct {
	InitialDelay, Timeout, Period, FailureThreshold int
	SuccessThreshold                                int // 0: the default of Kubernetes
}

const runtimePath, runtimeVariable = "runtime.kubernetes.", "KUMA_RUNTIME_KUBERNETES_"

// injectorSettings are the settings of the admission server and of the injector.
var injectorSettings = slices.Concat([]setting{
	{
		path: runtimePath + "admissionServer.address", env: runtimeVariable + "ADMISSION_SERVER_ADDRESS",
		fallback: "0.0.0.0", doc: "The IP address on which admission webhooks listen.",
		set: address(func(s *Settings) *string { return &s.Admission.Interface }),
	},
	{
		path: runtimePath + "admissionServer.port", env: runtimeVariable + "ADMISSION_SERVER_PORT", fallback: "5443",
		doc: "The port of admission webhooks; 0 selects a free port.",
		set: port(func(s *Settings) *uint16 { return &s.Admission.Port }),
	},
	{
		path: runtimePath + "admissionServer.certDir", env: runtimeVariable + "ADMISSION_SERVER_CERT_DIR",
		doc: "A folder with the certificate of the admission webhooks, `tls.crt` and `tls.key`, read again when they " +
			"change; the caBundle of the webhook configurations is then yours, or cert-manager's. Empty: the control " +
			"plane makes and renews a certificate, and writes the caBundle.",
		set: text(func(s *Settings) *string { return &s.Admission.CertDir }),
	},
	{
		path: runtimePath + "admissionServer.clientCaFile", env: runtimeVariable + "ADMISSION_SERVER_CLIENT_CA_FILE",
		doc: "A file with the CAs, in PEM, of the certificates that the API servers present to webhooks " +
			"(`kubeConfigFile` of an AdmissionConfiguration); read again when it changes. All other callers are " +
			"rejected then. Empty: no caller needs a certificate, since API servers have none by default.",
		set: text(func(s *Settings) *string { return &s.Admission.ClientCAFile }),
	},
	{
		path: runtimePath + "controlPlaneServiceName", env: runtimeVariable + "CONTROL_PLANE_SERVICE_NAME",
		fallback: "kuma-control-plane",
		doc: "The name of the control plane's Service in the system namespace. Sidecars connect to it, and the API " +
			"server calls the webhooks through it.",
		set: label(func(s *Settings) *string { return &s.Injector.Service }),
	},
	injectorText("caCertFile", "CA_CERT_FILE", "", "The file with the CA, in PEM, of the certificate of the server "+
		"for proxies. Empty: the control plane's own CA.", func(i *Injector) *string { return &i.CACertFile }),
	injectorText("sidecarContainer.image", "SIDECAR_CONTAINER_IMAGE", "weft/weft-dp:latest",
		"The image of the sidecar: weft-dp, Envoy and iptables.", func(i *Injector) *string { return &i.SidecarImage }),
	{
		path: runtimePath + "injector.initContainer.image", env: "KUMA_INJECTOR_INIT_CONTAINER_IMAGE",
		doc: "The image of the init container, which redirects the Pod's connections. Empty: that of the sidecar.",
		set: text(func(s *Settings) *string { return &s.Injector.InitImage }),
	},
	injectorNumber("sidecarContainer.uid", "SIDECAR_CONTAINER_UID", "5678", 1, 1<<31-1,
		"The user ID of the sidecar. The connections of this user are not redirected.",
		func(i *Injector) *int { return &i.UID }),
	{
		path: runtimePath + "injector.sidecarContainer.gid", fallback: "5678",
		env:   runtimeVariable + "INJECTOR_SIDECAR_CONTAINER_GUI",
		alias: runtimeVariable + "INJECTOR_SIDECAR_CONTAINER_GID",
		doc:   "The group ID of the sidecar. The first variable is spelt as Kuma spells it.",
		set:   number(1, 1<<31-1, func(s *Settings) *int { return &s.Injector.GID }),
	},
	{
		path: "experimental.sidecarContainers", env: "KUMA_EXPERIMENTAL_SIDECAR_CONTAINERS", fallback: "true",
		doc: "Inject native sidecars: init containers with `restartPolicy: Always`, which start before the Pod's " +
			"other containers and end after them. `false`: an ordinary container.",
		set: boolean(func(s *Settings) *bool { return &s.Injector.NativeSidecars }),
	},
	injectorBoolean("sidecarContainer.waitForDataplaneReady", "SIDECAR_CONTAINER_WAIT_FOR_DATAPLANE_READY", "false",
		"Start the Pod's containers after a sidecar that is not native is ready. A native one always is.",
		func(i *Injector) *bool { return &i.WaitForReady }),
	{
		path: runtimePath + "injector.sidecarContainer.envVars",
		env:  runtimeVariable + "INJECTOR_SIDECAR_CONTAINER_ENV_VARS", list: true, mapping: true,
		doc: "Environment variables of all sidecars, `NAME:VALUE,NAME:VALUE`, or a mapping in the file.",
		set: pairs(environmentName, func(i *Injector) *map[string]string { return &i.EnvVars }),
	},
	{
		path: runtimePath + "injector.containerPatches", env: runtimeVariable + "INJECTOR_CONTAINER_PATCHES",
		list: true,
		doc: "The [ContainerPatches](kinds/containerpatch.md) that change the containers of all Pods, before those " +
			"that the Pod names.",
		set: func(s *Settings, v string) error {
			s.Injector.Patches = splitList(v)
			for _, name := range s.Injector.Patches {
				if !objectName.MatchString(name) {
					return fmt.Errorf("has %q, which is not the name of an object", name)
				}
			}
			return nil
		},
	},
	injectorBoolean("cniEnabled", "CNI_ENABLED", "false", "Redirect the connections of Pods by the CNI plugin, "+
		"without a privileged init container.", func(i *Injector) *bool { return &i.CNI }),
	{
		path: runtimePath + "injector.exceptions.labels", env: runtimeVariable + "EXCEPTIONS_LABELS", list: true,
		mapping:  true,
		fallback: "openshift.io/build.name:*,openshift.io/deployer-pod-for.name:*",
		doc: "Labels of Pods that are never injected, `KEY:VALUE,KEY:VALUE`, or a mapping in the file; the value " +
			"`*` is any.",
		set: pairs(labelKey, func(i *Injector) *map[string]string { return &i.Exceptions }),
	},
	injectorNumberPort("sidecarContainer.redirectPortInbound", "SIDECAR_CONTAINER_REDIRECT_PORT_INBOUND", "15006",
		"The sidecar's port for redirected inbound connections.", func(i *Injector) *uint16 { return &i.InboundPort }),
	injectorNumberPort("sidecarContainer.redirectPortOutbound", "SIDECAR_CONTAINER_REDIRECT_PORT_OUTBOUND", "15001",
		"The sidecar's port for redirected outbound connections.",
		func(i *Injector) *uint16 { return &i.OutboundPort }),
	{
		path: runtimePath + "injector.sidecarContainer.ipFamilyMode",
		env:  runtimeVariable + "INJECTOR_SIDECAR_CONTAINER_IP_FAMILY_MODE", fallback: "dualstack",
		doc: "The IP families whose connections are redirected: `dualstack`, `ipv4` or `ipv6`.",
		set: func(s *Settings, v string) error {
			s.Injector.IPFamilyMode = strings.ToLower(v)
			if !slices.Contains([]string{"dualstack", "ipv4", "ipv6"}, s.Injector.IPFamilyMode) {
				return errors.New("is not an IP family mode; use dualstack, ipv4 or ipv6")
			}
			return nil
		},
	},
	{
		path: runtimePath + "injector.applicationProbeProxyPort",
		env:  runtimeVariable + "APPLICATION_PROBE_PROXY_PORT", fallback: "9001",
		doc: "The sidecar's port that forwards the probes of the kubelet. `0`: probes are not rewritten, and their " +
			"ports are open without mTLS.",
		set: port(func(s *Settings) *uint16 { return &s.Injector.ProbeProxyPort }),
	},
	injectorBoolean("builtinDNS.enabled", "BUILTIN_DNS_ENABLED", "true",
		"Redirect the DNS queries of Pods to the sidecar, which resolves the mesh's host names.",
		func(i *Injector) *bool { return &i.DNS }),
	injectorNumberPort("builtinDNS.port", "BUILTIN_DNS_PORT", "15053", "The sidecar's port for DNS.",
		func(i *Injector) *uint16 { return &i.DNSPort }),
	injectorBoolean("spire.enabled", "SPIRE_ENABLED", "false",
		"Mount the folder with the socket of the SPIRE agent in the sidecars of all Pods: the SPIFFE CSI volume, or a "+
			"folder of the Node.",
		func(i *Injector) *bool { return &i.SPIRE }),
	injectorText("spire.hostPath", "SPIRE_HOST_PATH", "", "The folder of the Node with the socket. Empty: the volume "+
		"of the CSI driver csi.spiffe.io. The Pod security standards allow no folder of the Node.",
		func(i *Injector) *string { return &i.SPIREHostPath }),
	injectorText("spire.mountPath", "SPIRE_MOUNT_PATH", "/run/spire/sockets", "Where the sidecar has that folder.",
		func(i *Injector) *string { return &i.SPIREMountPath }),
	injectorText("spire.socketFileName", "SPIRE_SOCKET_FILE_NAME", "socket", "The name of the socket in that folder.",
		func(i *Injector) *string { return &i.SPIRESocket }),
}, exclusionSettings, resourceSettings, probeSettings)

// SpireSocket is the default socket of the SPIRE agent for the proxies of this zone: on Kubernetes that which the
// injector mounts; empty for machines.
func (s *Settings) SpireSocket() string {
	if s.Environment != OnKubernetes {
		return ""
	}
	return path.Join(s.Injector.SPIREMountPath, s.Injector.SPIRESocket)
}

// exclusionSettings are the connections that are not redirected.
var exclusionSettings = []setting{
	exclusion("excludeInboundPorts", "EXCLUDE_INBOUND_PORTS", "Ports and ranges of Pods, such as `80,1000-1100`, "+
		"whose inbound connections", func(i *Injector) *[]string { return &i.ExcludeInboundPorts }),
	exclusion("excludeOutboundPorts", "EXCLUDE_OUTBOUND_PORTS", "Ports and ranges to which outbound connections",
		func(i *Injector) *[]string { return &i.ExcludeOutboundPorts }),
	exclusion("excludeInboundIPs", "EXCLUDE_INBOUND_IPS", "Addresses and networks from which inbound connections",
		func(i *Injector) *[]string { return &i.ExcludeInboundIPs }),
	exclusion("excludeOutboundIPs", "EXCLUDE_OUTBOUND_IPS", "Addresses and networks to which outbound connections",
		func(i *Injector) *[]string { return &i.ExcludeOutboundIPs }),
}

func exclusion(path, env, doc string, field func(*Injector) *[]string) setting {
	return setting{
		path: runtimePath + "injector.sidecarTraffic." + path, env: runtimeVariable + "SIDECAR_TRAFFIC_" + env,
		list: true,
		doc:  doc + " are not redirected; they are not protected by the mesh. The Pod's annotation replaces the list.",
		set: func(s *Settings, v string) error {
			*field(&s.Injector) = splitList(v)
			return nil // the injector parses them, as it does the annotations
		},
	}
}

// resourceSettings are the resources of the containers.
var resourceSettings = slices.Concat(
	resources("sidecarContainer", "SIDECAR_CONTAINER", "the sidecar", Resources{"50m", "64Mi", "0", "512Mi"},
		func(i *Injector) *Resources { return &i.Sidecar }),
	resources("initContainer", "INIT_CONTAINER", "the init container", Resources{"20m", "20M", "0", "50M"},
		func(i *Injector) *Resources { return &i.Init }),
	resources("validationContainer", "VALIDATION_CONTAINER", "the container that validates the redirection (CNI)",
		Resources{"20m", "20M", "0", "50M"}, func(i *Injector) *Resources { return &i.Validation }),
)

func resources(path, env, of string, fallback Resources, field func(*Injector) *Resources) []setting {
	one := func(key, variable, fallback, what string, part func(*Resources) *string) setting {
		return setting{
			path: runtimePath + "injector." + path + ".resources." + key,
			env:  "KUMA_INJECTOR_" + env + "_RESOURCES_" + variable, fallback: fallback,
			doc: "The " + what + " of " + of + ", a quantity of Kubernetes; `0` for none.",
			set: func(s *Settings, v string) error {
				*part(field(&s.Injector)) = v
				if !quantity.MatchString(v) {
					return errors.New("is not a quantity such as 100m, 64Mi or 0")
				}
				return nil
			},
		}
	}
	return []setting{
		one("requests.cpu", "REQUESTS_CPU", fallback.RequestCPU, "CPU request",
			func(r *Resources) *string { return &r.RequestCPU }),
		one("requests.memory", "REQUESTS_MEMORY", fallback.RequestMemory, "memory request",
			func(r *Resources) *string { return &r.RequestMemory }),
		one("limits.cpu", "LIMITS_CPU", fallback.LimitCPU, "CPU limit",
			func(r *Resources) *string { return &r.LimitCPU }),
		one("limits.memory", "LIMITS_MEMORY", fallback.LimitMemory, "memory limit",
			func(r *Resources) *string { return &r.LimitMemory }),
	}
}

// quantity matches a quantity of Kubernetes that is not negative (Kubernetes API, "Quantity").
var quantity = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$`)

// probeSettings are the probes of the sidecar. A native sidecar holds the start of the Pod's containers until the
// startup probe has succeeded, so it runs each second.
var probeSettings = slices.Concat(
	probes("startupProbe", "STARTUP_PROBE", Probe{Timeout: 3, Period: 1, FailureThreshold: 120},
		func(i *Injector) *Probe { return &i.Startup }),
	probes("readinessProbe", "READINESS_PROBE", Probe{InitialDelay: 1, Timeout: 3, Period: 5, FailureThreshold: 12,
		SuccessThreshold: 1}, func(i *Injector) *Probe { return &i.Readiness }),
	probes("livenessProbe", "LIVENESS_PROBE", Probe{InitialDelay: 60, Timeout: 3, Period: 10, FailureThreshold: 6},
		func(i *Injector) *Probe { return &i.Live }),
)

func probes(path, env string, fallback Probe, field func(*Injector) *Probe) []setting {
	one := func(key, variable string, fallback, least int, what string, part func(*Probe) *int) setting {
		return setting{
			path:     runtimePath + "injector.sidecarContainer." + path + "." + key,
			env:      runtimeVariable + "INJECTOR_SIDECAR_CONTAINER_" + env + "_" + variable,
			fallback: strconv.Itoa(fallback),
			doc:      "The " + what + " of the sidecar's " + path + ".",
			set:      number(least, 86_400, func(s *Settings) *int { return part(field(&s.Injector)) }),
		}
	}
	all := []setting{
		one("initialDelaySeconds", "INITIAL_DELAY_SECONDS", fallback.InitialDelay, 0, "delay in seconds",
			func(p *Probe) *int { return &p.InitialDelay }),
		one("timeoutSeconds", "TIMEOUT_SECONDS", fallback.Timeout, 1, "timeout in seconds",
			func(p *Probe) *int { return &p.Timeout }),
		one("periodSeconds", "PERIOD_SECONDS", fallback.Period, 1, "period in seconds",
			func(p *Probe) *int { return &p.Period }),
		one("failureThreshold", "FAILURE_THRESHOLD", fallback.FailureThreshold, 1, "number of failures",
			func(p *Probe) *int { return &p.FailureThreshold }),
	}
	if fallback.SuccessThreshold > 0 {
		all = append(all, one("successThreshold", "SUCCESS_THRESHOLD", fallback.SuccessThreshold, 1,
			"number of successes", func(p *Probe) *int { return &p.SuccessThreshold }))
	}
	return all
}

func injector(path, env, fallback, doc string, set func(*Settings, string) error) setting {
	return setting{path: runtimePath + "injector." + path, env: runtimeVariable + "INJECTOR_" + env, fallback: fallback,
		doc: doc, set: set}
}

func injectorText(path, env, fallback, doc string, field func(*Injector) *string) setting {
	return injector(path, env, fallback, doc, text(func(s *Settings) *string { return field(&s.Injector) }))
}

func injectorNumber(path, env, fallback string, least, most int, doc string, field func(*Injector) *int) setting {
	return injector(path, env, fallback, doc, number(least, most, func(s *Settings) *int { return field(&s.Injector) }))
}

func injectorNumberPort(path, env, fallback, doc string, field func(*Injector) *uint16) setting {
	return injector(path, env, fallback, doc, func(s *Settings, v string) error {
		n, err := strconv.ParseUint(v, 10, 16)
		if err != nil || n == 0 {
			return errors.New("is not a port, 1 to 65535")
		}
		*field(&s.Injector) = uint16(n)
		return nil
	})
}

func injectorBoolean(path, env, fallback, doc string, field func(*Injector) *bool) setting {
	return injector(path, env, fallback, doc, boolean(func(s *Settings) *bool { return field(&s.Injector) }))
}

// pairs parses "KEY:VALUE,KEY:VALUE".
func pairs(key *regexp.Regexp, field func(*Injector) *map[string]string) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		*field(&s.Injector) = map[string]string{}
		for _, item := range splitList(v) {
			name, value, ok := strings.Cut(item, ":")
			if !ok || !key.MatchString(name) {
				return fmt.Errorf("has %q, want KEY:VALUE", item)
			}
			(*field(&s.Injector))[name] = value
		}
		return nil
	}
}

var (
	labelKey        = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$`)
	environmentName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	objectName      = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)
)

// InjectorDefaults returns the defaults of the injector, for tests.
func InjectorDefaults() *Injector {
	s := &Settings{}
	for _, item := range injectorSettings {
		if err := item.set(s, item.fallback); err != nil {
			panic(item.path + ": " + err.Error())
		}
	}
	return &s.Injector
}
