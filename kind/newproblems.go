package kind

import (
	"fmt"
	"net/netip"

	"weft/resource"
)

// NewProblems sets the defaults of a resource that a user writes for the first time, and returns its problems: those
// which do not depend on the control plane, on its settings but the default ones, or on other resources.
func NewProblems(o resource.Any) resource.Problems {
	d, key := ByName(o.Key().Kind), o.Key()
	var problems resource.Problems
	if d.Describe().Scope == resource.Mesh {
		if problem := resource.MeshNameProblem(key.Mesh); problem != "" {
			problems.Add("mesh", "%s", problem)
		}
	}
	problems = append(problems, d.Prepare(o)...)
	problems = append(problems, CopyNameProblems(d.Describe(), key.Name)...)
	if len(problems) > 0 {
		return problems
	}
	problems, _ = CheckRegexes(nil, o)
	costs, _ := CheckCost(nil, o)
	problems = append(problems, costs...)
	if service, ok := o.(*resource.Object[MeshExternalService]); ok {
		problems = append(problems, service.Spec.LocalEndpoints(nil)...)
	}
	return problems
}

// CopyNameProblems rejects a name that would keep the copy of another control plane's resource out.
func CopyNameProblems(info *resource.Info, name string) (problems resource.Problems) {
	if HasSyncedName(info) && IsLongerSyncedName(name) {
		problems.Add("name", "ends like the name of a copy of another control plane's resource, with \"-copy-\" and "+
			"32 hexadecimal digits; choose another name")
	}
	return problems
}

// LocalEndpoints returns a problem for each endpoint at a local address, to which zone egresses do not connect unless
// it is in an allowed network.
func (s *MeshExternalService) LocalEndpoints(allowed []netip.Prefix) (problems resource.Problems) {
	for i, e := range s.Endpoints {
		if local := LocalEndpoint(e.Address, allowed); local != "" {
			problems.Add(fmt.Sprintf("spec.endpoints[%d].address", i), "is %s, %s, to which zone egresses do not "+
				"connect; name a server outside the mesh, or on a single machine allow its network with the setting "+
				"KUMA_EGRESS_ALLOWED_LOCAL_NETWORKS", e.Address, local)
		}
	}
	return problems
}
