package admission

import (
	"context"
	"fmt"

	"weft/kind"
	"weft/resource"
)

// origin returns the object from which the control plane derives a resource, as text; empty for a resource of a user.
func origin(o resource.Any) string {
	meta := o.Envelope()
	of := func(what string) string {
		return fmt.Sprintf("the %s %s/%s", what, meta.Label(kind.NamespaceLabel), meta.Label(kind.DisplayName))
	}
	switch {
	case meta.Label(kind.PodUIDLabel) != "":
		return of("Pod")
	case meta.Label(kind.ManagedBy) != kind.GeneratedBy:
		return ""
	}
	service, isService := o.(*resource.Object[kind.MeshService])
	if !isService {
		return "routes of the Gateway API"
	}
	tags := service.Spec.Selector.DataplaneTags
	if name := tags[kind.ServiceNameTag]; name != "" {
		return fmt.Sprintf("the Service %s/%s", tags[kind.NamespaceLabel], name)
	}
	return fmt.Sprintf("the tag %s: %s of Dataplanes", kind.ServiceTag, tags[kind.ServiceTag])
}

// replacedWarnings warns of a user's change of a resource that the control plane writes again. before is nil for a new
// resource.
func replacedWarnings(before, after resource.Any) []string {
	if before == nil || origin(before) == "" {
		return nil
	}
	of := origin(after)
	if of == "" {
		return nil // the user takes it over, by removing the mark
	}
	return []string{fmt.Sprintf("the control plane derives %s from %s, and replaces this change; change %s instead",
		after.Key(), of, of)}
}

// DeletionWarnings returns the warnings about the deletion of a resource: of one that the control plane creates again.
func (w *Writer) DeletionWarnings(ctx context.Context, key resource.Key) []string {
	stored, err := w.stored(ctx, key)
	if err != nil || stored == nil || w.checkChangeable(key, stored.object) != nil {
		return nil // the deletion has the error
	}
	of := origin(stored.object)
	if of == "" {
		return nil
	}
	return []string{fmt.Sprintf("the control plane derives %s from %s, and creates it again; until then, requests to "+
		"it fail; delete %s instead", key, of, of)}
}
