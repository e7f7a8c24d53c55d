package dpserver

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/push"
	"weft/internal/wire"
)

// HostNames implements wire.AgentServer. A slow stream gets what has changed meanwhile in one update, so that
// nothing is queued for it.
func (s *agents) HostNames(request *wire.HostNamesRequest, stream wire.Agent_HostNamesServer) error {
	if err := checkMessage(request); err != nil {
		return err
	}
	key, err := named(request)
	if err != nil {
		return err
	}
	caller, err := s.authorize(stream.Context(), key)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	defer s.enter(caller, end)()
	names := make(chan *push.HostNames, 1)
	defer s.Hub.WatchHostNames(key, latest(names))()
	var told *push.HostNames
	for {
		select {
		case now := <-names:
			if now == nil {
				return status.Error(codes.NotFound, "the Dataplane "+key.String()+" was deleted")
			}
			if err := tellNames(stream, request.Version, told, now); err != nil {
				return err
			}
			told = now
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tellNames sends what leads on from the names that the agent was told, or, where it was told none on this
// stream, from the version that it has from an earlier one.
func tellNames(stream wire.Agent_HostNamesServer, has string, told, now *push.HostNames) error {
	if told != nil {
		has = told.Version
	}
	if has == now.Version {
		return nil
	}
	return stream.SendMsg(now.Since(told))
}
