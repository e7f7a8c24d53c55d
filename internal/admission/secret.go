package admission

import (
	"context"
	"regexp"
	"slices"

	"weft/internal/pki"
	"weft/kind"
	"weft/resource"
)

// checkSecretReferences rejects a reference to a Secret that would bring the key of an authority to an egress, or that
// its writer may not make: Invalid and Forbidden. A reference to a generated Secret is rejected in every resource, and
// one that its writer may not make where the stored resource lacks it.
func (w *Writer) checkSecretReferences(ctx context.Context, o resource.Any, stored *current, change Change) error {
	if change.ControlPlane {
		return nil
	}
	references := kind.SecretReferences(o)
	if len(references) == 0 {
		return nil
	}
	if err := checkMayRefer(ctx, o.Key(), newReferences(references, stored), change); err != nil {
		return err
	}
	var problems resource.Problems
	for _, reference := range pki.GeneratedReferences(o) {
		problems.Add(reference.Field, "%q %s", reference.Secret, pki.GeneratedProblem)
	}
	if service, ok := o.(*resource.Object[kind.MeshExternalService]); ok && len(problems) == 0 {
		found, err := w.clientSecretProblems(ctx, service, references)
		if err != nil {
			return err
		}
		problems = found
	}
	if len(problems) > 0 {
		return &resource.Error{Code: resource.Invalid, Detail: o.Key().String() + " is invalid", Problems: problems}
	}
	return nil
}

// checkMayRefer returns an error where the writer may not make the new references.
func checkMayRefer(ctx context.Context, key resource.Key, added []kind.SecretReference, change Change) error {
	if len(added) == 0 {
		return nil
	}
	err := change.mayAdminister(ctx)
	if denial, ok := err.(*resource.Error); ok {
		return resource.Errorf(denial.Code, "%s was not written: %s names the Secret %q, which the stored resource "+
			"does not: %s", key, added[0].Field, added[0].Secret, denial.Detail)
	}
	return err
}

// index matches the position in a list, as in [2].
var index = regexp.MustCompile(`\[[0-9]+\]`)

// newReferences returns the references that the stored resource lacks. An item of a list may move.
func newReferences(references []kind.SecretReference, stored *current) []kind.SecretReference {
	if stored == nil {
		return references
	}
	place := func(reference kind.SecretReference) kind.SecretReference {
		reference.Field = index.ReplaceAllString(reference.Field, "[]")
		return reference
	}
	had := map[kind.SecretReference]bool{}
	for _, reference := range kind.SecretReferences(stored.object) {
		had[place(reference)] = true
	}
	return slices.DeleteFunc(slices.Clone(references), func(reference kind.SecretReference) bool {
		return had[place(reference)]
	})
}

// clientSecretProblems returns the references of an external service with which an egress would authenticate as an
// authority.
func (w *Writer) clientSecretProblems(ctx context.Context, service *resource.Object[kind.MeshExternalService],
	references []kind.SecretReference) (resource.Problems, error) {
	var problems resource.Problems
	signing, err := w.signingCASecrets(ctx, service.Mesh)
	if err != nil {
		return nil, err
	}
	for _, reference := range references {
		if pki.IsClientReference(reference) && slices.Contains(signing, reference.Secret) {
			problems.Add(reference.Field, "%q %s", reference.Secret, pki.SigningCAProblem)
		}
	}
	if as := service.Spec.TLS; as != nil && as.Verification != nil && len(problems) == 0 {
		const field = "spec.tls.verification.clientCert"
		text, err := pki.Read(as.Verification.ClientCert, field, w.secret(ctx, service.Mesh))
		if err == nil && kind.IsAuthority(text) {
			problems.Add(field, kind.AuthorityIsNoClient)
		}
	}
	return problems, nil
}

// secret returns a function that returns the data of a Secret of a mesh; false where none can be read.
func (w *Writer) secret(ctx context.Context, mesh string) func(name string) ([]byte, bool) {
	return func(name string) ([]byte, bool) {
		stored, err := w.stored(ctx, kind.Secrets.Key(mesh, name))
		if err != nil || stored == nil {
			return nil, false
		}
		return stored.object.(*resource.Object[kind.Secret]).Spec.Data, true
	}
}

// signingCASecrets returns the names of the Secrets of a mesh with the CAs that its Mesh and its MeshIdentities name.
func (w *Writer) signingCASecrets(ctx context.Context, mesh string) ([]string, error) {
	var names []string
	stored, err := w.stored(ctx, kind.Meshes.Key("", mesh))
	if err != nil {
		return nil, err
	}
	if stored != nil {
		names = kind.SigningCASecrets(stored.object)
	}
	rows, _, err := w.rows.List(ctx, kind.MeshIdentities.Name)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if o, err := Decode(row); err == nil && row.Key.Mesh == mesh {
			names = append(names, kind.SigningCASecrets(o)...)
		}
	}
	return names, nil
}
