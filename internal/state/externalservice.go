package state

import (
	"slices"

	"weft/internal/pki"
	"weft/internal/sni"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ExternalServiceTables are the MeshExternalServices, their statuses, the certificates that they refer to, and removed
// ones that egresses still serve.
type ExternalServiceTables struct {
	ExternalServices        Rows[kind.MeshExternalService]
	ExternalServiceStatuses Rows[kind.MeshExternalServiceStatus]
	ExternalMaterials       Rows[kind.ExternalMaterial]
	// RetainedExternalServicesByMesh finds the RetainedExternalServices of a [MeshKey].
	RetainedExternalServices       Rows[kind.RetainedExternalService]
	RetainedExternalServicesByMesh table.Index[*resource.Object[kind.RetainedExternalService]]
	// ExternalServicesByMesh finds the external services of a [MeshKey], ExternalServicesBySNI those that have an SNI.
	ExternalServicesByMesh, ExternalServicesBySNI table.Index[*resource.Object[kind.MeshExternalService]]
	// ExternalServicesBySecret finds the external services that refer to a Secret, by its [RowKey].
	ExternalServicesBySecret table.Index[*resource.Object[kind.MeshExternalService]]
}

func (t *Tables) addExternalService() {
	t.ExternalServices = addRows(t, kind.MeshExternalServices)
	t.ExternalServiceStatuses = addRows(t, kind.MeshExternalServiceStatuses)
	t.ExternalMaterials = addRows(t, kind.ExternalMaterials)
	t.RetainedExternalServices = addRows(t, kind.RetainedExternalServices)
	t.RetainedExternalServicesByMesh = byMesh(t.RetainedExternalServices)
	t.ExternalServicesByMesh = byMesh(t.ExternalServices)
	t.ExternalServicesBySNI = table.NewIndex(t.ExternalServices, externalSNIKeys)
	t.ExternalServicesBySecret = table.NewIndex(t.ExternalServices, namedSecrets)
}

// Withheld reports whether no egress may have the certificates of an external service, although they are stored: the
// service refers to a Secret of the control plane, or the certificate is that of an authority.
func Withheld(service *resource.Object[kind.MeshExternalService], stored *kind.ExternalMaterial) bool {
	return len(pki.GeneratedReferences(service)) > 0 || kind.IsAuthority(stored.ClientCert)
}

// namedSecrets returns the keys of the Secrets to which an external service refers.
func namedSecrets(service *resource.Object[kind.MeshExternalService]) []string {
	if !service.Spec.NamesCertificates() {
		return nil
	}
	v := service.Spec.TLS.Verification
	var keys []string
	for _, source := range []*kind.DataSource{v.CACert, v.ClientCert, v.ClientKey} {
		if source != nil && source.SecretRef != nil {
			keys = append(keys, RowKey(service.Mesh, source.SecretRef.Name))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// externalSNIKeys returns the SNIs of an external service in every format: the resource has no SNI itself.
func externalSNIKeys(service *resource.Object[kind.MeshExternalService]) []string {
	return sni.InAllFormats(sni.PortOf(service, service.Spec.Match.Port))
}
