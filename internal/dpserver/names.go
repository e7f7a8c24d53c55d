package dpserver

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/push"
	"weft/internal/wire"
)

// HostNames implements wire.AgentServer. A slow stream gets the changes of several versions in one update, so nothing
// is queued for it.
func (s *agents) HostNames(request *wire.HostNamesRequest, stream wire.Agent_HostNamesServer) error {
	if err := checkMessage(request); err != nil {
		return err
	}
	key, err := proxyKeyOf(request)
	if err != nil {
		return err
	}
	caller, err := s.authorize(stream.Context(), key)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	defer s.trackCall(caller, key, end)()
	names := make(chan *push.HostNames, 1)
	defer s.Proxies.WatchHostNames(key, keepNewest(names))()
	var told *push.HostNames
	for {
		select {
		case now := <-names:
			if now == nil {
				return status.Error(codes.NotFound, "the Dataplane "+key.String()+" was deleted")
			}
			if err := sendHostNames(stream, request.Version, told, now); err != nil {
				return err
			}
			told = now
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sendHostNames sends the changes since the names that were sent before. For the first update of a stream, they are the
// changes since the version that the agent has from an earlier stream.
func sendHostNames(stream wire.Agent_HostNamesServer, has string, told, now *push.HostNames) error {
	if told != nil {
		has = told.Version
	}
	if has == now.Version {
		return nil
	}
	return stream.SendMsg(now.UpdateSince(told))
}
