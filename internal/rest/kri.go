package rest

import (
	"fmt"
	"net/http"
	"strconv"

	"weft/internal/access"
	"weft/kind"
	"weft/resource"
)

// byKRI returns the resource of an identifier, and ignores the identifier's section.
func (a *api) byKRI(w http.ResponseWriter, r *http.Request) error {
	form, err := formOf(r)
	if err != nil {
		return err
	}
	text := r.PathValue("kri")
	kri, ok := resource.ParseKRI(text)
	d := kindOf(kri.Code)
	if !ok || d == nil {
		return resource.Errorf(resource.Invalid,
			"%.300q is not a KRI of this control plane: want kri_CODE_MESH_ZONE_NAMESPACE_NAME_, with the code of a "+
				"kind in `GET /_resources` (shortName)", text)
	}
	scope := access.ReadScope(resource.Key{Kind: d.Describe().Name, Mesh: kri.Mesh, Name: kri.Name})
	if err := a.Guard.permit(r, access.ReadOf(d.Describe()), scope); err != nil {
		return err
	}
	m, err := a.read(r.Context(), readsOf(d)...)
	if err != nil {
		return err
	}
	o := m.withKRI(kri, d)
	if o == nil {
		return resource.Errorf(resource.NotFound, "%s does not exist", text)
	}
	body, err := m.encode(r, d, o, form)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", strconv.Quote(o.Envelope().Version))
	return writeJSON(w, http.StatusOK, body)
}

// kindOf returns the kind with a code, or nil.
func kindOf(code string) resource.Descriptor {
	for _, d := range kind.All() {
		if info := d.Describe(); info.ShortName == code && code != "" {
			return d
		}
	}
	return nil
}

// withKRI returns the resource of a kind with an identifier, ignoring its section, or nil. A resource of this control
// plane has the name in the identifier; one of another control plane is stored under another name.
func (m *snapshot) withKRI(kri resource.KRI, d resource.Descriptor) resource.Any {
	kri.Section = ""
	is := func(o resource.Any) bool {
		own, _ := resource.KRIOf(o.Envelope(), d.Describe())
		if kri.Zone == "" && kri.Name == o.Key().Name {
			own.Zone = "" // clients omit a zone that they do not know
		}
		return own == kri
	}
	if o, ok := m.find(resource.Key{Kind: d.Describe().Name, Mesh: kri.Mesh, Name: kri.Name}); ok && is(o) {
		return o
	}
	for o := range m.State.Tables.ResourcesAfter(m.Snapshot, d.Describe().Name, kri.Mesh, "") {
		if is(o) {
			return o
		}
	}
	return nil
}

// otherKRI returns a warning about an identifier of another resource in a resource. Clients compute the zone and the
// namespace from labels that a file may lack.
func otherKRI(text string, o resource.Any, d resource.Descriptor) []string {
	own, ok := resource.KRIOf(o.Envelope(), d.Describe())
	if text == "" || !ok {
		return nil
	}
	written, ok := resource.ParseKRI(text)
	if ok && written.Code == own.Code && written.Mesh == own.Mesh &&
		(written.Name == own.Name || written.Name == o.Key().Name) {
		return nil
	}
	return []string{fmt.Sprintf("kri: %.300q is ignored: it does not identify %s, whose kri is %s", text, o.Key(), own)}
}
