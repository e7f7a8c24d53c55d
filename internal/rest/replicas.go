package rest

import (
	"encoding/json"
	"io"
	"net/http"

	"weft/internal/access"
	"weft/internal/state"
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

// copyFrom writes the response of another replica, as it arrives.
func (a *api) copyFrom(w http.ResponseWriter, r *http.Request, replica string, action access.Action) error {
	response, err := a.Replicas.Read(r.Context(), replica, readOf(r, action))
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

// readReplica reads a document of another replica.
func (a *api) readReplica(r *http.Request, replica string, action access.Action, into any) error {
	response, err := a.Replicas.Read(r.Context(), replica, readOf(r, action))
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
