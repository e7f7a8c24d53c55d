// Package podtoken verifies the tokens of service accounts that Pods have in a projected volume. The API server says
// whether a token is valid (TokenReview), and of which Pod it is.
//
// A token that the API server has accepted is known for some minutes. The caller removes it earlier where the Pod is
// gone: the API server itself accepts the token of a deleted Pod for some seconds. No error, and no log, has a token.
package podtoken

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"weft/internal/kube/api"
	"weft/internal/pki"
	"weft/internal/wait"
	"weft/resource"
)

const (
	// knownFor is how long an accepted token is known, unless it expires before.
	knownFor = 5 * time.Minute
	// maxKnown is the maximum of known tokens. Beyond it, an arbitrary one is reviewed again.
	maxKnown = 20_000
	// maxReviews is the maximum of concurrent requests to the API server.
	maxReviews = 32
	// reviewTimeout bounds a request to the API server.
	reviewTimeout = 10 * time.Second
)

const path = "/apis/authentication.k8s.io/v1/tokenreviews"

// Keys of status.user.extra of a TokenReview.
const (
	podName = "authentication.kubernetes.io/pod-name"
	podUID  = "authentication.kubernetes.io/pod-uid"
)

// accountPrefix begins the user name of a service account: system:serviceaccount:NAMESPACE:NAME.
const accountPrefix = "system:serviceaccount:"

// Verifier verifies tokens. It is safe for concurrent use.
type Verifier struct {
	client   *api.Client
	audience string
	now      func() time.Time
	flights  singleflight.Group
	reviews  chan struct{} // one for each open request

	mu    sync.Mutex
	known map[digest]known
}

type digest [sha256.Size]byte

// known is a token that the API server has accepted.
type known struct {
	pod   *pki.PodClaims
	until time.Time
}

// New returns a verifier of tokens for an audience.
func New(client *api.Client, audience string, now func() time.Time) *Verifier {
	return &Verifier{client: client, audience: audience, now: now, reviews: make(chan struct{}, maxReviews),
		known: map[digest]known{}}
}

// Known returns the Pod of a token that the API server has accepted some minutes ago at most.
func (v *Verifier) Known(token string) (*pki.PodClaims, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	sum := digest(sha256.Sum256([]byte(token)))
	found, ok := v.known[sum]
	if ok && !v.now().Before(found.until) {
		delete(v.known, sum)
		ok = false
	}
	return found.pod, ok
}

// Remove has the API server review a token again.
func (v *Verifier) Remove(token string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.known, sha256.Sum256([]byte(token)))
}

// Verify returns the Pod of a token. Concurrent calls with one token are one request to the API server. An error is a
// [resource.Error]: Unauthorized for a token that is not valid, Unavailable where the API server gives no answer.
func (v *Verifier) Verify(ctx context.Context, token string) (*pki.PodClaims, error) {
	expires, err := v.read(token)
	if err != nil {
		return nil, err
	}
	sum := digest(sha256.Sum256([]byte(token)))
	result := v.flights.DoChan(string(sum[:]), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		pod, err := v.review(ctx, token)
		if err != nil {
			return nil, err
		}
		v.remember(sum, known{pod, wait.Earliest(expires, v.now().Add(knownFor))})
		return pod, nil
	})
	select {
	case r := <-result:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*pki.PodClaims), nil
	case <-ctx.Done():
		return nil, resource.Errorf(resource.Unavailable, "the API server of Kubernetes has not reviewed the token of "+
			"the Pod yet; try again")
	}
}

// remember keeps an accepted token.
func (v *Verifier) remember(sum digest, k known) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.known) >= maxKnown {
		v.makeRoom()
	}
	v.known[sum] = k
}

// makeRoom removes the tokens that are no longer known, or an arbitrary one where all are.
func (v *Verifier) makeRoom() {
	now := v.now()
	for sum, k := range v.known {
		if !now.Before(k.until) {
			delete(v.known, sum)
		}
	}
	for sum := range v.known {
		if len(v.known) < maxKnown {
			return
		}
		delete(v.known, sum)
	}
}

func unauthorized(format string, args ...any) error {
	return resource.Errorf(resource.Unauthorized, format, args...)
}

