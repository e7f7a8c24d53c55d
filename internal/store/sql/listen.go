package sql

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"weft/internal/store/follow"
)

const (
	// lookAgain is the time without a notification after which a listener reads the counter. It makes up for lost
	// notifications.
	lookAgain = 5 * time.Second
	// reconnect is the pause before a new connection.
	reconnect = time.Second
)

// listener wakes watchers after writes of other replicas.
type listener struct {
	database Postgres
	config   *pgx.ConnConfig
	instance string // its own notifications are ignored
	hub      *follow.Hub
	log      *slog.Logger
	lost     bool // the loss was logged
}

// run listens until ctx ends, and reconnects.
func (l *listener) run(ctx context.Context) {
	for {
		err := l.connected(ctx)
		if ctx.Err() != nil {
			return
		}
		if !l.lost {
			l.lost = true
			l.log.Warn("the connection to the database is lost, trying again", "error", err)
		}
		select {
		case <-time.After(reconnect):
		case <-ctx.Done():
			return
		}
	}
}

// connected listens on one connection until it fails.
func (l *listener) connected(ctx context.Context) error {
	config := l.config.Copy()
	if err := l.database.readTLS(ctx, config); err != nil {
		return err
	}
	connection, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer closeSoon(connection)
	if err := listen(ctx, connection); err != nil {
		return err
	}
	if l.lost {
		l.lost = false
		l.log.Info("connected to the database again")
	}
	for seen := int64(-1); ; {
		if seen, err = l.look(ctx, connection, seen); err != nil {
			return err
		}
		if err := l.receive(ctx, connection); err != nil {
			return err
		}
	}
}

func listen(ctx context.Context, connection *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	_, err := connection.Exec(ctx, `LISTEN `+channel)
	return err
}

// closeSoon closes a connection to a server that may not respond.
func closeSoon(connection *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), reconnect)
	defer cancel()
	_ = connection.Close(ctx) // it is discarded in any case
}

// look wakes all watchers if the counter has changed since seen, and returns it.
func (l *listener) look(ctx context.Context, connection *pgx.Conn, seen int64) (revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	if err := connection.QueryRow(ctx, selectCounter).Scan(&revision); err != nil {
		return 0, err
	}
	if revision != seen {
		l.hub.ChangedAll()
	}
	return revision, nil
}

// receive wakes the watchers of the announced kinds, until there is no notification for a while.
func (l *listener) receive(ctx context.Context, connection *pgx.Conn) error {
	for {
		waiting, cancel := context.WithTimeout(ctx, lookAgain)
		notification, err := connection.WaitForNotification(waiting)
		cancel()
		switch {
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !connection.IsClosed():
			return nil
		case err != nil:
			return err
		}
		from, kinds, _ := strings.Cut(notification.Payload, " ")
		switch {
		case from == l.instance:
		case kinds == "":
			l.hub.ChangedAll()
		default:
			l.hub.Notify(strings.Fields(kinds)...)
		}
	}
}
