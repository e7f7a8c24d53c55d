package envoytest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"weft/internal/testwait"
	"weft/internal/xds"
)

// What an Envoy may pay for some resources: a fixed part, so that one resource alone may be large, and a part for each.
const (
	memoryMost, memoryEach = 48 << 20, 128 << 10                           // bytes
	cpuMost, cpuEach       = 30 * time.Millisecond, 300 * time.Microsecond // of a second without traffic
	startMost              = 5 * time.Second                               // CPU until it responds
)

// Costly returns the resources for which an Envoy that runs them without traffic pays more memory or CPU than a proxy
// should. Clusters have 30 endpoints that accept no connection, and those with health checks the number checked: the
// bound of checks counts the endpoints of a service.
func (e *Envoy) Costly(resources []*xds.Resource, checked int) ([]Rejection, error) {
	base, err := e.cost(nil, checked)
	if err != nil {
		return nil, err
	}
	return halves(resources, func(some []*xds.Resource) (string, error) {
		paid, err := e.cost(some, checked)
		n := len(some)
		switch {
		case err != nil:
			return "", err
		case paid.start > startMost:
			return fmt.Sprintf("%s of CPU before it responds", paid.start), nil
		case paid.memory > base.memory+memoryMost+uint64(n)*memoryEach:
			return fmt.Sprintf("%d MB of memory, and %d MB without it", paid.memory>>20, base.memory>>20), nil
		case paid.cpu > cpuMost+time.Duration(n)*cpuEach:
			return fmt.Sprintf("%s of CPU in a second without traffic", paid.cpu), nil
		}
		return "", nil
	}, func(string) error { return nil }) // many that cost a little
}

// paid is what an Envoy pays.
type paid struct {
	memory     uint64 // bytes that it has allocated
	start, cpu time.Duration
}

// cost runs an Envoy with resources for a moment.
func (e *Envoy) cost(resources []*xds.Resource, checked int) (paid, error) {
	bootstrap, err := bootstrapOf(resources)
	if err != nil {
		return paid{}, err
	}
	for _, cluster := range bootstrap.StaticResources.Clusters[len(bootstrapClusters):] {
		runnable(cluster, checked)
	}
	socket := filepath.Join(e.directory, "admin.sock")
	bootstrap.Admin = &bootstrapv3.Admin{Address: &corev3.Address{Address: &corev3.Address_Pipe{
		Pipe: &corev3.Pipe{Path: socket}}}}
	path, err := e.write(bootstrap)
	if err != nil {
		return paid{}, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cmd := exec.CommandContext(ctx, e.binary, "-l", "error", "--use-dynamic-base-id", "--concurrency", "1", "-c", path)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return paid{}, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	admin := &http.Client{Timeout: testwait.Input(time.Second, "a busy Envoy does not respond, and its CPU decides"),
		Transport: &http.Transport{DialContext: dial}}
	defer admin.CloseIdleConnections()
	for _, err = allocated(admin); err != nil; _, err = allocated(admin) {
		if used := cpuOf(cmd.Process.Pid); used > startMost {
			cancel()
			<-ended
			return paid{start: used}, nil
		}
		select {
		case <-ended:
			return paid{}, fmt.Errorf("Envoy ended: %s", cutReason([]byte(out.String())))
		case <-time.After(testwait.Input(20*time.Millisecond, "between two attempts")):
		}
	}
	result := paid{start: cpuOf(cmd.Process.Pid)}
	testwait.Pass(time.Second, "the CPU of this time is measured")
	result.cpu = cpuOf(cmd.Process.Pid) - result.start
	result.memory, err = allocated(admin)
	cancel()
	<-ended
	return result, err
}

// runnable gives a cluster whose endpoints are discovered some, and no secret to wait for.
func runnable(cluster *clusterv3.Cluster, checked int) {
	if cluster.GetType() != clusterv3.Cluster_EDS || cluster.GetClusterType() != nil {
		return
	}
	cluster.TransportSocketMatches = nil
	cluster.TransportSocket = &corev3.TransportSocket{Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed(&tlsv3.UpstreamTlsContext{})}}
	cluster.EdsClusterConfig = nil
	cluster.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
	locality, endpoints := &endpointv3.LocalityLbEndpoints{}, 30
	if len(cluster.HealthChecks) > 0 {
		endpoints = checked
	}
	for i := range endpoints {
		locality.LbEndpoints = append(locality.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address:       fmt.Sprintf("127.255.255.%d", i+1),
					PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 1},
				}}}}}})
	}
	cluster.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: cluster.Name,
		Endpoints: []*endpointv3.LocalityLbEndpoints{locality}}
}

// allocated returns the memory that an Envoy has allocated.
func allocated(admin *http.Client) (uint64, error) {
	response, err := admin.Get("http://admin/memory")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var memory struct {
		Allocated uint64 `json:"allocated,string"`
	}
	return memory.Allocated, json.NewDecoder(response.Body).Decode(&memory)
}

// cpuOf returns the CPU that a process has used, in user and system mode (proc(5), stat); 0 for none.
func cpuOf(pid int) time.Duration {
	const ticks = 100 // a second
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / ticks
}
