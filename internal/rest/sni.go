package rest

import (
	"net/http"
	"strconv"
	"strings"

	"weft/internal/admission"
	"weft/internal/audit"
	"weft/internal/sni"
	"weft/kind"
	"weft/resource"
)

// sniReads are the kinds that a report about SNIs is computed from.
var sniReads = []resource.Descriptor{kind.MeshServices, kind.MeshMultiZoneServices, kind.SNIFormats, kind.SNIWaits}

// sni returns the progress of the SNI migration of all services.
func (a *api) sni(w http.ResponseWriter, r *http.Request) error {
	m, err := a.read(r.Context(), sniReads...)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, m.Reports().SNIMigration())
}

// SNIRequest requests SNIs of another format.
type SNIRequest struct {
	Format string `json:"format"`
}

// migrateSNI sets the format of SNIs, and returns the progress of the migration.
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
		problem := resource.Problem{Field: "format",
			Reason: strconv.Quote(request.Format) + " is no format of server names, want one of " + strings.Join(known,
				", ")}
		return &resource.Error{Code: resource.Invalid, Detail: "the request is invalid",
			Problems: resource.Problems{problem}}
	}
	wanted := kind.SNIFormats.Make("", kind.TheSNIFormat, kind.SNIFormat{Format: request.Format})
	change := admission.Change{ControlPlane: true, OnChange: audit.FromContext(r.Context()).SetChange}
	if _, err := a.Writer.Put(r.Context(), wanted, change); err != nil {
		return err
	}
	return a.sni(w, r)
}
