package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"weft/internal/admission"
	"weft/internal/kube/api"
	"weft/internal/kube/convert"
	"weft/internal/service"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// namespaces is the [admission.Namespaces] of a zone on Kubernetes.
type namespaces struct{ *Server }

// namespaces returns what the namespaces of a zone on Kubernetes may have; nil for any other control plane.
func (s *Server) namespaces() admission.Namespaces {
	if s.apiServer == nil || s.settings.ZoneName == "" {
		return nil
	}
	return namespaces{s}
}

// Labels implements [admission.Namespaces]. It reads the API server: only the leader follows its objects.
func (n namespaces) Labels(ctx context.Context, name string) (map[string]string, error) {
	var raw json.RawMessage
	err := n.apiServer.client.Get(ctx, "/api/v1/namespaces/"+name, nil, &raw)
	if response, ok := api.Status(err); ok && response.Code == http.StatusNotFound {
		return nil, nil // in which nothing can be written
	}
	if err != nil {
		return nil, &resource.Error{Code: resource.Unavailable, Detail: fmt.Sprintf("the Namespace %s could not be "+
			"read, whose labels the mesh's dataplaneProxyMembership may match; try again", name), Cause: err}
	}
	namespace, err := convert.DecodeNamespace(raw)
	if err != nil {
		return nil, err
	}
	return namespace.Labels, nil
}

// FullOfPolicies implements [admission.Namespaces].
func (n namespaces) FullOfPolicies(mesh, namespace string) string {
	return n.state.Tables.FullOfPolicies(table.Eval(n.state.Tables.DB.Snapshot()), mesh, namespace)
}

// ExceededBound implements [admission.Namespaces].
func (n namespaces) ExceededBound(stored, next *resource.Object[kind.MeshService]) string {
	r := table.Eval(n.state.Tables.DB.Snapshot())
	return n.state.Services.ExceededBound(r, service.AdditionOf(stored, next), service.Addition{})
}
