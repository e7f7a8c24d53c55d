package rest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"

	"weft/internal/access"
	"weft/internal/state"
	"weft/internal/zonequery"
	"weft/resource"
)

// UnknownReplica is another replica that has not responded.
type UnknownReplica struct {
	Instance string `json:"instance"`
	Reason   string `json:"reason"`
}

// queriesReplicas reports whether a response has what the other replicas know: not that to another replica.
func (a *api) queriesReplicas(r *http.Request) bool {
	return a.Replicas != nil && access.UserOf(r.Context()).Proof != access.ByReplica
}

// replicaOf returns the other replica to which a proxy is connected, or "".
func (a *api) replicaOf(r *http.Request, key state.ProxyKey) string {
	if !a.queriesReplicas(r) {
		return ""
	}
	live := a.Connections.Live(key)
	if live.Connected {
		return ""
	}
	return live.OtherInstance
}

const (
	// replicaTimeout is the time for the document of another replica, which reads its own state.
	replicaTimeout = 10 * time.Second
	// pageTimeout is the time for a page of an Envoy that another replica sends: longer than that replica waits for it.
	pageTimeout = 55 * time.Second
)

// copyFrom writes the response of another replica, as it arrives.
func (a *api) copyFrom(w http.ResponseWriter, r *http.Request, replica string, action access.Action) error {
	ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
	defer cancel()
	response, err := a.Replicas.Read(ctx, replica, readOf(r, action))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
	w.WriteHeader(response.StatusCode)
	if _, err := io.Copy(w, response.Body); err != nil {
		a.Log.Warn("a response of another replica broke off", "replica", replica, "path", r.URL.Path, "error", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

// readReplicas reads the same document of each other replica at once, and passes each to use, one at a time. It returns
// the replicas without a response, in the order of their IDs.
func readReplicas[T any](a *api, r *http.Request, q zonequery.Read, use func(replica string, document *T),
) []UnknownReplica {
	others := a.Replicas.Others()
	documents, errs := make([]T, len(others)), make([]error, len(others))
	var reads sync.WaitGroup
	for i, replica := range others {
		reads.Go(func() { errs[i] = a.readReplica(r, replica, q, &documents[i]) })
	}
	reads.Wait()
	var unknown []UnknownReplica
	for i, replica := range others {
		if errs[i] != nil {
			unknown = append(unknown, UnknownReplica{replica, a.problemOf(errs[i])})
			continue
		}
		use(replica, &documents[i])
	}
	return unknown
}

// readReplica reads a document of another replica.
func (a *api) readReplica(r *http.Request, replica string, q zonequery.Read, into any) error {
	ctx, cancel := context.WithTimeout(r.Context(), replicaTimeout)
	defer cancel()
	response, err := a.Replicas.Read(ctx, replica, q)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		var p problem
		_ = json.NewDecoder(response.Body).Decode(&p) // the reason is empty then
		return resource.Errorf(resource.Unavailable, "the replica %s: %s", replica, p.Detail)
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return resource.Errorf(resource.Unavailable, "the response of the replica %s: %s", replica, err)
	}
	return nil
}
