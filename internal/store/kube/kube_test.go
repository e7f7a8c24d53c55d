package kube_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"weft/internal/kube/api"
	"weft/internal/kube/crd"
	"weft/internal/kube/kubetest"
	"weft/internal/store"
	"weft/internal/store/kube"
	"weft/internal/store/storetest"
)

func TestMain(m *testing.M) { kubetest.Main(m) }

// installed returns an API server that has the definitions, and a client of it.
func installed(t *testing.T) (*kubetest.Server, *api.Client) {
	t.Helper()
	server := kubetest.Start(t)
	client, err := api.New(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	if err := crd.Install(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	return server, client
}

var namespaces atomic.Int32

// namespace creates a namespace, and returns its name.
func namespace(t *testing.T, client *api.Client) string {
	t.Helper()
	name := fmt.Sprintf("n%d", namespaces.Add(1))
	if err := client.Create(t.Context(), "/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": name}}, nil); err != nil {
		t.Fatal(err)
	}
	return name
}

func open(t *testing.T, server *kubetest.Server, o kube.Options) *kube.Store {
	t.Helper()
	s, err := kube.Open(t.Context(), server.Config(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// restarted is a store whose API server loses its history when it is started again.
type restarted struct {
	*kube.Store
	server *kubetest.Server
}

// Compact implements [storetest.Compacter].
func (r restarted) Compact(t *testing.T) {
	r.server.StopAPI()
	r.server.StartAPI(t)
}

// TestStore runs the conformance suite with rows that are records, and with rows that are Secrets.
func TestStore(t *testing.T) {
	server, client := installed(t)
	for name, kinds := range map[string][]kube.Kind{
		"records": nil,
		"private": {{Name: "Thing", Private: true}},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T, history int) store.Store {
				return restarted{open(t, server, kube.Options{Namespace: namespace(t, client), Kinds: kinds,
					Backlog: history}), server}
			})
			t.Run("shared", func(t *testing.T) {
				storetest.RunShared(t, func(t *testing.T, stores int) []store.Store {
					o := kube.Options{Namespace: namespace(t, client), Kinds: kinds}
					var all []store.Store
					for range stores {
						all = append(all, open(t, server, o))
					}
					return all
				})
			})
			t.Run("durable", func(t *testing.T) {
				o := kube.Options{Namespace: namespace(t, client), Kinds: kinds}
				storetest.RunDurable(t, func(t *testing.T) store.Store { return open(t, server, o) })
			})
		})
	}
}
