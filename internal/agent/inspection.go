package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"weft/internal/wire"
)

const (
	// inspectionTimeout bounds the time for one page of Envoy's.
	inspectionTimeout = time.Minute
	// chunkBytes is the size of one section of a page.
	chunkBytes = 32 << 10
)

// pagePaths are the pages of Envoy's administration interface that the control plane may request. The interface can
// also change and stop Envoy, so no other path is allowed.
var pagePaths = map[wire.Page]string{
	wire.Page_PAGE_CONFIG_DUMP: "/config_dump",
	wire.Page_PAGE_CLUSTERS:    "/clusters",
	wire.Page_PAGE_STATS:       "/stats",
	wire.Page_PAGE_LISTENERS:   "/listeners",
	wire.Page_PAGE_CERTS:       "/certs",
	wire.Page_PAGE_SERVER_INFO: "/server_info",
}

// pagePath returns the path of the requested page in Envoy's administration interface.
func pagePath(q *wire.InspectionRequest) (string, error) {
	path, ok := pagePaths[q.Page]
	if !ok {
		return "", fmt.Errorf("this agent does not support the page %s", q.Page)
	}
	var query []string
	if q.Json {
		query = append(query, "format=json")
	}
	if q.Endpoints {
		query = append(query, "include_eds")
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	return path, nil
}

// sendInspection sends the requested page, until its end or until the control plane cancels the request.
func (a *agent) sendInspection(ctx context.Context, q *wire.InspectionRequest) {
	ctx, cancel := context.WithTimeout(ctx, inspectionTimeout)
	defer cancel()
	stream, err := a.control.agent.SendInspection(ctx)
	if err == nil {
		err = stream.Send(&wire.InspectionSection{ProxyType: string(a.ProxyType), Mesh: a.mesh, Name: a.name,
			Request: q.Id})
	}
	if err == nil {
		err = a.sendPage(ctx, q, stream)
	}
	if err != nil {
		a.Log.Info("an inspection of Envoy ended early", "page", q.Page, "error", err)
	}
}

// sendPage sends the page, or the reason for its absence.
func (a *agent) sendPage(ctx context.Context, q *wire.InspectionRequest, stream wire.Agent_SendInspectionClient) error {
	problem := a.copyPage(ctx, q, func(part []byte) error {
		return stream.Send(&wire.InspectionSection{Content: part})
	})
	if problem != nil {
		// If sending failed, this fails too, and has no receiver.
		_ = stream.Send(&wire.InspectionSection{Problem: problem.Error()})
	}
	_, err := stream.CloseAndRecv()
	return errors.Join(problem, err)
}

func (a *agent) copyPage(ctx context.Context, q *wire.InspectionRequest, send chunkWriter) error {
	path, err := pagePath(q)
	if err != nil {
		return err
	}
	admin := a.admin.Load()
	if admin == nil {
		return errors.New("Envoy has not been started yet")
	}
	return admin.page(ctx, path, send)
}

// page reads a page of any size in chunks.
func (a *admin) page(ctx context.Context, path string, each chunkWriter) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://envoy"+path, nil)
	if err != nil {
		return err
	}
	patient := http.Client{Transport: a.client.Transport}
	response, err := patient.Do(request)
	if err != nil {
		return fmt.Errorf("requesting %s from Envoy: %w", path, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("Envoy responds %s to %s", response.Status, path)
	}
	if _, err := io.CopyBuffer(chunkWriter(each), response.Body, make([]byte, chunkBytes)); err != nil {
		return fmt.Errorf("reading %s of Envoy: %w", path, err)
	}
	return nil
}

// chunkWriter receives a page in chunks.
type chunkWriter func([]byte) error

// Write implements io.Writer.
func (p chunkWriter) Write(part []byte) (int, error) { return len(part), p(part) }
