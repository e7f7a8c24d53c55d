package rest

import (
	"net/http"
	"os"

	"weft/internal/access"
	"weft/kind"
	"weft/resource"
)

// index says who answers. It is open to everybody.
func (a *api) index(w http.ResponseWriter, _ *http.Request) error {
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Hostname   string `json:"hostname"`
		Product    string `json:"product"`
		Version    string `json:"version"`
		InstanceID string `json:"instanceId"`
		ClusterID  string `json:"clusterId"` // of a control plane that is alone: its zone
		GUI        string `json:"gui"`       // empty: there is none
	}{Hostname: hostname, Product: "weft", Version: a.Version, InstanceID: a.InstanceID, ClusterID: a.Zone})
}

// resources lists the kinds.
func (a *api) resources(w http.ResponseWriter, _ *http.Request) error {
	type entry struct {
		Name     string `json:"name"`
		Scope    string `json:"scope"` // Global or Mesh
		Path     string `json:"path"`
		ReadOnly bool   `json:"readOnly"`
	}
	entries := []entry{}
	for _, d := range kind.All() {
		info := d.Describe()
		if info.Hidden {
			continue
		}
		scope := "Global"
		if info.Scope == resource.Mesh {
			scope = "Mesh"
		}
		entries = append(entries, entry{info.Name, scope, info.Plural, info.ReadOnly})
	}
	return writeJSON(w, http.StatusOK, map[string][]entry{"resources": entries})
}

// whoAmI tells the caller as whom it is known.
func (a *api) whoAmI(w http.ResponseWriter, r *http.Request) error {
	return writeJSON(w, http.StatusOK, access.UserOf(r.Context()))
}
