package publish

import "context"

// never is a world whose clients never settle.
type never struct{}

func (never) WaitSettled(ctx context.Context, _ uint64) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}
