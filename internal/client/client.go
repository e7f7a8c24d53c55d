// Package client is the client of a control plane's HTTP API, for the command line and other programs.
//
// Errors of the control plane are returned as [*resource.Error], with the detail and the problem of each field. The
// error of an unreachable control plane is an [*Unreachable].
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

	"weft/internal/audit"
	"weft/resource"
)

// maxResponse bounds the bytes of one response.
const maxResponse = 256 << 20

// Client is a client of one control plane. It is safe for concurrent use.
type Client struct {
	address string // as in the options
	base    *url.URL
	token   string
	note    string // of each write
	http    *http.Client
}

// Unreachable is the error of a control plane that did not respond.
type Unreachable struct {
	Address string
	Err     error
}

// Error implements error.
func (u *Unreachable) Error() string {
	return fmt.Sprintf("no control plane responds at %s: %v", u.Address, u.Err)
}

// Unwrap returns the cause.
func (u *Unreachable) Unwrap() error { return u.Err }

// Result is the result of a write.
type Result struct {
	Created  bool     `json:"-"`
	Changed  bool     `json:"changed"` // false if the resource was equal already
	Warnings []string `json:"warnings"`
}

// Put creates or replaces a resource.
func (c *Client) Put(ctx context.Context, o resource.Any, d resource.Descriptor) (Result, error) {
	return c.PutIfMatch(ctx, o, d, "")
}

// PutIfMatch replaces the version of a resource that has an ETag, and returns an error of the code [resource.Stale]
// where another one is stored. Without an ETag it is [Client.Put].
func (c *Client) PutIfMatch(ctx context.Context, o resource.Any, d resource.Descriptor, etag string) (Result, error) {
	body, err := resource.MarshalJSON(o, nil, d, resource.Universal)
	if err != nil {
		return Result{}, err
	}
	header := http.Header{}
	if etag != "" {
		header.Set("If-Match", etag)
	}
	response, content, err := c.send(ctx, http.MethodPut, Path(d, o.Key().Mesh, o.Key().Name), nil, header, body)
	if err != nil {
		return Result{}, err
	}
	result := Result{Created: response.StatusCode == http.StatusCreated}
	return result, json.Unmarshal(content, &result)
}

// Preview is the result that a write would have.
type Preview struct {
	Created  bool            `json:"created"`
	Changed  bool            `json:"changed"`
	Warnings []string        `json:"warnings"`
	Resource json.RawMessage `json:"resource"` // in its stored form
}

// dryRun makes a write a check without effect.
var dryRun = url.Values{"dryRun": {"true"}}

// PreviewPut returns the result that Put would have.
func (c *Client) PreviewPut(ctx context.Context, o resource.Any, d resource.Descriptor) (Preview, error) {
	body, err := resource.MarshalJSON(o, nil, d, resource.Universal)
	if err != nil {
		return Preview{}, err
	}
	response, err := c.do(ctx, http.MethodPut, Path(d, o.Key().Mesh, o.Key().Name), dryRun, body)
	if err != nil {
		return Preview{}, err
	}
	var preview Preview
	err = json.Unmarshal(response, &preview)
	return preview, err
}

// Remove deletes a resource, and returns the warnings about the deletion. A preview has the same result, and deletes
// nothing. The zone is that of the resource on global; empty: any.
func (c *Client) Remove(ctx context.Context, d resource.Descriptor, mesh, name, zone string, preview bool) ([]string,
	error) {
	query := url.Values{}
	if preview {
		maps.Copy(query, dryRun)
	}
	if zone != "" {
		query.Set("zone", zone)
	}
	content, err := c.do(ctx, http.MethodDelete, Path(d, mesh, name), query, nil)
	if err != nil {
		return nil, err
	}
	var result struct{ Warnings []string }
	err = json.Unmarshal(content, &result)
	return result.Warnings, err
}

// Delete is [Client.Remove] without the warnings.
func (c *Client) Delete(ctx context.Context, d resource.Descriptor, mesh, name string) error {
	_, err := c.Remove(ctx, d, mesh, name, "", false)
	return err
}

// Get decodes a response into a value, or copies it into a *[]byte.
func (c *Client) Get(ctx context.Context, path string, query url.Values, into any) error {
	_, err := c.Read(ctx, path, query, into)
	return err
}

// Read is [Client.Get] that also returns the ETag of the response; empty where it has none.
func (c *Client) Read(ctx context.Context, path string, query url.Values, into any) (etag string, err error) {
	response, content, err := c.send(ctx, http.MethodGet, path, query, nil, nil)
	if err != nil {
		return "", err
	}
	return response.Header.Get("ETag"), decode(content, into)
}

// Post sends a value and reads the response as Get does.
func (c *Client) Post(ctx context.Context, path string, value, into any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	response, err := c.do(ctx, http.MethodPost, path, nil, body)
	if err != nil {
		return err
	}
	return decode(response, into)
}

func decode(response []byte, into any) error {
	if raw, ok := into.(*[]byte); ok {
		*raw = response
		return nil
	}
	return json.Unmarshal(response, into)
}

// List returns all items of a list that match the filter (the API's query parameters; nil: no filter), page by page. An
// item that exists during the whole call is returned once.
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

// Path returns the path of a resource, or of the list of its kind if the name is empty. For kinds of mesh scope, an
// empty mesh means all meshes.
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

// do sends a request, and returns the body of the response. The path must be escaped.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, body []byte) ([]byte, error) {
	_, content, err := c.send(ctx, method, path, query, nil, body)
	return content, err
}

// send is [Client.do] with headers, and also returns the response, whose body has been read.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, header http.Header,
	body []byte) (*http.Response, []byte, error) {
	target := strings.TrimSuffix(c.base.String(), "/") + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(req.Header, header)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.note != "" && method != http.MethodGet {
		req.Header.Set(audit.NoteHeader, c.note)
	}
	response, err := c.http.Do(req)
	if err != nil {
		return nil, nil, c.unreachable(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return nil, nil, c.unreachable(err)
	}
	if response.StatusCode >= 300 {
		return nil, nil, responseError(response, content)
	}
	return response, content, nil
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

// responseError returns the control plane's error. For an error of a proxy in between, it has the status.
func responseError(response *http.Response, body []byte) error {
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
