package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"weft/internal/certfile"
	"weft/internal/join"
	"weft/internal/kube/api"
	"weft/internal/kube/crd"
	"weft/internal/kube/injector"
	"weft/internal/kube/review"
	"weft/internal/kube/webhook"
	"weft/internal/settings"
	"weft/internal/store"
	"weft/internal/store/kube"
	"weft/kind"
)

// apiServer is the API server of Kubernetes that has the store.
type apiServer struct {
	api.Server
	user   string // of the control plane
	client *api.Client
	outage *api.Outage
	rows   *kube.Store
	// wentBack receives the error of an API server that has an earlier state than before.
	wentBack chan error
}

// openKubernetes opens the store on the API server. The store is new until its first start has given it an ID.
func (s *Server) openKubernetes(ctx context.Context) error {
	rows, found, err := openAPIServer(ctx, s.settings, s.log)
	if err != nil {
		return err
	}
	s.onClose(func() { rows.Close() })
	s.log.Info("the store is on an API server of Kubernetes", "apiServer", found.Config.Host, "from", found.Source,
		"user", found.user, "systemNamespace", s.settings.Kubernetes.SystemNamespace)
	s.store, s.apiServer = rows, found
	s.group.Go(func() error {
		select {
		case err := <-found.wentBack:
			return fmt.Errorf("%w: its etcd was restored from a backup, and this control plane starts again with what "+
				"it has now", err)
		case <-ctx.Done():
			return nil
		}
	})
	_, err = rows.Get(ctx, kind.StoreIDs.Key("", kind.TheStoreID))
	isNew := errors.Is(err, store.ErrNotFound)
	if err != nil && !isNew {
		return err
	}
	return s.beginFirstStart(ctx, rows, isNew)
}

// openAPIServer finds the API server, checks what it has for this control plane, and opens the store there.
func openAPIServer(ctx context.Context, s *settings.Settings, log *slog.Logger) (*kube.Store, *apiServer, error) {
	server, err := findAPIServer()
	if err != nil {
		return nil, nil, err
	}
	return openAt(ctx, server, s, log)
}

func findAPIServer() (api.Server, error) {
	server, err := api.Find()
	if err != nil {
		return server, fmt.Errorf("store.type is kubernetes: %w", err)
	}
	return server, nil
}

// openAt is [openAPIServer] for a known one.
func openAt(ctx context.Context, server api.Server, s *settings.Settings, log *slog.Logger) (*kube.Store, *apiServer,
	error) {
	found := &apiServer{Server: server, outage: api.NewOutage(log), wentBack: make(chan error, 1)}
	fail := func(err error) (*kube.Store, *apiServer, error) {
		return nil, nil, fmt.Errorf("the API server of Kubernetes %s (%s): %w", server.Config.Host, server.Source, err)
	}
	client, err := api.New(server.Config)
	if err != nil {
		return fail(err)
	}
	pods := s.Mode == settings.Zone
	if found.user, err = crd.Check(ctx, client, s.Kubernetes.SystemNamespace, pods); err != nil {
		return fail(err)
	}
	found.client = client
	found.rows, err = kube.Open(ctx, server.Config, kube.Options{Namespace: s.Kubernetes.SystemNamespace,
		Kinds: crd.Rows(), LeaseDuration: s.Kubernetes.LeaseDuration, Outage: found.outage,
		WentBack: func(err error) { found.wentBack <- err }})
	if err != nil {
		return fail(err)
	}
	return found.rows, found, nil
}

// webhookSecret is the Secret with the certificate of the webhooks.
const webhookSecret = "kuma-webhook-tls"

// webhookConfigurations are the paths of the webhook configurations whose caBundle the control plane keeps.
var webhookConfigurations = []string{
	"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/kuma-admission-mutating-webhook-configuration",
	"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/kuma-validating-webhook-configuration",
}

// serveWebhooks serves the admission webhooks that the API server calls.
func (s *Server) serveWebhooks(ctx context.Context) error {
	if s.apiServer == nil {
		return nil
	}
	certificate, err := s.webhookCertificate(ctx)
	if err != nil {
		return fmt.Errorf("the certificate of the admission webhooks: %w", err)
	}
	reviewer := &review.Reviewer{Writer: s.writer, Store: s.apiServer.rows, User: s.apiServer.user,
		Client: s.apiServer.client, Namespace: s.settings.Kubernetes.SystemNamespace}
	if err := checkCA(s.settings); err != nil {
		return err
	}
	handlers := reviewer.Handlers()
	if s.settings.Mode == settings.Zone {
		handlers[injector.Path] = s.injector().Review
		s.goLead(ctx, s.keepCA)
	}
	var authorities func() *x509.CertPool
	if file := s.settings.Admission.ClientCAFile; file != "" {
		roots, err := certfile.NewRoots(file, "", s.log)
		if err != nil {
			return fmt.Errorf("runtime.kubernetes.admissionServer.clientCaFile: %w", err)
		}
		authorities = roots.Now
	}
	served := webhook.NewHTTPServer(webhook.New(handlers, s.log), s.log)
	listener := webhook.Listen(s.ports.webhooks, certificate, authorities)
	s.group.Go(func() error { return serveUntil(ctx, listener, served) })
	return nil
}

// The server of the webhooks and its clients, in findings.
const webhooksServer, webhooksClient = "its webhooks", "API server of Kubernetes"

// webhookCertificate returns the operator's certificate, else one of a CA that all replicas share.
func (s *Server) webhookCertificate(ctx context.Context) (func() *tls.Certificate, error) {
	if dir := s.settings.Admission.CertDir; dir != "" {
		own, err := certfile.NewCertificate(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), s.log)
		if err != nil {
			return nil, fmt.Errorf("runtime.kubernetes.admissionServer.certDir: %w", err)
		}
		s.certificates.served.addFiles(own, webhooksServer, webhooksClient)
		return own.Now, nil
	}
	host := s.settings.Injector.Service + "." + s.settings.Kubernetes.SystemNamespace
	kept, err := webhook.KeepCertificates(ctx, s.apiServer.client, webhook.CertificateOptions{
		Namespace: s.settings.Kubernetes.SystemNamespace, Secret: webhookSecret, Hosts: []string{host + ".svc", host},
		Configurations: webhookConfigurations, Now: time.Now, Log: s.log,
		Outage: s.apiServer.outage,
	})
	if err != nil {
		return nil, err
	}
	s.goRun(ctx, kept.Run)
	s.certificates.served.add(servedCertificate{server: webhooksServer, clients: webhooksClient,
		current: func() *x509.Certificate { return kept.Current().Leaf }})
	return kept.Current, nil
}

// identifyStore gives a new store on Kubernetes its ID, by which its next start knows that it is not new.
func (s *Server) identifyStore(ctx context.Context) error {
	if s.apiServer == nil {
		return nil
	}
	_, err := join.StoreID(ctx, s.writer)
	return err
}

// effectiveSettings are the settings and, on Kubernetes, the API server that was found.
func (s *Server) effectiveSettings() []settings.Value {
	values := s.settings.Effective()
	if s.apiServer == nil {
		return values
	}
	return append(values[:len(values):len(values)], settings.Value{Path: "store.kubernetes.apiServer",
		Value: s.apiServer.Config.Host, Source: s.apiServer.Source})
}
