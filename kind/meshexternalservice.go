package kind

import "weft/resource"

// MeshExternalService is a destination outside the mesh. Clients reach it through the zone egresses of their zone,
// which know who calls, decide by MeshTrafficPermission, and speak to the outside in the clients' place.
type MeshExternalService struct {
	// Match is what clients dial.
	Match ExternalMatch `json:"match" schema:"required"`
	// Endpoints are where it is.
	Endpoints []ExternalEndpoint `json:"endpoints,omitempty" schema:"required minItems=1 maxItems=256"`
	// TLS is how the egress speaks to the endpoints; absent: without.
	TLS *ExternalTLS `json:"tls,omitempty"`
}

// ExternalMatch is what clients dial: the port, at the service's virtual IP and host names.
type ExternalMatch struct {
	Type     string   `json:"type,omitempty" schema:"enum=HostnameGenerator default=HostnameGenerator"`   // where its names come from
	Port     uint32   `json:"port" schema:"required port"`                                                // what clients dial
	Protocol Protocol `json:"protocol,omitempty" schema:"enum=tcp|tls|http|http2|grpc|kafka default=tcp"` // what the endpoints speak
}

// ExternalEndpoint is one server outside the mesh.
type ExternalEndpoint struct {
	Address string `json:"address" schema:"required maxLength=253"` // an IP address, or a host name that the egress looks up
	Port    uint32 `json:"port" schema:"required port"`             // where it listens
	// Priority says which endpoints are used first: those of the lowest that has one which answers.
	Priority uint32 `json:"priority,omitempty" schema:"max=128"`
}

// ExternalTLS is how the egress speaks TLS to the endpoints.
type ExternalTLS struct {
	Enabled            bool                  `json:"enabled,omitempty"`            // without it there is none
	Version            *TLSVersions          `json:"version,omitempty"`            // which versions are spoken
	AllowRenegotiation bool                  `json:"allowRenegotiation,omitempty"` // whether a server may negotiate anew
	Verification       *ExternalVerification `json:"verification,omitempty"`       // how the server proves who it is
}

// TLSVersions bounds the versions of TLS.
type TLSVersions struct {
	Min string `json:"min,omitempty" schema:"enum=TLSAuto|TLS10|TLS11|TLS12|TLS13 default=TLSAuto"` // the oldest; TLSAuto is TLS 1.2, or max where that is older
	Max string `json:"max,omitempty" schema:"enum=TLSAuto|TLS10|TLS11|TLS12|TLS13 default=TLSAuto"` // the newest; TLSAuto is TLS 1.3
}

// Versions of TLS.
const (
	TLSAuto = "TLSAuto"
	TLS10   = "TLS10"
	TLS11   = "TLS11"
	TLS12   = "TLS12"
	TLS13   = "TLS13"
)

// ExternalVerification is how a server outside the mesh proves who it is.
type ExternalVerification struct {
	// Mode says what is left out: nothing, the names, or everything (SkipCA and SkipAll), since without an authority
	// names prove nothing.
	Mode string `json:"mode,omitempty" schema:"enum=Secured|SkipSAN|SkipCA|SkipAll default=Secured"`
	// ServerName is the name (SNI) that is asked for; by default the endpoint's host name;
	// none for an IP address.
	ServerName string `json:"serverName,omitempty" schema:"maxLength=253"`
	// SubjectAltNames are names of which the server's certificate must have one: host names, IP addresses or URIs; by
	// default the server name, else the endpoint's address.
	SubjectAltNames []SANMatch `json:"subjectAltNames,omitempty" schema:"maxItems=256"`
	// CACert are the authorities that are believed; by default those of the egress's machine.
	CACert *DataSource `json:"caCert,omitempty"`
	// ClientCert is what the egress presents.
	ClientCert *DataSource `json:"clientCert,omitempty"`
	// ClientKey is the key of ClientCert.
	ClientKey *DataSource `json:"clientKey,omitempty"`
}

// Modes of an [ExternalVerification].
const (
	Secured = "Secured" // the authority and the name are checked
	SkipSAN = "SkipSAN" // the authority alone is
	SkipCA  = "SkipCA"  // nothing is: anybody can write names into a certificate that no authority has signed
	SkipAll = "SkipAll" // nothing is
)

// SANMatch matches a name in a certificate.
type SANMatch struct {
	Type  string `json:"type,omitempty" schema:"enum=Exact|Prefix default=Exact"` // how it is compared
	Value string `json:"value" schema:"required maxLength=2048"`                  // the name
}

