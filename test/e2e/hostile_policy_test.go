package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// addsCluster is a MeshProxyPatch that adds a cluster to the proxies of a target. Its name stands for what only their
// workload may read.
func addsCluster(name, target string) string {
	return fmt.Sprintf("---\ntype: MeshProxyPatch\nmesh: default\nname: %s\nspec: {targetRef: {%s}, default: "+
		"{appendModifications: [{cluster: {operation: Add, value: \"{name: %s, type: STATIC, connectTimeout: 1s, "+
		"loadAssignment: {clusterName: %s}}\"}}]}}\n", name, target, name, name)
}

// clusters returns the clusters of a proxy, once one of them contains a word.
func (h *thief) clusters(mesh, name, word string) (all []byte, err error) {
	stream, err := h.open(mesh, name, xds.Cluster)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.CloseSend() }()
	err = stream.Await(func(response *discoveryv3.DeltaDiscoveryResponse) bool {
		for _, r := range response.Resources {
			all = append(all, r.Resource.GetValue()...)
		}
		return bytes.Contains(all, []byte(word))
	})
	return all, err
}

// A workload's token makes its holder read no policy of another workload, by a label, a tag or a name that its
// Dataplane states.
func TestHostileADataplaneTokenEntersNoPolicy(t *testing.T) {
	a := newAttack(t, "a thief of a workload's token reads a policy of another workload")
	w := newWorld(t)
	w.apply(secured + addsCluster("of-all", "kind: Mesh") +
		addsCluster("secret-of-label", "kind: Dataplane, labels: {team: pay}") +
		addsCluster("secret-of-name", "kind: Dataplane, name: pay-1") +
		addsCluster("secret-of-tag", "kind: MeshSubset, tags: {version: v2}") +
		addsCluster("secret-of-service", "kind: MeshService, name: pay"))
	const labels, tags = "kuma.io/workload: evil, team: pay", "version: v2, kuma.io/service: pay"
	for _, c := range []struct {
		what, name string
		token      []string
		reads      []string
	}{
		{"all, without a voucher", "evil-1", []string{"--name", "evil-1", "--workload", "evil"}, nil},
		{"a name, with a token for no name", "pay-1", []string{"--workload", "evil"}, nil},
		{"other values", "evil-2", []string{"--name", "evil-2", "--workload", "evil", "--label", "team=evil",
			"--inbound-tag", "version=v1"}, nil},
		{"what its token has", "pay-2", []string{"--name", "pay-2", "--workload", "evil", "--label", "team=pay",
			"--tag", "version=v2", "--tag", "kuma.io/service=pay"},
			[]string{"secret-of-label", "secret-of-service", "secret-of-tag"}},
	} {
		of := labels
		if c.what == "other values" {
			of = strings.Replace(of, "team: pay", "team: evil", 1)
		}
		h := w.thief(c.name, w.generate(c.token...))
		if err := h.register(memberOf(c.name, of, 4, inboundWith("NET.4", 4, tags))); err != nil {
			t.Fatal(err)
		}
		var found []byte
		w.eventually("the policies of "+c.name+" have propagated", func() (err error) {
			found, err = h.clusters("default", c.name, "of-all")
			for _, secret := range c.reads {
				if err == nil && !bytes.Contains(found, []byte(secret)) {
					err = errors.New(secret + " is absent")
				}
			}
			return err
		})
		for _, secret := range []string{"secret-of-label", "secret-of-name", "secret-of-tag", "secret-of-service"} {
			switch {
			case strings.Contains(strings.Join(c.reads, " "), secret):
			case bytes.Contains(found, []byte(secret)):
				a.fellTo("by stating %s it reads %s", c.what, secret)
			default:
				a.repelled()
			}
		}
	}
	if out, _ := w.weft("check"); !strings.Contains(out, "Dataplane default/evil-1: it states what MeshProxyPatch") {
		t.Errorf("weft check does not report the Dataplane: %s", out)
	}
}

// A user who may write policies speaks for no mesh: neither by a kind of operators, nor by a Dataplane for its own
// token.
func TestHostileUsersSpeakForNoMesh(t *testing.T) {
	a := newAttack(t, "a user who may write policies speaks for a whole mesh")
	t.Parallel()
	w := newInstance(t, int(subnets.Add(1)), "KUMA_ACCESS_STATIC_WRITE_GROUPS=writers,mesh-system:admin")
	w.startPlane()
	w.apply(withIdentity)
	user, err := w.weft("generate", "user-token", "--name", "u", "--group", "writers", "--valid-for", "1h")
	if err != nil {
		t.Fatal(err)
	}
	asUser := func(of *resource.Info, document string) int {
		path := "/" + of.Plural + "/absent"
		if of.Scope == resource.Mesh {
			path = "/meshes/default" + path
		}
		return w.putAs(user, path, document)
	}
	named := func(document string) string { return nameOf.ReplaceAllString(document, "name: absent") }
	for _, d := range kind.Written() {
		info := d.Describe()
		if info.WrittenBy == resource.Writer {
			continue
		}
		document, err := os.ReadFile("../../examples/kinds/" + strings.ToLower(info.Name) + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		if status := asUser(info, named(string(document))); status != http.StatusForbidden {
			a.fellTo("it writes a %s: status %d", info.Name, status)
		} else {
			a.repelled()
		}
	}
	document := w.expand(memberOf("absent", "kuma.io/workload: bank", 5, inboundWith("NET.5", 5, "")))
	if status := asUser(&kind.Dataplanes.Info, document); status >= 300 {
		t.Fatalf("its Dataplane is rejected with the status %d, so the attack has no target", status)
	}
	if ids, err := w.thief("absent", w.token("default", "absent")).identity("default", "absent"); err == nil {
		a.fellTo("by a Dataplane that it wrote it is %s", ids)
	} else {
		a.repelled()
	}
}
