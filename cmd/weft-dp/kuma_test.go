package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"weft/internal/agent/kumaenv"
)

// namesOfKuma returns the flags and the variables of kuma-dp 2.14.
func namesOfKuma(t *testing.T) (flags, variables []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/kuma-dp.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(string(text)) {
		if flag, ok := strings.CutPrefix(name, "--"); ok {
			flags = append(flags, flag)
		} else {
			variables = append(variables, name)
		}
	}
	return flags, variables
}

// execute runs weft-dp with arguments that fail before a proxy starts.
func execute(args ...string) error {
	root := newCommand()
	root.SetArgs(args)
	root.SetOut(&bytes.Buffer{})
	root.SetErr(&bytes.Buffer{})
	return root.Execute()
}

func TestEachFlagOfKumaIsOneOrNamesWhatReplacesIt(t *testing.T) {
	flags, _ := namesOfKuma(t)
	run := newRunCommand().Flags()
	for _, flag := range flags {
		if run.Lookup(flag) != nil {
			continue
		}
		err := execute("run", "--"+flag, "1")
		if err == nil || !strings.Contains(err.Error(), "which is a flag of kuma-dp; ") {
			t.Errorf("--%s: %v", flag, err)
		}
	}
	for args, want := range map[string]string{
		"run -d web.yaml":   "write --dataplane-file FILE",
		"run -v name=web":   "write --dataplane-var name=web",
		"run --drain-times": "unknown flag: --drain-times",
		"wait --url http:":  "write --control-socket PATH",
	} {
		if err := execute(strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("weft-dp %s: %v, want %q", args, err, want)
		}
	}
}

// TestEachFlagOfARedirectionOfKumaIsOneOrNamesWhatReplacesIt: the flags of `kumactl install transparent-proxy` 2.14.3
// and of `kumactl uninstall transparent-proxy`.
func TestEachFlagOfARedirectionOfKumaIsOneOrNamesWhatReplacesIt(t *testing.T) {
	text, err := os.ReadFile("testdata/kumactl-transparent-proxy.txt")
	if err != nil {
		t.Fatal(err)
	}
	install := newInstallRedirect().Flags()
	flags := map[string]bool{}
	for _, flag := range strings.Fields(string(text)) {
		flag = strings.TrimPrefix(flag, "--")
		flags[flag] = true
		if install.Lookup(flag) != nil {
			continue
		}
		for _, command := range []string{"install", "uninstall"} {
			err := execute(command, "transparent-proxy", "--"+flag+"=1")
			if err == nil || !strings.Contains(err.Error(), "which is a flag of kumactl; ") {
				t.Errorf("%s --%s: %v", command, flag, err)
			}
		}
	}
	for flag := range redirectFlags {
		if !flags[flag] {
			t.Errorf("--%s is no flag of kumactl", flag)
		}
	}
}

func TestEachVariableOfKumaSetsAFlagOrHasAReason(t *testing.T) {
	_, variables := namesOfKuma(t)
	sets := map[string]bool{}
	for _, known := range kumaenv.Flags {
		sets[known.Variable] = true
		if newRunCommand().Flags().Lookup(known.Flag) == nil {
			t.Errorf("%s sets --%s, which is no flag", known.Variable, known.Flag)
		}
	}
	for _, variable := range variables {
		warnings, err := readVariables(newRunCommand().Flags(), []string{variable + "=1"})
		if err != nil || sets[variable] != (len(warnings) == 0) {
			t.Errorf("%s: warnings %q, error %v", variable, warnings, err)
		}
	}
}

func TestAVariableIsTheDefaultOfItsFlag(t *testing.T) {
	for name, test := range map[string]struct {
		args, environ, want, warning string
	}{
		"variable": {environ: "KUMA_READINESS_PORT=9000 KUMA_CONTROL_PLANE_URL=https://cp:5678",
			want: "readiness-port=9000 cp-address=[https://cp:5678]"},
		"the flag precedes":  {args: "--readiness-port 1", environ: "KUMA_READINESS_PORT=2", want: "readiness-port=1"},
		"an empty variable":  {environ: "KUMA_READINESS_PORT=", want: "readiness-port=9902"},
		"no bound of memory": {environ: "KUMA_DATAPLANE_RESOURCES_MAX_MEMORY_BYTES=0", want: "envoy-max-memory="},
		"DNS is disabled":    {environ: "KUMA_DNS_ENABLED=false KUMA_DNS_PROXY_PORT=53", want: "dns-port=0"},
		"the port of DNS":    {environ: "KUMA_DNS_ENABLED=true KUMA_DNS_PROXY_PORT=53", want: "dns-port=53"},
		"other programs":     {environ: "KUMA_CONTROL_PLANE_SERVICE_HOST=1 KUMA_STORE_TYPE=x", want: "mesh="},
		"the drain time": {
			environ: "KUMA_DATAPLANE_DRAIN_TIME=30s", warning: "KUMA_DATAPLANE_DRAIN_TIME has no effect"},
		"the name of a file": {args: "--dataplane-file f", environ: "KUMA_DATAPLANE_NAME=web", want: "name=",
			warning: "KUMA_DATAPLANE_NAME has no effect: the file"},
		"the file beside names": {args: "--name web", environ: "KUMA_DATAPLANE_RUNTIME_RESOURCE_PATH=f",
			want: "dataplane-file=", warning: "KUMA_DATAPLANE_RUNTIME_RESOURCE_PATH has no effect: --mesh"},
	} {
		t.Run(name, func(t *testing.T) {
			flags := newRunCommand().Flags()
			if err := flags.Parse(strings.Fields(test.args)); err != nil {
				t.Fatal(err)
			}
			warnings, err := readVariables(flags, strings.Fields(test.environ))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range strings.Fields(test.want) {
				flag, value, _ := strings.Cut(want, "=")
				if got := flags.Lookup(flag).Value.String(); got != value {
					t.Errorf("--%s is %q, want %q", flag, got, value)
				}
			}
			if got := strings.Join(warnings, "\n"); !strings.HasPrefix(got, test.warning) ||
				(got == "") != (test.warning == "") {
				t.Errorf("warnings %q, want %q", got, test.warning)
			}
		})
	}
	_, err := readVariables(newRunCommand().Flags(), []string{"KUMA_READINESS_PORT=ready"})
	if err == nil || !strings.HasPrefix(err.Error(), "KUMA_READINESS_PORT, which sets --readiness-port: ") {
		t.Errorf("an invalid variable: %v", err)
	}
}

// TestVariablesSatisfyRequiredFlags: a unit of kuma-dp has no flag at all.
func TestVariablesSatisfyRequiredFlags(t *testing.T) {
	missing := t.TempDir() + "/missing.yaml"
	t.Setenv("KUMA_CONTROL_PLANE_CA_CERT_FILE", missing)
	t.Setenv("KUMA_DATAPLANE_RUNTIME_TOKEN_PATH", missing)
	t.Setenv("KUMA_DATAPLANE_RUNTIME_RESOURCE_PATH", missing)
	t.Setenv("KUMA_READINESS_PORT", "0")
	t.Setenv("KUMA_DATAPLANE_RUNTIME_BINARY_PATH", missing)
	if err := execute("run"); err == nil || strings.Contains(err.Error(), "required flag") {
		t.Errorf("run: %v", err)
	}
}