// MeshExternalServices is the kind of [MeshExternalService].
var MeshExternalServices = &resource.Kind[MeshExternalService]{
	Info: resource.Info{
		Name: "MeshExternalService", Plural: "meshexternalservices", ShortName: "extsvc", Computed: []string{"snis"}, Scope: resource.Mesh, Sync: resource.GlobalToZones | resource.ZoneToGlobal,
		Replaced: map[string]string{
			"extension": "has no meaning here; write the endpoints",

			"tls.verification.caCert.file":       useASecret,
			"tls.verification.caCert.envVar":     useASecret,
			"tls.verification.clientCert.file":   useASecret,
			"tls.verification.clientCert.envVar": useASecret,
			"tls.verification.clientKey.file":    useASecret,
			"tls.verification.clientKey.envVar":  useASecret,
		},
	},
	Default:  defaultMeshExternalService,
	Validate: validateMeshExternalService,
}

// MeshExternalServiceStatus is what a zone knows of a MeshExternalService; it never leaves the zone.
// (Mesh Scoped Zone Ingress and Zone Egress.)
type MeshExternalServiceStatus struct {
	// VIP is its virtual IP address in this zone.
	VIP *VIP `json:"vip,omitempty"`
	// Addresses are its host names.
	Addresses []Address `json:"addresses,omitempty"`
	// ZoneEgress is the egress by which it is reached; absent: none is ready. It is filled in on reading, and
	// stored nowhere.
	ZoneEgress *ServiceEgress `json:"zoneEgress,omitempty"`
	// HostnameGenerators are those that select it, by name.
	HostnameGenerators []HostnameGeneratorStatus `json:"hostnameGenerators,omitempty"`
	// Conditions are VIPAssigned, where there is no free virtual IP, Reachable, whether a zone egress is ready,
	// SecretsResolved, which is False where a Secret that it names is missing or wrong, and EndpointsExternal, which is
	// False where an endpoint has an address to which egresses connect nobody.
	Conditions []Condition `json:"conditions,omitempty"`
}

// ServiceEgress is where a MeshExternalService is reached in a zone.
type ServiceEgress struct {
	Address string `json:"address"` // of the first ready zone egress by name
	Port    uint32 `json:"port"`    // of the same
	SNI     string `json:"sni"`     // by which it knows the service
	// Endpoints are all zone egresses of the zone.
	Endpoints []EgressEndpoint `json:"endpoints,omitempty"`
}

// EgressEndpoint is one zone egress.
type EgressEndpoint struct {
	Address string `json:"address"` // where its proxy listens
	Port    uint32 `json:"port"`    // where its proxy listens
	Healthy bool   `json:"healthy"` // whether its proxy is there and serves
}

// MeshExternalServiceStatuses is the kind of [MeshExternalServiceStatus].
var MeshExternalServiceStatuses = &resource.Kind[MeshExternalServiceStatus]{
	Info: resource.Info{Name: "MeshExternalServiceStatus", Plural: "meshexternalservicestatuses", Scope: resource.Mesh, ReadOnly: true, Hidden: true, StatusOf: "MeshExternalService"},
}

// ExternalMaterial is how egresses dial a MeshExternalService that names certificates, as it was when all of these
// could be read and used: what is missing or wrong since leaves it as it is.
type ExternalMaterial struct {
	Endpoints  []ExternalEndpoint `json:"endpoints,omitempty"`
	TLS        *ExternalTLS       `json:"tls,omitempty"`
	CACert     []byte             `json:"caCert,omitempty"`     // PEM
	ClientCert []byte             `json:"clientCert,omitempty"` // PEM
	ClientKey  []byte             `json:"clientKey,omitempty"`  // PEM
}

// NamesCertificates says whether the egress's TLS needs a certificate or key that stands elsewhere.
func (m *MeshExternalService) NamesCertificates() bool {
	if m.TLS == nil || !m.TLS.Enabled || m.TLS.Verification == nil {
		return false
	}
	v := m.TLS.Verification
	return v.CACert != nil || v.ClientCert != nil || v.ClientKey != nil
}

// ExternalMaterials is the kind of [ExternalMaterial]; each has the name of its MeshExternalService's row.
var ExternalMaterials = &resource.Kind[ExternalMaterial]{
	Info: resource.Info{Name: "ExternalMaterial", Plural: "external-materials", Scope: resource.Mesh, ReadOnly: true, AdminOnly: true, Encrypted: true, Hidden: true},
}
