package zonequery

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"weft/internal/wire"
	"weft/resource"
)

// Read is a GET request of the API of a zone about an object of it, whose caller global has permitted the action.
type Read struct {
	Path, Query string // with the names that the zone has
	Action      string
	User        string
	Groups      []string
}

// Result is the response of a zone's API: a document, or a problem document.
type Result struct {
	Status      int
	ContentType string
	Body        []byte
}

// Reader serves the reads of global in a zone. An error is a failure of the zone.
type Reader interface {
	ServeRead(ctx context.Context, q Read) (*Result, error)
}

// MaxDocument is the size of the largest body of a [Result] in bytes. The connection of zone sync, which carries it,
// ends the stream at a message of more than 9 MiB.
const MaxDocument = 8 << 20

// The media types of the API's responses.
const (
	jsonType    = "application/json"
	problemType = "application/problem+json"
	textType    = "text/plain; charset=utf-8"
)

// problemStatuses are those that a zone may decide on. The caller's credential is not among its concerns.
var problemStatuses = []int{http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusConflict,
	http.StatusServiceUnavailable}

// Read sends a read to its zone and returns the response. The zone decides the text of a response and nothing of its
// form: any other status or media type, and a body that is no JSON where it should be, is an error.
func (g *Global) Read(ctx context.Context, zone string, q Read) (*Result, error) {
	response, err := g.request(ctx, &wire.ZoneRequest{Zone: zone, Query: &wire.ZoneRequest_Read_{
		Read: &wire.ZoneRequest_Read{Path: q.Path, Query: q.Query, Action: q.Action, User: q.User, Groups: q.Groups},
	}})
	if err != nil {
		return nil, err
	}
	if response.Problem != "" {
		return nil, resource.Errorf(resource.Unavailable, "the zone %s: %s", zone, shownProblem(response))
	}
	result := &Result{Status: int(response.Status), ContentType: response.ContentType, Body: response.Document}
	if !result.isOfAPI() {
		return nil, resource.Errorf(resource.Unavailable, "the response of the zone %s has the status %d and %d bytes "+
			"of the media type %.100q, as no API has it", zone, result.Status, len(result.Body), result.ContentType)
	}
	return result, nil
}

func (r *Result) isOfAPI() bool {
	switch r.ContentType {
	case textType:
		return r.Status == http.StatusOK
	case jsonType:
		return r.Status == http.StatusOK && json.Valid(r.Body)
	case problemType:
		return slices.Contains(problemStatuses, r.Status) && json.Valid(r.Body)
	}
	return false
}

// Read returns an error: a zone does not know the objects of another zone.
func (z *Zone) Read(_ context.Context, zone string, _ Read) (*Result, error) {
	return nil, z.notHere(zone)
}

// read responds to a read of global.
func (z *Zone) read(ctx context.Context, reader Reader, id string, q *wire.ZoneRequest_Read) *wire.ZoneResponse {
	result, err := reader.ServeRead(ctx, Read{Path: q.Path, Query: q.Query, Action: q.Action, User: q.User,
		Groups: q.Groups})
	if err != nil {
		return failed(id, err)
	}
	return &wire.ZoneResponse{Id: id, Document: result.Body, Status: uint32(result.Status),
		ContentType: result.ContentType}
}
