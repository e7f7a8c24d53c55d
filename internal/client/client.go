// Package client speaks to the HTTP API of a control plane for the command line and its relatives.
//
// Errors of the control plane come back as [*resource.Error], with its detail and the problem of each
// field. A control plane that cannot be reached is an [*Unreachable].
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"weft/resource"
)

// largestAnswer bounds what is read of one answer.
const largestAnswer = 256 << 20

// Client speaks to one control plane. It may be used at the same time by many.
type Client struct {
	address string // as it was named
	base    *url.URL
	token   string
	http    *http.Client
}

// Unreachable says that nobody answered at the control plane's address.
type Unreachable struct {
	Address string
	Err     error
}

// Error implements error.
func (u *Unreachable) Error() string {
	return fmt.Sprintf("no control plane answers at %s: %v", u.Address, u.Err)
}

// Unwrap answers what went wrong below.
func (u *Unreachable) Unwrap() error { return u.Err }

// Result is what became of a write.
type Result struct {
	Created  bool     `json:"-"`
	Changed  bool     `json:"changed"` // false where the resource was as wanted already
	Warnings []string `json:"warnings"`
}

// Put writes a resource, new or not.
func (c *Client) Put(ctx context.Context, o resource.Any, d resource.Descriptor) (Result, error) {
	body, err := resource.MarshalJSON(o, nil, d, resource.Universal)
	if err != nil {
		return Result{}, err
	}
	status, answer, err := c.do(ctx, http.MethodPut, Path(d, o.Key().Mesh, o.Key().Name), nil, body)
	if err != nil {
		return Result{}, err
	}
	result := Result{Created: status == http.StatusCreated}
	return result, json.Unmarshal(answer, &result)
}

// Preview is what a write would come to.
type Preview struct {
	Created  bool            `json:"created"`
	Changed  bool            `json:"changed"`
	Warnings []string        `json:"warnings"`
	Resource json.RawMessage `json:"resource"` // as it would be stored
}

// dryRun has a write checked and answered, and nothing written.
var dryRun = url.Values{"dryRun": {"true"}}

// PreviewPut answers what Put would do.
func (c *Client) PreviewPut(ctx context.Context, o resource.Any, d resource.Descriptor) (Preview, error) {
	body, err := resource.MarshalJSON(o, nil, d, resource.Universal)
	if err != nil {
		return Preview{}, err
	}
	_, answer, err := c.do(ctx, http.MethodPut, Path(d, o.Key().Mesh, o.Key().Name), dryRun, body)
	if err != nil {
		return Preview{}, err
	}
	var preview Preview
	err = json.Unmarshal(answer, &preview)
	return preview, err
}

// PreviewDelete answers the error of Delete, and removes nothing.
func (c *Client) PreviewDelete(ctx context.Context, d resource.Descriptor, mesh, name string) error {
	_, _, err := c.do(ctx, http.MethodDelete, Path(d, mesh, name), dryRun, nil)
	return err
}

// Delete removes a resource.
func (c *Client) Delete(ctx context.Context, d resource.Descriptor, mesh, name string) error {
	_, _, err := c.do(ctx, http.MethodDelete, Path(d, mesh, name), nil, nil)
	return err
}

// Get reads an answer into a value, or as it is into a *[]byte.
func (c *Client) Get(ctx context.Context, path string, query url.Values, into any) error {
	_, answer, err := c.do(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return err
	}
	return read(answer, into)
}

// Post sends a value and reads the answer as Get does.
func (c *Client) Post(ctx context.Context, path string, value, into any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, answer, err := c.do(ctx, http.MethodPost, path, nil, body)
	if err != nil {
		return err
	}
	return read(answer, into)
}

func read(answer []byte, into any) error {
	if raw, ok := into.(*[]byte); ok {
		*raw = answer
		return nil
	}
	return json.Unmarshal(answer, into)
}

// List reads all items of a list that the filter keeps (the API's query parameters; nil: every one), page
// after page. What is there all the time is seen once.
func (c *Client) List(ctx context.Context, path string, filter url.Values) ([]json.RawMessage, error) {
	var items []json.RawMessage
	query := url.Values{}
	maps.Copy(query, filter)
	query.Set("size", "1000")
	for {
		var page struct {
			Items []json.RawMessage `json:"items"`
			Next  *string           `json:"next"`
		}
		if err := c.Get(ctx, path, query, &page); err != nil {
			return nil, err
		}
		items = append(items, page.Items...)
		if page.Next == nil {
			return items, nil
		}
		next, err := url.Parse(*page.Next)
		if err != nil {
			return nil, fmt.Errorf("the control plane's list goes on at %q: %w", *page.Next, err)
		}
		query = next.Query()
	}
}

// Path answers the path of a resource, or of the list of its kind where the name is empty; for kinds of
// mesh scope an empty mesh means all meshes.
func Path(d resource.Descriptor, mesh, name string) string {
	info := d.Describe()
	path := "/" + info.Plural
	if info.Scope == resource.Mesh && mesh != "" {
		path = "/meshes/" + url.PathEscape(mesh) + path
	}
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}

// do sends a request. Path is escaped already.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, body []byte) (int, []byte, error) {
	target := strings.TrimSuffix(c.base.String(), "/") + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(req)
	if err != nil {
		return 0, nil, c.unreachable(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, largestAnswer))
	if err != nil {
		return 0, nil, c.unreachable(err)
	}
	if response.StatusCode >= 300 {
		return 0, nil, refusal(response, answer)
	}
	return response.StatusCode, answer, nil
}

func (c *Client) unreachable(err error) error {
	return &Unreachable{Address: c.address, Err: explained(err, c.base.Scheme == "https")}
}

var codeOf = map[int]resource.Code{
	http.StatusBadRequest:         resource.Invalid,
	http.StatusUnauthorized:       resource.Unauthorized,
	http.StatusForbidden:          resource.Forbidden,
	http.StatusNotFound:           resource.NotFound,
	http.StatusConflict:           resource.Conflict,
	http.StatusPreconditionFailed: resource.Stale,
	http.StatusServiceUnavailable: resource.Unavailable,
}

// refusal reads the control plane's error. One that is not its own (of a proxy in between) shows its
// status.
func refusal(response *http.Response, body []byte) error {
	var problem struct {
		Title             string            `json:"title"`
		Detail            string            `json:"detail"`
		InvalidParameters resource.Problems `json:"invalid_parameters"`
	}
	if err := json.Unmarshal(body, &problem); err != nil {
		return resource.Errorf(codeOf[response.StatusCode], "%s answered %s, which is no answer of a control plane",
			response.Request.URL.Host, response.Status)
	}
	return &resource.Error{
		Code:     codeOf[response.StatusCode],
		Detail:   cmp.Or(problem.Detail, problem.Title, response.Status),
		Problems: problem.InvalidParameters,
	}
}
