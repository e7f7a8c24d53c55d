package admission

import (
	"fmt"

	"weft/kind"
	"weft/resource"
)

// checkExternalAddresses rejects an external service at a local address: Invalid. A received service is checked where
// it is used, with the addresses of its host names.
func (w *Writer) checkExternalAddresses(o resource.Any) error {
	service, ok := o.(*resource.Object[kind.MeshExternalService])
	if !ok {
		return nil
	}
	var problems resource.Problems
	for i, e := range service.Spec.Endpoints {
		if what := kind.LocalEndpoint(e.Address, w.local); what != "" {
			problems.Add(fmt.Sprintf("spec.endpoints[%d].address", i),
				"is %s, %s, to which zone egresses do not connect; name a server outside the mesh, or on a single "+
					"machine allow its network with the setting KUMA_EGRESS_ALLOWED_LOCAL_NETWORKS", e.Address, what)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return &resource.Error{Code: resource.Invalid, Detail: fmt.Sprintf("%s is invalid", o.Key()), Problems: problems}
}
