package settings

import (
	"flag"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/internal/access"
)

var update = flag.Bool("update", false, "rewrite docs/settings.md")

func TestDefaults(t *testing.T) {
	s, warnings, err := Load("", []string{"HOME=/root"}, nil)
	if err != nil || len(warnings) != 0 {
		t.Fatalf("Load: %v, warnings %q", err, warnings)
	}
	if s.API.String() != "0.0.0.0:5681" || s.DataPlane.String() != "0.0.0.0:5678" ||
		s.Diagnostics.String() != "0.0.0.0:5680" {
		t.Errorf("addresses: %s %s %s", s.API, s.DataPlane, s.Diagnostics)
	}
	if s.ZoneName != "default" || s.DefaultMesh != "" || s.Store != SQLite || s.SkipMeshCreation {
		t.Errorf("defaults: %+v", s)
	}
	if s.MeshServiceCIDR != netip.MustParsePrefix("241.0.0.0/8") || s.LogLevel != slog.LevelInfo {
		t.Errorf("defaults: range %s, log level %s", s.MeshServiceCIDR, s.LogLevel)
	}
}

func TestPrecedence(t *testing.T) {
	file := write(t, "general: {dataDir: from-file}\nstore:\n  type: memory\napiServer: {http: {port: "+
		"1001}}\ndpServer: {port: 1002}\n")
	environ := []string{"KUMA_GENERAL_DATA_DIR=from-variable", "KUMA_DP_SERVER_PORT=2002"}
	s, _, err := Load(file, environ, map[string]string{"general.dataDir": "from-flag"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Value{
		"general.dataDir":        {"general.dataDir", "from-flag", "flag"},
		"dpServer.port":          {"dpServer.port", "2002", "KUMA_DP_SERVER_PORT"},
		"apiServer.http.port":    {"apiServer.http.port", "1001", file},
		"diagnostics.serverPort": {"diagnostics.serverPort", "5680", "default"},
	}
	for _, got := range s.Effective() {
		if w, ok := want[got.Path]; ok && got != w {
			t.Errorf("effective: %+v, want %+v", got, w)
		}
	}
	if s.DataDir != "from-flag" || s.DataPlane.Port != 2002 || s.API.Port != 1001 || s.Store != Memory {
		t.Errorf("settings: %+v", s)
	}
}

// The default mesh is read from the variable and from the file. (Zone Egress Identity.)
func TestTheDefaultMesh(t *testing.T) {
	file := write(t, "defaults: {mesh: from-file}\n")
	for _, c := range []struct {
		file    string
		environ []string
		want    string
	}{{"", nil, ""}, {file, nil, "from-file"}, {file, []string{"KUMA_DEFAULTS_MESH=shop"}, "shop"}} {
		if s, _, err := Load(c.file, c.environ, nil); err != nil || s.DefaultMesh != c.want {
			t.Errorf("file %q, environment %q: the default mesh is %q (%v), want %q", c.file, c.environ, s.DefaultMesh,
				err, c.want)
		}
	}
	if _, _, err := Load("", []string{"KUMA_DEFAULTS_MESH=Shop!"}, nil); err == nil {
		t.Error("a name that no mesh has is accepted")
	}
}

func TestModes(t *testing.T) {
	const inline = "KUMA_MULTIZONE_ZONE_KDS_AUTH_CP_TOKEN_INLINE=eyJ.secret"
	s, _, err := Load("",
		[]string{"KUMA_MULTIZONE_ZONE_NAME=east", "KUMA_MULTIZONE_ZONE_GLOBAL_ADDRESS=grpcs://global.example", inline},
		nil)
	if err != nil {
		t.Fatal(err)
	}
	if !s.IsJoined() || s.ZoneName != "east" || s.Join.Host() != "global.example:5685" || s.Join.Token != "eyJ.secret" {
		t.Errorf("a zone that joins: %+v", s.Join)
	}
	for _, v := range s.Effective() {
		if strings.Contains(v.Value, "secret") {
			t.Errorf("%s shows the token", v.Path)
		}
	}
	s, _, err = Load("", []string{"KUMA_MODE=global", "KUMA_MULTIZONE_GLOBAL_KDS_GRPC_INTERFACE=127.0.0.1"}, nil)
	if err != nil || s.IsJoined() || s.ZoneName != "" || s.ZoneSync.String() != "127.0.0.1:5685" {
		t.Errorf("global: zone %q, zones at %s, %v", s.ZoneName, s.ZoneSync, err)
	}
}

func TestLists(t *testing.T) {
	file := write(t, "access: {static: {write: {groups: [deployers, ops]}, read: {users: [], groups: everybody}}}")
	s, _, err := Load(file, []string{"KUMA_ACCESS_STATIC_ADMIN_RESOURCES_GROUPS= keepers,,ops ,ops",
		"KUMA_ACCESS_STATIC_ADMIN_RESOURCES_USERS="}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for action, want := range map[access.Action]access.Rule{
		access.Write:             {Users: []string{"mesh-system:admin"}, Groups: []string{"deployers", "ops"}},
		access.Read:              {Groups: []string{"everybody"}},
		access.AdminResources:    {Groups: []string{"keepers", "ops"}},
		access.GenerateUserToken: access.Defaults()[access.GenerateUserToken],
	} {
		if diff := cmp.Diff(want, s.Access[action]); diff != "" {
			t.Errorf("%s: %s", action, diff)
		}
	}
}

// TestOperatorsUnset: settings that give the action write to further users, and say nothing of operators.
func TestOperatorsUnset(t *testing.T) {
	const write, operators = "KUMA_ACCESS_STATIC_WRITE_", "KUMA_ACCESS_STATIC_OPERATOR_RESOURCES_"
	for want, environs := range map[bool][][]string{
		false: {nil, {write + "GROUPS=mesh-system:admin"}, {operators + "GROUPS=ops"},
			{write + "GROUPS=ops", operators + "GROUPS=mesh-system:admin"},
			{write + "USERS=ann", operators + "USERS=" + access.AdminName}},
		true: {{write + "GROUPS=mesh-system:admin,ops"}, {write + "USERS=ann"}},
	} {
		for _, environ := range environs {
			s, _, err := Load("", environ, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.OperatorsUnset(); (len(got) == 2 && got[1] == operators+"GROUPS") != want {
				t.Errorf("%q: the unset variables are %q; wanted: %t", environ, got, want)
			}
			admins := access.Defaults()[access.OperatorResources]
			if diff := cmp.Diff(admins, s.Access[access.OperatorResources]); want && diff != "" {
				t.Errorf("%q: the operators are %s", environ, diff)
			}
		}
	}
}

// TestMappings: a mapping of the file is what its variable spells out, and a list of pairs too.
func TestMappings(t *testing.T) {
	want := map[string]string{"example.com/build": "*", "tier": "1"}
	for _, file := range []string{`{example.com/build: "*", tier: 1}`, `["example.com/build:*", "tier:1"]`,
		`"example.com/build:*,tier:1"`} {
		s, _, err := Load(write(t, "runtime: {kubernetes: {injector: {exceptions: {labels: "+file+"}}}}"), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, s.Injector.Exceptions); diff != "" {
			t.Errorf("%s: %s", file, diff)
		}
	}
	s, _, err := Load(write(t, "runtime: {kubernetes: {injector: {sidecarContainer: {envVars: {A: http://b:1}}}}}"),
		[]string{"KUMA_RUNTIME_KUBERNETES_INJECTOR_SIDECAR_CONTAINER_GID=7"}, nil)
	if err != nil || s.Injector.EnvVars["A"] != "http://b:1" || s.Injector.GID != 7 {
		t.Errorf("the variables are %v, the group is %d, %v", s.Injector.EnvVars, s.Injector.GID, err)
	}
}

func TestPasswordIsNotShown(t *testing.T) {
	s, _, err := Load(write(t, "store: {postgres: {password: hunter2}}"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Postgres.Password != "hunter2" {
		t.Errorf("the password is %q", s.Postgres.Password)
	}
	for _, v := range s.Effective() {
		if strings.Contains(v.Value, "hunter2") {
			t.Errorf("%s shows the password", v.Path)
		}
	}
}

func TestInvalidSettings(t *testing.T) {
	tests := map[string]struct {
		file    string
		environ []string
		want    []string // parts of the message
	}{
		"unknown key":        {file: "store: {typo: memory}", want: []string{"store.typo is not a setting"}},
		"branch for a value": {file: "mode: {mode: zone}", want: []string{"mode takes a single value"}},
		"a name with a comma": {file: `access: {static: {write: {users: ["a,b"]}}}`,
			want: []string{"access.static.write.users takes a list of names"}},
		"a list of mappings": {file: "access: {static: {write: {users: [{a: b}]}}}",
			want: []string{"access.static.write.users takes a list of names"}},
		"a mapping with a comma": {
			file: `runtime: {kubernetes: {injector: {sidecarContainer: {envVars: {A: "b,c"}}}}}`,
			want: []string{"injector.sidecarContainer.envVars takes a mapping of names to values without commas"}},
		"two names of a variable": {environ: []string{"KUMA_RUNTIME_KUBERNETES_INJECTOR_SIDECAR_CONTAINER_GID=1",
			"KUMA_RUNTIME_KUBERNETES_INJECTOR_SIDECAR_CONTAINER_GUI=2"},
			want: []string{"SIDECAR_CONTAINER_GID and", "SIDECAR_CONTAINER_GUI are the same setting and differ"}},
		"a list for a value": {file: "mode: [zone]", want: []string{"mode takes a single value"}},
		"audit output": {environ: []string{"KUMA_AUDIT_OUTPUT=syslog"},
			want: []string{"use file, stdout or off"}},
		"audit size": {environ: []string{"KUMA_AUDIT_MAX_SIZE=0", "KUMA_AUDIT_KEEP=many"},
			want: []string{`"0" is not a number from 1`, `"many" is not a number from 0`}},
		"API off": {environ: []string{"KUMA_API_SERVER_HTTP_ENABLED=false",
			"KUMA_API_SERVER_HTTPS_ENABLED=false"}, want: []string{"no client reaches the control plane"}},
		"API key alone": {environ: []string{"KUMA_API_SERVER_HTTPS_TLS_KEY_FILE=x"},
			want: []string{"apiServer.https.tlsKeyFile belong together"}},
		"client certificates without a CA": {environ: []string{"KUMA_API_SERVER_HTTPS_REQUIRE_CLIENT_CERT=true"},
			want: []string{"rejects every client without apiServer.https.tlsCaFile"}},
		"key twice":     {file: "mode: zone\nmode: zone", want: []string{`key "mode" already set`}},
		"not a mapping": {file: "- 1", want: []string{"is a mapping"}},
		"unknown variable": {environ: []string{"KUMA_STORE_TIPE=memory"},
			want: []string{"KUMA_STORE_TIPE is not a setting", "unset KUMA_STORE_TIPE"}},
		"misspelled port": {environ: []string{"KUMA_DP_SERVR_PORT=1"},
			want: []string{"KUMA_DP_SERVR_PORT is not a setting"}},
		"mode": {environ: []string{"KUMA_MODE=local"},
			want: []string{"mode (KUMA_MODE)", `"local" is not a mode; use zone or global`}},
		"mode of a single zone in older releases": {environ: []string{"KUMA_MODE=standalone"},
			want: []string{"mode (KUMA_MODE)", "leave it out: a zone that joins no global control plane runs alone"}},
		"mode of a zone in older releases": {environ: []string{"KUMA_MODE=remote"}, want: []string{"use zone"}},
		"global that joins": {environ: []string{"KUMA_MODE=global",
			"KUMA_MULTIZONE_ZONE_GLOBAL_ADDRESS=grpcs://g"}, want: []string{"mode is global"}},
		"join without a token": {environ: []string{"KUMA_MULTIZONE_ZONE_GLOBAL_ADDRESS=grpcs://g"},
			want: []string{"needs the zone's token", "--zone-token-file", "weft generate zone-token"}},
		"join in plain text": {environ: []string{"KUMA_MULTIZONE_ZONE_GLOBAL_ADDRESS=grpc://g:5685"},
			want: []string{"write grpcs://HOST:PORT"}},
		"zone expiry": {environ: []string{"KUMA_MULTIZONE_GLOBAL_ZONE_EXPIRY=-1s"},
			want: []string{"is not a duration such as 30m"}},
		"drain time": {environ: []string{"KUMA_DP_SERVER_DRAIN_TIME=0s"},
			want: []string{"dpServer.drainTime (KUMA_DP_SERVER_DRAIN_TIME)", `"0s" is not a duration from 2s to 20s`}},
		"long drain time": {environ: []string{"KUMA_DP_SERVER_DRAIN_TIME=21s"},
			want: []string{"dpServer.drainTime (KUMA_DP_SERVER_DRAIN_TIME)", `"21s" is not a duration from 2s to 20s`}},
		"half a sync server": {environ: []string{"KUMA_MULTIZONE_GLOBAL_KDS_TLS_KEY_FILE=x"},
			want: []string{"multizone.global.kds.tlsCertFile", "belong together"}},
		"zone name": {environ: []string{"KUMA_MULTIZONE_ZONE_NAME=a.b"},
			want: []string{`"a.b" is not a DNS label`}},
		"port": {environ: []string{"KUMA_DP_SERVER_PORT=65536"},
			want: []string{`"65536" is not a port`}},
		"interface": {environ: []string{"KUMA_API_SERVER_HTTP_INTERFACE=eth0"},
			want: []string{`"eth0" is not an IP address`}},
		"store": {environ: []string{"KUMA_STORE_TYPE=mysql"},
			want: []string{"use sqlite, postgres, kubernetes or memory"}},
		"no key for PostgreSQL": {environ: []string{"KUMA_STORE_TYPE=postgres"},
			want: []string{"store.encryption.keyFile is empty", "weft generate encryption-key"}},
		"TLS mode": {environ: []string{"KUMA_STORE_POSTGRES_TLS_MODE=prefer"},
			want: []string{"use disable, verifyNone, verifyCa, verifyFull"}},
		"too few connections": {environ: []string{"KUMA_STORE_POSTGRES_MAX_OPEN_CONNECTIONS=2"},
			want: []string{"3 or more"}},
		"no timeout": {environ: []string{"KUMA_STORE_POSTGRES_CONNECTION_TIMEOUT=0"},
			want: []string{"is not a number of seconds"}},
		"half a client": {environ: []string{"KUMA_STORE_POSTGRES_TLS_CERT_PATH=x"},
			want: []string{"belong together"}},
		"boolean": {environ: []string{"KUMA_DEFAULTS_SKIP_MESH_CREATION=ja"},
			want: []string{"is neither true nor false"}},
		"network with host bits": {environ: []string{"KUMA_IPAM_MESH_SERVICE_CIDR=241.0.0.1/8"},
			want: []string{"is not an IPv4 network"}},
		"IPv4 for IPv6": {environ: []string{"KUMA_IPAM_IPV6_CIDR=241.0.0.0/8"},
			want: []string{"KUMA_IPAM_IPV6_CIDR", "is not an IPv6 network of 96 bits or less"}},
		"range of this network": {environ: []string{"KUMA_IPAM_MESH_SERVICE_CIDR=0.0.0.0/8"},
			want: []string{"KUMA_IPAM_MESH_SERVICE_CIDR",
				"has addresses of 0.0.0.0/8 (this network), which no machine routes"}},
		"range of the own machine": {environ: []string{"KUMA_IPAM_MESH_SERVICE_CIDR=127.0.0.0/16"},
			want: []string{"KUMA_IPAM_MESH_SERVICE_CIDR",
				"has addresses of 127.0.0.0/8 (the own machine), which no machine routes"}},
		"range of a link": {environ: []string{"KUMA_IPAM_MESH_MULTI_ZONE_SERVICE_CIDR=169.254.0.0/24"},
			want: []string{"KUMA_IPAM_MESH_MULTI_ZONE_SERVICE_CIDR",
				"has addresses of 169.254.0.0/16 (a link), which no machine routes"}},
		"range of multicast": {environ: []string{"KUMA_IPAM_MESH_EXTERNAL_SERVICE_CIDR=230.0.0.0/8"},
			want: []string{"KUMA_IPAM_MESH_EXTERNAL_SERVICE_CIDR",
				"has addresses of 224.0.0.0/4 (multicast), which no machine routes"}},
		"range with broadcast": {environ: []string{"KUMA_IPAM_MESH_SERVICE_CIDR=240.0.0.0/4"},
			want: []string{"KUMA_IPAM_MESH_SERVICE_CIDR",
				"has addresses of 255.255.255.255/32 (broadcast), which no machine routes"}},
		"range around a link": {environ: []string{"KUMA_IPAM_MESH_SERVICE_CIDR=168.0.0.0/6"},
			want: []string{"KUMA_IPAM_MESH_SERVICE_CIDR",
				"has addresses of 169.254.0.0/16 (a link), which no machine routes"}},
		"IPv6 range of mapped addresses": {environ: []string{"KUMA_IPAM_IPV6_CIDR=::ffff:0:0/96"},
			want: []string{"KUMA_IPAM_IPV6_CIDR",
				"has addresses of ::ffff:0.0.0.0/96 (mapped IPv4), which no machine routes"}},
		"IPv6 range of a link": {environ: []string{"KUMA_IPAM_IPV6_CIDR=fe80::/64"},
			want: []string{"KUMA_IPAM_IPV6_CIDR", "has addresses of fe80::/10 (a link), which no machine routes"}},
		"IPv6 range around a link": {environ: []string{"KUMA_IPAM_IPV6_CIDR=fe00::/7"},
			want: []string{"KUMA_IPAM_IPV6_CIDR", "has addresses of fe80::/10 (a link), which no machine routes"}},
		"IPv6 range of the own machine": {environ: []string{"KUMA_IPAM_IPV6_CIDR=::/96"},
			want: []string{"KUMA_IPAM_IPV6_CIDR",
				"has addresses of ::/127 (the own machine), which no machine routes"}},
		"too small a network": {environ: []string{"KUMA_IPAM_IPV6_CIDR=fd00:fd00::/112"},
			want: []string{"is not an IPv6 network of 96 bits or less"}},
		"a variable that protects something in Kuma": {environ: []string{"KUMA_API_SERVER_READ_ONLY=true"},
			want: []string{`KUMA_API_SERVER_READ_ONLY: "true" is not possible`, "access.static.write.users"}},
		"a key that protects something in Kuma": {file: "diagnostics: {tlsEnabled: true}",
			want: []string{`diagnostics.tlsEnabled: "true" is not possible`, "diagnostics.serverInterface"}},
		"one key in two cases": {
			file: "access: {static: {generateDPToken: {users: [a]}, generateDpToken: {users: [b]}}}",
			want: []string{"access.static.generateDPToken.users and access.static.generateDpToken.users are the same"}},
		"no local network": {
			environ: []string{"KUMA_EGRESS_ALLOWED_LOCAL_NETWORKS=127.0.3.0/24,127.0.0.1/8"},
			want:    []string{`has "127.0.0.1/8", which is not a network`},
		},
		"log level":         {environ: []string{"KUMA_GENERAL_LOG_LEVEL=loud"}, want: []string{"is not a log level"}},
		"certificate alone": {environ: []string{"KUMA_GENERAL_TLS_CERT_FILE=x"}, want: []string{"belong together"}},
		"no data directory": {environ: []string{"KUMA_GENERAL_DATA_DIR="}, want: []string{"--data-dir"}},
		"all at once": {file: "mode: remote\na: 1", environ: []string{"KUMA_X=1"},
			want: []string{"is a mode of older releases", "a is not a setting", "KUMA_X is not"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := Load(write(t, test.file), test.environ, nil)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the message lacks %q:\n%v", part, err)
				}
			}
		})
	}
}

func TestMissingFileIsNamed(t *testing.T) {
	if _, _, err := Load("/does/not/exist.yaml", nil, nil); err == nil ||
		!strings.Contains(err.Error(), "/does/not/exist.yaml") {
		t.Errorf("Load: %v", err)
	}
}

func TestVariablesOfOtherPrograms(t *testing.T) {
	tests := []struct {
		pair    string
		warning string // empty: ignored without a warning
	}{
		{"KUMA_DATAPLANE_RUNTIME_TOKEN_PATH=/t", ""},
		{"KUMA_CONTROL_PLANE_URL=https://cp:5678", ""},
		{"KUMA_CONTROL_PLANE_TLS_SKIP_VERIFY=true", ""},
		{"KUMA_CONTROL_PLANE_API_SERVER_URL=https://cp:5682", ""},
		{"KUMA_READINESS_PORT=9902", ""},
		{"KUMA_CONTROL_PLANE_SERVICE_HOST=10.0.0.1", ""},
		{"KUMA_CONTROL_PLANE_SERVICE_PORT_HTTP_API_SERVER=5681", ""},
		{"KUMA_CONTROL_PLANE_PORT=tcp://10.0.0.1:5681", ""},
		{"KUMA_CONTROL_PLANE_PORT_5681_TCP_ADDR=10.0.0.1", ""},
		{"KUMA_STORE_POSTGRES_READ_REPLICA_HOST=db", "KUMA_STORE_POSTGRES_READ_REPLICA_HOST has no effect"},
		{"KUMA_API_SERVER_AUTHN_TYPE=tokens", "KUMA_API_SERVER_AUTHN_TYPE has no effect"},
	}
	for _, test := range tests {
		t.Run(test.pair, func(t *testing.T) {
			_, warnings, err := Load("", []string{test.pair}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(warnings, "\n"); (test.warning == "") != (got == "") ||
				!strings.Contains(got, test.warning) {
				t.Errorf("warnings %q, want %q", got, test.warning)
			}
		})
	}
}

// A family of ignored names must not hide a misspelled setting with the same prefix.
func TestIgnoredNamesHideNoSetting(t *testing.T) {
	for _, s := range all {
		name := s.env + "X"
		if _, _, err := Load("", []string{name + "=1"}, nil); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// No name of the list is hidden by another.
func TestEverySettingWithoutMeaningHasAWarning(t *testing.T) {
	for _, m := range ignoredSettings {
		name := m.name
		if strings.HasSuffix(name, "_") {
			name += "ANYTHING"
		}
		_, warnings, err := Load("", []string{name + "=value"}, nil)
		if want := name + " has no effect: " + m.reason; err != nil || len(warnings) != 1 || warnings[0] != want {
			t.Errorf("%s: warnings %q, error %v", name, warnings, err)
		}
	}
}

func TestDocumentationIsCurrent(t *testing.T) {
	const page = "../../docs/settings.md"
	if *update {
		if err := os.WriteFile(page, []byte(Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != Markdown() {
		t.Errorf("docs/settings.md is not what the list of settings says (%v); `go test ./internal/settings "+
			"-update` writes it", err)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// FuzzFile: a settings file is accepted, or rejected with a reason that names it.
func FuzzFile(f *testing.F) {
	f.Add([]byte("store: {type: memory}\naccess: {static: {read: {users: [a, b]}}}\n"))
	f.Add([]byte("store: &s {type: *s}"))
	f.Add([]byte("general: [1, {2: 3}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		values, _, err := parseFile("weft.yaml", text)
		if err != nil && !strings.Contains(err.Error(), "weft.yaml") {
			t.Errorf("the reason does not name the file: %v", err)
		}
		for _, v := range values {
			if _, known := byPath[v.Path]; !known {
				t.Errorf("%q is no setting", v.Path)
			}
		}
	})
}
