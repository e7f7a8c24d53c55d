package rest

import (
	"net/http"
	"strconv"
	"strings"

	"weft/internal/admit"
	"weft/internal/audit"
	"weft/internal/sni"
	"weft/kind"
	"weft/resource"
)

// sniReads are the kinds that a report about server names is made of.
var sniReads = []resource.Descriptor{kind.MeshServices, kind.MeshMultiZoneServices, kind.SNIFormats, kind.SNIWaits}

// sni answers how far the server names of all services have come.
func (a *api) sni(w http.ResponseWriter, r *http.Request) error {
	m, err := a.read(r.Context(), sniReads...)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, m.State.SNIReport(m.Snapshot))
}

// SNIRequest asks for server names of another format.
type SNIRequest struct {
	Format string `json:"format"`
}

// migrateSNI says which format server names are to have, and answers how far they have come.
func (a *api) migrateSNI(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r, maxRequest)
	if err != nil {
		return err
	}
	var request SNIRequest
	if err := decodeRequest(body, &request, "the request", `{"format": "v2"}`); err != nil {
		return err
	}
	if sni.FormatNamed(request.Format) == nil {
		var known []string
		for _, format := range sni.Formats() {
			known = append(known, format.String())
		}
		problem := resource.Problem{Field: "format", Reason: strconv.Quote(request.Format) + " is no format of server names, want one of " + strings.Join(known, ", ")}
		return &resource.Error{Code: resource.Invalid, Detail: "the request is invalid", Problems: resource.Problems{problem}}
	}
	wanted := kind.SNIFormats.Make("", kind.TheSNIFormat, kind.SNIFormat{Format: request.Format})
	change := admit.Change{ControlPlane: true, Told: audit.Of(r.Context()).Changed}
	if _, err := a.Writer.Put(r.Context(), wanted, change); err != nil {
		return err
	}
	return a.sni(w, r)
}
