package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"weft/internal/replica"
	"weft/internal/replicaquery"
	"weft/internal/rest"
	"weft/internal/wire"
	"weft/internal/zonequery"
	"weft/resource"
)

const (
	// zoneRequestPath is the path at which a replica of global takes requests for the zones that are connected to it.
	zoneRequestPath = "/zone-requests"
	// readHeader has the caller of a read and the action that the other replica permitted, as JSON.
	readHeader = "Weft-Read"
	// maxZoneRequest is the size of the largest request for a zone, a change to compare, or of its response.
	maxZoneRequest = 9 << 20
)

// replicaQueries are the queries between this replica and the others.
type replicaQueries struct {
	*replicaquery.Peers
	member *replica.Member
}

// buildReplicaQueries makes the queries between replicas that share a store.
func (s *Server) buildReplicaQueries(ctx context.Context) error {
	if s.ports.replicas == nil {
		return nil
	}
	ca, err := s.ownCA(ctx)
	if err != nil {
		return err
	}
	peers, err := replicaquery.New(replicaquery.Config{Instance: s.instance, CA: ca, Now: time.Now,
		AddressOf: s.replica.QueryAddressOf})
	if err != nil {
		return err
	}
	s.replicas = &replicaQueries{peers, s.replica}
	return nil
}

// queryAddress returns the address at which other replicas reach this one, or "".
func (s *Server) queryAddress() string {
	if s.ports.replicas == nil {
		return ""
	}
	host := s.settings.ReplicaQueries.Address
	if host == "" {
		host = "127.0.0.1" // the replicas are on this machine
		if all := machineAddresses(); len(all) > 0 {
			host = all[0]
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(s.ports.replicas.Addr().(*net.TCPAddr).Port))
}

// serveReplicas serves the other replicas until ctx ends. zones are those that are connected to this replica of global;
// nil in a zone.
func (s *Server) serveReplicas(ctx context.Context, zones *zonequery.Global) {
	if s.replicas == nil {
		return
	}
	reads, mux := rest.NewReads(s.apiConfig()), http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		var q zonequery.Read
		if err := json.Unmarshal([]byte(r.Header.Get(readHeader)), &q); err != nil {
			http.Error(w, readHeader+": "+err.Error(), http.StatusBadRequest)
			return
		}
		q.Path, q.Query = r.URL.EscapedPath(), r.URL.RawQuery
		reads.ServeReplica(w, r, replicaquery.Caller(r), q)
	})
	if zones != nil {
		mux.HandleFunc("POST "+zoneRequestPath, func(w http.ResponseWriter, r *http.Request) {
			forwardHere(zones, w, r)
		})
	}
	secured := tls.NewListener(s.ports.replicas, s.replicas.ServerTLS())
	s.group.Go(func() error { return serveHTTP(ctx, secured, mux, s.denials) })
}

// forwardHere responds to a request for a zone with the zone's response.
func forwardHere(zones *zonequery.Global, w http.ResponseWriter, r *http.Request) {
	var q wire.ZoneRequest
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxZoneRequest))
	if err == nil {
		err = proto.Unmarshal(body, &q)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	response, err := zones.Here(r.Context(), &q)
	if err == nil {
		body, err = proto.Marshal(response)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/protobuf")
	_, _ = w.Write(body) // the replica may be gone
}

// Others implements rest.Replicas.
func (q *replicaQueries) Others() []string {
	return slices.DeleteFunc(q.member.Live(), func(id string) bool { return id == q.member.ID() })
}

// Read implements rest.Replicas.
func (q *replicaQueries) Read(ctx context.Context, instance string, read zonequery.Read) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, read.Path+"?"+read.Query, http.NoBody)
	if err != nil {
		return nil, err
	}
	header, err := json.Marshal(zonequery.Read{Action: read.Action, User: read.User, Groups: read.Groups})
	if err != nil {
		return nil, err
	}
	r.Header.Set(readHeader, string(header))
	return q.Do(r, instance)
}

// forward sends a request for a zone to the replica to which the zone is connected.
func (s *Server) forward(ctx context.Context, instance string, q *wire.ZoneRequest) (*wire.ZoneResponse, error) {
	if s.replicas == nil {
		return nil, resource.Errorf(resource.Unavailable, "the zone %s is connected to the replica %s", q.Zone,
			instance)
	}
	body, err := proto.Marshal(q)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, zoneRequestPath, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := s.replicas.Do(r, instance)
	if err != nil {
		return nil, resource.Errorf(resource.Unavailable, "the zone %s cannot be queried: it is connected to another "+
			"replica of the global control plane, and %s", q.Zone, err)
	}
	defer response.Body.Close()
	if body, err = io.ReadAll(io.LimitReader(response.Body, maxZoneRequest+1)); err != nil {
		return nil, resource.Errorf(resource.Unavailable, "the response of the replica %s: %s", instance, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, resource.Errorf(resource.Unavailable, "%s", bytes.TrimSpace(body))
	}
	var result wire.ZoneResponse
	if err := proto.Unmarshal(body, &result); err != nil {
		return nil, resource.Errorf(resource.Unavailable, "the response of the replica %s: %s", instance, err)
	}
	return &result, nil
}
