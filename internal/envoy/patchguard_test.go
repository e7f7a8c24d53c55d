package envoy

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"weft/internal/xds"
	"weft/kind"
)

// TestNoModificationLeadsToTheMachine: unix sockets, files, the environment and the port of Envoy's administration are
// a problem of each modification, at any depth, and no proxy gets them.
func TestNoModificationLeadsToTheMachine(t *testing.T) {
	const pipe = `address: {pipe: {path: /var/lib/weft/SECRET}}`
	const hcm = `"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager`
	cluster := func(endpoint string) string {
		return `{cluster: {operation: Add, value: '{name: x, loadAssignment: {clusterName: x, endpoints: [{lbEndpoints: ` +
			`[{endpoint: {` + endpoint + `}}]}]}}'}}`
	}
	listener := func(filter string) string {
		return `{listener: {operation: Add, value: '{name: x, address: {socketAddress: {address: 10.0.0.1, portValue: 1}}, ` +
			`filterChains: [{filters: [{name: f, typedConfig: {` + filter + `}}]}]}'}}`
	}
	patch := func(operations string) string {
		return `{cluster: {operation: Patch, match: {name: self_inbound_10.0.0.1_8080}, jsonPatches: [` + operations + `]}}`
	}
	const at = `{op: add, path: /loadAssignment, value: {clusterName: c, endpoints: [{lbEndpoints: [{endpoint: `
	for name, text := range map[string]string{
		"a cluster at a socket":   cluster(pipe),
		"a listener at a socket":  `{listener: {operation: Add, value: '{name: x, ` + pipe + `}'}}`,
		"a file in a response":    `{virtualHost: {operation: Add, value: '{name: x, domains: [x], routes: [{match: {prefix: /}, directResponse: {status: 200, body: {filename: /SECRET}}}]}'}}`,
		"a variable":              `{virtualHost: {operation: Add, value: '{name: x, domains: [x], routes: [{match: {prefix: /}, directResponse: {status: 200, body: {environmentVariable: SECRET}}}]}'}}`,
		"a variable in a format":  `{virtualHost: {operation: Add, value: '{name: x, domains: [x], responseHeadersToAdd: [{header: {key: a, value: "%ENVIRONMENT(SECRET)%"}}]}'}}`,
		"a file in a format":      `{virtualHost: {operation: Add, value: '{name: x, domains: [x], responseHeadersToAdd: [{header: {key: a, value: "%FILE_CONTENT(/SECRET)%"}}]}'}}`,
		"a log file":              listener(hcm + `, statPrefix: x, accessLog: [{name: a, typedConfig: {"@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog, path: /SECRET}}]`),
		"a file of routes":        listener(hcm + `, statPrefix: x, rds: {configSource: {pathConfigSource: {path: /SECRET}}}`),
		"a network namespace":     cluster(`address: {socketAddress: {address: 10.0.0.1, portValue: 1, networkNamespaceFilepath: /proc/1/SECRET}}`),
		"a key of TLS":            `{cluster: {operation: Add, value: '{name: x, transportSocket: {name: tls, typedConfig: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, commonTlsContext: {tlsCertificates: [{privateKey: {filename: /SECRET}}]}}}}'}}`,
		"the log of keys":         `{cluster: {operation: Add, value: '{name: x, transportSocket: {name: tls, typedConfig: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, commonTlsContext: {keyLog: {path: /SECRET}}}}}'}}`,
		"an event log":            `{cluster: {operation: Add, value: '{name: x, healthChecks: [{timeout: 1s, interval: 1s, unhealthyThreshold: 1, healthyThreshold: 1, tcpHealthCheck: {}, eventLogPath: /SECRET}]}'}}`,
		"a TypedStruct":           listener(`"@type": type.googleapis.com/xds.type.v3.TypedStruct, typeUrl: x/envoy.extensions.filters.network.direct_response.v3.Config, value: {response: {filename: /SECRET}}`),
		"an unknown TypedStruct":  listener(`"@type": type.googleapis.com/xds.type.v3.TypedStruct, typeUrl: x/acme.Unknown, value: {body: {environment_variable: SECRET}}`),
		"a packed Struct":         listener(`"@type": type.googleapis.com/google.protobuf.Struct, value: {body: {filename: /SECRET}}`),
		"the administration":      cluster(`address: {socketAddress: {address: 127.0.0.1, portValue: 9901}}`),
		"a socket by JSON":        patch(at + `{address: {pipe: {path: /SECRET}}}}]}]}}`),
		"a file by JSON":          patch(`{op: add, path: /transportSocket, value: {name: t, typedConfig: {'@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, commonTlsContext: {tlsCertificates: [{privateKey: {filename: /SECRET}}]}}}}`),
		"a socket in two steps":   patch(at + `{address: {}}}]}]}}, {op: add, path: /loadAssignment/endpoints/0/lbEndpoints/0/endpoint/address/pipe/path, value: /SECRET}`),
		"a socket by a copy":      patch(`{op: add, path: /altStatName, value: /SECRET}, ` + at + `{address: {}}}]}]}}, {op: copy, from: /altStatName, path: /loadAssignment/endpoints/0/lbEndpoints/0/endpoint/address/pipe/path}, {op: replace, path: /altStatName, value: x}`),
		"the administration, too": patch(at + `{address: {socketAddress: {address: '::1', portValue: 9901}}}}]}]}}`),
	} {
		t.Run(name, func(t *testing.T) {
			p, problems := NewPatches(patchConf(t, text), nil)
			patched := p.Apply(Batch{Resources: patchable(), Own: true, AdminPort: 9901,
				Tags: func(string) []map[string]string { return nil }})
			if len(problems)+len(patched.Problems) == 0 {
				t.Error("it is no problem")
			}
			for _, r := range patched.Resources {
				message, err := r.Message()
				if err != nil {
					t.Fatal(err)
				}
				text := string(mustJSON(t, message))
				escaped := strings.NewReplacer("%%ENVIRONMENT(SECRET)", "", "%%FILE_CONTENT(/SECRET)", "").Replace(text)
				if strings.Contains(escaped, "SECRET") || strings.Contains(text, "9901") {
					t.Errorf("a proxy gets %s", text)
				}
			}
		})
	}
}

