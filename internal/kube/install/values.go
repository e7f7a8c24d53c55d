package install

import "slices"

// shape is the type of a value.
type shape string

const (
	text    shape = "string"
	integer shape = "integer"
	boolean shape = "boolean"
	mapping shape = "object" // with any content
	list    shape = "array"  // with any items
	many    shape = "many"   // a list or a mapping of items
	amount  shape = "amount" // a quantity of Kubernetes, a text or a number
)

// value is one value of the chart.
type value struct {
	path     string // below a list, "meshes[].name"
	shape    shape
	fallback any      // the default; nil for a value below a list without one
	choices  []string // empty: any
	pattern  string   // of a text; empty: any
	setting  string   // the path of the setting of the control plane that it is; empty: none
	doc      string
}

// values are the values of the chart, in the order of the documentation. Names that users of Kuma's chart know have the
// meaning that they have there.
var values = slices.Concat(plain, zoneProxies())

// plain are the values that are no items of a list.
var plain = []value{
	{path: "createNamespace", shape: boolean, fallback: false, doc: "Whether the Namespace is one of the objects. " +
		"`weft install control-plane` sets it; with Helm, use `--create-namespace`."},
	{path: "skipRBAC", shape: boolean, fallback: false, doc: "Leave out the roles and their bindings. Create them " +
		"before, as the table of permissions lists them."},
	{path: "global.image.registry", shape: text, fallback: "docker.io/weft", doc: "The registry of all images."},
	{path: "global.image.tag", shape: text, fallback: "", doc: "The tag of all images. Empty: the `appVersion` of " +
		"the chart."},
	{path: "global.imagePullSecrets", shape: list, fallback: []any{}, doc: "Names of Secrets for pulling images."},

	{path: "controlPlane.mode", shape: text, fallback: "zone", choices: []string{"zone", "global"}, setting: "mode",
		doc: "`zone`: the control plane serves the proxies of this cluster. `global`: it joins zones."},
	{path: "controlPlane.zone", shape: text, fallback: "default", pattern: dnsLabel, setting: "multizone.zone.name",
		doc: "The name of the zone."},
	{path: "controlPlane.kdsGlobalAddress", shape: text, fallback: "", pattern: "^(|grpcs://.+)$",
		setting: "multizone.zone.globalAddress", doc: "The global control plane that the zone joins, " +
			"`grpcs://HOST:PORT`. The zone needs a token too, for example from `controlPlane.secrets`."},
	{path: "controlPlane.zoneProxyNamespaces", shape: list, fallback: []any{},
		setting: "runtime.kubernetes.zoneProxyNamespaces", doc: "Namespaces, beside that of the release, whose Pods " +
			"may be zone proxies. Their owners get the keys of external services and the traffic of the meshes."},
	{path: "controlPlane.logLevel", shape: text, fallback: "info", choices: []string{"debug", "info", "warn", "error"},
		setting: "general.logLevel", doc: "The log level."},
	{path: "controlPlane.image.repository", shape: text, fallback: "weft", doc: "The image of the control plane, in " +
		"the registry."},
	{path: "controlPlane.image.tag", shape: text, fallback: "", doc: "Its tag. Empty: `global.image.tag`."},
	{path: "controlPlane.image.pullPolicy", shape: text, fallback: "IfNotPresent",
		choices: []string{"Always", "IfNotPresent", "Never"}, doc: "When the image is pulled."},
	{path: "controlPlane.replicas", shape: integer, fallback: 1, doc: "The number of replicas. Use 2 in production: " +
		"without a replica, no Pod of a namespace with injection starts."},
	{path: "controlPlane.autoscaling.enabled", shape: boolean, fallback: false, doc: "Create a " +
		"HorizontalPodAutoscaler, which sets the number of replicas in place of `controlPlane.replicas`. Open " +
		"connections of proxies stay with their replica, so a further replica takes over those that connect after " +
		"it is ready."},
	{path: "controlPlane.autoscaling.minReplicas", shape: integer, fallback: 2, doc: "The smallest number of " +
		"replicas."},
	{path: "controlPlane.autoscaling.maxReplicas", shape: integer, fallback: 5, doc: "The largest number of " +
		"replicas."},
	{path: "controlPlane.autoscaling.metrics", shape: list, fallback: []any{map[string]any{"type": "Resource",
		"resource": map[string]any{"name": "cpu", "target": map[string]any{"type": "Utilization",
			"averageUtilization": 80}}}},
		doc: "The metrics of the HorizontalPodAutoscaler. Each replica has the whole state of the zone in memory, so " +
			"memory is no measure."},
	{path: "controlPlane.autoscaling.behavior", shape: mapping, fallback: map[string]any{}, doc: "How fast it scales."},
	{path: "controlPlane.podDisruptionBudget.enabled", shape: boolean, fallback: true, doc: "Create a " +
		"PodDisruptionBudget of the control plane."},
	{path: "controlPlane.podDisruptionBudget.maxUnavailable", shape: integer, fallback: 1, doc: "How many replicas " +
		"an eviction may stop at the same time."},
	{path: "controlPlane.resources", shape: mapping, fallback: map[string]any{
		"requests": map[string]any{"cpu": "500m", "memory": "256Mi"}, "limits": map[string]any{"memory": "1Gi"}},
		doc: "Resources of the control plane. The memory limit is also `GOMEMLIMIT`."},
	{path: "controlPlane.minReadySeconds", shape: integer, fallback: 0, doc: "How long a new replica must be ready " +
		"before the next old one stops."},
	{path: "controlPlane.terminationGracePeriodSeconds", shape: integer, fallback: 30, doc: "How long a replica may " +
		"take to stop."},
	{path: "controlPlane.nodeSelector", shape: mapping, fallback: map[string]any{"kubernetes.io/os": "linux"},
		doc: "Labels of the Nodes on which the control plane may run."},
	{path: "controlPlane.tolerations", shape: list, fallback: []any{}, doc: "Taints that it tolerates."},
	{path: "controlPlane.affinity", shape: mapping, fallback: spread("kuma-control-plane"), doc: "Affinity. By " +
		"default, replicas prefer different Nodes."},
	{path: "controlPlane.topologySpreadConstraints", shape: list, fallback: []any{}, doc: "How replicas are spread."},
	{path: "controlPlane.priorityClassName", shape: text, fallback: "", doc: "The PriorityClass of the Pods."},
	{path: "controlPlane.envVars", shape: mapping, fallback: map[string]any{}, doc: "Environment variables of the " +
		"control plane, `KUMA_*` by the table of [settings](settings.md), as a mapping. They replace those of the " +
		"chart."},
	{path: "controlPlane.config", shape: text, fallback: "", doc: "The YAML of the settings file of the control " +
		"plane. Environment variables replace its settings."},
	{path: "controlPlane.secrets", shape: many, fallback: map[string]any{}, doc: "Environment variables from " +
		"Secrets: items with `Env`, `Secret` and `Key`."},
	{path: "controlPlane.extraSecrets", shape: many, fallback: map[string]any{}, doc: "Secrets that are mounted: " +
		"items with `name` and `mountPath`."},
	{path: "controlPlane.extraConfigMaps", shape: many, fallback: map[string]any{}, doc: "ConfigMaps that are " +
		"mounted: items with `name` and `mountPath`."},
	{path: "controlPlane.extraLabels", shape: mapping, fallback: map[string]any{}, doc: "Further labels of the Pods."},
	{path: "controlPlane.podAnnotations", shape: mapping, fallback: map[string]any{}, doc: "Annotations of the Pods."},
	{path: "controlPlane.deploymentAnnotations", shape: mapping, fallback: map[string]any{}, doc: "Annotations of " +
		"the Deployment."},
	{path: "controlPlane.serviceAccountAnnotations", shape: mapping, fallback: map[string]any{}, doc: "Annotations " +
		"of the ServiceAccount."},
	{path: "controlPlane.service.name", shape: text, fallback: "kuma-control-plane", pattern: dnsLabel,
		setting: "runtime.kubernetes.controlPlaneServiceName", doc: "The name of the Service, which certificates and " +
			"sidecars have."},
	{path: "controlPlane.service.type", shape: text, fallback: "ClusterIP",
		choices: []string{"ClusterIP", "NodePort", "LoadBalancer"}, doc: "The type of the Service."},
	{path: "controlPlane.service.annotations", shape: mapping, fallback: map[string]any{}, doc: "Its annotations."},
	{path: "controlPlane.service.apiServer.http.nodePort", shape: integer, fallback: 0, doc: "The port on the Nodes " +
		"of the HTTP API; 0: the cluster selects one."},
	{path: "controlPlane.service.apiServer.https.nodePort", shape: integer, fallback: 0, doc: "The port on the Nodes " +
		"of the API over TLS; 0: the cluster selects one."},
	{path: "controlPlane.globalZoneSyncService.type", shape: text, fallback: "LoadBalancer",
		choices: []string{"ClusterIP", "NodePort", "LoadBalancer"}, doc: "With the mode `global`: the type of the " +
			"Service for zones."},
	{path: "controlPlane.globalZoneSyncService.port", shape: integer, fallback: 5685, doc: "Its port."},
	{path: "controlPlane.globalZoneSyncService.nodePort", shape: integer, fallback: 0, doc: "Its port on the Nodes; " +
		"0: the cluster selects one."},
	{path: "controlPlane.globalZoneSyncService.loadBalancerIP", shape: text, fallback: "", doc: "Its address."},
	{path: "controlPlane.globalZoneSyncService.loadBalancerSourceRanges", shape: list, fallback: []any{},
		doc: "Networks of its clients."},
	{path: "controlPlane.globalZoneSyncService.annotations", shape: mapping, fallback: map[string]any{},
		doc: "Its annotations."},
	{path: "controlPlane.globalZoneSyncService.protocol", shape: text, fallback: "grpc", doc: "Its `appProtocol`."},
	{path: "controlPlane.tls.general.secretName", shape: text, fallback: "", doc: "A Secret with `tls.crt`, " +
		"`tls.key` and `ca.crt` for all servers and webhooks. Empty: the control plane makes and renews its " +
		"certificates."},
	{path: "controlPlane.tls.general.caSecretName", shape: text, fallback: "", doc: "The Secret with `ca.crt`, if it " +
		"is another one."},
	{path: "controlPlane.tls.general.caBundle", shape: text, fallback: "", doc: "The base64 of that CA, for the " +
		"webhook configurations."},
	{path: "controlPlane.tls.general.certManager.enabled", shape: boolean, fallback: false, doc: "Have cert-manager " +
		"make the certificate `kuma-tls-cert`, and write the caBundle."},
	{path: "controlPlane.tls.general.certManager.issuerRef", shape: mapping, fallback: map[string]any{},
		doc: "The Issuer: `kind`, `name`, `group`."},
	{path: "controlPlane.tls.general.certManager.dnsNames", shape: list, fallback: []any{}, doc: "Further host names."},
	{path: "controlPlane.tls.apiServer.secretName", shape: text, fallback: "", doc: "A Secret with `tls.crt` and " +
		"`tls.key` for the API over TLS."},
	{path: "controlPlane.tls.apiServer.clientCertsSecretName", shape: text, fallback: "", doc: "A Secret with CAs, " +
		"`*.pem` or `*.crt`, of users' client certificates."},
	{path: "controlPlane.tls.kdsGlobalServer.secretName", shape: text, fallback: "", doc: "A Secret with `tls.crt` " +
		"and `tls.key` for the server for zones."},
	{path: "controlPlane.tls.kdsZoneClient.secretName", shape: text, fallback: "", doc: "A Secret with `ca.crt`, the " +
		"CA of the global control plane's certificate."},
	{path: "controlPlane.injectorFailurePolicy", shape: text, fallback: "Fail", choices: []string{"Fail", "Ignore"},
		doc: "`Fail`: without the control plane, no Pod starts in namespaces with injection. `Ignore`: Pods start " +
			"without a sidecar, and are not protected."},
	{path: "controlPlane.hostNetwork", shape: boolean, fallback: false, doc: "Run on the network of the Node, for " +
		"API servers that reach no Pod."},
	{path: "controlPlane.admissionServerPort", shape: integer, fallback: 5443,
		setting: "runtime.kubernetes.admissionServer.port", doc: "The container port of the webhooks."},
	{path: "controlPlane.apiServerNetworks", shape: list, fallback: []any{}, doc: "Networks, such as 10.0.0.0/28, " +
		"from which the API servers call the webhooks: their own addresses, or those of agents that forward their " +
		"calls. A NetworkPolicy closes the port of the webhooks for all others. Empty: there is no NetworkPolicy."},
	{path: "controlPlane.defaults.skipMeshCreation", shape: boolean, fallback: false,
		setting: "defaults.skipMeshCreation", doc: "Do not create the Mesh `default`."},

	{path: "dataPlane.image.repository", shape: text, fallback: "weft-dp", doc: "The image of sidecars and zone " +
		"proxies, in the registry."},
	{path: "dataPlane.image.tag", shape: text, fallback: "", doc: "Its tag. Empty: `global.image.tag`."},
	{path: "dataPlane.initImage.repository", shape: text, fallback: "weft-dp", doc: "The image of init containers."},
	{path: "dataPlane.initImage.tag", shape: text, fallback: "", doc: "Its tag. Empty: `global.image.tag`."},
	resource("sidecarContainer", "requests.cpu", "50m"), resource("sidecarContainer", "requests.memory", "64Mi"),
	resource("sidecarContainer", "limits.cpu", "0"), resource("sidecarContainer", "limits.memory", "512Mi"),
	resource("initContainer", "requests.cpu", "20m"), resource("initContainer", "requests.memory", "20M"),
	resource("initContainer", "limits.cpu", "0"), resource("initContainer", "limits.memory", "50M"),
	resource("validationContainer", "requests.cpu", "20m"), resource("validationContainer", "requests.memory", "20M"),
	resource("validationContainer", "limits.cpu", "0"), resource("validationContainer", "limits.memory", "50M"),

	{path: "cni.enabled", shape: boolean, fallback: false, setting: "runtime.kubernetes.injector.cniEnabled",
		doc: "Redirect the connections of Pods by the [CNI plugin](kubernetes-injection.md#the-cni-plugin), so that " +
			"they need no privileged init container. The DaemonSet `kuma-cni-node` installs the plugin on each Node."},
	{path: "cni.chained", shape: boolean, fallback: true, doc: "The plugin is chained to the configuration of the " +
		"cluster's network. `false` is rejected: Multus does not give the annotations of Pods to plugins."},
	{path: "cni.netDir", shape: text, fallback: "/etc/cni/net.d", pattern: "^/", doc: "The folder of the Nodes with " +
		"the network configurations of the container runtime."},
	{path: "cni.binDir", shape: text, fallback: "/opt/cni/bin", pattern: "^/", doc: "The folder of the Nodes with " +
		"the CNI plugins of the container runtime."},
	{path: "cni.confName", shape: text, fallback: "", doc: "The file in `cni.netDir` to which the plugin is chained. " +
		"Empty: the first one by name, which the container runtime uses."},
	{path: "cni.logLevel", shape: text, fallback: "info", choices: []string{"debug", "info", "warn", "error"},
		doc: "The log level of the DaemonSet."},
	{path: "cni.namespace", shape: text, fallback: "kube-system", pattern: dnsLabel, doc: "The namespace of the " +
		"DaemonSet. It must allow Pods with `hostPath` and `hostNetwork`."},
	{path: "cni.image.repository", shape: text, fallback: "weft-cni", doc: "The image of the DaemonSet, in the " +
		"registry."},
	{path: "cni.image.tag", shape: text, fallback: "", doc: "Its tag. Empty: `global.image.tag`."},
	{path: "cni.image.pullPolicy", shape: text, fallback: "IfNotPresent",
		choices: []string{"Always", "IfNotPresent", "Never"}, doc: "When the image is pulled."},
	{path: "cni.resources", shape: mapping, fallback: map[string]any{
		"requests": map[string]any{"cpu": "10m", "memory": "32Mi"}, "limits": map[string]any{"memory": "100Mi"}},
		doc: "Resources of the DaemonSet."},
	{path: "cni.nodeSelector", shape: mapping, fallback: map[string]any{"kubernetes.io/os": "linux"},
		doc: "Labels of the Nodes with the plugin: all Nodes on which Pods of a mesh may run."},
	{path: "cni.tolerations", shape: list, fallback: []any{map[string]any{"operator": "Exists"}},
		doc: "Taints that the DaemonSet tolerates."},
	{path: "cni.podAnnotations", shape: mapping, fallback: map[string]any{}, doc: "Annotations of its Pods."},

	spire("enabled", boolean, false, "Mount the folder with the socket of the SPIRE agent in all sidecars, and in the "+
		"zone proxies of `meshes`."),
	spire("hostPath", text, "", "The folder of the Node with the socket. Empty: the volume of the CSI driver "+
		"`csi.spiffe.io`."),
	spire("mountPath", text, "/run/spire/sockets", "Where the containers have that folder."),
	spire("socketFileName", text, "socket", "The name of the socket in that folder."),

	redirect("ipFamilyMode", text, "dualstack", "sidecarContainer.ipFamilyMode",
		"The IP families whose connections are redirected.", "dualstack", "ipv4", "ipv6"),
	redirect("redirect.inbound.port", integer, 15006, "sidecarContainer.redirectPortInbound",
		"The sidecar's port for redirected inbound connections."),
	redirect("redirect.inbound.excludePorts", list, []any{}, "sidecarTraffic.excludeInboundPorts",
		"Ports whose inbound connections are not redirected."),
	redirect("redirect.inbound.excludePortsForIPs", list, []any{}, "sidecarTraffic.excludeInboundIPs",
		"Clients whose connections are not redirected."),
	redirect("redirect.outbound.port", integer, 15001, "sidecarContainer.redirectPortOutbound",
		"The sidecar's port for redirected outbound connections."),
	redirect("redirect.outbound.excludePorts", list, []any{}, "sidecarTraffic.excludeOutboundPorts",
		"Ports to which connections are not redirected."),
	redirect("redirect.outbound.excludePortsForIPs", list, []any{}, "sidecarTraffic.excludeOutboundIPs",
		"Destinations to which connections are not redirected."),
	redirect("redirect.dns.enabled", boolean, true, "builtinDNS.enabled",
		"Whether DNS queries are redirected to the sidecar."),
	redirect("redirect.dns.port", integer, 15053, "builtinDNS.port", "The sidecar's port for DNS."),
}

