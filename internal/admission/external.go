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
	problems := service.Spec.LocalEndpoints(w.local)
	if len(problems) == 0 {
		return nil
	}
	return &resource.Error{Code: resource.Invalid, Detail: fmt.Sprintf("%s is invalid", o.Key()), Problems: problems}
}
