package rest

import (
	"net/http"
	"os"
	"slices"
	"strings"

	"weft/internal/access"
	"weft/internal/rest/kumactl"
	"weft/kind"
	"weft/resource"
)

// index returns the name and version of the control plane to any caller. kumactl accepts only the product that it was
// built for, so the response has the product of the client.
func (a *api) index(w http.ResponseWriter, r *http.Request) error {
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	product := "weft"
	if by, ok := kumactl.ClientOf(r); ok {
		product = by.Product
	}
	return writeJSON(w, http.StatusOK, struct {
		Hostname   string `json:"hostname"`
		Product    string `json:"product"`
		Version    string `json:"version"`
		InstanceID string `json:"instanceId"`
		ClusterID  string `json:"clusterId"` // of a control plane without global: its zone
		GUI        string `json:"gui"`       // empty: there is no GUI
	}{Hostname: hostname, Product: product, Version: a.Version, InstanceID: a.InstanceID, ClusterID: a.Zone})
}

// ResourceType is one kind in the response of `_resources`.
type ResourceType struct {
	Name     string `json:"name"`
	Scope    string `json:"scope"` // Global or Mesh
	Path     string `json:"path"`
	ReadOnly bool   `json:"readOnly"`
	// IncludeInFederation states that an export for a global control plane contains the kind. Kinds that a zone
	// generates stay in the zone.
	IncludeInFederation bool        `json:"includeInFederation"`
	ShortName           string      `json:"shortName"` // the code in a KRI; empty: no code
	SingularDisplayName string      `json:"singularDisplayName"`
	PluralDisplayName   string      `json:"pluralDisplayName"`
	Policy              *PolicyType `json:"policy,omitempty"`
}

// PolicyType states which resources a policy selects, and by which of its fields.
type PolicyType struct {
	IsTargetRef       bool `json:"isTargetRef"`
	HasFromTargetRef  bool `json:"hasFromTargetRef"`
	HasRulesTargetRef bool `json:"hasRulesTargetRef"`
	HasToTargetRef    bool `json:"hasToTargetRef"`
	IsFromAsRules     bool `json:"isFromAsRules"`
}

// resources lists the kinds. For kumactl, they are those that it knows: `kumactl export` writes a comment about others,
// which no kumactl can read.
func (a *api) resources(w http.ResponseWriter, r *http.Request) error {
	entries := []ResourceType{}
	for _, d := range kind.All() {
		if !d.Describe().Hidden && kumactl.KnowsKind(r, d) {
			entries = append(entries, resourceType(d))
		}
	}
	return writeJSON(w, http.StatusOK, map[string][]ResourceType{"resources": entries})
}

// policyKinds lists the kinds that are policies, by name: twice, since a client of Kuma 2 reads `policies`, and one of
// Kuma 3 `resources`.
func (a *api) policyKinds(w http.ResponseWriter, _ *http.Request) error {
	kinds := slices.SortedFunc(slices.Values(kind.Policies()), func(a, b kind.Policy) int {
		return strings.Compare(a.Describe().Name, b.Describe().Name)
	})
	response := struct {
		Policies  []olderPolicyType `json:"policies"`
		Resources []ResourceType    `json:"resources"`
	}{}
	for _, d := range kinds {
		t := resourceType(d)
		response.Resources = append(response.Resources, t)
		response.Policies = append(response.Policies, olderPolicyType{
			Name: t.Name, ReadOnly: t.ReadOnly, Path: t.Path, SingularDisplayName: t.SingularDisplayName,
			PluralDisplayName: t.PluralDisplayName, IsTargetRefBased: t.Policy.IsTargetRef,
			IsInbound: t.Policy.HasRulesTargetRef, IsOutbound: t.Policy.HasToTargetRef,
		})
	}
	return writeJSON(w, http.StatusOK, response)
}

// olderPolicyType is a kind that is a policy, in the shape of Kuma 2.
type olderPolicyType struct {
	Name                string `json:"name"`
	ReadOnly            bool   `json:"readOnly"`
	Path                string `json:"path"`
	SingularDisplayName string `json:"singularDisplayName"`
	PluralDisplayName   string `json:"pluralDisplayName"`
	IsExperimental      bool   `json:"isExperimental"`
	IsTargetRefBased    bool   `json:"isTargetRefBased"`
	IsInbound           bool   `json:"isInbound"`  // it has rules about the traffic that a proxy receives
	IsOutbound          bool   `json:"isOutbound"` // it has items about the traffic that a proxy sends
}

func resourceType(d resource.Descriptor) ResourceType {
	info := d.Describe()
	entry := ResourceType{
		Name: info.Name, Scope: "Global", Path: info.Plural, ReadOnly: info.ReadOnly,
		IncludeInFederation: !info.ReadOnly && (info.Sync.Has(resource.GlobalToZones) || info.Encrypted),
		ShortName:           info.ShortName, SingularDisplayName: displayName(info.Name),
		PluralDisplayName: pluralName(displayName(info.Name)),
	}
	if info.Scope == resource.Mesh {
		entry.Scope = "Mesh"
	}
	if p, ok := d.(kind.Policy); ok {
		entry.Policy = &PolicyType{IsTargetRef: true, HasToTargetRef: p.HasTo(), HasRulesTargetRef: p.HasRules()}
	}
	return entry
}

// pluralName returns the plural of an English name: Meshes, Mesh Identities, Zone Egresses, Mesh TLSes.
func pluralName(name string) string {
	if stem, found := strings.CutSuffix(name, "y"); found {
		return stem + "ies"
	}
	if strings.HasSuffix(strings.ToLower(name), "s") || strings.HasSuffix(name, "sh") || strings.HasSuffix(name, "ch") {
		return name + "es"
	}
	return name + "s"
}

// WhoAmI is the identity of a caller.
type WhoAmI struct {
	access.User
	// Actions are the permitted actions, in every mesh or in some.
	Actions []access.Action `json:"actions"`
	// Permissions has the setting that permits each action, and the meshes to which it does.
	Permissions []access.Permission `json:"permissions"`
}

// whoAmI returns the identity of the caller, and what it may do.
func (a *api) whoAmI(w http.ResponseWriter, r *http.Request) error {
	user, rules := access.UserOf(r.Context()), a.Guard.Rules
	return writeJSON(w, http.StatusOK, WhoAmI{user, rules.AllowedActions(user), rules.Permissions(user)})
}
