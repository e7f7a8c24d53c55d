package server_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"weft/internal/server/servertest"
	"weft/internal/testwait"
	"weft/test/mesh"
)

// zoneProxies creates the Services of the example, and returns the templates of its Pods by their role.
func (s *shop) zoneProxies() map[string]object {
	s.t.Helper()
	text, err := os.ReadFile("../../examples/kubernetes/zone-proxies.yaml")
	if err != nil {
		s.t.Fatal(err)
	}
	templates := map[string]object{}
	for document := range strings.SplitSeq(strings.ReplaceAll(string(text), "kuma-system", s.name), "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			s.t.Fatal(err)
		}
		name := o["metadata"].(object)["name"].(string)
		switch o["kind"] {
		case "ServiceAccount":
			s.create(s.t, "/api/v1/namespaces/"+s.name+"/serviceaccounts", o)
		case "Service":
			s.create(s.t, s.services(), o)
		case "Deployment":
			s.create(s.t, "/apis/apps/v1/namespaces/"+s.name+"/deployments", o)
			templates[strings.TrimPrefix(name, "kuma-")] = o["spec"].(object)["template"].(object)
		}
	}
	return templates
}

// zoneProxyPod creates a running Pod of a template, in place of the controller of its Deployment.
func (s *shop) zoneProxyPod(name, ip string, template, annotations object) {
	s.t.Helper()
	var pod object
	text, err := yaml.Marshal(template)
	if err == nil {
		err = yaml.Unmarshal(text, &pod)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	pod["apiVersion"], pod["kind"] = "v1", "Pod"
	metadata := pod["metadata"].(object)
	metadata["name"] = name
	maps.Copy(metadata["annotations"].(object), annotations)
	pod["spec"].(object)["serviceAccountName"] = "default"
	s.create(s.t, "/api/v1/namespaces/"+s.name+"/pods", pod)
	s.status(name, ip, true)
}

// zoneProxy is what the test reads of a ZoneIngress or ZoneEgress.
type zoneProxy struct {
	Metadata struct {
		OwnerReferences []struct{ Kind, Name, UID string }
	}
	Spec struct {
		Zone       string
		Networking struct {
			Address, AdvertisedAddress string
			Port, AdvertisedPort       int
		}
	}
}

func (s *shop) zoneProxy(plural, name string) (proxy zoneProxy, ok bool) {
	s.t.Helper()
	err := s.client.Get(s.t.Context(), "/apis/kuma.io/v1alpha1/namespaces/"+s.name+"/"+plural+"/"+name, nil, &proxy)
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
	return proxy, err == nil
}

// TestZoneProxiesOfEveryMesh: Pods of the system namespace with the annotations of Kuma 2.x, as the example has them,
// are a ZoneIngress and a ZoneEgress, for as long as the Pods exist. The token of such a Pod opens its own proxy, and
// none of another type.
func TestZoneProxiesOfEveryMesh(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	application := c.newShop(t)
	s := &shop{c, t, c.namespace}
	s.try("/api/v1/namespaces/"+s.name+"/serviceaccounts", object{"apiVersion": "v1", "kind": "ServiceAccount",
		"metadata": object{"name": "default"}})
	templates := s.zoneProxies()
	p := servertest.Start(t, c.options(nil))
	conn := mesh.Dial(t, p.DataPlane)
	s.zoneProxyPod("in-1", "10.42.0.1", templates["ingress"], object{"kuma.io/ingress-public-address": "203.0.113.9",
		"kuma.io/ingress-public-port": "443"})
	s.zoneProxyPod("out-1", "10.42.0.2", templates["egress"], nil)
	s.zoneProxyPod("both-1", "10.42.0.3", templates["ingress"], object{"kuma.io/egress": "enabled"})
	application.pod("web-1", "10.42.0.4", true, object{"app": "web"})

	testwait.UntilTrue(t, "the zone proxies are written", func() bool {
		_, in := s.zoneProxy("zoneingresses", "in-1")
		_, out := s.zoneProxy("zoneegresses", "out-1")
		return in && out && slices.Contains(s.reasons("both-1"), "FailedToGenerateKumaDataplane")
	})
	var pod struct{ Metadata struct{ UID string } }
	s.read(t, "/api/v1/namespaces/"+s.name+"/pods/in-1", &pod)
	in, _ := s.zoneProxy("zoneingresses", "in-1")
	if n := in.Spec.Networking; n.Address != "10.42.0.1" || n.Port != 10001 || n.AdvertisedAddress != "203.0.113.9" ||
		n.AdvertisedPort != 443 {
		t.Errorf("the ZoneIngress is at %+v", n)
	}
	if got := in.Metadata.OwnerReferences; len(got) != 1 || got[0].Kind != "Pod" || got[0].UID != pod.Metadata.UID {
		t.Errorf("the owners are %v, want the Pod %s", got, pod.Metadata.UID)
	}

	try := func(of *shop, proxyType, pod string) error {
		id := "." + pod + "." + of.name
		if proxyType == "dataplane" {
			id = "default" + id
		}
		return tryConnectAs(t.Context(), conn, &corev3.Node{Id: id, Metadata: &structpb.Struct{
			Fields: map[string]*structpb.Value{"dataplane.proxyType": structpb.NewStringValue(proxyType)}}},
			of.token(pod, "weft"))
	}
	testwait.UntilTrue(t, "the proxies connect", func() bool {
		return try(s, "ingress", "in-1") == nil && try(s, "egress", "out-1") == nil &&
			try(application, "dataplane", "web-1") == nil
	})
	rejects(t, try(s, "egress", "in-1"), codes.PermissionDenied, "the proxy of a ZoneIngress", "--proxy-type")
	rejects(t, try(s, "dataplane", "in-1"), codes.PermissionDenied, "the proxy of a ZoneIngress")
	rejects(t, try(application, "ingress", "web-1"), codes.PermissionDenied, "the proxy of a Dataplane")
	testwait.UntilTrue(t, "the agent of a Pod that contradicts itself gets the reason", func() bool {
		err := try(s, "ingress", "both-1")
		return status.Code(err) == codes.NotFound && strings.Contains(err.Error(), "exclude each other")
	})

	stream := openStream(t, conn, ".in-1."+s.name, s.token("in-1", "weft"))
	for _, name := range []string{"in-1", "out-1", "both-1"} {
		s.removePod(name)
	}
	for err := error(nil); status.Code(err) != codes.NotFound; {
		if _, err = stream.Recv(); err != nil && !strings.Contains(err.Error(), "the ZoneIngress of the Pod") {
			t.Fatalf("the stream of the deleted Pod ends with %v", err)
		}
	}
	testwait.UntilTrue(t, "the zone proxies are deleted", func() bool {
		_, in := s.zoneProxy("zoneingresses", "in-1")
		_, out := s.zoneProxy("zoneegresses", "out-1")
		return !in && !out
	})
}
