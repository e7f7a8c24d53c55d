package server

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"weft/internal/join"
	"weft/internal/kube/api"
	"weft/internal/kube/crd"
	"weft/internal/kube/webhook"
	"weft/internal/settings"
	"weft/internal/store"
	"weft/internal/store/sealed"
	"weft/internal/store/sql"
	"weft/kind"
	"weft/resource"
)

// Export passes every row of the store to take, as they are at one moment, with encrypted Secrets. It passes their
// number to count before, where the store knows it. A control plane may run on the store.
func Export(ctx context.Context, s *settings.Settings, count func(int), take func(store.Row) error) error {
	if s.Store != settings.KubernetesAPI {
		return sql.Export(ctx, database(s), count, take)
	}
	keys, err := BackupKeys(s)
	if err != nil {
		return err
	}
	rows, _, err := openAPIServer(ctx, s, nil)
	if err != nil {
		return err
	}
	defer rows.Close()
	encrypted := encryptedKinds()
	return rows.Export(ctx, func(row store.Row) error {
		if slices.Contains(encrypted, row.Key.Kind) {
			row = keys.Seal(row)
		}
		return take(row)
	})
}

// Import fills the store with rows of [Export]. It returns [store.ErrNotEmpty] for a store with rows, or replaces them.
func Import(ctx context.Context, s *settings.Settings, replace bool, rows iter.Seq2[store.Row, error]) error {
	if s.Store != settings.KubernetesAPI {
		return sql.Import(ctx, database(s), replace, rows)
	}
	var opened []store.Row
	identified := false
	for row, err := range rows {
		if err != nil {
			return err
		}
		identified = identified || row.Key.Kind == kind.StoreIDs.Name
		if sealed.IsSealed(row) && slices.Contains(encryptedKinds(), row.Key.Kind) {
			keys, err := sealed.ReadKeyFile(EncryptionKeyFile(s))
			if err != nil {
				return err
			}
			if row, err = keys.Open(row); err != nil {
				return fmt.Errorf("%w; the key file is %s", err, EncryptionKeyFile(s))
			}
		}
		opened = append(opened, row)
	}
	if !identified { // the next start would be a first start
		id, err := storeID()
		if err != nil {
			return err
		}
		opened = append(opened, id)
	}
	server, err := writing(ctx, s)
	if err != nil {
		return err
	}
	into, _, err := openAt(ctx, server, s, nil)
	if err != nil {
		return err
	}
	defer into.Close()
	return into.Import(ctx, replace, opened)
}

// writing returns the API server for a writer of the control plane's rows. Where the cluster has the webhooks of a
// control plane, which does not run now, the writer acts as its ServiceAccount: its writes are not reviewed.
func writing(ctx context.Context, s *settings.Settings) (api.Server, error) {
	server, err := findAPIServer()
	if err != nil {
		return server, err
	}
	client, err := api.New(server.Config)
	if err != nil {
		return server, err
	}
	account := "system:serviceaccount:" + s.Kubernetes.SystemNamespace + ":kuma-control-plane"
	user, err := crd.User(ctx, client)
	if err != nil || user == account {
		return server, err
	}
	reviewed, err := webhook.HasConfiguration(ctx, client, webhookConfigurations)
	if err != nil {
		return server, fmt.Errorf("the API server of Kubernetes %s (%s): whether the cluster has the webhooks of a "+
			"control plane: %w", server.Config.Host, server.Source, err)
	}
	if reviewed {
		server.Config.Impersonate.UserName = account
	}
	return server, nil
}

// storeID returns the row of a new store's ID.
func storeID() (store.Row, error) {
	o := kind.StoreIDs.Make("", kind.TheStoreID, join.NewStoreID())
	body, err := resource.Body(o)
	return store.Row{Key: o.Key(), Body: body}, err
}

// BackupKeys returns the keys that encrypt the Secrets of backups. Where the store does not encrypt Secrets itself, it
// makes a missing key file in the data directory.
func BackupKeys(s *settings.Settings) (*sealed.Keys, error) {
	if s.Store != settings.KubernetesAPI {
		return sealed.ReadKeyFile(EncryptionKeyFile(s))
	}
	return keysOr(s, sealed.MakeKeyFile)
}
