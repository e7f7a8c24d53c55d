package rest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// TestKumactl2ReadsWhatItWrote replays what kumactl 2.14 sends: it validates what it reads, and rejects rules beside
// `to`, limits of gateways too, inbounds with tags without a service, and sources of another form.
func TestKumactl2ReadsWhatItWrote(t *testing.T) {
	const head = `"mesh":"default","name":"a","creationTime":"0001-01-01T00:00:00Z","modificationTime":` +
		`"0001-01-01T00:00:00Z"`
	for name, test := range map[string]struct{ path, sent, reads, others string }{
		"timeout": {
			"/meshes/default/meshtimeouts",
			`{"type":"MeshTimeout",` + head + `,"kri":"kri_mt_default___a_","spec":{"targetRef":{"kind":"Mesh"},"to":` +
				`[{"targetRef":{"kind":"Mesh"},"default":{"connectionTimeout":"2s"}}],"from":[{"targetRef":{"kind":` +
				`"Mesh"},"default":{"connectionTimeout":"3s"}}]}}`,
			`"from":[{"default":{"connectionTimeout":"3s"},"targetRef":{"kind":"Mesh"}}]`,
			`"rules":[{"default":{"connectionTimeout":"3s"}}]`,
		},
		"circuit breaker": {
			"/meshes/default/meshcircuitbreakers",
			`{"type":"MeshCircuitBreaker",` + head + `,"kri":"kri_mcb_default___a_","spec":{"to":[{"targetRef":{"kind":` +
				`"Mesh"},"default":{"connectionLimits":{"maxConnections":2}}}],"from":[{"targetRef":{"kind":"Mesh"},` +
				`"default":{"connectionLimits":{"maxConnections":3}}}]}}`,
			`"from":[{"default":{"connectionLimits":{"maxConnections":3}},"targetRef":{"kind":"Mesh"}}]`,
			`"rules":[{"default":{"connectionLimits":{"maxConnections":3}}}]`,
		},
		"rules alone": {
			"/meshes/default/meshtimeouts",
			`{"type":"MeshTimeout",` + head + `,"spec":{"rules":[{"default":{"connectionTimeout":"3s"}}]}}`,
			`"rules":[{"default":{"connectionTimeout":"3s"}}]`, `"rules":[{"default":{"connectionTimeout":"3s"}}]`,
		},
		"limit of the mesh": {
			"/meshes/default/meshratelimits",
			`{"type":"MeshRateLimit",` + head + `,"spec":{"targetRef":{"kind":"Mesh","proxyTypes":["Sidecar"]},"from":` +
				`[{"targetRef":{"kind":"Mesh"},"default":{"local":{"http":{"requestRate":{"num":5,"interval":"10s"}}}}}]}}`,
			`"targetRef":{"kind":"Mesh","proxyTypes":["Sidecar"]}`, `"targetRef":{"kind":"Mesh"}`,
		},
		"limit without a target": {
			"/meshes/default/meshratelimits",
			`{"type":"MeshRateLimit",` + head + `,"spec":{"rules":[{"default":{"local":{"http":{"requestRate":{"num":5,` +
				`"interval":"10s"}}}}}]}}`,
			`"targetRef":{"kind":"Mesh","proxyTypes":["Sidecar"]}`, `"spec":{"rules":`,
		},
		"inbound without tags": {
			"/meshes/default/dataplanes",
			`{"type":"Dataplane",` + head + `,"networking":{"address":"10.0.0.1","inbound":[{"port":80,"name":"http"}]}}`,
			`"inbound":[{"name":"http","port":80}]`, `"tags":{"kuma.io/zone":"east"}`,
		},
		"frequency of other zones": {
			"/meshes/default/meshretries",
			`{"type":"MeshRetry",` + head + `,"spec":{"to":[{"targetRef":{"kind":"Mesh"},"default":{"http":{"numRetries":1,` +
				`"hostSelection":[{"predicate":"OmitPreviousHosts","updateFrequency":2}]}}}]}}`,
			`"hostSelection":[{"predicate":"OmitPreviousHosts"}]`, `"hostSelection":[{"predicate":"OmitPreviousHosts"}]`,
		},
		"secret of an external service": {
			"/meshes/default/meshexternalservices",
			`{"type":"MeshExternalService",` + head + `,"kri":"kri_extsvc_default___a_","spec":{"match":{"type":` +
				`"HostnameGenerator","port":443,"protocol":"tcp"},"endpoints":[{"address":"a.example","port":443}],` +
				`"tls":{"enabled":true,"allowRenegotiation":false,"verification":{"mode":"Secured","caCert":{"secret":` +
				`"ca"}}}},"status":{"vip":{}}}`,
			`"caCert":{"secret":"ca"}`,
			`"caCert":{"type":"Secret","secretRef":{"kind":"Secret","name":"ca"}}`,
		},
		"certificate of an external service": {
			"/meshes/default/meshexternalservices",
			`{"type":"MeshExternalService",` + head + `,"spec":{"match":{"type":"HostnameGenerator","port":443,` +
				`"protocol":"tcp"},"endpoints":[{"address":"a.example","port":443}],"tls":{"enabled":true,` +
				`"verification":{"caCert":{"inlineString":"` + certificateText(t) + `"}}}}}`,
			`"caCert":{"inlineString":"-----BEGIN`, `"caCert":{"type":"InsecureInline","insecureInline":{"value":"-----BEGIN`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := listen(t, newWorld(t, newStore(t)))
			s.put(t, "/meshes/default", `{"type": "Mesh", "name": "default"}`)
			path := test.path + "/a"
			if status, _, reply := s.apply(t, path, test.sent, agentOf("2.14.3")); status != http.StatusCreated {
				t.Fatalf("PUT: %d %s", status, reply)
			}
			for _, at := range []string{path, test.path} {
				if _, _, read := s.send(t, "GET", at, "", agentOf("2.14.3")); !strings.Contains(read, test.reads) {
					t.Errorf("kumactl 2 reads %s: %s", at, read)
				}
				for _, header := range []http.Header{nil, agentOf("3.0.0"), agentOf("0.0.0-preview.v1a2b3c4d5")} {
					if _, _, read := s.send(t, "GET", at, "", header); !strings.Contains(read, test.others) {
						t.Errorf("another client reads %s: %s", at, read)
					}
				}
			}
			for _, body := range []string{test.sent, s.readAs(t, path, "2.14.3")} {
				if status, result, reply := s.apply(t, path, body, agentOf("2.14.3")); status != http.StatusOK ||
					result.Changed {
					t.Errorf("a second PUT: %d %s", status, reply)
				}
			}
		})
	}
}

// readAs returns a resource as a kumactl reads it.
func (s *socket) readAs(t *testing.T, path, release string) string {
	t.Helper()
	status, _, read := s.send(t, "GET", path, "", agentOf(release))
	if status != http.StatusOK || !json.Valid([]byte(read)) {
		t.Fatalf("GET %s: %d %s", path, status, read)
	}
	return read
}

// agentOf returns the header of a release of kumactl.
func agentOf(release string) http.Header {
	return http.Header{"User-Agent": {"kumactl/" + release + " (linux; amd64; Kuma/1a2b3c4)"},
		"Accept": {"application/json"}, "Content-Type": {"application/json"}}
}
