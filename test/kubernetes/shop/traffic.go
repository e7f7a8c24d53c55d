package shop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"weft/internal/demo"
	"weft/internal/testwait"
	"weft/internal/traffic"
)

// Load is the load of a client.
type Load struct {
	PerSecond int           // requests a second
	Timeout   time.Duration // of each request
}

// The loads of tests and drills. Beside other programs, two cores have no capacity for the load of drills.
var (
	Test  = Load{50, testwait.Timeout}
	Drill = Load{1000, 5 * time.Second}
)

// Stream is the traffic of a client's Pod to a URL.
type Stream struct {
	Pod string // its address
	URL string
}

// Start starts requests from the Pod to the URL, until Stop.
func (s Stream) Start(ctx context.Context, l Load) error {
	_, err := s.request(ctx, http.MethodPost, url.Values{"rate": {strconv.Itoa(l.PerSecond)},
		"timeout": {l.Timeout.String()}})
	return err
}

// Stop ends the requests, and returns their results by the text of the response.
func (s Stream) Stop(ctx context.Context) (traffic.Tally, error) {
	var tally traffic.Tally
	text, err := s.request(ctx, http.MethodDelete, url.Values{})
	if err == nil {
		err = json.Unmarshal(text, &tally)
	}
	if err != nil {
		return tally, fmt.Errorf("the traffic of %s to %s: %w", s.Pod, s.URL, err)
	}
	return tally, nil
}

// request sends a request to the generator in the Pod.
func (s Stream) request(ctx context.Context, method string, query url.Values) ([]byte, error) {
	query.Set("url", s.URL)
	request, err := http.NewRequestWithContext(ctx, method, "http://"+s.Pod+":8080/traffic?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status + ": " + strings.TrimSpace(string(body)))
	}
	return body, err
}

// Check decodes the responses of a tally, and returns it by the servers' instances. A response that the check rejects
// counts as failed.
func Check(tally traffic.Tally, check func(demo.Response) error) (traffic.Tally, error) {
	responses := map[string]int{}
	for text, n := range tally.Responses {
		var of demo.Response
		if err := json.Unmarshal([]byte(text), &of); err != nil {
			return tally, fmt.Errorf("the response %q: %w", text, err)
		}
		if err := check(of); err != nil {
			tally.Failed[err.Error()] += n
			continue
		}
		responses[of.Instance] += n
	}
	tally.Responses = responses
	return tally, nil
}

// stream is the traffic of the client to the server.
func (s *Shop) stream() Stream { return Stream{s.Client, Web} }

// Start starts requests from the client's Pod to the server, until Stop.
func (s *Shop) Start(ctx context.Context, l Load) error { return s.stream().Start(ctx, l) }

// Stop ends the requests, and returns their results by the server's instance. A response counts as failed if the
// server's proxy has not verified the client.
func (s *Shop) Stop(ctx context.Context) (traffic.Tally, error) {
	tally, err := s.stream().Stop(ctx)
	if err != nil {
		return tally, err
	}
	return Check(tally, s.verified)
}

// SendDuring sends requests while something happens, and returns their results. An error of the event comes first.
func (s *Shop) SendDuring(ctx context.Context, l Load, event func() error) (traffic.Tally, error) {
	if err := s.Start(ctx, l); err != nil {
		return traffic.Tally{}, err
	}
	failed := event()
	tally, err := s.Stop(ctx)
	return tally, errors.Join(failed, err)
}
