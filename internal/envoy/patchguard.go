package envoy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// guard finds in a message, at any depth, what a modification may not bring to a proxy. It replaces what leads to the
// machine of the proxy: unix sockets, files, and the environment. It replaces instead of removing, since a filter
// without its keys or its server fails closed, and a chain without the filter is open.
type guard struct {
	// adminPort is the port of Envoy's administration; 0: none.
	adminPort uint32
	// kept are the findings that the resource had before the modification; nil: none.
	kept map[string]bool
	// cut are what was replaced, as texts.
	cut []string
	// types are the types of extensions, and of risky messages, in the order in which they are found.
	types []protoreflect.FullName
}

// nowhere is the address in place of a unix socket: no process without privileges listens there.
var nowhere = &corev3.SocketAddress{Address: "127.0.0.1",
	PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 1}}

// nothing is the file in place of another: reading returns nothing, and writing is lost.
const nothing = "/dev/null"

// logFields are the files that a proxy writes its logs to. The streams of its process are allowed.
var logFields = []protoreflect.FullName{
	"envoy.extensions.access_loggers.file.v3.FileAccessLog.path",
	"envoy.config.core.v3.HealthCheck.event_log_path",
	"envoy.extensions.health_check.event_sinks.file.v3.HealthCheckEventFileSink.event_log_path",
}

// fileFields name other files, directories, libraries and programs on the proxy's machine.
var fileFields = []protoreflect.FullName{
	"envoy.config.core.v3.ConfigSource.path",
	"envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials.StsService.actor_token_path",
	"envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials.StsService.subject_token_path",
	"envoy.config.core.v3.PathConfigSource.path",
	"envoy.config.core.v3.SocketAddress.network_namespace_filepath",
	"envoy.config.core.v3.WatchedDirectory.path",
	"envoy.config.tap.v3.FilePerTapSink.path_prefix",
	"envoy.config.trace.v3.DynamicOtConfig.library",
	"envoy.config.trace.v3.LightstepConfig.access_token_file",
	"envoy.extensions.filters.http.file_server.v3.FileServerConfig.PathMapping.file_path_prefix",
	"envoy.extensions.filters.http.grpc_json_reverse_transcoder.v3.GrpcJsonReverseTranscoder.descriptor_path",
	"envoy.extensions.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder.proto_descriptor",
	"envoy.extensions.filters.http.lua.v3.Lua.package_cpaths",
	"envoy.extensions.filters.http.lua.v3.Lua.package_paths",
	"envoy.extensions.filters.http.lua.v3.LuaPerRoute.package_cpaths",
	"envoy.extensions.filters.http.lua.v3.LuaPerRoute.package_paths",
	"envoy.extensions.geoip_providers.maxmind.v3.MaxMindConfig.anon_db_path",
	"envoy.extensions.geoip_providers.maxmind.v3.MaxMindConfig.asn_db_path",
	"envoy.extensions.geoip_providers.maxmind.v3.MaxMindConfig.city_db_path",
	"envoy.extensions.geoip_providers.maxmind.v3.MaxMindConfig.country_db_path",
	"envoy.extensions.geoip_providers.maxmind.v3.MaxMindConfig.isp_db_path",
	"envoy.extensions.http.cache.file_system_http_cache.v3.FileSystemHttpCacheConfig.cache_path",
	"envoy.extensions.http.cache_v2.file_system_http_cache.v3.FileSystemHttpCacheV2Config.cache_path",
	"envoy.extensions.key_value.file_based.v3.FileBasedKeyValueStoreConfig.filename",
	"envoy.extensions.transport_sockets.tls.v3.TlsKeyLog.path",
	"envoy.extensions.wasm.v3.EnvironmentVariables.host_env_keys",
}

// streams are the files of a process's own output.
var streams = []string{"/dev/stdout", "/dev/stderr"}

// readers are the operators of a format that read the environment or a file of the proxy.
var readers = []string{"%ENVIRONMENT(", "%FILE_CONTENT("}

