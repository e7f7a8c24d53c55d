package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"weft/internal/kube/api"
	"weft/internal/wait"
)

// CertificateOptions are the options of [KeepCertificates].
type CertificateOptions struct {
	Namespace string   // of the Secret, the system namespace
	Secret    string   // the name of the Secret
	Hosts     []string // host names and IP addresses at which the API server calls the webhooks
	// Configurations are the paths of the webhook configurations whose caBundle is kept. A configuration that does not
	// exist yet gets it when it is created.
	Configurations []string
	Now            func() time.Time
	Log            *slog.Logger
}

// Certificates are the CA and the serving certificate of webhooks. They are in a Secret that all replicas share.
type Certificates struct {
	CertificateOptions
	client  *api.Client
	wake    chan struct{}
	current atomic.Pointer[served]
}

// served is the material in use.
type served struct {
	material
	certificate *tls.Certificate
}

// KeepCertificates reads the Secret. The first replica makes it. Run keeps the certificates afterwards.
func KeepCertificates(ctx context.Context, client *api.Client, o CertificateOptions) (*Certificates, error) {
	c := &Certificates{CertificateOptions: o, client: client, wake: make(chan struct{}, 1)}
	return c, c.read(ctx)
}

// Current returns the serving certificate.
func (c *Certificates) Current() *tls.Certificate { return c.current.Load().certificate }

// Run renews the certificates before they expire, follows changes of other replicas, and keeps the caBundle of the
// webhook configurations, until ctx ends.
func (c *Certificates) Run(ctx context.Context) {
	go c.follow(ctx, c.collection(), c.Secret)
	for _, path := range c.Configurations {
		collection, name := split(path)
		go c.follow(ctx, collection, name)
	}
	for delay := time.Duration(0); ctx.Err() == nil; {
		next, err := c.sync(ctx)
		if err == nil {
			delay = 0
		} else if ctx.Err() == nil {
			delay = min(max(2*delay, time.Second), time.Minute)
			next = delay
			c.Log.Error("the certificate of the webhooks can't be kept", "error", err, "retryAfter", delay)
		}
		timer := time.NewTimer(next)
		select {
		case <-c.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// sync renews what is due, and returns the time until the next renewal.
func (c *Certificates) sync(ctx context.Context) (time.Duration, error) {
	if err := c.read(ctx); err != nil {
		return 0, err
	}
	for _, path := range c.Configurations {
		if err := c.publish(ctx, path); err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
	}
	return renewal(c.Current().Leaf).Sub(c.Now()), nil
}

// secret is a Kubernetes Secret.
type secret struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Type       string         `json:"type"`
	Data       material       `json:"data"`
}

func (c *Certificates) collection() string { return "/api/v1/namespaces/" + c.Namespace + "/secrets" }

// read makes the content of the Secret the current one, after it renewed the content. A replica that was faster wins.
func (c *Certificates) read(ctx context.Context) error {
	for {
		var stored secret
		err := c.client.Get(ctx, c.collection()+"/"+c.Secret, nil, &stored)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		renewed, changed, failure := stored.Data.renew(c.Hosts, c.Now())
		if failure != nil {
			return failure
		}
		if !changed {
			return c.use(stored.Data)
		}
		if err = c.write(ctx, stored, renewed, apierrors.IsNotFound(err)); err == nil {
			c.Log.Info("the webhooks have a new certificate", "secret", c.Namespace+"/"+c.Secret)
			return c.use(renewed)
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
}

func (c *Certificates) write(ctx context.Context, stored secret, content material, create bool) error {
	if !create {
		stored.Data = maps.Clone(content)
		return c.client.Update(ctx, c.collection()+"/"+c.Secret, stored, nil)
	}
	return c.client.Create(ctx, c.collection(), secret{
		APIVersion: "v1", Kind: "Secret", Type: "kubernetes.io/tls", Data: content,
		Metadata: map[string]any{"name": c.Secret, "labels": map[string]string{"app.kubernetes.io/managed-by": "weft"}},
	}, nil)
}

func (c *Certificates) use(m material) error {
	if now := c.current.Load(); now != nil && now.equal(m) {
		return nil
	}
	certificate, err := m.certificate()
	if err != nil {
		return err
	}
	c.current.Store(&served{m, certificate})
	return nil
}

// publish writes the CAs into a webhook configuration that has others.
func (c *Certificates) publish(ctx context.Context, path string) error {
	for {
		var configuration map[string]any
		if err := c.client.Get(ctx, path, nil, &configuration); err != nil {
			if apierrors.IsNotFound(err) {
				return nil // its creation wakes sync
			}
			return err
		}
		if !setBundle(configuration, c.current.Load().material[trustedKey]) {
			return nil
		}
		if err := c.client.Update(ctx, path, configuration, nil); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// setBundle sets the caBundle of each webhook, and reports whether one had another.
func setBundle(configuration map[string]any, bundle []byte) (changed bool) {
	webhooks, _ := configuration["webhooks"].([]any)
	for _, w := range webhooks {
		webhook, _ := w.(map[string]any)
		if config, ok := webhook["clientConfig"].(map[string]any); ok && config["caBundle"] != encode(bundle) {
			config["caBundle"], changed = encode(bundle), true
		}
	}
	return changed
}

// follow wakes sync at each change of an object, until ctx ends.
func (c *Certificates) follow(ctx context.Context, collection, name string) {
	for ctx.Err() == nil {
		if err := c.followOnce(ctx, collection, name); err != nil && ctx.Err() == nil {
			c.Log.Debug("a watch of the webhooks' objects ended", "path", collection+"/"+name, "error", err)
		}
		_ = wait.Sleep(ctx, time.Second)
	}
}

// followOnce follows one stream of the API server, which begins with the present state.
func (c *Certificates) followOnce(ctx context.Context, collection, name string) error {
	watch, err := c.client.Watch(ctx, collection, "", api.Options{"fieldSelector": "metadata.name=" + name})
	if err != nil {
		return err
	}
	defer watch.Close()
	for {
		event, err := watch.Next()
		if err != nil {
			return err
		}
		if event.Type == api.Bookmark {
			continue
		}
		select {
		case c.wake <- struct{}{}:
		default: // sync has not begun since the last change
		}
	}
}
