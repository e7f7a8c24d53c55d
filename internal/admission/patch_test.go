package admission_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"weft/internal/admission"
	"weft/internal/envoy"
	"weft/internal/store"
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
	permits := admission.New(rows, admission.Options{Zone: "east", Patches: envoy.TypeNames{lua}})
	put(t, permits, `{type: Mesh, name: m}`)
	if result, err := permits.Put(t.Context(), parse(t, patch), denied); err != nil || len(result.Warnings) > 0 {
		t.Errorf("with the setting: %v, %q", err, result.Warnings)
	}
	_, err = permits.Put(t.Context(), parse(t, `{type: MeshProxyPatch, mesh: m, name: q, spec: {default: `+
		`{appendModifications: [{cluster: {operation: Add, value: '{name: x, loadAssignment: {clusterName: x, `+
		`endpoints: [{lbEndpoints: [{endpoint: {address: {pipe: {path: /x}}}}]}]}}'}}]}}}`), admission.Change{})
	wantError(t, err, resource.Invalid, "leads to the machine of the proxy")
}

// TestAResultThatEnvoyRejectsIsNotWritten: a patch whose result Envoy rejects in each proxy is rejected. A stored one
// is written as it is, with a warning.
func TestAResultThatEnvoyRejectsIsNotWritten(t *testing.T) {
	patch := func(operations string) string {
		return `{type: MeshProxyPatch, mesh: m, name: p, spec: {default: {appendModifications: [` + operations + `]}}}`
	}
	const replaced = `{httpFilter: {operation: Remove}}, {httpFilter: {operation: AddFirst, value: '{name: %s, ` +
		`typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.http.%s}}'}}`
	broken := patch(fmt.Sprintf(replaced, "b", "csrf.v3.CsrfPolicy"))
	broken = strings.Replace(broken, "CsrfPolicy}", "CsrfPolicy, filterEnabled: {defaultValue: {numerator: 1}}}", 1)
	w, rows := newEastWriter(t)
	_, err := w.Put(t.Context(), parse(t, broken), admission.Change{})
	wantError(t, err, resource.Invalid, `spec.default.appendModifications[1].httpFilter: listener `)
	wantError(t, err, resource.Invalid, `the last HTTP filter is "b", which ends no chain; let the chain end with the `+
		`envoy.filters.http.router`)
	put(t, w, patch(fmt.Sprintf(replaced, "r", "router.v3.Router")))

	o := parse(t, strings.Replace(broken, "name: p", "name: stored", 1))
	body, err := resource.Body(o)
	if err == nil {
		_, err = rows.Create(t.Context(), store.Row{Key: o.Key(), Body: body})
	}
	if err != nil {
		t.Fatal(err)
	}
	result := put(t, w, strings.Replace(broken, "name: p", "name: stored", 1))
	if len(result.Warnings) != 1 ||
		!strings.Contains(result.Warnings[0], "appendModifications[1].httpFilter: is not applied") {
		t.Errorf("the warnings of a stored patch are %q", result.Warnings)
	}
}
