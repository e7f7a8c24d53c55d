package kind

import "weft/resource"

// MeshExternalService is a destination outside the mesh. Clients reach it through the zone egresses of their zone,
// which authenticate the client, check MeshTrafficPermission, and connect to the destination.
type MeshExternalService struct {
	// Match is the port and protocol that clients use.
	Match ExternalMatch `json:"match" schema:"required"`
	// Endpoints are the servers of the destination. Without any, each request fails.
	Endpoints []ExternalEndpoint `json:"endpoints,omitempty" schema:"maxItems=256"`
	// TLS is the TLS from the egress to the endpoints; absent: plaintext.
	TLS *ExternalTLS `json:"tls,omitempty"`
}

// ExternalMatch is the port and protocol that clients use, at the service's virtual IP and host names.
type ExternalMatch struct {
	// the source of its host names
	Type string `json:"type,omitempty" schema:"enum=HostnameGenerator default=HostnameGenerator"`
	// the port that clients dial
	Port uint32 `json:"port" schema:"required port"`
	// the protocol of the endpoints
	Protocol Protocol `json:"protocol,omitempty" schema:"enum=tcp|tls|http|http2|grpc|kafka default=tcp"`
}

// ExternalEndpoint is one server outside the mesh.
type ExternalEndpoint struct {
	// an IP address, or a host name that the egress resolves; it is stored in lower case, without a dot at its end
	Address string `json:"address" schema:"required maxLength=253" missing:"an IP address or a host name"`
	Port    uint32 `json:"port" schema:"required port"` // the port of the server
	// Priority is the priority of the endpoint: endpoints with a higher number are used while none with a lower number
	// responds.
	Priority uint32 `json:"priority,omitempty" schema:"max=128"`
}

// ExternalTLS is the TLS from the egress to the endpoints.
type ExternalTLS struct {
	Enabled bool         `json:"enabled,omitempty"` // true to use TLS
	Version *TLSVersions `json:"version,omitempty"` // the accepted TLS versions
	// true to accept renegotiation by the server
	AllowRenegotiation bool `json:"allowRenegotiation,omitempty"`
	// the verification of the server, and the client certificate
	Verification *ExternalVerification `json:"verification,omitempty"`
}

// TLSVersions bounds the versions of TLS.
type TLSVersions struct {
	// the oldest; TLSAuto is TLS 1.2, or max where that is older
	Min string `json:"min,omitempty" schema:"enum=TLSAuto|TLS10|TLS11|TLS12|TLS13 default=TLSAuto"`
	// the newest; TLSAuto is TLS 1.3
	Max string `json:"max,omitempty" schema:"enum=TLSAuto|TLS10|TLS11|TLS12|TLS13 default=TLSAuto"`
}

// Versions of TLS.
const (
	TLSAuto = "TLSAuto"
	TLS10   = "TLS10"
	TLS11   = "TLS11"
	TLS12   = "TLS12"
	TLS13   = "TLS13"
)

// ExternalVerification is the verification of an external server, and the client certificate of the egress.
type ExternalVerification struct {
	// Mode is the omitted verification: none (Secured), the SANs (SkipSAN), or everything (SkipCA and SkipAll, because
	// SANs prove nothing without a CA).
	Mode string `json:"mode,omitempty" schema:"enum=Secured|SkipSAN|SkipCA|SkipAll default=Secured"`
	// ServerName is the SNI that the egress sends; by default the endpoint's host name, and none for an IP address.
	ServerName string `json:"serverName,omitempty" schema:"maxLength=253"`
	// SubjectAltNames are SANs of which the server's certificate must have at least one: host names, IP addresses or
	// URIs. By default the server name, else the endpoint's address.
	SubjectAltNames []SANMatch `json:"subjectAltNames,omitempty" schema:"maxItems=256"`
	// CACert are the trusted authorities; by default those of the egress's machine.
	CACert *DataSource `json:"caCert,omitempty"`
	// ClientCert is the client certificate of the egress.
	ClientCert *DataSource `json:"clientCert,omitempty"`
	// ClientKey is the key of ClientCert.
	ClientKey *DataSource `json:"clientKey,omitempty"`
}

// Modes of an [ExternalVerification].
const (
	Secured = "Secured" // the CA and the SANs are verified
	SkipSAN = "SkipSAN" // only the CA is verified
	SkipCA  = "SkipCA"  // nothing is verified: a certificate without a verified CA may contain any SAN
	SkipAll = "SkipAll" // nothing is verified
)

// SANMatch matches a SAN of a certificate.
type SANMatch struct {
	Type  string `json:"type,omitempty" schema:"enum=Exact|Prefix default=Exact"`                             // the type of the match
	Value string `json:"value" schema:"required maxLength=2048" missing:"a name in the server's certificate"` // the SAN
}

// MeshExternalServices is the kind of [MeshExternalService].
var MeshExternalServices = &resource.Kind[MeshExternalService]{
	Info: resource.Info{
		Name: "MeshExternalService", Plural: "meshexternalservices", ShortName: "extsvc", Computed: []string{"snis"},
		Scope: resource.Mesh, Sync: resource.GlobalToZones | resource.ZoneToGlobal,
		WrittenBy: resource.Operator,
		Replaced:  replacedExternalFields(),
		Older:     olderExternalSources,
		Replaces:  []resource.OlderKind{{Name: "ExternalService", Plural: "external-services"}},
	},
	Default:  defaultMeshExternalService,
	Validate: validateMeshExternalService,
}

