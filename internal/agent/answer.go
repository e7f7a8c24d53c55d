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
	// answerBound is how long Envoy may take to tell a page.
	answerBound = time.Minute
	// partBytes is how much of a page is on its way at once.
	partBytes = 32 << 10
)

// pagePaths are the pages of Envoy's administration interface that may be asked for from outside this
// machine. The interface can also change and end Envoy, so that nothing else ever gets through.
var pagePaths = map[wire.Page]string{
	wire.Page_PAGE_CONFIG_DUMP: "/config_dump",
	wire.Page_PAGE_CLUSTERS:    "/clusters",
	wire.Page_PAGE_STATS:       "/stats",
	wire.Page_PAGE_LISTENERS:   "/listeners",
	wire.Page_PAGE_CERTS:       "/certs",
	wire.Page_PAGE_SERVER_INFO: "/server_info",
}

// pagePath is where Envoy has what a question asks for.
func pagePath(q *wire.InspectionRequest) (string, error) {
	path, ok := pagePaths[q.Page]
	if !ok {
		return "", fmt.Errorf("this agent knows no page %s", q.Page)
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

// answer sends what Envoy says to a question, until its end or until nobody waits for it any more.
func (a *agent) answer(ctx context.Context, q *wire.InspectionRequest) {
	ctx, cancel := context.WithTimeout(ctx, answerBound)
	defer cancel()
	stream, err := a.control.agent.SendInspection(ctx)
	if err == nil {
		err = stream.Send(&wire.InspectionSection{ProxyType: string(a.ProxyType), Mesh: a.mesh, Name: a.name,
			Request: q.Id})
	}
	if err == nil {
		err = a.tell(ctx, q, stream)
	}
	if err != nil {
		a.Log.Info("an inspection of Envoy ended early", "page", q.Page, "error", err)
	}
}

// tell sends the page, or why there is none.
func (a *agent) tell(ctx context.Context, q *wire.InspectionRequest, stream wire.Agent_SendInspectionClient) error {
	problem := a.copyPage(ctx, q, func(part []byte) error {
		return stream.Send(&wire.InspectionSection{Content: part})
	})
	if problem != nil {
		// Where it was the sending that failed, this fails too, and nobody is there to be told.
		_ = stream.Send(&wire.InspectionSection{Problem: problem.Error()})
	}
	_, err := stream.CloseAndRecv()
	return errors.Join(problem, err)
}

func (a *agent) copyPage(ctx context.Context, q *wire.InspectionRequest, send parts) error {
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

// page reads a page, which may be of any size, piece by piece.
func (a *admin) page(ctx context.Context, path string, each parts) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://envoy"+path, nil)
	if err != nil {
		return err
	}
	patient := http.Client{Transport: a.client.Transport}
	response, err := patient.Do(request)
	if err != nil {
		return fmt.Errorf("asking Envoy for %s: %w", path, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("Envoy answers %s to %s", response.Status, path)
	}
	if _, err := io.CopyBuffer(parts(each), response.Body, make([]byte, partBytes)); err != nil {
		return fmt.Errorf("reading %s of Envoy: %w", path, err)
	}
	return nil
}

// parts is where a page is written piece by piece.
type parts func([]byte) error

// Write implements io.Writer.
func (p parts) Write(part []byte) (int, error) { return len(part), p(part) }
