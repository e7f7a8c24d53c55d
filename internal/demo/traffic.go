package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"weft/internal/demo/console"
	"weft/internal/traffic"
)

// reply is an HTTP response, read to its end.
type reply struct {
	status int
	body   []byte
}

func get(ctx context.Context, client *http.Client, url string) (reply, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return reply{}, err
	}
	response, err := client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, body}, err
}

// call sends a request to a demo service. A status other than 200 is an error with the first line of the body.
func call(ctx context.Context, client *http.Client, url string) (Response, error) {
	var response Response
	r, err := get(ctx, client, url)
	if err != nil {
		return response, err
	}
	if r.status != http.StatusOK {
		return response, fmt.Errorf("%d %s", r.status, console.FirstLine(string(r.body)))
	}
	return response, json.Unmarshal(r.body, &response)
}

// trafficTo returns a function that sends a request of the demo's traffic and returns the instance that responds.
func trafficTo(url string) traffic.Send {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	return func(ctx context.Context) (string, error) {
		response, err := call(ctx, client, url)
		return response.Instance, err
	}
}
