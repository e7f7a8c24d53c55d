package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

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

// call asks a demo service. An answer other than 200 is an error that holds it.
func call(ctx context.Context, client *http.Client, url string) (Response, error) {
	var answer Response
	r, err := get(ctx, client, url)
	if err != nil {
		return answer, err
	}
	if r.status != http.StatusOK {
		return answer, fmt.Errorf("%d %s", r.status, firstLine(string(r.body)))
	}
	return answer, json.Unmarshal(r.body, &answer)
}

// ask is a request of the demo's traffic: its server is the instance that answers.
func ask(url string) traffic.Send {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	return func(ctx context.Context) (string, error) {
		answer, err := call(ctx, client, url)
		return answer.Instance, err
	}
}
