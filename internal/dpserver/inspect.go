package dpserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/graph"
	"weft/internal/wire"
	"weft/resource"
)

const (
	// firstPart is how long an agent may take to begin with an answer.
	firstPart = 10 * time.Second
	// wholeAnswer is how long all of one may take.
	wholeAnswer = 50 * time.Second
	// maxAnswer is far above the configuration of any honest Envoy, in bytes.
	maxAnswer = 512 << 20
	// maxQuestions are open at once to one agent, whose connection has room for few streams.
	maxQuestions = 4
)

// Page is what Envoy's administration interface is asked for.
type Page struct {
	Page wire.Page
	// JSON asks for the page in JSON, where it is text by default.
	JSON bool
	// Endpoints asks for the configuration with the endpoints, which Envoy leaves out by default.
	Endpoints bool
}

// question is one that waits for its answer. Parts are handed over one by one, so that a reader who is
// slow holds up the agent, and nothing is collected in between.
type question struct {
	id    string
	key   graph.ProxyKey
	parts chan []byte
	done  chan error    // of one: how the answer ended
	left  chan struct{} // closed when nobody waits any more
	taken bool          // an answer is coming; guarded by the questions' lock
}

// questions are those that are open.
type questions struct {
	mu   sync.Mutex
	open map[string]*question
}

func (q *questions) ask(key graph.ProxyKey) (*question, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	same := 0
	for _, other := range q.open {
		if other.key == key {
			same++
		}
	}
	if same == maxQuestions {
		return nil, resource.Errorf(resource.Unavailable, "%d questions to the agent of %s are open; try again when one is answered", same, key)
	}
	asked := &question{id: rand.Text(), key: key, parts: make(chan []byte), done: make(chan error, 1), left: make(chan struct{})}
	q.open[asked.id] = asked
	return asked, nil
}

func (q *questions) leave(asked *question) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.open, asked.id)
	close(asked.left)
}

// take answers the question that a caller is going to answer, once; nil where there is none, or it was
// asked of another.
func (q *questions) take(id string, key graph.ProxyKey) *question {
	q.mu.Lock()
	defer q.mu.Unlock()
	asked := q.open[id]
	if asked == nil || asked.key != key || asked.taken {
		return nil
	}
	asked.taken = true
	return asked
}

// Inspect asks the agent of a proxy for a page of its Envoy's administration interface, and writes it to
// w as it comes, for at most 50 seconds. An error before anything was written says why there is no page,
// one after that why it is not whole.
func (s *Server) Inspect(ctx context.Context, key graph.ProxyKey, p Page, w io.Writer) error {
	agent := s.session(key)
	if agent == nil {
		return s.nobodyToAsk(key)
	}
	ctx, cancel := context.WithTimeout(ctx, wholeAnswer)
	defer cancel()
	asked, err := s.questions.ask(key)
	if err != nil {
		return err
	}
	defer s.questions.leave(asked)
	select {
	case agent.questions <- &wire.InspectionRequest{Id: asked.id, Page: p.Page, Json: p.JSON, Endpoints: p.Endpoints}:
	case <-agent.ended:
		return resource.Errorf(resource.Unavailable, "the agent of %s has gone; try again", key)
	case <-ctx.Done():
		return s.silent(ctx, key)
	}
	return s.copyAnswer(ctx, asked, agent, w)
}

// copyAnswer writes parts until the last one.
func (s *Server) copyAnswer(ctx context.Context, asked *question, agent *session, w io.Writer) error {
	begun := time.NewTimer(firstPart)
	defer begun.Stop()
	for {
		select {
		case part := <-asked.parts:
			begun.Stop()
			if _, err := w.Write(part); err != nil {
				return err
			}
		case err := <-asked.done:
			return err
		case <-agent.ended:
			return resource.Errorf(resource.Unavailable, "the agent of %s went while it answered; try again", asked.key)
		case <-begun.C:
			return s.silent(context.Background(), asked.key)
		case <-ctx.Done():
			return s.silent(ctx, asked.key)
		}
	}
}

func (s *Server) silent(ctx context.Context, key graph.ProxyKey) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return resource.Errorf(resource.Unavailable, "the agent of %s does not answer in time: its Envoy is busy, or the agent is older than this control plane", key)
}

// nobodyToAsk says why there is no agent to ask, and what to do.
func (s *Server) nobodyToAsk(key graph.ProxyKey) error {
	if _, ok := s.Hub.Networking(key); !ok {
		return resource.Errorf(resource.NotFound, "%s does not exist", key.Resource())
	}
	if live := s.Live(key); live.Connected {
		return resource.Errorf(resource.Conflict, "no weft-dp stands beside the Envoy of %s; ask that Envoy's own administration interface, or run it with weft-dp", key)
	}
	if instance := s.elsewhere(key); instance != "" {
		return resource.Errorf(resource.Unavailable, "the proxy %s is connected to another instance of the control plane, %s; ask that one", key, instance)
	}
	return resource.Errorf(resource.Unavailable, "the proxy %s is not connected to this control plane; start it, or try again when it is back", key)
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
	key, err := named(first)
	if err != nil {
		return err
	}
	if err := caller.names(key); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	asked := s.questions.take(first.Request, key)
	if asked == nil {
		return status.Error(codes.NotFound, "nobody waits for this answer")
	}
	err = asked.receive(stream, first)
	asked.done <- err
	if err != nil {
		return status.Error(codes.Aborted, "the answer was not taken to its end")
	}
	return stream.SendAndClose(&wire.InspectionAck{})
}

// receive hands over what comes. It answers nil at the end of a whole answer, and otherwise an error for
// who asked.
func (q *question) receive(stream wire.Agent_SendInspectionServer, part *wire.InspectionSection) error {
	for size := 0; ; {
		if part.Problem != "" {
			return resource.Errorf(resource.Unavailable, "the agent of %s: %s", q.key, brief(part.Problem))
		}
		if size += len(part.Content); size > maxAnswer {
			return resource.Errorf(resource.Unavailable, "the answer of %s is longer than %d bytes", q.key, maxAnswer)
		}
		if len(part.Content) > 0 {
			select {
			case q.parts <- part.Content:
			case <-q.left:
				return errors.New("nobody waits any more")
			case <-stream.Context().Done():
				return q.broken()
			}
		}
		var err error
		if part, err = stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return q.broken()
		}
	}
}

func (q *question) broken() error {
	return resource.Errorf(resource.Unavailable, "the agent of %s broke off its answer; try again", q.key)
}

// brief is as much as is repeated of what a proxy says.
func brief(said string) string {
	const enough = 1 << 10
	return strings.ToValidUTF8(fmt.Sprintf("%.*s", enough, said), "")
}
