package settings

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weft/internal/access"
	"weft/internal/agent/kumaenv"
)

// kumaSetting is a setting of Kuma's control plane.
type kumaSetting struct {
	path, variable string // "-": none
	value          string // Kuma's default, JSON
}

// kumaSettings returns the settings of Kuma 2.14: those of its file of defaults, then variables without a path there.
func kumaSettings(t *testing.T) (settings []kumaSetting) {
	t.Helper()
	text, err := os.ReadFile("testdata/kuma-settings.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		columns := append(strings.SplitN(strings.TrimSpace(line), " ", 3), "")
		settings = append(settings, kumaSetting{columns[0], columns[1], columns[2]})
	}
	return settings
}

// TestKumasDefaultSettingsStart: a file with all of Kuma's settings and its defaults starts weft.
func TestKumasDefaultSettingsStart(t *testing.T) {
	root := map[string]any{}
	for _, s := range kumaSettings(t) {
		if s.path == "-" {
			continue
		}
		keys := strings.Split(s.path, ".")
		branch := root
		for _, key := range keys[:len(keys)-1] {
			if branch[key] == nil {
				branch[key] = map[string]any{}
			}
			branch = branch[key].(map[string]any)
		}
		branch[keys[len(keys)-1]] = json.RawMessage(s.value)
	}
	text, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	file := write(t, string(text))
	s, warnings, err := Load(file, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if users := s.Access[access.GenerateDPToken].Users; !slices.Equal(users, []string{"mesh-system:admin"}) {
		t.Errorf("generateDpToken: users %q", users)
	}
	for _, want := range []string{
		file + ": bootstrapServer has no effect: ",
		file + ": dpServer.authn has no effect: ",
		file + ": experimental.kdsEventBasedWatchdog has no effect: ",
		"apiServer.authn.localhostIsAdmin (" + file + `): "true" has no effect: a loopback address proves nothing`,
	} {
		if !slices.ContainsFunc(warnings, func(w string) bool { return strings.HasPrefix(w, want) }) {
			t.Errorf("no warning %q", want)
		}
	}
}

// TestKumasVariablesAreKnown: each variable of Kuma's control plane is a setting, or has a reason why it has no effect.
func TestKumasVariablesAreKnown(t *testing.T) {
	for _, s := range kumaSettings(t) {
		if s.variable == "-" || kumaenv.Has(s.variable) {
			continue
		}
		if _, ok := byEnv[s.variable]; ok {
			continue
		}
		if _, warnings, err := Load("", []string{s.variable + "="}, nil); err != nil || len(warnings) != 1 {
			t.Errorf("%s: warnings %q, error %v", s.variable, warnings, err)
		}
	}
}

// TestKumasDefaultsAreValuesOfVariables: the variables of all of Kuma's settings, with its defaults, start weft.
func TestKumasDefaultsAreValuesOfVariables(t *testing.T) {
	var environ []string
	for _, s := range kumaSettings(t) {
		var value any
		if s.variable == "-" || s.path == "-" || json.Unmarshal([]byte(s.value), &value) != nil {
			continue
		}
		if n, ok := value.(float64); ok {
			value = json.Number(strconv.Itoa(int(n)))
		}
		if text, ok := textOf(value, true); ok {
			environ = append(environ, s.variable+"="+text)
		}
	}
	if _, warnings, err := Load("", environ, nil); err != nil || len(environ) < 200 {
		t.Errorf("%d variables, %d warnings, error %v", len(environ), len(warnings), err)
	}
}

// TestKumasKeysHideNoSetting: the keys of Kuma without effect don't hide a misspelled setting.
func TestKumasKeysHideNoSetting(t *testing.T) {
	for _, s := range all {
		keys := strings.Split(s.path, ".")
		text := strings.Join(keys, ": {") + "x: 1" + strings.Repeat("}", len(keys)-1)
		if _, _, err := Load(write(t, text), nil, nil); err == nil {
			t.Errorf("%s was accepted", text)
		}
	}
}
