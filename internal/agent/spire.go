package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"weft/internal/wire"
)

// spirePatience is how long Envoy may take to get its first certificate from a SPIRE agent before the
// control plane is told that it has none.
const spirePatience = 5 * time.Second

// keepSeeing finds out which certificate Envoy has, for as long as the settings say that it comes from a SPIRE
// agent: Envoy alone can ask for it there, since whoever asks is taken for the workload. It looks again
// when the certificate is due to be replaced.
func (a *agent) keepSeeing(ctx context.Context, admin *admin) {
	pause, since := soonest, time.Now()
	for ctx.Err() == nil {
		settings, changed := a.settings.load()
		identity := settings.GetIdentity()
		if identity.GetSpireSocket() == "" {
			a.outlook.certify(nil)
			waitUntil(ctx, changed, time.Now().Add(24*time.Hour))
			since = time.Now()
			continue
		}
		seen, err := admin.certificate(ctx, identity.SpiffeId)
		if err != nil {
			if time.Since(since) > spirePatience {
				a.missLeaf(identity, whyNoCertificate(ctx, identity, err))
			}
			waitUntil(ctx, changed, time.Now().Add(pause))
			pause = min(2*pause, latest)
			continue
		}
		pause, since = soonest, time.Now()
		a.haveLeaf(identity, seen)
		current, _ := a.leaf.load()
		waitUntil(ctx, changed, current.renew)
	}
}

// haveLeaf takes what Envoy has as the proxy's leaf.
func (a *agent) haveLeaf(identity *wire.Identity, seen *wire.Certificate) {
	notAfter := time.Unix(seen.NotAfterUnix, 0)
	next := &leaf{
		serial: seen.Serial, generation: identity.Generation,
		renew: renewAt(time.Now(), notAfter, rand.Float64()),
	}
	if current, _ := a.leaf.load(); current == nil || current.serial != next.serial {
		a.Log.Info("certificate from SPIRE", "spiffeID", seen.SpiffeId, "serial", seen.Serial, "notAfter", notAfter)
	}
	a.leaf.store(next)
	a.outlook.certify(seen)
}

// missLeaf tells why Envoy has no certificate, once.
func (a *agent) missLeaf(identity *wire.Identity, why string) {
	if a.outlook.certify(&wire.Certificate{SpiffeId: identity.SpiffeId, Problem: why}) {
		a.Log.Warn("no certificate from SPIRE", "spiffeID", identity.SpiffeId, "socket", identity.SpireSocket, "error", why)
	}
}

// whyNoCertificate says what to do, as far as it can be seen from beside Envoy. The SPIRE agent tells nobody
// but Envoy what it thinks of Envoy.
func whyNoCertificate(ctx context.Context, identity *wire.Identity, seen error) string {
	ctx, cancel := context.WithTimeout(ctx, dialBound)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", identity.SpireSocket)
	if err != nil {
		return fmt.Sprintf("%v: start the SPIRE agent there, or correct provider.spire.agent.socketPath of MeshIdentity %s", err, identity.Name)
	}
	conn.Close()
	return fmt.Sprintf("%v: register an entry with this SPIFFE ID whose selectors match the Envoy process and no other one's", seen)
}

// certificate answers the newest certificate that Envoy has for one SPIFFE ID.
func (a *admin) certificate(ctx context.Context, spiffeID string) (*wire.Certificate, error) {
	body, err := a.call(ctx, http.MethodGet, "/certs")
	if err != nil {
		return nil, err
	}
	chains, err := readCertificates(body)
	if err != nil {
		return nil, err
	}
	var newest *wire.Certificate
	var others []string
	for _, c := range chains {
		switch {
		case c.SpiffeId != spiffeID:
			others = append(others, c.SpiffeId)
		case newest == nil || c.NotBeforeUnix > newest.NotBeforeUnix:
			newest = c
		}
	}
	switch {
	case newest != nil:
		return newest, nil
	case len(others) == 0:
		return nil, fmt.Errorf("Envoy has no certificate, and wants one of %s", spiffeID)
	}
	slices.Sort(others)
	return nil, fmt.Errorf("Envoy has a certificate of %s, and wants one of %s", strings.Join(slices.Compact(others), ", "), spiffeID)
}

// readCertificates reads the leaves, each with its first URI, on Envoy's page /certs.
func readCertificates(page []byte) ([]*wire.Certificate, error) {
	var answer struct {
		Certificates []struct {
			Chain []struct {
				Serial string `json:"serial_number"`
				Names  []struct {
					URI string `json:"uri"`
				} `json:"subject_alt_names"`
				NotBefore time.Time `json:"valid_from"`
				NotAfter  time.Time `json:"expiration_time"`
			} `json:"cert_chain"`
		} `json:"certificates"`
	}
	if err := json.Unmarshal(page, &answer); err != nil {
		return nil, fmt.Errorf("envoy's certificates: %w", err)
	}
	var leaves []*wire.Certificate
	for _, c := range answer.Certificates {
		if len(c.Chain) == 0 || len(c.Chain[0].Names) == 0 {
			continue // roots alone
		}
		l := c.Chain[0]
		leaves = append(leaves, &wire.Certificate{
			SpiffeId: l.Names[0].URI, Serial: l.Serial,
			NotBeforeUnix: l.NotBefore.Unix(), NotAfterUnix: l.NotAfter.Unix(),
		})
	}
	return leaves, nil
}

// certify notes which certificate Envoy has from SPIRE, or why none, and says whether that is new.
func (o *outlook) certify(c *wire.Certificate) (news bool) {
	o.change(func() {
		news = !proto.Equal(o.certificate, c)
		o.certificate = c
	})
	return news
}
