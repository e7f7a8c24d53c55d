package scenario

import (
	"context"
	"crypto/x509"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"weft/internal/client"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
	"weft/test/mesh"
)

// Zones send their services and Dataplanes to a global control plane over the real protocol,
// count the received items, and store nothing.
type Zones struct {
	mesh   string
	all    []*simulatedZone
	failed chan error // of one value
}

// NewZones returns n zones that are not connected. Each has services of the mesh, and the Dataplanes of Pods, which the
// services share evenly.
func NewZones(mesh string, n, services, pods int) (*Zones, error) {
	z := &Zones{mesh: mesh, failed: make(chan error, 1)}
	for i := range n {
		zone := newSimulatedZone(zoneName(i))
		for s := range services {
			if err := zone.put(simulatedService(mesh, zone.name, s)); err != nil {
				return nil, err
			}
		}
		for p := range pods {
			if err := zone.put(simulatedPod(mesh, zone.name, p, p%services)); err != nil {
				return nil, err
			}
		}
		z.all = append(z.all, zone)
	}
	return z, nil
}

func zoneName(i int) string { return fmt.Sprintf("zone-%d", i) }

// PutTrusts gives each zone the roots in PEM of its trust domain. Without them, proxies of other zones wait for the
// secret that they verify its servers with.
func (z *Zones) PutTrusts(roots string) error {
	for _, zone := range z.all {
		trust := kind.MeshTrusts.Make(z.mesh, "identity", kind.MeshTrust{
			TrustDomain: trustDomain(z.mesh, zone.name),
			CABundles:   []kind.CABundle{{Type: "Pem", PEM: &kind.PEMBundle{Value: roots}}}})
		trust.Labels = map[string]string{kind.OriginLabel: kind.OriginZone, kind.ZoneLabel: zone.name,
			kind.DisplayName: "identity", kind.EnvLabel: "universal"}
		if err := zone.put(trust); err != nil {
			return err
		}
	}
	return nil
}

// trustDomain is that of a zone's services.
func trustDomain(mesh, zone string) string { return mesh + "." + zone + ".mesh.local" }

// Connect connects all zones at once, until ctx ends. api is that of the global control plane, which generates their
// tokens, and address the HOST:PORT of its zone sync.
func (z *Zones) Connect(ctx context.Context, api *client.Client, address string, roots *x509.CertPool) error {
	var group errgroup.Group
	group.SetLimit(writers)
	for _, zone := range z.all {
		group.Go(func() error { return z.connect(ctx, zone, api, address, roots) })
	}
	return group.Wait()
}

// connect connects a zone until ctx ends.
func (z *Zones) connect(ctx context.Context, zone *simulatedZone, api *client.Client, address string,
	roots *x509.CertPool) error {
	token, err := mesh.ZoneToken(ctx, api, zone.name)
	if err != nil {
		return err
	}
	return zone.connect(ctx, address, token, roots, z.fail)
}

func (z *Zones) fail(err error) {
	select {
	case z.failed <- err:
	default: // one reason is enough
	}
}

// Err returns the error of a stream that the global control plane has ended, else nil.
func (z *Zones) Err() error {
	select {
	case err := <-z.failed:
		return err
	default:
		return nil
	}
}

// Close disconnects all zones. They may connect again.
func (z *Zones) Close() {
	for _, zone := range z.all {
		zone.close()
	}
}

// ReceivedVersions returns the number of MeshService versions that all zones have received.
func (z *Zones) ReceivedVersions() (n int64) {
	for _, zone := range z.all {
		n += zone.services()
	}
	return n
}

// MadeAt is the label of a changed service, with the time of the change in microseconds of Unix time.
const MadeAt = "load/made-at"

// Change changes a service of a zone.
func (z *Zones) Change(zone, service int) error {
	of := z.all[zone]
	changed := simulatedService(z.mesh, of.name, service)
	changed.Labels[MadeAt] = strconv.FormatInt(time.Now().UnixMicro(), 10)
	return of.put(changed)
}

// AgeOf returns the time since a service with the label [MadeAt] was changed; false for a service without it.
func AgeOf(labels map[string]string) (time.Duration, bool) {
	micros, err := strconv.ParseInt(labels[MadeAt], 10, 64)
	return time.Since(time.UnixMicro(micros)), err == nil
}

// ageOf is [AgeOf] of a received item.
func ageOf(encoded []byte) (time.Duration, bool) {
	var item wire.Item
	if err := proto.Unmarshal(encoded, &item); err != nil {
		return 0, false
	}
	service, err := resource.FromBody(kind.MeshServices, resource.Meta{Name: item.Key.GetName()}, item.Body)
	if err != nil {
		return 0, false
	}
	return AgeOf(service.Envelope().Labels)
}
