package shop

import (
	"fmt"
	"strings"
)

// account is a ServiceAccount.
func account(namespace, name string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: %[2]s, namespace: %[1]s}
`, namespace, name)
}

// restricted is the security context of a container that the Pod security standard "restricted" accepts.
const restricted = "{runAsUser: 1000, runAsNonRoot: true, allowPrivilegeEscalation: false, " +
	"capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}"

// Server is a Deployment of the application with its Service, whose Pods serve until clients have stopped sending.
func Server(namespace, name string, replicas int) string {
	return account(namespace, name) + fmt.Sprintf(`
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  replicas: %[3]d
  selector: {matchLabels: {app: %[2]s}}
  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  template:
    metadata: {labels: {app: %[2]s}}
    spec:
      serviceAccountName: %[2]s
      terminationGracePeriodSeconds: 70
      containers:
      - name: app
        image: weft-test/application:latest
        imagePullPolicy: Never
        securityContext: `+restricted+`
        args: [serve]
        env: [{name: NAME, value: %[2]s}]
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}
        livenessProbe: {tcpSocket: {port: 8080}}
        lifecycle: {preStop: {sleep: {seconds: 10}}}
---
apiVersion: v1
kind: Service
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  selector: {app: %[2]s}
  ports: [{name: http, port: 80, targetPort: 8080, appProtocol: http}]
`, namespace, name, replicas)
}

// TLSServer is [Server] with one Pod, where the application has TLS of its own.
func TLSServer(namespace, name string) string {
	return strings.NewReplacer("httpGet: {path: /ready, port: 8080}", "tcpSocket: {port: 8080}",
		"env: [", `env: [{name: TLS, value: "true"}, `, "{name: http, port: 80, targetPort: 8080, appProtocol: http}",
		"{name: tls, port: 443, targetPort: 8080, appProtocol: tls}").Replace(Server(namespace, name, 1))
}

// Client is a Pod that sends requests for the test, which reaches it at a port without the mesh. It calls the server
// "web" alone, so services of other namespaces do not change its configuration.
func Client(namespace, name string) string {
	return account(namespace, name) + fmt.Sprintf(`
---
apiVersion: v1
kind: Pod
metadata:
  name: %[2]s
  namespace: %[1]s
  labels: {app: %[2]s}
  annotations:
    traffic.kuma.io/exclude-inbound-ports: "8080"
    kuma.io/reachable-backends: '{"refs": [{"kind": "MeshService", "name": "web"}]}'
spec:
  serviceAccountName: %[2]s
  terminationGracePeriodSeconds: 5
  containers:
  - name: app
    image: weft-test/application:latest
    imagePullPolicy: Never
    securityContext: `+restricted+`
    args: [relay]
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
`, namespace, name)
}

// DelegatedGateway is a Pod with its Service that sends requests of clients without the mesh on, at the port 8080. It
// calls the server "web" alone.
func DelegatedGateway(namespace, name string) string {
	return strings.Replace(Client(namespace, name), `traffic.kuma.io/exclude-inbound-ports: "8080"`,
		"kuma.io/gateway: enabled", 1) + fmt.Sprintf(`
---
apiVersion: v1
kind: Service
metadata: {name: %[2]s, namespace: %[1]s, annotations: {kuma.io/gateway: enabled}}
spec:
  selector: {app: %[2]s}
  ports: [{name: http, port: 8080, appProtocol: http}]
`, namespace, name)
}

// Permission allows the Pods of a ServiceAccount to call a server.
func Permission(namespace, server, account string) string {
	return fmt.Sprintf(`
---
apiVersion: kuma.io/v1alpha1
kind: MeshTrafficPermission
metadata: {name: %[2]s, namespace: %[1]s, labels: {kuma.io/mesh: default}}
spec:
  targetRef: {kind: Dataplane, labels: {app: %[2]s}}
  rules:
  - default:
      allow:
      - spiffeID: {type: Exact, value: "spiffe://default.default.mesh.local/ns/%[1]s/sa/%[3]s"}
`, namespace, server, account)
}

// Namespace is a namespace with injection.
func Namespace(name string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Namespace
metadata: {name: %s, labels: {kuma.io/sidecar-injection: enabled}}
`, name)
}

// Identity gives each Dataplane of the mesh a SPIFFE ID of its namespace and ServiceAccount.
const Identity = `
apiVersion: kuma.io/v1alpha1
kind: MeshIdentity
metadata: {name: identity, namespace: kuma-system, labels: {kuma.io/mesh: default}}
spec:
  selector: {dataplane: {matchLabels: {}}}
  spiffeID: {trustDomain: "{{ .Mesh }}.{{ .Zone }}.mesh.local"}
  provider:
    type: Bundled
    bundled: {insecureAllowSelfSigned: true, autogenerate: {enabled: true}}
`

// Rollout is a server that Argo Rollouts promotes: web selects the active Pods, and web-preview the next ones. Argo
// Rollouts adds the label rollouts-pod-template-hash to both selectors.
func Rollout(namespace, name string, replicas int) string {
	text := Server(namespace, name, replicas)
	text = strings.Replace(text, "apiVersion: apps/v1\nkind: Deployment",
		"apiVersion: argoproj.io/v1alpha1\nkind: Rollout", 1)
	blueGreen := fmt.Sprintf("blueGreen: {activeService: %[1]s, previewService: %[1]s-preview, "+
		"scaleDownDelaySeconds: 5}", name)
	text = strings.Replace(text, "rollingUpdate: {maxSurge: 1, maxUnavailable: 0}", blueGreen, 1)
	return text + fmt.Sprintf(`
---
apiVersion: v1
kind: Service
metadata: {name: %[2]s-preview, namespace: %[1]s}
spec:
  selector: {app: %[2]s}
  ports: [{name: http, port: 80, targetPort: 8080, appProtocol: http}]
`, namespace, name)
}