// TestHarmlessValues: what does not lead to the machine of a proxy stays as it is written.
func TestHarmlessValues(t *testing.T) {
	for name, text := range map[string]string{
		"logs":           `{listener: {operation: Add, value: '{name: x, address: {socketAddress: {address: 10.0.0.1, portValue: 1}}, accessLog: [{name: a, typedConfig: {"@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog, path: /dev/stdout}}], filterChains: [{filters: [{name: b, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, statPrefix: x, cluster: x}}]}]}'}}`,
		"a path of HTTP": `{virtualHost: {operation: Add, value: '{name: x, domains: [x], routes: [{match: {path: /etc}, redirect: {pathRedirect: /file}}]}'}}`,
		"an address":     `{cluster: {operation: Add, value: '{name: x, loadAssignment: {clusterName: x, endpoints: [{lbEndpoints: [{endpoint: {address: {socketAddress: {address: 127.0.0.1, portValue: 8080}}}}]}]}}'}}`,
		"a JSON patch":   `{cluster: {operation: Patch, jsonPatches: [{op: add, path: /connectTimeout, value: 3s}]}}`,
	} {
		p, problems := NewPatches(patchConf(t, text), nil)
		patched := p.Apply(Batch{Resources: patchable(), Own: true, AdminPort: 9901,
			Tags: func(string) []map[string]string { return nil }})
		if len(problems)+len(p.Unlisted)+len(patched.Problems) > 0 {
			t.Errorf("%s: %v %v %v", name, problems, p.Unlisted, patched.Problems)
		}
	}
}

// TestUnlistedTypes: a type that runs code of its writer is not permitted, however it is written, unless the setting
// permits it.
func TestUnlistedTypes(t *testing.T) {
	const lua = "envoy.extensions.filters.http.lua.v3.Lua"
	const typed = `'@type': type.googleapis.com/` + lua + `, defaultSourceCode: {inlineString: x}`
	for name, text := range map[string]string{
		"a value":       `{httpFilter: {operation: AddFirst, value: "{name: x, typedConfig: {` + typed + `}}"}}`,
		"JSON":          `{httpFilter: {operation: Patch, match: {name: x}, jsonPatches: [{op: add, path: /a, value: {` + typed + `}}]}}`,
		"JSON's path":   `{httpFilter: {operation: Patch, match: {name: x}, jsonPatches: [{op: add, path: /a/@type, value: type.googleapis.com/` + lua + `}]}}`,
		"a TypedStruct": `{httpFilter: {operation: AddFirst, value: "{name: x, typedConfig: {'@type': type.googleapis.com/xds.type.v3.TypedStruct, typeUrl: x/` + lua + `}}"}}`,
	} {
		p, problems := NewPatches(patchConf(t, text), nil)
		found := slices.ContainsFunc(p.Unlisted,
			func(u kind.PatchProblem) bool { return strings.Contains(u.Reason, lua) })
		if len(problems) > 0 || !found {
			t.Errorf("%s: %v, %v", name, problems, p.Unlisted)
		}
		p, _ = NewPatches(patchConf(t, text), TypeNames{lua, "xds.type.v3.TypedStruct"})
		if len(p.Unlisted) > 0 {
			t.Errorf("%s is permitted: %v", name, p.Unlisted)
		}
	}
	grpc := `{cluster: {operation: Add, value: '{name: x, edsClusterConfig: {edsConfig: {apiConfigSource: {apiType: GRPC, grpcServices: [{googleGrpc: {targetUri: x, statPrefix: x}}]}}}}'}}`
	if p, _ := NewPatches(patchConf(t, grpc), nil); len(p.Unlisted) != 1 {
		t.Errorf("a client of gRPC with credentials of files: %v", p.Unlisted)
	}
}