// zoneProxies are the values of the zone proxies of a mesh.
func zoneProxies() []value {
	all := []value{{path: "meshes[].name", shape: text, pattern: "^[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?$",
		doc: "A mesh that has zone proxies in this cluster: a DNS label of at most 50 characters, since the names of " +
			"the objects contain it."}}
	for _, role := range []struct{ name, service, port string }{
		{"ingress", "LoadBalancer", "10001"}, {"egress", "ClusterIP", "10002"},
	} {
		at := "meshes[]." + role.name + "."
		all = append(all,
			value{path: at + "enabled", shape: boolean, doc: "Run the zone " + role.name + " of the mesh: the " +
				"Deployment and the Service `kuma-MESH-" + role.name + "`. By default `false`."},
			value{path: at + "replicas", shape: integer, doc: "Its replicas. By default 1."},
			value{path: at + "resources", shape: mapping, doc: "Its resources. By default requests of 50m and 64Mi, " +
				"and a limit of 512Mi."},
			value{path: at + "service.type", shape: text, choices: []string{"ClusterIP", "NodePort", "LoadBalancer"},
				doc: "The type of its Service. By default `" + role.service + "`."},
			value{path: at + "service.port", shape: integer, doc: "The port of its Service. By default " + role.port +
				"."},
			value{path: at + "service.nodePort", shape: integer, doc: "The port on the Nodes. By default the cluster " +
				"selects one."},
			value{path: at + "service.loadBalancerIP", shape: text, doc: "The address of the load balancer."},
			value{path: at + "service.externalTrafficPolicy", shape: text, choices: []string{"Cluster", "Local"},
				doc: "The policy of the Service for traffic from outside the cluster."},
			value{path: at + "service.annotations", shape: mapping, doc: "Annotations of the Service."},
			value{path: at + "podAnnotations", shape: mapping, doc: "Annotations of the Pods, such as " +
				"`kuma.io/ingress-public-address`, and `k8s.kuma.io/spire-support`, which has precedence over " +
				"`dataPlane.spire.enabled`."},
			value{path: at + "terminationGracePeriodSeconds", shape: integer, doc: "How long a drain may take. By " +
				"default 140."},
			value{path: at + "nodeSelector", shape: mapping, doc: "Labels of the Nodes on which it may run."},
			value{path: at + "tolerations", shape: list, doc: "Taints that it tolerates."},
			value{path: at + "affinity", shape: mapping, doc: "Affinity."},
			value{path: at + "topologySpreadConstraints", shape: list, doc: "How replicas are spread."},
			value{path: at + "priorityClassName", shape: text, doc: "The PriorityClass of the Pods."},
		)
	}
	return all
}

