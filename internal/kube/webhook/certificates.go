package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
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
	// Outage logs failures; nil discards them.
	Outage *api.Outage
}

// Certificates are the CA and the serving certificate of webhooks. They are in a Secret that all replicas share.
type Certificates struct {
	CertificateOptions
	client  *api.Client
	wake    wait.Signal
	current atomic.Pointer[served]
}

// served is the material in use.
type served struct {
	material
	certificate *tls.Certificate
}

// KeepCertificates reads the Secret. The first replica makes it. Run keeps the certificates afterwards.
func KeepCertificates(ctx context.Context, client *api.Client, o CertificateOptions) (*Certificates, error) {
	c := &Certificates{CertificateOptions: o, client: client, wake: wait.NewSignal()}
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
	call := c.Outage.Call()
	defer call.NoteSuccess() // it is not tried any more
	for delay := time.Duration(0); ctx.Err() == nil; {
		next, err := c.sync(ctx)
		if err == nil {
			delay = 0
			call.NoteSuccess()
		} else if ctx.Err() == nil {
			delay = min(max(2*delay, time.Second), time.Minute)
			next = delay
			call.NoteFailure(err, "the certificate of the webhooks can't be kept")
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
	var content material
	var renewed bool
	err := api.Edit(ctx, c.client, c.collection(), c.Secret, func(stored *secret) (*secret, error) {
		if stored == nil {
			stored = &secret{APIVersion: "v1", Kind: "Secret", Type: "kubernetes.io/tls", Metadata: map[string]any{
				"name": c.Secret, "labels": map[string]string{"app.kubernetes.io/managed-by": "weft"}}}
		}
		var err error
		if content, renewed, err = stored.Data.renew(c.Hosts, c.Now()); err != nil || !renewed {
			content = stored.Data
			return nil, err
		}
		stored.Data = content
		return stored, nil
	})
	if err != nil {
		return err
	}
	if renewed {
		c.Log.Info("the webhooks have a new certificate", "secret", c.Namespace+"/"+c.Secret)
	}
	return c.use(content)
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

// publish writes the CAs into a webhook configuration that has others. The creation of an absent one wakes sync.
func (c *Certificates) publish(ctx context.Context, path string) error {
	collection, name := split(path)
	return api.Edit(ctx, c.client, collection, name, func(configuration *map[string]any) (*map[string]any, error) {
		if configuration == nil || !setBundle(*configuration, c.current.Load().material[trustedKey]) {
			return nil, nil
		}
		return configuration, nil
	})
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
	c.client.Follow(ctx, collection, api.Options{"fieldSelector": "metadata.name=" + name}, func(api.Event) error {
		c.wake.Send()
		return nil
	}, c.Outage.Call(), "the certificate of the webhooks is not followed")
}

// HasConfiguration reports whether the API server has one of the webhook configurations at the paths.
func HasConfiguration(ctx context.Context, client *api.Client, paths []string) (bool, error) {
	for _, path := range paths {
		if err := client.Get(ctx, path, nil, nil); !apierrors.IsNotFound(err) {
			return err == nil, err
		}
	}
	return false, nil
}