// note records a finding, and reports whether to replace it.
func (g *guard) note(field protoreflect.FullName, value string) bool {
	text := fmt.Sprintf("%s: %.200q", field, value)
	if g.kept[text] {
		return false
	}
	g.cut = append(g.cut, text)
	return true
}

// message examines a message. It reports whether it has changed it.
func (g *guard) message(m protoreflect.Message) (changed bool) {
	if slices.Contains(riskyTypes, m.Descriptor().FullName()) {
		g.types = append(g.types, m.Descriptor().FullName())
	}
	switch o := m.Interface().(type) {
	case *anypb.Any:
		return g.packed(o)
	case *corev3.Address:
		if pipe := o.GetPipe(); pipe != nil && g.note("envoy.config.core.v3.Pipe.path", pipe.Path) {
			o.Address = &corev3.Address_SocketAddress{SocketAddress: proto.Clone(nowhere).(*corev3.SocketAddress)}
			return true
		}
	case *corev3.SocketAddress:
		if g.leadsToAdmin(o) && g.note("envoy.config.core.v3.SocketAddress.port_value", fmt.Sprint(o.GetPortValue())) {
			o.PortSpecifier = proto.Clone(nowhere).(*corev3.SocketAddress).PortSpecifier
			return true
		}
	case *corev3.DataSource:
		return g.dataSource(o)
	case *structpb.Struct:
		return false // data, unless it is packed
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			changed = g.entries(field, value.Map()) || changed
		case field.IsList():
			changed = g.items(field, value.List()) || changed
		case field.Message() != nil:
			changed = g.message(value.Message()) || changed
		default:
			if replaced, ok := g.scalar(field, value); ok {
				m.Set(field, replaced)
				changed = true
			}
		}
		return true
	})
	return changed
}

// leadsToAdmin reports whether an address is that of Envoy's administration on the same machine.
func (g *guard) leadsToAdmin(at *corev3.SocketAddress) bool {
	if g.adminPort == 0 || at.GetPortValue() != g.adminPort {
		return false
	}
	ip, err := netip.ParseAddr(at.Address)
	return err != nil || ip.Unmap().IsLoopback() || ip.IsUnspecified()
}

func (g *guard) entries(field protoreflect.FieldDescriptor, entries protoreflect.Map) (changed bool) {
	entries.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		if field.MapValue().Message() != nil {
			changed = g.message(value.Message()) || changed
		} else if replaced, ok := g.scalar(field.MapValue(), value); ok {
			entries.Set(key, replaced)
			changed = true
		}
		return true
	})
	return changed
}

func (g *guard) items(field protoreflect.FieldDescriptor, list protoreflect.List) (changed bool) {
	for i := range list.Len() {
		if field.Message() != nil {
			changed = g.message(list.Get(i).Message()) || changed
		} else if replaced, ok := g.scalar(field, list.Get(i)); ok {
			list.Set(i, replaced)
			changed = true
		}
	}
	return changed
}

// scalar returns the value in place of a text that names a file or reads one; false: it stays.
func (g *guard) scalar(field protoreflect.FieldDescriptor, value protoreflect.Value) (protoreflect.Value, bool) {
	if field.Kind() != protoreflect.StringKind {
		return value, false
	}
	text, name := value.String(), field.FullName()
	file := slices.Contains(fileFields, name) || slices.Contains(logFields, name) && !slices.Contains(streams, text)
	if file && text != "" && text != nothing && g.note(name, text) {
		return protoreflect.ValueOfString(nothing), true
	}
	escaped := text
	for _, reader := range readers {
		if strings.Contains(escaped, reader) && g.note(name, text) {
			escaped = strings.ReplaceAll(escaped, reader, "%"+reader) // a literal percent sign
		}
	}
	return protoreflect.ValueOfString(escaped), escaped != text
}