// dnsLabel matches a DNS label (RFC 1123).
const dnsLabel = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"

// resource is a request or a limit of an injected container.
func resource(container, name string, fallback string) value {
	return value{path: "dataPlane." + container + ".resources." + name, shape: amount, fallback: fallback,
		setting: "runtime.kubernetes.injector." + container + ".resources." + name,
		doc:     "A quantity of Kubernetes; `0`: none."}
}

// spire is a setting of the SPIRE agent's socket.
func spire(name string, of shape, fallback any, doc string) value {
	return value{path: "dataPlane.spire." + name, shape: of, fallback: fallback,
		setting: "runtime.kubernetes.injector.spire." + name, doc: doc}
}

// redirect is a part of the redirection of Pods.
func redirect(path string, of shape, fallback any, setting, doc string, choices ...string) value {
	return value{path: "transparentProxy.configMap.config." + path, shape: of, fallback: fallback, choices: choices,
		setting: "runtime.kubernetes.injector." + setting, doc: doc}
}

// spread is the affinity of Pods that prefer different Nodes.
func spread(app string) map[string]any {
	return map[string]any{"podAntiAffinity": map[string]any{"preferredDuringSchedulingIgnoredDuringExecution": []any{
		map[string]any{"weight": 100, "podAffinityTerm": map[string]any{"topologyKey": "kubernetes.io/hostname",
			"labelSelector": map[string]any{"matchLabels": map[string]any{"app": app}}}},
	}}}
}

