package check

import (
	"weft/kind"
	"weft/resource"
)

// CallFailure is a call of the API server of Kubernetes that fails each time.
type CallFailure struct {
	What    string // the call and what waits for it
	Failure Failure
}

var (
	apiServerRejects = &Problem{"api-server-rejects", Error,
		"Grant the permission, or remove the cause that the reason states. `weft install control-plane` shows the " +
			"permissions of this release."}
	podWithoutDataplane = &Problem{"pod-without-dataplane", Error,
		"Correct the Pod as the message says: its sidecar gets no configuration and no certificate."}
)

// apiServer finds the calls that the API server rejects, so that changes of objects do not arrive.
func (l *controlChecker) apiServer() {
	for _, call := range l.Replica.APIServer {
		if f := call.Failure; l.Now.Sub(f.Since) > ackTime {
			l.found(apiServerRejects, controlPlane, "the API server of Kubernetes has rejected a call for %s: %s: %s",
				age(f.Since), call.What, f.Reason).cause = f.Reason
		}
	}
}

// pod finds a Pod that should have a proxy, and has none or no configuration for it.
func (l *checker) pod(report *resource.Object[kind.PodReport]) {
	problem := podWithoutDataplane
	switch report.Spec.Reason {
	case "":
		return
	case kind.MissingSidecar:
		problem = sidecarMissing
	case kind.PodNotAdmitted:
		problem = notAdmitted
	}
	l.found(problem, Object{Type: "Pod", Name: report.Name}, "%s", report.Spec.Message)
}