// dataSource replaces a file and an environment variable by an empty value.
func (g *guard) dataSource(source *corev3.DataSource) (changed bool) {
	empty := &corev3.DataSource_InlineString{}
	switch of := source.Specifier.(type) {
	case *corev3.DataSource_Filename:
		changed = g.note("envoy.config.core.v3.DataSource.filename", of.Filename)
	case *corev3.DataSource_EnvironmentVariable:
		changed = g.note("envoy.config.core.v3.DataSource.environment_variable", of.EnvironmentVariable)
	}
	if changed {
		source.Specifier = empty
	}
	if source.WatchedDirectory != nil && g.note("envoy.config.core.v3.WatchedDirectory.path",
		source.WatchedDirectory.Path) {
		source.WatchedDirectory, changed = nil, true
	}
	return changed
}

// packed examines a packed message. One in the form of JSON, which Envoy accepts for a message, is replaced by the
// message. What is of a type that this release does not know cannot be examined.
func (g *guard) packed(packed *anypb.Any) (changed bool) {
	g.types = append(g.types, packed.MessageName())
	inner, err := packed.UnmarshalNew()
	if err != nil {
		return false
	}
	if as, ok := g.typedStruct(inner.ProtoReflect()); ok {
		inner, changed = as, true
	}
	if data, ok := inner.(*structpb.Struct); ok {
		changed = g.data(data)
	}
	if g.message(inner.ProtoReflect()) || changed {
		repacked := toAny(inner)
		packed.TypeUrl, packed.Value = repacked.TypeUrl, repacked.Value
		return true
	}
	return false
}

// typedStruct returns the message that a TypedStruct has as JSON, if that has something to replace; false: it stays.
func (g *guard) typedStruct(m protoreflect.Message) (proto.Message, bool) {
	if m.Descriptor().Name() != "TypedStruct" {
		return nil, false
	}
	fields := m.Descriptor().Fields()
	url, value := fields.ByName("type_url"), fields.ByName("value")
	if url == nil || value == nil {
		return nil, false
	}
	name := protoreflect.FullName(m.Get(url).String()[strings.LastIndex(m.Get(url).String(), "/")+1:])
	g.types = append(g.types, name)
	data, _ := m.Get(value).Message().Interface().(*structpb.Struct)
	of, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		return m.Interface(), data != nil && g.data(data)
	}
	inner := of.New().Interface()
	document, err := protojson.Marshal(data)
	if err == nil {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(document, inner)
	}
	if err != nil {
		return m.Interface(), data != nil && g.data(data)
	}
	return inner, g.message(inner.ProtoReflect())
}

// data removes the fields of a JSON object that would lead to the machine, whatever message it stands for.
func (g *guard) data(data *structpb.Struct) (changed bool) {
	for key, value := range data.Fields {
		if machineKey(key) && g.note("google.protobuf.Struct."+protoreflect.FullName(strings.ReplaceAll(key, "/", "_")),
			value.String()) {
			delete(data.Fields, key)
			changed = true
			continue
		}
		changed = g.values(value) || changed
	}
	return changed
}

func (g *guard) values(value *structpb.Value) (changed bool) {
	if data := value.GetStructValue(); data != nil {
		return g.data(data)
	}
	for _, item := range value.GetListValue().GetValues() {
		changed = g.values(item) || changed
	}
	return changed
}

// machineKeys are the names of fields, in lower case and without underscores, that lead to the machine of a proxy in
// every message that has them.
var machineKeys = machineKeysOf(append(slices.Clone(fileFields), "x.pipe", "x.filename", "x.environment_variable",
	"x.watched_directory", "x.event_log_path"))

func machineKeysOf(fields []protoreflect.FullName) map[string]bool {
	keys := map[string]bool{}
	for _, field := range fields {
		if name := plainKey(string(field.Name())); name != "path" && name != "library" {
			keys[name] = true
		}
	}
	return keys
}

func plainKey(key string) string { return strings.ReplaceAll(strings.ToLower(key), "_", "") }

func machineKey(key string) bool { return machineKeys[plainKey(key)] }

// findings are the findings of a resource before a modification, which the modification does not bring.
func (g *guard) findings() map[string]bool {
	found := map[string]bool{}
	for _, text := range g.cut {
		found[text] = true
	}
	return found
}
