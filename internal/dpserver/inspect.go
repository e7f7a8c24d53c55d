package dpserver

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/state"
	"weft/internal/wire"
	"weft/resource"
)

const (
	// firstSectionTimeout is how long an agent may take to send the first section of a response.
	firstSectionTimeout = 10 * time.Second
	// inspectionTimeout is how long an agent may take for a whole response.
	inspectionTimeout = 50 * time.Second
	// maxInspectionBytes is far above the configuration of any honest Envoy.
	maxInspectionBytes = 512 << 20
	// maxInspections is the maximum of open requests to one agent, whose connection allows few streams.
	maxInspections = 4
)

// Page is a page of Envoy's administration interface.
type Page struct {
	Page wire.Page
	// JSON requests the page in JSON; the default is text.
	JSON bool
	// Endpoints requests the configuration with endpoints, which Envoy leaves out by default.
	Endpoints bool
}

// inspectionRequest is an open request to an agent. Sections are passed on one at a time, so a slow reader slows down
// the agent, and nothing is collected in between.
type inspectionRequest struct {
	id        string
	key       state.ProxyKey
	sections  chan []byte
	done      chan error    // of one value: the error at the end of the response, or nil
	abandoned chan struct{} // closed when the reader has stopped waiting
	claimed   bool          // a response has begun; guarded by the lock of inspections
}

// inspections are the open requests.
type inspections struct {
	mu   sync.Mutex
	open map[string]*inspectionRequest
}

func (q *inspections) add(key state.ProxyKey) (*inspectionRequest, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	same := 0
	for _, other := range q.open {
		if other.key == key {
			same++
		}
	}
	if same == maxInspections {
		return nil,
			resource.Errorf(resource.Unavailable,
				"%d inspections by the agent of %s are open; try again when one is finished", same, key)
	}
	request := &inspectionRequest{id: rand.Text(), key: key, sections: make(chan []byte), done: make(chan error, 1),
		abandoned: make(chan struct{})}
	q.open[request.id] = request
	return request, nil
}

func (q *inspections) remove(request *inspectionRequest) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.open, request.id)
	close(request.abandoned)
}

// claim returns the open request that an agent responds to, once. It returns nil where there is none, or it was sent to
// another agent.
func (q *inspections) claim(id string, key state.ProxyKey) *inspectionRequest {
	q.mu.Lock()
	defer q.mu.Unlock()
	request := q.open[id]
	if request == nil || request.key != key || request.claimed {
		return nil
	}
	request.claimed = true
	return request
}

// Inspect requests a page of a proxy's Envoy from its agent, and writes it to w as it arrives, for at most 50 seconds.
// An error before the first write is the reason why there is no page; after it, the page is incomplete.
func (s *Server) Inspect(ctx context.Context, key state.ProxyKey, p Page, w io.Writer) error {
	agent := s.sessionOf(key)
	if agent == nil {
		return s.errNoAgent(key)
	}
	ctx, cancel := context.WithTimeout(ctx, inspectionTimeout)
	defer cancel()
	request, err := s.inspections.add(key)
	if err != nil {
		return err
	}
	defer s.inspections.remove(request)
	select {
	case agent.inspections <- &wire.InspectionRequest{Id: request.id, Page: p.Page, Json: p.JSON,
		Endpoints: p.Endpoints}:
	case <-agent.ended:
		return resource.Errorf(resource.Unavailable, "the agent of %s has disconnected; try again", key)
	case <-ctx.Done():
		return s.errInspectionTimeout(ctx, key)
	}
	return s.copySections(ctx, request, agent, w)
}

// copySections writes sections to w until the last one.
func (s *Server) copySections(ctx context.Context, request *inspectionRequest, agent *session, w io.Writer) error {
	begun := time.NewTimer(firstSectionTimeout)
	defer begun.Stop()
	for {
		select {
		case part := <-request.sections:
			begun.Stop()
			if _, err := w.Write(part); err != nil {
				return err
			}
		case err := <-request.done:
			return err
		case <-agent.ended:
			return resource.Errorf(resource.Unavailable, "the agent of %s disconnected during its response; try again",
				request.key)
		case <-begun.C:
			return s.errInspectionTimeout(context.Background(), request.key)
		case <-ctx.Done():
			return s.errInspectionTimeout(ctx, request.key)
		}
	}
}

func (s *Server) errInspectionTimeout(ctx context.Context, key state.ProxyKey) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return resource.Errorf(resource.Unavailable,
		"the agent of %s does not respond in time: its Envoy is busy, or the agent is older than this control plane",
		key)
}

// errNoAgent returns the reason why no agent is connected, and the remedy.
func (s *Server) errNoAgent(key state.ProxyKey) error {
	if _, ok := s.Rows.Networking(key); !ok {
		return resource.Errorf(resource.NotFound, "%s does not exist", key.Resource())
	}
	if live := s.Live(key); live.Connected {
		return resource.Errorf(resource.Conflict,
			"no weft-dp runs beside the Envoy of %s; use that Envoy's own administration interface, or run it "+
				"with weft-dp", key)
	}
	if instance := s.otherInstance(key); instance != "" {
		return resource.Errorf(resource.Unavailable,
			"the proxy %s is connected to another instance of the control plane, %s; use that one", key, instance)
	}
	return resource.Errorf(resource.Unavailable,
		"the proxy %s is not connected to this control plane; start it, or try again when it is back", key)
}

// SendInspection implements wire.AgentServer.
func (s *agents) SendInspection(stream wire.Agent_SendInspectionServer) error {
	caller, err := s.caller(stream.Context())
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := checkMessage(first); err != nil {
		return err
	}
	key, err := proxyKeyOf(first)
	if err != nil {
		return err
	}
	if err := s.permit(stream.Context(), caller, key); err != nil {
		return err
	}
	request := s.inspections.claim(first.Request, key)
	if request == nil {
		return status.Error(codes.NotFound, "no open request waits for this response")
	}
	err = request.receive(stream, first)
	request.done <- err
	if err != nil {
		return status.Error(codes.Aborted, "the response was not read to its end")
	}
	return stream.SendAndClose(&wire.InspectionAck{})
}

// receive passes on the sections of a response. It returns nil at the end of a complete response, otherwise an error
// for the reader.
func (q *inspectionRequest) receive(stream wire.Agent_SendInspectionServer, part *wire.InspectionSection) error {
	for size := 0; ; {
		if part.Problem != "" {
			return resource.Errorf(resource.Unavailable, "the agent of %s: %s", q.key, truncated(part.Problem))
		}
		if size += len(part.Content); size > maxInspectionBytes {
			return resource.Errorf(resource.Unavailable, "the response of %s is longer than %d bytes", q.key,
				maxInspectionBytes)
		}
		if len(part.Content) > 0 {
			select {
			case q.sections <- part.Content:
			case <-q.abandoned:
				return errors.New("the reader has stopped waiting")
			case <-stream.Context().Done():
				return q.errBroken()
			}
		}
		var err error
		if part, err = stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return q.errBroken()
		}
	}
}

func (q *inspectionRequest) errBroken() error {
	return resource.Errorf(resource.Unavailable, "the agent of %s broke off its response; try again", q.key)
}

// truncated returns the first KiB of a proxy's message, as one printable line.
func truncated(said string) string { return resource.PrintableLine(said, 1<<10) }
