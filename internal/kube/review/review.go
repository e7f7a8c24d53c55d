// Package review reviews what users write to the API server, such as with kubectl, by the rules of admission.
//
// [Reviewer.Default] serves a mutating webhook: it sets the defaults and the computed labels, and ignores what users
// may not write, with a warning. [Reviewer.Validate] serves a validating webhook: it accepts an object only in the form
// that Default gives it. Both have no side effects. The control plane's own writes pass, since admission made them.
//
// Permissions are those of the API server. A user of kubectl vouches for no fact of a Dataplane, and refers to Secrets
// only with the permission to read them.
package review

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	v1 "k8s.io/api/admission/v1"

	"weft/internal/access"
	"weft/internal/admission"
	"weft/internal/kube/api"
	"weft/internal/kube/crd"
	"weft/internal/kube/webhook"
	"weft/internal/store"
	"weft/internal/store/kube"
	"weft/kind"
	"weft/resource"
)

// Paths of the handlers. Secrets have the same two.
const (
	DefaultPath  = "/default-kuma-io-v1alpha1"
	ValidatePath = "/validate-kuma-io-v1alpha1"
)

// exempt are users of Kubernetes itself, which change no content of an object, or delete what its users abandoned.
var exempt = []string{
	"system:serviceaccount:kube-system:generic-garbage-collector",
	"system:serviceaccount:kube-system:namespace-controller",
	"system:serviceaccount:kube-system:storage-version-migrator-controller",
}

// Reviewer reviews the writes of all kinds. All fields are required.
type Reviewer struct {
	Writer *admission.Writer
	Store  *kube.Store
	// User is the control plane on the API server, whose writes pass.
	User string
	// Client reviews the permissions of users, and Namespace is the system namespace, which has the Secrets.
	Client    *api.Client
	Namespace string
}

// Handlers returns the handlers by path.
func (r *Reviewer) Handlers() map[string]webhook.Handler {
	return map[string]webhook.Handler{DefaultPath: r.Default, ValidatePath: r.Validate}
}

// Default implements a mutating [webhook.Handler].
func (r *Reviewer) Default(ctx context.Context, q *webhook.Request) (webhook.Response, error) {
	return r.review(ctx, q)
}

// Validate implements a validating [webhook.Handler]. Its warnings about writes are those of Default already; deletions
// are reviewed here alone.
func (r *Reviewer) Validate(ctx context.Context, q *webhook.Request) (webhook.Response, error) {
	response, err := r.review(ctx, q)
	if err == nil && len(response.Patch) > 0 {
		err = resource.Errorf(resource.Forbidden, "%s %s/%s was not written: the control plane computes %s, and the "+
			"mutating webhook %s did not run", q.Kind.Kind, q.Namespace, q.Name, paths(response.Patch), DefaultPath)
	}
	if q.Operation != v1.Delete {
		response.Warnings = nil
	}
	response.Patch = nil
	return response, err
}

// paths returns the changed parts of a patch.
func paths(patch []byte) string {
	var operations []struct{ Path string }
	_ = json.Unmarshal(patch, &operations) // [kube.Object.Patch] wrote it
	var all []string
	for _, o := range operations {
		all = append(all, strings.ReplaceAll(strings.TrimPrefix(o.Path, "/"), "/", "."))
	}
	return strings.Join(all, " and ")
}

func (r *Reviewer) review(ctx context.Context, q *webhook.Request) (webhook.Response, error) {
	name := kindOf(q)
	switch {
	case name == "", q.UserInfo.Username == r.User, slices.Contains(exempt, q.UserInfo.Username):
		return webhook.Response{}, nil
	case name == kube.RecordKind:
		return webhook.Response{}, resource.Errorf(resource.Forbidden, "a Record is a row of the control plane, which "+
			"alone writes it")
	case q.SubResource != "":
		return webhook.Response{}, resource.Errorf(resource.Forbidden, "the %s of a %s is written by the control "+
			"plane only", q.SubResource, name)
	}
	var stored *kube.Object
	if len(q.OldObject.Raw) > 0 {
		var err error
		if stored, err = r.Store.ReadObject(name, q.OldObject.Raw); err != nil {
			return webhook.Response{}, err
		}
	}
	if q.Operation == v1.Delete {
		return r.reviewDeletion(ctx, stored)
	}
	sent, err := r.Store.Sent(ctx, name, q.Object.Raw, stored)
	if err != nil {
		return webhook.Response{}, err
	}
	return r.reviewWrite(ctx, sent, stored, admission.Change{DryRun: true, Vouches: vouchesForNothing,
		Administers: r.administers(q.UserInfo)})
}