// rejected are values of Kuma's chart that have no meaning, each with what to do.
var rejected = []struct{ path, advice string }{
	{"nameOverride", "the names of the objects are fixed, since the control plane knows them"},
	{"fullnameOverride", "the names of the objects are fixed, since the control plane knows them"},
	{"namespaceAllowList", "label only the namespaces of the mesh with kuma.io/sidecar-injection, and give no " +
		"others the right to label namespaces; the control plane writes in those only, and reads all of them, since " +
		"a watch of Pods in each namespace would cost one connection more for each"},
	{"patchSystemNamespace", "no webhook depends on the labels of the system namespace"},
	{"installCrdsOnUpgrade", "apply the definitions of a release before it: `weft install crds | kubectl apply " +
		"--server-side -f -`"},
	{"noHelmHooks", "the chart has no hooks"},
	{"hooks", "the chart has no hooks"},
	{"kubectl", "the chart has no hooks"},
	{"kumactl", "the chart has no hooks"},
	{"restartOnSecretChange", "certificates are read again when they change"},
	{"postgres", "the store is the API server of the cluster; a control plane with PostgreSQL runs on machines"},
	{"plugins", "all kinds and policies are always enabled"},
	{"experimental", "there are no experimental features"},
	{"legacy", "there are no older forms of resources that a value enables"},
	{"cni.taintController", "no Node is tainted: kuma-validation keeps a Pod without its redirection from starting"},
	{"cni.delayStartupSeconds", "the DaemonSet follows the changes of the network configuration"},
	{"cni.podSecurityContext", "the Pod has the rights that it needs"},
	{"cni.containerSecurityContext", "the container has the rights that it needs"},
	{"cni.experimental", "connections are redirected by iptables"},
	{"ingress", "a zone proxy belongs to a mesh: use meshes: [{name: default, ingress: {enabled: true}}]"},
	{"egress", "a zone proxy belongs to a mesh: use meshes: [{name: default, egress: {enabled: true}}]"},
	{"meshZoneProxyDefaults", "write the values at each item of meshes"},
	{"controlPlane.environment", "it is always kubernetes"},
	{"controlPlane.extraEnv", "use controlPlane.envVars"},
	{"controlPlane.envVarEntries", "use controlPlane.envVars, or controlPlane.secrets for variables from Secrets"},
	{"controlPlane.autoscaling.targetCPUUtilizationPercentage", "use controlPlane.autoscaling.metrics"},
	{"controlPlane.ingress", "write an Ingress for the port 5681 of the Service kuma-control-plane"},
	{"controlPlane.serviceMonitor", "write a ServiceMonitor for the port 5680 of the Service kuma-control-plane, " +
		"with a user token"},
	{"controlPlane.service.enabled", "sidecars and the API server need the Service"},
	{"controlPlane.service.protocol", "each port of the Service has its appProtocol"},
	{"controlPlane.globalZoneSyncService.enabled", "the Service is there with the mode global"},
	{"controlPlane.tls.general.cert", "create a Secret, and set controlPlane.tls.general.secretName"},
	{"controlPlane.tls.general.key", "create a Secret, and set controlPlane.tls.general.secretName"},
	{"controlPlane.tls.kdsGlobalServer.create", "create the Secret, and set " +
		"controlPlane.tls.kdsGlobalServer.secretName"},
	{"controlPlane.tls.kdsGlobalServer.cert", "create a Secret, and set controlPlane.tls.kdsGlobalServer.secretName"},
	{"controlPlane.tls.kdsGlobalServer.key", "create a Secret, and set controlPlane.tls.kdsGlobalServer.secretName"},
	{"controlPlane.tls.kdsZoneClient.create", "create the Secret, and set controlPlane.tls.kdsZoneClient.secretName"},
	{"controlPlane.tls.kdsZoneClient.cert", "create a Secret, and set controlPlane.tls.kdsZoneClient.secretName"},
	{"controlPlane.tls.kdsZoneClient.skipVerify", "the certificate of the global control plane is always verified: " +
		"set controlPlane.tls.kdsZoneClient.secretName to a Secret with its CA"},
	{"controlPlane.webhooks", "the webhooks review all kinds"},
	{"controlPlane.automountServiceAccountToken", "the control plane needs its token"},
	{"controlPlane.podSecurityContext", "the Pod satisfies the standard restricted"},
	{"controlPlane.containerSecurityContext", "the container satisfies the standard restricted"},
	{"controlPlane.dns", "use the settings hostNames.resolvers in controlPlane.config"},
	{"controlPlane.lifecycle", "the control plane drains its connections itself"},
	{"controlPlane.runtime", "Go reads the CPU limit itself, and GOMEMLIMIT is the memory limit"},
	{"controlPlane.skipClusterRoleCreation", "use skipRBAC"},
	{"controlPlane.supportGatewaySecretsInAllNamespaces", "there is no gateway in this release"},
	{"dataPlane.image.pullPolicy", "sidecars have IfNotPresent; a ContainerPatch changes it"},
	{"dataPlane.initImage.pullPolicy", "init containers have IfNotPresent; a ContainerPatch changes it"},
	{"dataPlane.dnsLogging", "queries are not logged"},
	{"kuma", "these are the values of a chart around Kuma's: write what is below kuma at the top of the file, or " +
		"below the name of the dependency in a chart around this one"},
	{"zoneProxyImage", "zone proxies have the image of sidecars: set dataPlane.image"},
	{"cni.affinity", "use cni.nodeSelector: the DaemonSet belongs on each Node with Pods of a mesh"},
	{"cni.image.imagePullPolicy", "use cni.image.pullPolicy"},
	{"cni.restartPolicy", "Pods of a DaemonSet are always restarted"},
	{"controlPlane.logOutputPath", "the log is written to standard error, which the cluster collects"},
	{"controlPlane.madsServer", "the control plane has no discovery for Prometheus: scrape the Pods"},
	{"controlPlane.restartPolicy", "Pods of a Deployment are always restarted"},
	{"dataPlane.features", "resources of Envoy have one kind of name"},
	{"transparentProxy.configMap.config.comments", "the injector finds its rules by their comments"},
	{"transparentProxy.configMap.config.dropInvalidPackets", "leave it out: no rule drops packets"},
	{"transparentProxy.configMap.config.ebpf", "connections are redirected by iptables"},
	{"transparentProxy.configMap.config.iptablesExecutables", "the programs of the image are run"},
	{"transparentProxy.configMap.config.kumaDPUser", "the injector knows the user of the sidecar"},
	{"transparentProxy.configMap.config.log", "leave it out: no rule logs"},
	{"transparentProxy.configMap.config.redirect.dns.captureAll", "use redirect.dns.enabled"},
	{"transparentProxy.configMap.config.redirect.dns.resolvConfigPath", "use redirect.dns.enabled"},
	{"transparentProxy.configMap.config.redirect.dns.skipConntrackZoneSplit", "the queries of the sidecar always " +
		"have a zone of their own"},
	{"transparentProxy.configMap.config.redirect.inbound.enabled", "set redirect.inbound.excludePorts to [1-65535] " +
		"to redirect none"},
	{"transparentProxy.configMap.config.redirect.inbound.excludePortsForUIDs", "a client on another machine has no " +
		"user: use redirect.inbound.excludePorts or excludePortsForIPs"},
	{"transparentProxy.configMap.config.redirect.inbound.includePorts", "use redirect.inbound.excludePorts"},
	{"transparentProxy.configMap.config.redirect.inbound.insertRedirectInsteadOfAppend", "in a Pod, no other program " +
		"has rules"},
	{"transparentProxy.configMap.config.redirect.outbound.enabled", "set redirect.outbound.excludePorts to [1-65535] " +
		"to redirect none"},
	{"transparentProxy.configMap.config.redirect.outbound.excludePortsForUIDs", "use the annotation " +
		"traffic.kuma.io/exclude-outbound-ports-for-uids of a Pod"},
	{"transparentProxy.configMap.config.redirect.outbound.includePorts", "use redirect.outbound.excludePorts"},
	{"transparentProxy.configMap.config.redirect.outbound.insertRedirectInsteadOfAppend", "in a Pod, no other " +
		"program has rules"},
	{"transparentProxy.configMap.config.redirect.vnet", "only connections to and from the Pod itself are redirected"},
	{"transparentProxy.configMap.config.retry", "a Pod whose redirection fails does not start, and the cluster tries " +
		"again"},
	{"transparentProxy.configMap.config.storeFirewalld", "the rules last as long as the Pod"},
	{"transparentProxy.configMap.config.verbose", "an error has the output of iptables"},
	{"transparentProxy.configMap.config.wait", "other programs that change the rules are waited for"},
	{"transparentProxy.configMap.config.waitInterval", "other programs that change the rules are waited for"},
	{"transparentProxy.configMap.enabled", "the settings of the control plane have the configuration"},
	{"transparentProxy.configMap.name", "the settings of the control plane have the configuration"},
}
