package kind

// Places are the host names and virtual IPs of a service in a zone, as in the status of each kind of services.
type Places struct {
	VIPs               []VIP
	Addresses          []Address
	HostnameGenerators []HostnameGeneratorStatus
}

// Places returns the host names and virtual IPs of the service.
func (s *MeshServiceStatus) Places() Places {
	return Places{s.VIPs, s.Addresses, s.HostnameGenerators}
}

// Places returns the host names and virtual IPs of the service.
func (s *MeshMultiZoneServiceStatus) Places() Places {
	return Places{s.VIPs, s.Addresses, s.HostnameGenerators}
}

// Places returns the host names and virtual IPs of the service.
func (s *MeshExternalServiceStatus) Places() Places {
	at := Places{s.VIPs, s.Addresses, s.HostnameGenerators}
	if len(at.VIPs) == 0 && s.VIP != nil { // of an older release
		at.VIPs = []VIP{*s.VIP}
	}
	return at
}
