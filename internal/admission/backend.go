package admission

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"weft/internal/pki"
	"weft/kind"
	"weft/resource"
)

// checkBackends rejects a Mesh with a new or changed mtls backend whose CA can't be used.
func (w *Writer) checkBackends(ctx context.Context, o resource.Any, stored *current) error {
	mesh, ok := o.(*resource.Object[kind.Mesh])
	if !ok || mesh.Spec.MTLS == nil || mesh.Spec.MTLS.SkipValidation {
		return nil
	}
	var before *kind.MeshMTLS
	if stored != nil {
		before = stored.object.(*resource.Object[kind.Mesh]).Spec.MTLS
	}
	var problems resource.Problems
	for i := range mesh.Spec.MTLS.Backends {
		b := &mesh.Spec.MTLS.Backends[i]
		enabled := b.Name == mesh.Spec.MTLS.EnabledBackend && (before == nil || before.EnabledBackend != b.Name)
		if b.Type != kind.ProvidedBackend || !enabled && reflect.DeepEqual(before.Backend(b.Name), b) {
			continue
		}
		if trouble := w.checkAuthority(ctx, mesh.Name, b); trouble != nil {
			problems.Add(fmt.Sprintf("mtls.backends[%d].conf", i),
				"%s; correct it, or set mtls.skipValidation, with which the status says so", trouble)
		}
	}
	if len(problems) > 0 {
		return &resource.Error{Code: resource.Invalid, Detail: mesh.Key().String() + " is invalid", Problems: problems}
	}
	return nil
}

// checkAuthority returns why the Secrets of a backend can't sign for a mesh; nil where they can, or where one of them
// is missing.
func (w *Writer) checkAuthority(ctx context.Context, mesh string, b *kind.MTLSBackend) error {
	missing := false
	text, err := pki.BackendText(mesh, b, func(name string) ([]byte, bool) {
		row, err := w.rows.Get(ctx, kind.Secrets.Key(mesh, name))
		if err != nil {
			missing = true // or the store fails, which the write will report
			return nil, false
		}
		o, err := Decode(row)
		secret, ok := o.(*resource.Object[kind.Secret])
		if missing = err != nil || !ok; missing {
			return nil, false
		}
		return secret.Spec.Data, true
	})
	if missing {
		return nil
	}
	if err != nil {
		return err
	}
	ca, err := pki.ParseCA(text)
	if err != nil {
		return err
	}
	return ca.MaySign(mesh, time.Now())
}