// TestATypeByPiecesIsNotPermitted: a JSON patch that puts a type together from texts that are no types has no effect.
func TestATypeByPiecesIsNotPermitted(t *testing.T) {
	const lua = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"
	p, problems := NewPatches(patchConf(t, `{cluster: {operation: Patch, match: {name: self_inbound_10.0.0.1_8080}, `+
		`jsonPatches: [{op: add, path: /altStatName, value: `+lua+`}, {op: add, path: /typedExtensionProtocolOptions, value: `+
		`{x: {}}}, {op: move, from: /altStatName, path: /typedExtensionProtocolOptions/x/@type}]}}`), nil)
	if len(problems)+len(p.Unlisted) > 0 {
		t.Fatalf("the pieces are found: %v, %v", problems, p.Unlisted)
	}
	patched := p.Apply(Batch{Resources: patchable(), Own: true, Tags: func(string) []map[string]string { return nil }})
	if len(patched.Problems) == 0 || !strings.Contains(patched.Problems[0].Reason, "Lua, which is not permitted") {
		t.Errorf("the problems are %v", patched.Problems)
	}
	for _, r := range patched.Resources {
		if message, err := r.Message(); err != nil || r.Type == xds.Cluster &&
			strings.Contains(string(mustJSON(t, message)), "Lua") {
			t.Errorf("%s has the type, %v", r.Name, err)
		}
	}
}

// fileName matches the names of fields that may name a file, a library or a variable of the environment.
var fileName = regexp.MustCompile(`path|file|dir(ectory)?$|environment|env_|library`)

// harmlessFields match fileName and lead to no machine.
var harmlessFields = []string{
	"envoy.config.bootstrap.", "envoy.data.", "envoy.service.", "envoy.admin.", "envoy.config.overload.",
	"envoy.config.core.v3.HealthCheck.HttpHealthCheck.path", "envoy.config.core.v3.Pipe.path",
	"envoy.config.core.v3.DataSource.", "envoy.config.route.v3.R", "envoy.type.http.v3.Cookie.path",
	"envoy.extensions.clusters.mcp_multicluster.", "envoy.extensions.filters.http.a2a.",
	"envoy.extensions.common.aws.v3.CredentialsFileCredentialProvider.profile",
	"envoy.extensions.common.aws.v3.IAMRolesAnywhereCredentialProvider.profile_arn",
	"envoy.extensions.filters.http.aws_lambda.v3.Config.credentials_profile",
	"envoy.extensions.filters.http.ext_authz.v3.HttpService.path_",
	"envoy.extensions.filters.http.file_server.v3.FileServerConfig.DirectoryBehavior.default_file",
	"envoy.extensions.filters.http.file_server.v3.FileServerConfig.PathMapping.request_path_prefix",
	"envoy.extensions.filters.http.mcp", "envoy.extensions.filters.http.oauth2.v3.CookieConfig.path",
	"envoy.extensions.filters.network.reverse_tunnel.v3.ReverseTunnel.request_path",
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.TunnelingConfig.post_path",
	"envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.UdpTunnelingConfig.post_path",
	"envoy.extensions.path.", "envoy.extensions.resource_monitors.",
}

// TestEveryFileOfEnvoyIsKnown: each field of Envoy's API that may name a file is one that the guard replaces, or one
// that names none. A newer API fails this test until its fields are in one of the lists.
func TestEveryFileOfEnvoyIsKnown(t *testing.T) {
	known := append(slices.Clone(fileFields), logFields...)
	protoregistry.GlobalTypes.RangeMessages(func(m protoreflect.MessageType) bool {
		fields := m.Descriptor().Fields()
		if !strings.HasPrefix(string(m.Descriptor().FullName()), "envoy.") {
			return true
		}
		for i := range fields.Len() {
			field := fields.Get(i)
			name := field.FullName()
			socket := field.Message() != nil &&
				field.Message().FullName() == (&corev3.Pipe{}).ProtoReflect().Descriptor().FullName()
			if socket && name != "envoy.config.core.v3.Address.pipe" &&
				!strings.HasPrefix(string(name), "envoy.config.bootstrap.") {
				t.Errorf("%s is a unix socket, which the guard does not replace", name)
			}
			harmless := slices.ContainsFunc(harmlessFields, func(prefix string) bool {
				return strings.HasPrefix(string(name), prefix)
			})
			if field.Kind() == protoreflect.StringKind && fileName.MatchString(string(field.Name())) && !harmless &&
				!slices.Contains(known, name) {
				t.Errorf("%s may name a file, which the guard does not replace", name)
			}
		}
		return true
	})
	for _, name := range known {
		if _, err := protoregistry.GlobalFiles.FindDescriptorByName(name); err != nil {
			t.Errorf("%s is no field: %v", name, err)
		}
	}
}

// TestHarmlessTypesExist: each harmless type is one that this release knows.
func TestHarmlessTypesExist(t *testing.T) {
	for _, name := range harmlessTypes {
		if _, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if more := TypeNames(nil).Violations(&kind.ProxyPatchConf{}); more != "" {
		t.Error(more)
	}
}

func mustJSON(t *testing.T, m proto.Message) []byte {
	t.Helper()
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
