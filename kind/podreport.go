package kind

import "weft/resource"

// PodReport is what the leading replica of a zone on Kubernetes knows of a Pod, for the replicas that do not follow
// Pods. The row has the name of the Pod, NAME.NAMESPACE. There is none for a Pod of which nothing is reported.
type PodReport struct {
	UID string `json:"uid" schema:"maxLength=64"` // of the Pod
	// Reason is the reason of the event that says why the Pod has no Dataplane, such as MissingSidecar, and Message its
	// text; both are empty for a Pod with one.
	Reason  string `json:"reason,omitempty" schema:"maxLength=128"`
	Message string `json:"message,omitempty" schema:"maxLength=4096"`
	// Mesh is the mesh of the Pod's Dataplane, where CompletedContainers is true.
	Mesh string `json:"mesh,omitempty" schema:"maxLength=63"`
	// CompletedContainers states that only the sidecar still runs, and that no other container of the Pod will.
	CompletedContainers bool `json:"completedContainers,omitempty"`
}

// MissingSidecar is the reason in the report about a Pod that should have a sidecar and has none.
const MissingSidecar = "MissingSidecar"

// PodNotAdmitted is the reason in the report about a Pod that its mesh does not admit.
const PodNotAdmitted = "MeshMembershipRefused"

// PodReports is the kind of [PodReport].
var PodReports = &resource.Kind[PodReport]{
	Info: resource.Info{Name: "PodReport", Plural: "pod-reports", Scope: resource.Global, ReadOnly: true, Hidden: true},
}
