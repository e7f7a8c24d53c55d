package admission_test

import (
	"context"
	"strings"
	"testing"

	"weft/internal/admission"
	"weft/internal/store/memory"
	"weft/resource"
)

// TestUnlistedTypesNeedAnAdministrator: a type of an extension that is not harmless needs an administrator, who gets a
// warning, or the setting.
func TestUnlistedTypesNeedAnAdministrator(t *testing.T) {
	const lua = "envoy.extensions.filters.http.lua.v3.Lua"
	const patch = `{type: MeshProxyPatch, mesh: m, name: p, spec: {default: {appendModifications: [{httpFilter: ` +
		`{operation: AddFirst, value: '{name: x, typedConfig: {"@type": type.googleapis.com/` + lua + `}}'}}]}}}`
	denied := admission.Change{Administers: func(context.Context) error {
		return resource.Errorf(resource.Forbidden, "the setting says no")
	}}
	w, _ := newEastWriter(t)
	_, err := w.Put(t.Context(), parse(t, patch), denied)
	wantError(t, err, resource.Invalid, "appendModifications[0].httpFilter: has the type "+lua)
	if result := put(t, w, patch); len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], lua) {
		t.Errorf("an administrator has the warnings %q", result.Warnings)
	}
	if _, err := w.Put(t.Context(), parse(t, patch), denied); err != nil {
		t.Errorf("a write that changes nothing: %v", err)
	}

	rows := memory.New(memory.Options{})
	defer rows.Close()
	permits := admission.New(rows, admission.Options{Zone: "east", PatchTypes: []string{lua}})
	put(t, permits, `{type: Mesh, name: m}`)
	if result, err := permits.Put(t.Context(), parse(t, patch), denied); err != nil || len(result.Warnings) > 0 {
		t.Errorf("with the setting: %v, %q", err, result.Warnings)
	}
	_, err = permits.Put(t.Context(), parse(t, `{type: MeshProxyPatch, mesh: m, name: q, spec: {default: `+
		`{appendModifications: [{cluster: {operation: Add, value: '{name: x, loadAssignment: {clusterName: x, `+
		`endpoints: [{lbEndpoints: [{endpoint: {address: {pipe: {path: /x}}}}]}]}}'}}]}}}`), admission.Change{})
	wantError(t, err, resource.Invalid, "leads to the machine of the proxy")
}
