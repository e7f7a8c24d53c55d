package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/server"
	"weft/internal/settings"
	"weft/internal/store"
	"weft/internal/store/backup"
	"weft/internal/store/sealed"
	"weft/internal/store/sql"
	"weft/internal/store/wholefile"
)

func newBackupCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy everything that a control plane stores into a file, while it runs",
		Long: `Copy everything that a control plane stores into a file, as it is at one moment. The control plane may run.

Run it on the machine of the control plane, with its settings: it reads the database, not the API. For a store on
Kubernetes, run it on your own machine: it finds the API server by the kubeconfig. Secrets stay encrypted; keep a copy
of their key apart from the file, or put it in with --with-key.`,
		Example: `  weft cp backup weft-2026-01-31.backup --data-dir /var/lib/weft
  KUMA_ENVIRONMENT=kubernetes KUMA_STORE_TYPE=kubernetes weft cp backup weft-2026-01-31.backup --with-key`,
		Args: cobra.ExactArgs(1),
	}
	withKey := command.Flags().Bool("with-key", false,
		"put the key file of the secrets into the backup, with which every secret can be read")
	load := settingsFlags(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		s, err := loadForStore(load)
		if err != nil {
			return err
		}
		h := backup.Header{Created: time.Now().UTC().Round(0), Release: version}
		if *withKey {
			if h.Keys, err = keyFileText(s); err != nil {
				return err
			}
		}
		n, err := backUp(command.Context(), args[0], h, s, command.ErrOrStderr())
		if errors.Is(err, sql.ErrNoDatabase) {
			return fmt.Errorf("no backup was made: %w; name the control plane's directory with --data-dir", err)
		}
		if err != nil {
			return fmt.Errorf("no backup was made: %w", err)
		}
		command.PrintErrf("%s has %d rows.\n", args[0], n)
		if !*withKey {
			command.PrintErrf("Its secrets are of no use without %s: keep a copy of that too, in another place.\n",
				server.EncryptionKeyFile(s))
		}
		return nil
	}
	return command
}

// loadForStore returns the settings of a control plane with a persistent store.
func loadForStore(load func() (*settings.Settings, []string, error)) (*settings.Settings, error) {
	s, _, err := load()
	if err == nil && s.Store == settings.Memory {
		err = errors.New("store.type is memory: such a control plane keeps nothing that could be copied")
	}
	return s, err
}

// keyFileText returns the content of the key file, and an error if it has no keys.
func keyFileText(s *settings.Settings) (string, error) {
	path := server.EncryptionKeyFile(s)
	if _, err := server.BackupKeys(s); err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	return string(text), err
}

func backUp(ctx context.Context, path string, h backup.Header, s *settings.Settings, progress io.Writer) (n int,
	err error) {
	tell := &progressReporter{to: progress, next: time.Now().Add(progressInterval)}
	err = wholefile.Write(path, func(w io.Writer) error {
		return backup.Write(w, h, func(take func(store.Row) error) error {
			return server.Export(ctx, s, func(rows int) { tell.total = rows }, func(row store.Row) error {
				tell.row()
				return take(row)
			})
		})
	})
	return tell.done, err
}

func newRestoreCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "restore FILE",
		Short: "Fill an empty store with a backup",
		Long: `Fill an empty store with a backup: all of it or, where the file is not whole, nothing.

Stop the control plane first. The store may be of another type than the one that was backed up. A store on Kubernetes
is found by the kubeconfig; there, an error may leave a part of the rows: mend its cause, and repeat it with --force.`,
		Example: `  weft cp restore weft-2026-01-31.backup --data-dir /var/lib/weft
  KUMA_STORE_TYPE=postgres weft cp restore weft-2026-01-31.backup --config-file weft.yaml
  KUMA_ENVIRONMENT=kubernetes KUMA_STORE_TYPE=kubernetes weft cp restore weft-2026-01-31.backup`,
		Args: cobra.ExactArgs(1),
	}
	force := command.Flags().Bool("force", false, "replace what the store has")
	load := settingsFlags(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		s, err := loadForStore(load)
		if err != nil {
			return err
		}
		h, n, err := restore(command.Context(), args[0], s, *force, command.ErrOrStderr())
		if errors.Is(err, store.ErrNotEmpty) {
			return fmt.Errorf("%w\nNothing was restored. Choose an empty store, or replace what is there with "+
				"--force, after a backup of it.", err)
		}
		if err != nil {
			return fmt.Errorf("nothing was restored: %w", err)
		}
		command.PrintErrf("%d rows of %s are restored.\n", n, h.Created.Format(time.RFC3339))
		if h.Keys == "" && s.Store != settings.KubernetesAPI { // whose restored Secrets are not encrypted
			command.PrintErrf(
				"The backup has no key: before the control plane starts, %s must have the one of its secrets.\n",
				server.EncryptionKeyFile(s))
		}
		return nil
	}
	return command
}

func restore(ctx context.Context, path string, s *settings.Settings, force bool, progress io.Writer) (h backup.Header,
	n int, err error) {
	tell := &progressReporter{to: progress, next: time.Now().Add(progressInterval)}
	// The backup is read to its end once, so that a damaged file creates no database.
	h, err = readBackup(path, func(rows iter.Seq2[store.Row, error]) error {
		for _, err := range rows {
			if err != nil {
				return err
			}
			tell.total++
		}
		return nil
	})
	if err == nil && h.Keys != "" { // before any row is written: an unused key does no harm
		err = sealed.AddToKeyFile(server.EncryptionKeyFile(s), []byte(h.Keys))
	}
	if err != nil {
		return h, 0, err
	}
	_, err = readBackup(path, func(rows iter.Seq2[store.Row, error]) error {
		return server.Import(ctx, s, force, func(yield func(store.Row, error) bool) {
			for row, err := range rows {
				tell.row()
				if !yield(row, err) {
					return
				}
			}
		})
	})
	return h, tell.done, err
}

func readBackup(path string, use func(iter.Seq2[store.Row, error]) error) (backup.Header, error) {
	file, err := os.Open(path)
	if err != nil {
		return backup.Header{}, err
	}
	defer file.Close() // it was only read
	h, rows, err := backup.Read(file)
	if err == nil {
		err = use(rows)
	}
	if err != nil {
		return h, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

// progressInterval is the interval of progress reports.
const progressInterval = 2 * time.Second

// progressReporter counts rows, and reports the progress.
type progressReporter struct {
	to          io.Writer
	next        time.Time
	done, total int
}

func (t *progressReporter) row() {
	t.done++
	if now := time.Now(); now.After(t.next) {
		t.next = now.Add(progressInterval)
		if t.total == 0 { // the store does not know it
			fmt.Fprintf(t.to, "%d rows\n", t.done)
		} else {
			fmt.Fprintf(t.to, "%d of %d rows\n", t.done, t.total)
		}
	}
}
