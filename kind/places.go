package kind

// Places are where a service is found in a zone, as the status of each kind of services says.
type Places struct {
	VIPs               []VIP
	Addresses          []Address
	HostnameGenerators []HostnameGeneratorStatus
}

// Places are where the service is found.
func (s *MeshServiceStatus) Places() Places {
	return Places{s.VIPs, s.Addresses, s.HostnameGenerators}
}

// Places are where the service is found.
func (s *MeshMultiZoneServiceStatus) Places() Places {
	return Places{s.VIPs, s.Addresses, s.HostnameGenerators}
}

// Places are where the service is found.
func (s *MeshExternalServiceStatus) Places() Places {
	at := Places{Addresses: s.Addresses, HostnameGenerators: s.HostnameGenerators}
	if s.VIP != nil {
		at.VIPs = []VIP{*s.VIP}
	}
	return at
}
