package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"weft/internal/demo"
	"weft/test/kubernetes/shop"
)

// bothFamilies gives the Service of a server an address of each IP family.
func bothFamilies(server string) string {
	return strings.Replace(server, "\n  selector: {app: web}\n",
		"\n  ipFamilyPolicy: RequireDualStack\n  ipFamilies: [IPv4, IPv6]\n  selector: {app: web}\n", 1)
}

// TestBothFamilies: a Service with an address of each IP family, whose clients reach it at both with mTLS. Its Pods
// accept no client without a certificate at either of their addresses.
func TestBothFamilies(t *testing.T) {
	w := mesh(t)
	s := w.open("families", bothFamilies(shop.Server("families", "web", 1)))
	addresses := strings.Fields(w.kubectl("get", "service", "web", "-n", s.Namespace, "-o",
		"jsonpath={.spec.clusterIPs[*]}"))
	if len(addresses) != 2 {
		t.Fatalf("the Service has the addresses %q, want one of each family", addresses)
	}
	for _, address := range addresses {
		w.eventually("the client reaches web at "+address, func(ctx context.Context) error {
			return w.verifiedAt(ctx, s, "http://"+net.JoinHostPort(address, "80"))
		})
	}
	pods := strings.Fields(w.kubectl("get", "pods", "-n", s.Namespace, "-l", "app=web", "-o",
		"jsonpath={.items[*].status.podIPs[*].ip}"))
	if len(pods) != 2 {
		t.Fatalf("the Pod has the addresses %q, want one of each family", pods)
	}
	for _, address := range pods {
		if response, err := http.Get("http://" + net.JoinHostPort(address, "8080")); err == nil {
			response.Body.Close()
			t.Errorf("a client without a certificate gets %s at %s", response.Status, address)
		}
	}
}

// verifiedAt is [shop.Shop.CheckVerified] for another URL of web.
func (w *world) verifiedAt(ctx context.Context, s *shop.Shop, url string) error {
	got, err := shop.Get(ctx, s.Client, url)
	if err == nil {
		err = got.Err()
	}
	var of demo.Response
	if err == nil {
		err = json.Unmarshal(got.Body, &of)
	}
	if err == nil && of.Client != s.ID("client") {
		err = fmt.Errorf("the proxy of %s sees the client %q", of.Instance, of.Client)
	}
	return err
}