// vouchesForNothing is the check of a user of kubectl.
func vouchesForNothing(context.Context) error {
	return resource.Errorf(resource.Forbidden, "a user of kubectl vouches for no fact of a Dataplane; write it "+
		"through the API of the control plane, with the action %s", access.OperatorResources)
}

// kindOf returns the kind of the reviewed object; empty for a Secret that is not of the control plane.
func kindOf(q *webhook.Request) string {
	if q.Kind.Group != "" {
		return q.Kind.Kind
	}
	var secret struct{ Type string }
	raw := q.Object.Raw
	if len(raw) == 0 {
		raw = q.OldObject.Raw
	}
	_ = json.Unmarshal(raw, &secret) // the API server wrote it
	return crd.KindOfSecret(secret.Type)
}

func (r *Reviewer) reviewDeletion(ctx context.Context, stored *kube.Object) (webhook.Response, error) {
	row, err := stored.Row()
	if err != nil {
		return webhook.Response{}, nil // no row is lost with an object that has none
	}
	response := webhook.Response{Warnings: r.Writer.DeletionWarnings(ctx, row.Key)}
	return response, r.Writer.Delete(ctx, row.Key, admission.Change{DryRun: true})
}

// reviewWrite returns the response to a write of an object over the stored one; nil where none is stored. The change
// is a dry run.
func (r *Reviewer) reviewWrite(ctx context.Context, sent, stored *kube.Object, change admission.Change) (
	webhook.Response, error) {
	row, err := sent.Row()
	if err != nil {
		return webhook.Response{}, err
	}
	response := webhook.Response{Warnings: sent.IgnoredFields()}
	if stored != nil {
		before, err := stored.Row()
		switch {
		case err == nil && before.Key != row.Key:
			return webhook.Response{}, moved(before.Key, row.Key)
		case err == nil && bytes.Equal(before.Body, row.Body): // whichever control plane has it
			response.Patch, err = sent.Patch(before)
			return response, err
		}
	}
	o, err := parse(row)
	if err != nil {
		return webhook.Response{}, ofObject(row.Key, err)
	}
	result, err := r.Writer.Put(ctx, o, change)
	if err != nil {
		return webhook.Response{}, ofObject(row.Key, err)
	}
	response.Warnings = append(response.Warnings, result.Warnings...)
	if row.Body, err = resource.Body(result.Object); err != nil {
		return webhook.Response{}, err
	}
	response.Patch, err = sent.Patch(row)
	return response, err
}

// moved is the error of an object whose row would get another key.
func moved(before, after resource.Key) error {
	err := resource.Errorf(resource.Invalid, "%s can't become %s", before, after)
	err.Problems.Add("metadata.labels["+resource.MeshLabel+"]", "is %q, and the mesh of a resource cannot change: "+
		"delete the resource, and create it in the other mesh", after.Mesh)
	return err
}

// parse reads a row as the document of a user, in which every unknown field is an error.
func parse(row store.Row) (resource.Any, error) {
	var body struct {
		Labels map[string]string `json:"labels"`
		Spec   json.RawMessage   `json:"spec"`
	}
	if err := json.Unmarshal(row.Body, &body); err != nil {
		return nil, err
	}
	document := map[string]any{"type": row.Key.Kind, "name": row.Key.Name, "spec": body.Spec}
	if row.Key.Mesh != "" {
		document["mesh"] = row.Key.Mesh
	}
	if len(body.Labels) > 0 {
		document["labels"] = body.Labels
	}
	raw, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	written, err := kind.Parse(raw)
	return written.Object, err
}

// ofObject names the fields of an error as they are in the object.
func ofObject(key resource.Key, err error) error {
	known, ok := err.(*resource.Error)
	if !ok {
		return err
	}
	flat := kind.ByName(key.Kind).Describe().Flat
	renamed := *known
	renamed.Problems = nil
	for _, p := range known.Problems {
		switch {
		case p.Field == "name", strings.HasPrefix(p.Field, "labels"):
			p.Field = "metadata." + p.Field
		case p.Field == "mesh", strings.HasPrefix(p.Field, "spec"), p.Field == "":
		case flat:
			p.Field = "spec." + p.Field
		}
		renamed.Problems = append(renamed.Problems, p)
	}
	return &renamed
}
