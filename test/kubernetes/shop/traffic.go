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
	"weft/internal/traffic"
)

// Load is the load of a client.
type Load struct {
	PerSecond int           // requests a second
	Timeout   time.Duration // of each request
}

// The loads of tests and drills. Beside other programs, two cores have no capacity for the load of drills.
var (
	Test  = Load{50, 20 * time.Second}
	Drill = Load{1000, 5 * time.Second}
)

// Start starts requests from the client's Pod to the server, until Stop.
func (s *Shop) Start(ctx context.Context, l Load) error {
	_, err := s.traffic(ctx, http.MethodPost, url.Values{"url": {Web}, "rate": {strconv.Itoa(l.PerSecond)},
		"timeout": {l.Timeout.String()}})
	return err
}

// Stop ends the requests, and returns their results by the server's instance. A response counts as failed if the
// server's proxy has not verified the client.
func (s *Shop) Stop(ctx context.Context) (traffic.Tally, error) {
	var tally traffic.Tally
	text, err := s.traffic(ctx, http.MethodDelete, nil)
	if err == nil {
		err = json.Unmarshal(text, &tally)
	}
	if err != nil {
		return tally, fmt.Errorf("the traffic of %s: %w", s.Client, err)
	}
	responses := map[string]int{}
	for text, n := range tally.Responses {
		var of demo.Response
		if err := json.Unmarshal([]byte(text), &of); err != nil {
			return tally, fmt.Errorf("the response %q: %w", text, err)
		}
		if of.Client != s.ID("client") {
			tally.Failed[fmt.Sprintf("the proxy of %s sees the client %q", of.Instance, of.Client)] += n
			continue
		}
		responses[of.Instance] += n
	}
	tally.Responses = responses
	return tally, nil
}

// traffic sends a request to the generator in the client's Pod.
func (s *Shop) traffic(ctx context.Context, method string, query url.Values) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+s.Client+":8080/traffic?"+query.Encode(), nil)
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

// During sends requests while something happens, and returns their results. An error of the event comes first.
func (s *Shop) During(ctx context.Context, l Load, event func() error) (traffic.Tally, error) {
	if err := s.Start(ctx, l); err != nil {
		return traffic.Tally{}, err
	}
	failed := event()
	tally, err := s.Stop(ctx)
	return tally, errors.Join(failed, err)
}
