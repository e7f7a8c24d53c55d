package kind_test

import (
	"fmt"
	"strings"
	"testing"

	"weft/kind"
)

// TestEveryFieldWorksOrIsRejected covers the fields of Kuma's API. A field has an effect, or is rejected with a
// sentence that states the replacement; no field is ignored. A line is a field and, where it is rejected, the beginning
// of the sentence.
func TestEveryFieldWorksOrIsRejected(t *testing.T) {
	const certificate = `{type: Secret, secretRef: {kind: Secret, name: c}}`
	for _, shape := range []struct{ kind, frame, fields string }{
		{"Mesh", `{type: Mesh, name: m, %s}`, `
			skipCreatingInitialPolicies: ["*"]
			mtls: {enabledBackend: a, backends: [{name: a, type: builtin}], skipValidation: false}
			mtls: {backends: [{name: a, type: builtin, mode: STRICT, dpCert: {rotation: {expiration: 1d}}, conf: {caCert: {RSAbits: 2048, expiration: 10y}}}]}
			mtls: {backends: [{name: a, type: provided, conf: {cert: {secret: s}, key: {secret: k}}}]}
			mtls: {backends: [{rootChain: {}}]}              | mtls.backends[0].rootChain: has no meaning here; leave it out
			mtls: {backends: [{dpCert: {requestTimeout: 1s}}]} | mtls.backends[0].dpCert.requestTimeout: has no meaning here; leave it out
			mtls: {backends: [{name: a, type: provided, conf: {cert: {file: /c}}}]} | mtls.backends[0].conf.cert.file: is not served by this release; use a Secret
			routing: {zoneEgress: true, localityAwareLoadBalancing: true, defaultForbidMeshExternalServiceAccess: false}
			dataplaneProxyMembership: {allowed: [{tags: {team: "*"}}], blocked: [{kubernetes: {zone: east}}]}
			networking: {outbound: {passthrough: false}}     | networking: has no meaning here; use a MeshPassthrough
			tracing: {}                                      | tracing: has no effect: this release writes no traces
			logging: {}                                      | logging: has no effect: this release writes no access logs
			metrics: {}                                      | metrics: has no effect: this release exposes no metrics of proxies
			constraints: {}                                  | constraints: has no meaning here; use dataplaneProxyMembership
			meshServices: {mode: Exclusive}
			meshServices: {mode: Everywhere}                 | meshServices.mode: is "Everywhere", and every mesh has the mode Exclusive`},
		{"Dataplane", `{type: Dataplane, mesh: m, name: d, %s}`, `
			networking: {address: 10.0.0.1}
			networking: {zoneIngress: {address: 10.0.0.1, port: 10001, advertisedAddress: 192.168.1.100, advertisedPort: 30001, name: zi-port}}
			networking: {zoneEgress: {address: 10.0.0.2, port: 10002, name: ze-port}}
			networking: {admin: {port: 9901}}
			networking: {gateway: {type: BUILTIN}}           | networking.gateway: has no meaning here: for a delegated gateway
			networking: {listeners: [{type: ZoneIngress}]}   | networking.listeners: has no meaning here; use networking.zoneIngress and networking.zoneEgress
			networking: {advertisedAddress: 10.0.0.1}        | networking.advertisedAddress: has no meaning here; use networking.zoneIngress
			probes: {port: 9000}                             | probes: has no meaning here; use serviceProbe
			metrics: {}                                      | metrics: has no effect: this release exposes no metrics of proxies`},
		{"inbound", `{type: Dataplane, mesh: m, name: d, networking: {address: 10.0.0.1, inbound: [{port: 8080, %s}]}}`,
			`
			address: 10.0.0.2
			servicePort: 80
			serviceAddress: 127.0.0.1
			name: http
			protocol: http
			tags: {kuma.io/service: web, kuma.io/protocol: http, version: v1}
			state: Ignored
			health: {ready: true}
			health: {healthy: false}
			serviceProbe: {interval: 1s, timeout: 2s, unhealthyThreshold: 3, healthyThreshold: 1, tcp: {}}
			serviceProbe: {interval: 0s}                     | networking.inbound[0].serviceProbe.interval: is 0s, want 100ms to 1h; leave it out for the default
			serviceProbe: {timeout: 0s}                      | networking.inbound[0].serviceProbe.timeout: is 0s, want 10ms to 1h; leave it out for the default
			serviceProbe: {unhealthyThreshold: 0}            | networking.inbound[0].serviceProbe.unhealthyThreshold: is 0, want 1 to 1000; leave it out for the default
			serviceProbe: {healthyThreshold: 0}              | networking.inbound[0].serviceProbe.healthyThreshold: is 0, want 1 to 1000; leave it out for the default`},
		{"outbound", `{type: Dataplane, mesh: m, name: d, networking: {outbound: [{port: 10001, %s}]}}`, `
			address: 127.0.0.2, tags: {kuma.io/service: backend}
			backendRef: {kind: MeshService, name: backend, port: 80}
			backendRef: {kind: MeshService, labels: {app: backend}, port: 80}
			backendRef: {kind: MeshSubset, name: api, port: 80}  | networking.outbound[0].backendRef.kind: is "MeshSubset", want one of MeshService, MeshMultiZoneService, MeshExternalService`},
		{"transparentProxying", `{type: Dataplane, mesh: m, name: d, networking: {transparentProxying: {%s}}}`, `
			redirectPortInbound: 15006
			redirectPortOutbound: 15001
			ipFamilyMode: DualStack
			directAccessServices: ["*"]                      | networking.transparentProxying.directAccessServices: is not served by this release; list
			reachableServices: [backend]
			reachableBackends: {refs: [{kind: MeshService, name: a}]}`},
		{"MeshService", `{type: MeshService, mesh: m, name: s, spec: {selector: {dataplaneRef: {name: web-1}}, ` +
			`ports: [{port: 80}], %s}}`, `
			state: Available
			identities: [{type: ServiceTag, value: web}, {type: SpiffeID, value: "spiffe://a/b"}]
			zoneIngress: {address: 192.168.1.100, port: 30001}`},
		{"MeshService's selector", `{type: MeshService, mesh: m, name: s, spec: {selector: {%s}, ports: [{port: 80}]}}`,
			`
			dataplaneTags: {kuma.io/service: web}
			dataplaneLabels: {matchLabels: {app: web}}
			dataplaneRef: {name: web-1}`},
		{"MeshService's ports", `{type: MeshService, mesh: m, name: s, spec: {selector: {dataplaneRef: {name: a}}, ` +
			`ports: [{port: 80, %s}]}}`, `
			targetPort: 8080
			targetPort: http
			name: web
			appProtocol: http
			snis: [{value: a.web.80.default.ms}]`},
		{"MeshMultiZoneService", `{type: MeshMultiZoneService, mesh: m, name: s, spec: {%s}}`, `
			selector: {meshService: {matchLabels: {kuma.io/display-name: web}}}, ports: [{port: 80, targetPort: 8080, name: http, appProtocol: http, snis: [{value: a.80.mzms}]}]`},
		{"ZoneIngress", `{type: ZoneIngress, name: zi, networking: {address: 10.0.0.1, port: 10001%s`, `
			}, zone: east}
			, advertisedAddress: 192.168.1.100, advertisedPort: 30001}}
			, admin: {port: 9901}}}
			}, availableServices: []}`},
		{"HostnameGenerator",
			`{type: HostnameGenerator, name: g, spec: {template: "{{ .DisplayName }}.svc.mesh.local", %s}}`, `
			selector: {meshService: {matchLabels: {a: b}}}
			selector: {meshMultiZoneService: {}}
			selector: {meshExternalService: {}}`},
		{"ZoneEgress", `{type: ZoneEgress, name: ze, networking: {address: 10.0.0.1, port: 10002%s`, `
			}, zone: east}
			, admin: {port: 9901}}}`},
		{"MeshExternalService",
			`{type: MeshExternalService, mesh: m, name: s, spec: {match: {type: HostnameGenerator, port: 443, ` +
				`protocol: http2}, endpoints: [{address: a.b, port: 443, priority: 1}], %s}}`, `
			tls: {enabled: true, version: {min: TLS12, max: TLS13}, allowRenegotiation: false}
			tls: {enabled: true, verification: {mode: Secured, serverName: a.b, subjectAltNames: [{type: Exact, value: a.b}]}}
			tls: {enabled: true, verification: {caCert: ` + certificate + `, clientCert: ` + certificate +
				`, clientKey: ` + certificate + `}}
			tls: {enabled: true, verification: {caCert: {type: File, file: {path: /c}}}} | spec.tls.verification.caCert.file: is not served by this release; use a Secret
			extension: {type: Lambda}                        | spec.extension: has no meaning here; write the endpoints`},
		{"MeshIdentity", `{type: MeshIdentity, mesh: m, name: i, spec: {provider: {type: Bundled}, %s}}`, `
			selector: {dataplane: {matchLabels: {}}}
			spiffeID: {trustDomain: "{{ .Mesh }}.{{ .Zone }}.mesh.local"}
			spiffeID: {path: '/{{ .Workload }}/{{ label "k" }}'}`},
		{"MeshIdentity's provider", `{type: MeshIdentity, mesh: m, name: i, spec: {provider: {%s}}}`, `
			type: Bundled
			type: Bundled, bundled: {meshTrustCreation: Disabled}
			type: Bundled, bundled: {insecureAllowSelfSigned: true}
			type: Bundled, bundled: {autogenerate: {enabled: true}}
			type: Bundled, bundled: {certificateParameters: {expiry: 24h}}
			type: Spire, spire: {agent: {timeout: 1s, socketPath: /run/spire/agent.sock}}`},
		{"MeshIdentity's CA",
			`{type: MeshIdentity, mesh: m, name: i, spec: {provider: {type: Bundled, bundled: {ca: {certificate: ` +
				certificate + `, privateKey: {%s}}}}}}`, `
			type: Secret, secretRef: {kind: Secret, name: k}
			type: InsecureInline, insecureInline: {value: pem}
			type: File                                       | spec.provider.bundled.ca.privateKey.type: "File" is not served by this release; use Secret
			type: EnvVar                                     | spec.provider.bundled.ca.privateKey.type: "EnvVar" is not served by this release; use Secret
			type: File, file: {path: /k}                     | spec.provider.bundled.ca.privateKey.file: is not served by this release; use a Secret
			type: EnvVar, envVar: {name: K}                  | spec.provider.bundled.ca.privateKey.envVar: is not served by this release; use a Secret`},
		{"MeshTimeout", `{type: MeshTimeout, mesh: m, name: t, spec: {to: [{targetRef: {kind: Mesh}, default: ` +
			`{idleTimeout: 1s}}], %s}}`, `
			targetRef: {kind: Mesh}
			targetRef: {kind: Dataplane, labels: {app: web}, sectionName: http}
			targetRef: {kind: Mesh, proxyTypes: [Sidecar]}
			targetRef: {kind: Mesh, proxyTypes: [Gateway, Sidecar]}
			targetRef: {kind: Mesh, proxyTypes: [Gateway]}   | spec.targetRef.proxyTypes: has no Sidecar, and this release has no built-in gateway
			targetRef: {kind: MeshHTTPRoute, name: web}      | spec.targetRef.kind: is "MeshHTTPRoute", which is not served by this release; use an item of
			targetRef: {kind: MeshSubset}
			targetRef: {kind: MeshSubset, tags: {a: b}}
			targetRef: {kind: MeshService, name: web_shop_svc_80}
			targetRef: {kind: MeshServiceSubset, name: web, tags: {version: v1}}
			targetRef: {kind: MeshSubset, name: web}         | spec.targetRef.name: has no meaning with the kind MeshSubset
			targetRef: {kind: MeshSubset, labels: {a: b}}    | spec.targetRef.labels: go with the kind Dataplane
			targetRef: {kind: MeshSubset, tags: {a: b c}}    | spec.targetRef.tags[a]: "b c" is not a tag's value
			targetRef: {kind: MeshSubset, sectionName: http} | spec.targetRef.sectionName: goes with the kind Dataplane
			targetRef: {kind: MeshService, tags: {a: b}}     | spec.targetRef.name: is required with the kind MeshService
			targetRef: {kind: MeshServiceSubset, name: web, tags: {kuma.io/service: a}} | spec.targetRef.tags[kuma.io/service]: is "a", and the name is "web"
			targetRef: {kind: Dataplane, tags: {a: b}}       | spec.targetRef.tags: goes with the kinds MeshSubset and MeshServiceSubset
			targetRef: {kind: Dataplane, name: WEB}          | spec.targetRef.name: "WEB" is not a name`},
		{"MeshTLS", `{type: MeshTLS, mesh: m, name: t, spec: {rules: [{default: {%s}}]}}`, `
			mode: Strict
			mode: Permissive
			tlsVersion: {min: TLSAuto, max: TLS12}
			tlsCiphers: [ECDHE-ECDSA-AES128-GCM-SHA256, ECDHE-RSA-CHACHA20-POLY1305]`},
		{"MeshRateLimit", `{type: MeshRateLimit, mesh: m, name: r, spec: {rules: [{default: {local: {%s}}}]}}`, `
			http: {requestRate: {num: 100, interval: 10s}, onRateLimit: {status: 503, headers: {set: [{name: a, value: b}], add: [{name: c, value: d}]}}}
			http: {disabled: true}
			http: {onRateLimit: {status: 200}}
			tcp: {connectionRate: {num: 1, interval: 50ms}}
			tcp: {disabled: false}`},
		{"MeshRateLimit's rules", `{type: MeshRateLimit, mesh: m, name: r, spec: {%s}}`, `
			targetRef: {kind: Dataplane, labels: {a: b}, sectionName: http}, rules: [{default: {local: {tcp: {disabled: true}}}}]
			rules: [{matches: [{spiffeID: {type: Exact, value: "spiffe://m/a"}}], default: {local: {http: {disabled: true}}}}]
			rules: [{matches: [{spiffeId: {type: Prefix, value: "spiffe://m/a"}, sni: {type: Exact, value: a.b}}], default: {local: {http: {disabled: true}}}}]
			rules: [{matches: [{sni: {type: Exact, value: a.b}}], default: {local: {tcp: {disabled: true}}}}]
			from: [{targetRef: {kind: Mesh}, default: {local: {http: {disabled: true}}}}]
			to: []                                           | spec.to: has an effect at gateways only, and there are none; use ` + "`rules`" + `
			from: [{targetRef: {kind: MeshService, name: a}, default: {local: {http: {disabled: true}}}}] | spec.from[0].targetRef.name: is not served by this release; use rules[].matches.spiffeID`},
		{"MeshFaultInjection", `{type: MeshFaultInjection, mesh: m, name: f, spec: {rules: [{default: {http: [{%s}]}}]}}`, `
			abort: {httpStatus: 500, percentage: 50}
			delay: {value: 5s, percentage: "12.5"}, abort: {httpStatus: 599, percentage: 0}
			responseBandwidth: {limit: 50 kbps, percentage: 100}`},
		{"MeshFaultInjection's rules", `{type: MeshFaultInjection, mesh: m, name: f, spec: {%s}}`, `
			targetRef: {kind: Dataplane, labels: {a: b}, sectionName: http}, rules: [{default: {http: [{abort: {httpStatus: 500, percentage: 50}}]}}]
			rules: [{matches: [{spiffeID: {type: Exact, value: "spiffe://m/a"}, sni: {type: Exact, value: a.b}}], default: {http: [{abort: {httpStatus: 500, percentage: 50}}]}}]
			from: [{targetRef: {kind: Mesh}, default: {http: [{abort: {httpStatus: 500, percentage: 50}}]}}]
			to: []                                           | spec.to: has an effect at gateways only, and there are none; use ` + "`rules`" + `
			from: [{targetRef: {kind: MeshSubset, tags: {a: b}}, default: {http: []}}] | spec.from[0].targetRef.tags: is not served by this release, since certificates have no tags`},
		{"MeshTLS's rules", `{type: MeshTLS, mesh: m, name: t, spec: {rules: [{default: {mode: Strict}, %s}]}}`, `
			matches: [{sni: {type: Exact, value: a.b}}]      | spec.rules[0].matches: has no meaning here: TLS is set up before the caller is known`},
		{"MeshTimeout's target", `{type: MeshTimeout, mesh: m, name: t, spec: {to: [{targetRef: {%s}, default: ` +
			`{idleTimeout: 1s}}]}}`, `
			kind: Mesh
			kind: MeshService, name: web
			kind: MeshService, name: web, sectionName: http
			kind: MeshService, labels: {kuma.io/display-name: web}, sectionName: "80"
			kind: MeshMultiZoneService, labels: {app: web}, sectionName: http
			kind: MeshExternalService, name: web
			kind: MeshService, name: web, namespace: apps    | spec.to[0].targetRef.namespace: has no meaning outside Kubernetes
			kind: MeshHTTPRoute, name: web
			kind: MeshHTTPRoute, labels: {app: web}
			kind: MeshHTTPRoute, name: web, sectionName: http | spec.to[0].targetRef.sectionName: has no meaning here
			kind: MeshSubset, tags: {a: b}                   | spec.to[0].targetRef.tags: is not served by this release; use labels
			kind: MeshServiceSubset                          | spec.to[0].targetRef.kind: is "MeshServiceSubset", which is no kind of destinations; use MeshService`},
		{"MeshRetry's target", `{type: MeshRetry, mesh: m, name: t, spec: {to: [{targetRef: {%s}, default: ` +
			`{http: {numRetries: 1}}}]}}`, `
			kind: MeshService, name: web
			kind: MeshHTTPRoute, name: web
			kind: MeshHTTPRoute, labels: {app: web}`},
		{"MeshLoadBalancingStrategy's target", `{type: MeshLoadBalancingStrategy, mesh: m, name: t, spec: {to: [{` +
			`targetRef: {%s}, default: {hashPolicies: [{type: Header, header: {name: a}}]}}]}}`, `
			kind: MeshService, name: web
			kind: MeshHTTPRoute, name: web`},
		{"MeshTimeout's conf", `{type: MeshTimeout, mesh: m, name: t, spec: {to: [{targetRef: {kind: Mesh}, default: ` +
			`{%s}}]}}`, `
			connectionTimeout: 500ms
			idleTimeout: 0s
			http: {requestTimeout: 0s}
			http: {streamIdleTimeout: 1h}
			http: {maxStreamDuration: 1m30s}
			http: {maxConnectionDuration: 1h}
			http: {requestHeadersTimeout: 1s}`},
		{"MeshCircuitBreaker", `{type: MeshCircuitBreaker, mesh: m, name: b, spec: {to: [{targetRef: {kind: ` +
			`MeshExternalService, name: web}, default: {connectionLimits: {maxRequests: 1}}}], %s}}`, `
			targetRef: {kind: Dataplane, labels: {app: web}}
			targetRef: {kind: MeshSubset, tags: {a: b}}
			rules: [{default: {connectionLimits: {maxConnections: 5}}}, {default: {outlierDetection: {disabled: true}}}]
			rules: [{matches: [{}], default: {outlierDetection: {disabled: true}}}] | spec.rules[0].matches: has no meaning here
			from: [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxConnections: 5}}}]`},
		{"MeshCircuitBreaker's conf", `{type: MeshCircuitBreaker, mesh: m, name: b, spec: {to: [{targetRef: {kind: Mesh}, ` +
			`default: {%s}}]}}`, `
			connectionLimits: {maxConnections: 1, maxConnectionPools: 2, maxPendingRequests: 3, maxRetries: 4, maxRequests: 5}
			outlierDetection: {disabled: true}
			outlierDetection: {disabled: true, healthyPanicThreshold: 0}
			outlierDetection: {interval: 5s, baseEjectionTime: 30s, maxEjectionPercent: 20, splitExternalAndLocalErrors: true, healthyPanicThreshold: "62.9", detectors: {totalFailures: {}}}
			outlierDetection: {detectors: {totalFailures: {consecutive: 10}, gatewayFailures: {consecutive: 10}, localOriginFailures: {consecutive: 10}}}
			outlierDetection: {detectors: {successRate: {minimumHosts: 5, requestVolume: 10, standardDeviationFactor: "1.9"}}}
			outlierDetection: {detectors: {failurePercentage: {minimumHosts: 5, requestVolume: 10, threshold: 85}}}`},
		{"MeshLoadBalancingStrategy's conf", `{type: MeshLoadBalancingStrategy, mesh: m, name: b, spec: {to: ` +
			`[{targetRef: {kind: Mesh}, default: {%s}}]}}`, `
			loadBalancer: {type: RoundRobin}
			loadBalancer: {type: Random}
			loadBalancer: {type: LeastRequest, leastRequest: {choiceCount: 8, activeRequestBias: "1.3"}}
			loadBalancer: {type: RingHash, ringHash: {hashFunction: XXHash, minRingSize: 1, maxRingSize: 8000000}}
			loadBalancer: {type: Maglev, maglev: {tableSize: 5000011}}
			loadBalancer: {type: RingHash, ringHash: {hashPolicies: []}} | spec.to[0].default.loadBalancer.ringHash.hashPolicies: is the older place; write hashPolicies beside loadBalancer
			loadBalancer: {type: Maglev, maglev: {hashPolicies: []}}     | spec.to[0].default.loadBalancer.maglev.hashPolicies: is the older place; write hashPolicies beside loadBalancer
			hashPolicies: []
			hashPolicies: [{type: Header, terminal: true, header: {name: x-user}}]
			hashPolicies: [{type: Cookie, cookie: {name: sess, ttl: 1h, path: /a}}]
			hashPolicies: [{type: Connection, connection: {sourceIP: true}}]
			hashPolicies: [{type: QueryParameter, queryParameter: {name: user}}]
			hashPolicies: [{type: FilterState, filterState: {key: io.user}}]
			localityAwareness: {disabled: true}
			localityAwareness: {localZone: {affinityTags: [{key: kubernetes.io/hostname}]}}
			localityAwareness: {localZone: {affinityTags: [{key: a, weight: 9000}, {key: b, weight: 9}]}}
			localityAwareness: {crossZone: {failover: [{from: {zones: [us-1, us-2]}, to: {type: Only, zones: [us-1, us-2]}}, {to: {type: AnyExcept, zones: [eu-1]}}, {to: {type: Any}}, {to: {type: None}}]}}
			localityAwareness: {crossZone: {failoverThreshold: {percentage: 70}}}
			localityAwareness: {crossZone: {failoverThreshold: {percentage: "33.3"}}}`},
		{"MeshRetry", `{type: MeshRetry, mesh: m, name: r, spec: {to: [{targetRef: {kind: Mesh}, default: {%s}}]}}`, `
			tcp: {maxConnectAttempt: 3}
			http: {numRetries: 0}
			http: {perTryTimeout: 0s}
			http: {backOff: {baseInterval: 10ms}}
			http: {backOff: {maxInterval: 1s}}
			http: {rateLimitedBackOff: {resetHeaders: [{name: retry-after, format: Seconds}, {name: x-reset, format: UnixTimestamp}], maxInterval: 1m}}
			http: {retryOn: [5xx, GatewayError, Reset, Retriable4xx, ConnectFailure, EnvoyRatelimited, RefusedStream, Http3PostConnectFailure, "503"]}
			http: {retryOn: [HttpMethodConnect, HttpMethodDelete, HttpMethodGet, HttpMethodHead, HttpMethodOptions, HttpMethodPatch, HttpMethodPost, HttpMethodPut, HttpMethodTrace]}
			http: {retryOn: []}
			http: {retriableResponseHeaders: [{name: a, value: b}, {name: a, type: Prefix, value: b}]}
			http: {retriableRequestHeaders: [{name: a, type: Present}, {name: a, type: Absent}, {name: a, type: RegularExpression, value: "[a-z]{100}"}]}
			http: {hostSelection: [{predicate: OmitPreviousHosts}, {predicate: OmitPreviousPriorities, updateFrequency: 2}], hostSelectionMaxAttempts: 3}
			http: {hostSelection: [{predicate: OmitHostsWithTags, tags: {a: b}}]} | spec.to[0].default.http.hostSelection[0].tags: is not served by this release, in which proxies do not have the tags of endpoints; use OmitPreviousHosts
			grpc: {numRetries: 1, perTryTimeout: 1s, retryOn: [Canceled, DeadlineExceeded, Internal, ResourceExhausted, Unavailable]}`},
		{"MeshHealthCheck", `{type: MeshHealthCheck, mesh: m, name: h, spec: {to: [{targetRef: {kind: Mesh}, default: ` +
			`{%s}}]}}`, `
			tcp: {}, interval: 10s, timeout: 2s, noTrafficInterval: 1m
			tcp: {}, unhealthyThreshold: 5, healthyThreshold: 1
			tcp: {}, initialJitter: 1s, intervalJitter: 1s, intervalJitterPercent: 0
			tcp: {}, healthyPanicThreshold: 0
			tcp: {}, healthyPanicThreshold: "0.5", failTrafficOnPanic: true
			tcp: {}, eventLogPath: /tmp/log.json, alwaysLogHealthCheckFailures: true
			tcp: {}, reuseConnection: false
			tcp: {disabled: true}
			tcp: {send: "any, text", receive: [a, "b c"]}
			http: {disabled: false, path: "/health?deep=1", expectedStatuses: [100, 599]}
			http: {requestHeadersToAdd: {set: [{name: X-A, value: "a, %b"}], add: [{name: x-a, value: c}]}}
			grpc: {disabled: true, serviceName: a.b.C, authority: "a.b:80"}`},
		{"MeshHTTPRoute's match", httpRoute(`matches: [%s], default: {backendRefs: []}`), `
			{path: {type: Exact, value: /a/}}
			{path: {type: PathPrefix, value: /}}
			{path: {type: PathPrefix, value: /a}}
			{path: {type: RegularExpression, value: "/a/[0-9]+"}}
			{method: GET}
			{headers: [{name: a, value: b}, {type: Prefix, name: a, value: b}, {type: Present, name: b}, {type: Absent, name: c}]}
			{headers: [{type: RegularExpression, name: a, value: "[a-z]+"}]}
			{queryParams: [{type: Exact, name: a, value: b}, {type: RegularExpression, name: B, value: "."}]}`},
		{"MeshHTTPRoute's filter", httpRoute(
			`matches: [{path: {type: PathPrefix, value: /a}}], default: {filters: [%s]}`), `
			{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: A, value: "%REQ(x)%"}]}}
			{type: RequestHeaderModifier, requestHeaderModifier: {add: [{name: a, value: "100%"}], remove: [b]}}
			{type: ResponseHeaderModifier, responseHeaderModifier: {remove: [a]}}
			{type: RequestRedirect, requestRedirect: {scheme: https, hostname: a.b, port: 8443, statusCode: 308}}
			{type: RequestRedirect, requestRedirect: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}
			{type: URLRewrite, urlRewrite: {hostname: a, path: {type: ReplaceFullPath, replaceFullPath: /b}}}
			{type: URLRewrite, urlRewrite: {hostToBackendHostname: true}} | spec.to[0].rules[0].default.filters[0].urlRewrite.hostToBackendHostname: has no meaning here
			{type: RequestMirror, requestMirror: {backendRef: {kind: MeshExternalService, name: a}, percentage: "0.5"}}
			{type: RequestMirror, requestMirror: {backendRef: {kind: MeshService, labels: {a: b}, port: 80}, percentage: 0.5}}`},
		{"MeshHTTPRoute's backend", httpRoute(
			`matches: [{method: GET}], default: {backendRefs: [%s]}`), `
			{kind: MeshService, name: a, port: 80, weight: 0}
			{kind: MeshService, labels: {a: b}, sectionName: http, weight: 4294967295}
			{kind: MeshMultiZoneService, name: a, sectionName: "80"}
			{kind: MeshExternalService, name: a}
			{kind: MeshService, name: a, namespace: b, port: 80} | spec.to[0].rules[0].default.backendRefs[0].namespace: has no meaning outside Kubernetes
			{kind: MeshServiceSubset, name: a, tags: {v: "1"}, port: 80} | spec.to[0].rules[0].default.backendRefs[0].tags: is not served by this release; use a MeshService of each version`},
		{"MeshHTTPRoute", `{type: MeshHTTPRoute, mesh: m, name: r, spec: {to: [{targetRef: {kind: MeshService, name: a}, ` +
			`rules: [{matches: [{method: GET}], default: {backendRefs: []}}], %s}]}}`, `
			hostnames: [a.b]                                 | spec.to[0].hostnames: has no meaning here; leave it out`},
		{"MeshTCPRoute", `{type: MeshTCPRoute, mesh: m, name: r, spec: {to: [{targetRef: {kind: MeshService, name: a}, ` +
			`rules: [{default: {backendRefs: [%s]}}]}]}}`, `
			{kind: MeshService, name: a, port: 80, weight: 90}`},
		{"MeshTCPRoute's matches", `{type: MeshTCPRoute, mesh: m, name: r, spec: {to: [{targetRef: {kind: MeshService, ` +
			`name: a}, rules: [{matches: [%s], default: {backendRefs: [{kind: MeshService, name: a, port: 80}]}}]}]}}`, `
			{sni: {type: Exact, value: db.example.com}}
			{sni: {type: Wildcard, value: "*.example.com"}}`},
		{"MeshTrafficPermission", `{type: MeshTrafficPermission, mesh: m, name: p, spec: {%s}}`, `
			targetRef: {kind: Mesh}
			targetRef: {kind: Dataplane, name: web-1}
			targetRef: {kind: Dataplane, labels: {app: web}, sectionName: http}
			targetRef: {kind: Dataplane, namespace: a}       | spec.targetRef.namespace: has no meaning outside Kubernetes
			targetRef: {kind: MeshSubset, tags: {a: b}}
			targetRef: {kind: MeshService, name: web}
			targetRef: {kind: MeshGateway}                   | spec.targetRef.kind: is "MeshGateway", which is not served by this release; there are no gateways; use
			from: []                                         | spec.from: has no meaning here; use ` +
			"`rules`, which `weft migrate` makes of it" + `
			rules: [{default: {deny: [{spiffeID: {type: Prefix, value: "spiffe://other/"}}]}}]
			rules: [{default: {allowWithShadowDeny: [{spiffeID: {type: Exact, value: "spiffe://a/b"}}]}}]
			rules: [{default: {allow: [{spiffeId: {type: Exact, value: "spiffe://a/b"}}]}}]
			rules: [{matches: [{sni: {type: Exact, value: a.api.443.default.mes}}], default: {allow: []}}]
			rules: [{default: {allow: [{sni: {type: Exact, value: a.api.443.default.mes}}]}}]
			rules: [{default: {deny: [{spiffeID: {type: Exact, value: "spiffe://a/b"}, sni: {type: Exact, value: a.api.443.default.mes}}]}}]
			rules: [{default: {action: Allow}}]              | spec.rules[0].default.action: has no meaning here; use allow`},
		{"Zone", `{type: Zone, name: east, %s}`, `enabled: false`},
		{"Secret", `{type: Secret, mesh: m, name: s, %s}`, `data: c2VjcmV0`},
		{"GlobalSecret", `{type: GlobalSecret, name: s, %s}`, `data: c2VjcmV0`},
	} {
		for line := range strings.Lines(shape.fields) {
			field, rejection, _ := strings.Cut(strings.TrimSpace(line), "|")
			if field == "" {
				continue
			}
			got := strings.Join(problems(t, fmt.Sprintf(shape.frame, field)), "\n")
			if want := strings.TrimSpace(rejection); (want == "") != (got == "") || !strings.HasPrefix(got, want) {
				t.Errorf("%s, %s: the problems are %q, want %q", shape.kind, strings.TrimSpace(field), got, want)
			}
		}
	}
}

// TestRejectionsStateTheReplacement: "not served" alone does not help a user.
func TestRejectionsStateTheReplacement(t *testing.T) {
	for _, d := range kind.All() {
		for field, sentence := range d.Describe().Replaced {
			if !strings.Contains(sentence, "; ") {
				t.Errorf("%s: %s: %q says nothing to do", d.Describe().Name, field, sentence)
			}
		}
	}
}

// httpRoute returns the frame of a MeshHTTPRoute with one rule.
func httpRoute(rule string) string {
	return `{type: MeshHTTPRoute, mesh: m, name: r, spec: {to: [{targetRef: {kind: MeshService, name: a}, rules: [{` +
		rule + `}]}]}}`
}
