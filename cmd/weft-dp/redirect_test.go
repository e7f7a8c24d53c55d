package main

import (
	"io"
	"strings"
	"testing"
)

func TestUnknownValuesOfFlagsAreRejected(t *testing.T) {
	for args, want := range map[string]string{
		"--proxy-user missing-user":                                        "--proxy-user",
		"--proxy-group missing-user":                                       "--proxy-group",
		"--proxy-user 1 --proxy-group 2":                                   "none of the others can be",
		"--proxy-user 4294967296":                                          "there is no user",
		"--kuma-dp-user missing-user":                                      "missing-user",
		"--proxy-user 1 --ip-family-mode ipv5":                             `--ip-family-mode: the IP family mode is "ipv5"`,
		"--proxy-user 1 --exclude-inbound-ports 22,ssh":                    `"ssh" is no port`,
		"--proxy-user 1 --exclude-outbound-ports 9-8":                      `"9-8" is no port`,
		"--proxy-user 1 --exclude-inbound-ips example.com":                 `"example.com" is no address`,
		"--proxy-user 1 --exclude-outbound-ips 10.0.0.0/33":                "--exclude-outbound-ips",
		"--proxy-user 1 --exclude-outbound-ports-for-uids sctp:22:1":       "want the protocol tcp, udp or *",
		"--proxy-user 1 --exclude-outbound-ports-for-uids tcp:0:1":         `"0" is no port`,
		"--proxy-user 1 --exclude-outbound-ports-for-uids tcp:1:x":         "want the ID of a user",
		"--proxy-user 1 --redirect-inbound-port 70000":                     "--redirect-inbound-port",
		"--proxy-user 1 --redirect-inbound-port 1 unexpected":              "unknown command",
		"--proxy-user 1 --redirect-dns-port -1 --redirect-all-dns-traffic": "--redirect-dns-port",
	} {
		command := newCommand()
		command.SetArgs(append([]string{"install", "transparent-proxy", "--dry-run"}, strings.Fields(args)...))
		command.SetOut(io.Discard)
		if err := command.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %q", args, err, want)
		}
	}
}
