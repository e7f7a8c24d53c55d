package agent

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"syscall"
	"time"

	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	downstreamconnectionsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	fixedheapv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/fixed_heap/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	connectionsMonitor = "envoy.resource_monitors.global_downstream_max_connections"
	heapMonitor        = "envoy.resource_monitors.fixed_heap"

	// heapRefresh is how often Envoy compares its heap with the bound.
	heapRefresh = 250 * time.Millisecond
	// trackedStream is the power of two of the bytes from which a stream is reset when memory is short.
	trackedStream = 17

	// leastMemory is the least bound that an Envoy works with: it has about 60 MiB without any traffic.
	leastMemory = 128 << 20
)

// Shares of the memory bound at which Envoy begins to act. Up to memoryShrink it does nothing.
const (
	memoryShrink   = 0.80 // returns free memory to the system
	memoryReset    = 0.85 // resets the requests with the most buffered bytes, all of them at memoryResetAll
	memoryResetAll = 0.95
	memoryRequests = 0.95 // new requests get 503
	memoryConnects = 0.98 // new connections are closed
)

// overloadManager bounds Envoy's connections by the open files that it may have, and its heap by bytes; 0 is no bound.
func overloadManager(bytes uint64) (*overloadv3.OverloadManager, error) {
	limit, err := connectionLimit()
	if err != nil {
		return nil, err
	}
	manager := &overloadv3.OverloadManager{RefreshInterval: durationpb.New(heapRefresh)}
	if err := monitor(manager, connectionsMonitor, limit); err != nil || bytes == 0 {
		return manager, err
	}
	if err := monitor(manager, heapMonitor, &fixedheapv3.FixedHeapConfig{MaxHeapSizeBytes: bytes}); err != nil {
		return nil, err
	}
	manager.BufferFactoryConfig = &overloadv3.BufferFactoryConfig{MinimumAccountToTrackPowerOfTwo: trackedStream}
	manager.Actions = []*overloadv3.OverloadAction{
		{Name: "envoy.overload_actions.shrink_heap", Triggers: above(memoryShrink)},
		{Name: "envoy.overload_actions.reset_high_memory_stream", Triggers: []*overloadv3.Trigger{{
			Name: heapMonitor, TriggerOneof: &overloadv3.Trigger_Scaled{Scaled: &overloadv3.ScaledTrigger{
				ScalingThreshold: memoryReset, SaturationThreshold: memoryResetAll,
			}},
		}}},
		{Name: "envoy.overload_actions.stop_accepting_requests", Triggers: above(memoryRequests)},
		{Name: "envoy.overload_actions.reject_incoming_connections", Triggers: above(memoryConnects)},
	}
	return manager, nil
}

func monitor(manager *overloadv3.OverloadManager, name string, config proto.Message) error {
	packed, err := anypb.New(config)
	if err != nil {
		return err
	}
	manager.ResourceMonitors = append(manager.ResourceMonitors, &overloadv3.ResourceMonitor{
		Name: name, ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: packed},
	})
	return nil
}

func above(share float64) []*overloadv3.Trigger {
	return []*overloadv3.Trigger{{
		Name: heapMonitor, TriggerOneof: &overloadv3.Trigger_Threshold{Threshold: &overloadv3.ThresholdTrigger{Value: share}},
	}}
}

// connectionLimit keeps Envoy from taking connections for which it would have no file descriptor left to
// pass them on: each needs two.
func connectionLimit() (*downstreamconnectionsv3.DownstreamConnectionsConfig, error) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return nil, fmt.Errorf("the limit of open files: %w", err)
	}
	return &downstreamconnectionsv3.DownstreamConnectionsConfig{
		MaxActiveDownstreamConnections: int64(min(files.Cur, maxFiles) / 2),
	}, nil
}

// ParseMemory reads a number of bytes: "512Mi", "2Gi" or a plain number. Less than 128 MiB is an error.
func ParseMemory(text string) (uint64, error) {
	number, unit := strings.TrimRight(text, "KMGi"), uint64(1)
	switch text[len(number):] {
	case "":
	case "Ki":
		unit = 1 << 10
	case "Mi":
		unit = 1 << 20
	case "Gi":
		unit = 1 << 30
	default:
		number = ""
	}
	n, err := strconv.ParseUint(number, 10, 64)
	switch {
	case err != nil || n > math.MaxInt64/unit:
		return 0, fmt.Errorf("%q is no number of bytes, such as 512Mi, 2Gi or 1073741824", text)
	case n*unit < leastMemory:
		return 0, fmt.Errorf("%q is too little: an Envoy needs at least 128Mi", text)
	}
	return n * unit, nil
}