// read returns when a token expires. A text that no API server accepts is an error without a request.
func (v *Verifier) read(token string) (expires time.Time, err error) {
	var claims jwt.RegisteredClaims
	if len(token) <= pki.MaxToken {
		_, _, err = jwt.NewParser().ParseUnverified(token, &claims)
	}
	switch {
	case len(token) > pki.MaxToken:
		return expires, unauthorized("the token has %d bytes, at most %d are read", len(token), pki.MaxToken)
	case err != nil:
		return expires, unauthorized("it is not the token of a Pod (a JWT): want the service account token of a " +
			"projected volume, as an injected sidecar has it")
	case claims.ExpiresAt == nil:
		return expires, unauthorized("the token has no expiry: want the service account token of a projected volume, " +
			"as an injected sidecar has it")
	case !v.now().Before(claims.ExpiresAt.Time):
		return expires, unauthorized("the token has expired at %s; the kubelet renews it in the volume of the "+
			"sidecar: look for its events with `kubectl describe pod`, and compare the clocks of the machines",
			claims.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return claims.ExpiresAt.Time, nil
}

// tokenReview is the result of a TokenReview.
type tokenReview struct {
	Status struct {
		Authenticated bool
		Audiences     []string
		Error         string
		User          struct {
			Username string
			Extra    map[string][]string
		}
	}
}

// review asks the API server for the Pod of a token.
func (v *Verifier) review(ctx context.Context, token string) (*pki.PodClaims, error) {
	var r tokenReview
	select {
	case v.reviews <- struct{}{}:
		defer func() { <-v.reviews }()
	case <-ctx.Done():
		return nil, unreviewed(ctx.Err())
	}
	err := v.client.Create(ctx, path, map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
		"spec": map[string]any{"token": token, "audiences": []string{v.audience}}}, &r)
	if err != nil {
		return nil, unreviewed(err)
	}
	return v.podOf(&r)
}

// Read returns a Pod and its Namespace from the API server. The error is Unauthorized for a Pod that is gone, and
// Unavailable where the API server does not respond.
func (v *Verifier) Read(ctx context.Context, of *pki.PodClaims) (pod, namespace json.RawMessage, err error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	var found struct {
		Metadata struct{ UID string }
	}
	path := "/api/v1/namespaces/" + of.Namespace
	err = v.client.Get(ctx, path+"/pods/"+of.Name, nil, &pod)
	if err == nil {
		err = v.client.Get(ctx, path, nil, &namespace)
	}
	if err == nil {
		err = json.Unmarshal(pod, &found)
	}
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return nil, nil, resource.Errorf(resource.Unavailable, "the API server of Kubernetes does not say whether the "+
			"Pod %s exists: %v; try again", of, err)
	case found.Metadata.UID != of.UID:
		return nil, nil, unauthorized("the Pod %s with the UID %s is gone, and its token with it", of, of.UID)
	}
	return pod, namespace, nil
}

func unreviewed(err error) error {
	return resource.Errorf(resource.Unavailable, "the API server of Kubernetes does not review the token of the Pod "+
		"(TokenReview): %v; try again", err)
}

// podOf returns the Pod of a reviewed token. An API server that does not check audiences returns none, and its answer
// counts for nothing.
func (v *Verifier) podOf(r *tokenReview) (*pki.PodClaims, error) {
	s := &r.Status
	if !s.Authenticated {
		return nil, unauthorized("the API server of Kubernetes does not accept the token (%s); a sidecar has a token "+
			"with the audience %q in a projected volume, which the injector adds: restart the Pod if it lacks it",
			s.Error, v.audience)
	}
	if !slices.Contains(s.Audiences, v.audience) {
		return nil, unauthorized("the API server of Kubernetes accepts the token for the audiences %q, and want %q; "+
			"restart the Pod, so that the injector adds a token with this audience", s.Audiences, v.audience)
	}
	account, isAccount := strings.CutPrefix(s.User.Username, accountPrefix)
	namespace, account, _ := strings.Cut(account, ":")
	name, uid := s.User.Extra[podName], s.User.Extra[podUID]
	if !isAccount || len(name) != 1 || len(uid) != 1 {
		return nil, unauthorized("the token of %q is not bound to a Pod: want the service account token of a "+
			"projected volume, as an injected sidecar has it", s.User.Username)
	}
	return &pki.PodClaims{Namespace: namespace, Name: name[0], UID: uid[0], ServiceAccount: account}, nil
}