// ExternalSources are the fields of an [ExternalVerification] that are sources of values.
var ExternalSources = []string{"caCert", "clientCert", "clientKey"}

func replacedExternalFields() map[string]string {
	replaced := map[string]string{"extension": "has no meaning here; write the endpoints"}
	for _, name := range ExternalSources {
		at := "tls.verification." + name + "."
		replaced[at+"file"], replaced[at+"envVar"] = useASecret, useASecret
		for _, older := range olderSourceFields {
			replaced[at+older] = "is the older form of a source, which has one of secret, inline (base64) and " +
				"inlineString and nothing beside it; write {type: Secret, secretRef: {kind: Secret, name: NAME}}, or " +
				"{type: InsecureInline, insecureInline: {value: TEXT}}"
		}
	}
	return replaced
}

// olderExternalSources rewrites the sources of certificates of Kuma 2.
func olderExternalSources(spec map[string]any) {
	tls, _ := spec["tls"].(map[string]any)
	verification, _ := tls["verification"].(map[string]any)
	for _, name := range ExternalSources {
		if source, ok := verification[name].(map[string]any); ok {
			verification[name] = currentSource(source)
		}
	}
}

// MeshExternalServiceStatus is the status of a MeshExternalService in a zone; it never leaves the zone. (Mesh Scoped
// Zone Ingress and Zone Egress.)
type MeshExternalServiceStatus struct {
	// VIP is its first virtual IP address in this zone.
	VIP *VIP `json:"vip,omitempty"`
	// VIPs are all its virtual IP addresses in this zone.
	VIPs []VIP `json:"vips,omitempty"`
	// Addresses are its host names.
	Addresses []Address `json:"addresses,omitempty"`
	// ZoneEgress is the zone egress that clients dial; absent: none is ready. It is computed on reading. In the objects
	// of Kubernetes it has no endpoints.
	ZoneEgress *ServiceEgress `json:"zoneEgress,omitempty"`
	// HostnameGenerators are the generators that select it, by name.
	HostnameGenerators []HostnameGeneratorStatus `json:"hostnameGenerators,omitempty"`
	// Conditions are VIPAssigned, where there is no free virtual IP, Reachable, whether a zone egress is ready,
	// SecretsResolved, which is False where a Secret that it names is missing or wrong, and EndpointsExternal, which is
	// False where an endpoint has an address to which egresses do not connect.
	Conditions []Condition `json:"conditions,omitempty"`
}

// ServiceEgress is the address at which clients of a zone reach a MeshExternalService.
type ServiceEgress struct {
	Address string `json:"address"` // the address of the first ready zone egress by name
	Port    uint32 `json:"port"`    // the port of the same egress
	SNI     string `json:"sni"`     // the SNI by which it selects the service
	// Endpoints are all zone egresses of the zone.
	Endpoints []EgressEndpoint `json:"endpoints,omitempty"`
}

// EgressEndpoint is one zone egress.
type EgressEndpoint struct {
	Address string `json:"address"` // the listener of the proxy
	Port    uint32 `json:"port"`    // the listener of the proxy
	Healthy bool   `json:"healthy"` // whether its proxy is connected and serves the mesh of the service
}

// MeshExternalServiceStatuses is the kind of [MeshExternalServiceStatus].
var MeshExternalServiceStatuses = &resource.Kind[MeshExternalServiceStatus]{
	Info: resource.Info{Name: "MeshExternalServiceStatus", Plural: "meshexternalservicestatuses", Scope: resource.Mesh,
		ReadOnly: true, Hidden: true, StatusOf: "MeshExternalService"},
}

// ExternalMaterial has the certificates of a MeshExternalService when all of them were last readable and valid. A later
// problem does not change it.
type ExternalMaterial struct {
	Endpoints  []ExternalEndpoint `json:"endpoints,omitempty"`
	TLS        *ExternalTLS       `json:"tls,omitempty"`
	CACert     []byte             `json:"caCert,omitempty"`     // PEM
	ClientCert []byte             `json:"clientCert,omitempty"` // PEM
	ClientKey  []byte             `json:"clientKey,omitempty"`  // PEM
}

// NamesCertificates reports whether the egress's TLS needs a certificate or key from a Secret.
func (m *MeshExternalService) NamesCertificates() bool {
	if m.TLS == nil || !m.TLS.Enabled || m.TLS.Verification == nil {
		return false
	}
	v := m.TLS.Verification
	return v.CACert != nil || v.ClientCert != nil || v.ClientKey != nil
}

// ExternalMaterials is the kind of [ExternalMaterial]. A row has the name of its MeshExternalService's row.
var ExternalMaterials = &resource.Kind[ExternalMaterial]{
	Info: resource.Info{Name: "ExternalMaterial", Plural: "external-materials", Scope: resource.Mesh, ReadOnly: true,
		AdminOnly: true, Encrypted: true, Hidden: true},
}
