package admission

import (
	"context"

	"weft/kind"
	"weft/resource"
)

// recordVouched records in a written Dataplane which facts its token or an operator vouches for. It returns an error
// for a Dataplane, ZoneIngress or ZoneEgress that the token may not write, and for a Dataplane that takes an operator
// (see [kind.UnvouchedChange]).
func (w *Writer) recordVouched(ctx context.Context, before, o resource.Any, change Change) error {
	if change.Token != nil {
		if err := w.checkNoPod(before, o); err != nil {
			return err
		}
	}
	after, ok := o.(*resource.Object[kind.Dataplane])
	if !ok {
		o.Envelope().Vouched = resource.Vouched{}
		recordRelease(before, o)
		return nil
	}
	stored, _ := before.(*resource.Object[kind.Dataplane])
	switch {
	case change.ControlPlane: // it states what is vouched for, as in Replace
	case change.Token != nil:
		kind.VouchToken(stored, after, change.Token.Claimed(after))
		return change.Token.Allows(stored, after)
	default:
		if denial := change.mayVouch(ctx); denial != nil {
			kind.VouchToken(stored, after, nil)
			after.Vouched.User = stored == nil || stored.Vouched.User
			return checkUnvouched(stored, after, denial)
		}
		kind.VouchOperator(stored, after)
	}
	return nil
}

// checkUnvouched returns an error where a write of a Dataplane takes an operator. denial is the reason for which the
// writer is none. stored is nil for a new Dataplane.
func checkUnvouched(stored, after *resource.Object[kind.Dataplane], denial error) error {
	reason := kind.UnvouchedChange(stored, after)
	if reason == "" {
		return nil
	}
	known, ok := denial.(*resource.Error)
	if !ok {
		return denial
	}
	return resource.Errorf(known.Code, "%s was not written: %s: %s", after.Key(), reason, known.Detail)
}

// checkNoPod returns an error for a resource of a Pod, and for one with a name of a namespace of Kubernetes, which no
// token may write: what is in a namespace is for the API server to say. before is nil where none is stored.
func (w *Writer) checkNoPod(before, after resource.Any) error {
	for _, o := range []resource.Any{before, after} {
		if o != nil && o.Envelope().Label(kind.PodUIDLabel) != "" {
			return resource.Errorf(resource.Forbidden, "%s has the label %s, which only the resources of Pods have; "+
				"choose another name, and leave the label out", o.Key(), kind.PodUIDLabel)
		}
	}
	if name, namespace := w.namespaced(after.Key()); namespace != "" {
		return resource.Errorf(resource.Forbidden, "%s is in the namespace %s, where only the API server of "+
			"Kubernetes has proxies; leave .%s out of the name: %s", after.Key(), namespace, namespace, name)
	}
	return nil
}
