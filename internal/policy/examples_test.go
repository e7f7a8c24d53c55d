package policy

import (
	"strings"
	"testing"
)

// TestExamples are the worked examples of the order and of merging. Each has policies, and requests with the effective
// conf and, where the order matters, the policies that it is from.
func TestExamples(t *testing.T) {
	for _, e := range []struct{ name, policies, effective string }{
		{"1: the smaller name wins", `
			aaa: Mesh > Mesh {"idle": 1}
			bbb: Mesh > Mesh {"idle": 2}`, `
			to b:http: {"idle":1} by bbb aaa`},
		{"2: a common beginning", `
			my-policy-1: Mesh > Mesh {"idle": 1}
			my-policy-2: Mesh > Mesh {"idle": 2}`, `
			to b:http: {"idle":1}`},
		{"3: numbers are text", `
			111: Mesh > Mesh {"idle": 1}
			222: Mesh > Mesh {"idle": 2}
			9: Mesh > Mesh {"request": 9}
			10: Mesh > Mesh {"request": 10}`, `
			to b:http: {"idle":1,"request":10} by 9 222 111 10`},
		{"4: labels before the whole mesh", `
			zz: Dataplane app=web > Mesh {"idle": 1}
			aa: Mesh > Mesh {"idle": 2}`, `
			to b:http: {"idle":1}`},
		{"5: the number of labels does not count", `
			aa: Dataplane app=web > Mesh {"idle": 1}
			bb: Dataplane app=web team=shop env=prod > Mesh {"idle": 2}
			cc: Dataplane > Mesh {"idle": 3}`, `
			to b:http: {"idle":1} by cc bb aa`},
		{"6: a section", `
			bb: Dataplane section=http < {"idle": 1}
			aa: Dataplane app=web < {"idle": 2}`, `
			from http: {"idle":1} by aa bb
			from admin: {"idle":2} by aa`},
		{"7: the name before the section", `
			bb: Dataplane name=web-1 < {"idle": 1}
			aa: Dataplane app=web section=http < {"idle": 2}`, `
			from http: {"idle":1} by aa bb`},
		{"8: the zone over global", `
			aa global: Mesh > Mesh {"idle": 1}
			zz zone: Mesh > Mesh {"idle": 2}`, `
			to b:http: {"idle":2}`},
		{"9: the role before the destination", `
			a global: Mesh > Mesh {"idle": 1}
			b zone: Mesh > Mesh {"idle": 2}
			c zone producer ns=b: Mesh > MeshService b {"idle": 3}
			d zone consumer ns=a: Dataplane app=web > Mesh {"idle": 4}`, `
			to b:http: {"idle":4} by a b c d
			to c:http: {"idle":4} by a b d`},
		{"10: the role before the kind of the to item", `
			P1: Mesh > MeshService b {"request": 10}
			P2 consumer ns=a: Mesh > Mesh {"request": 5}`, `
			to b:http: {"request":5}`},
		{"11: to items of one object", `
			a: Mesh > Mesh {"idle": 9}
			a: Mesh > MeshService b {"connect": 11, "request": 12}
			a: Mesh > Mesh {"connect": 21}`, `
			to b:http: {"connect":11,"idle":9,"request":12}
			to c:http: {"connect":21,"idle":9}`},
		{"12: the later of equal to items", `
			a: Mesh > MeshService b {"idle": 1}
			a: Mesh > MeshService b {"idle": 2}`, `
			to b:http: {"idle":2}`},
		{"13: a port over the service", `
			a: Mesh > MeshService b section=http {"idle": 1}
			a: Mesh > MeshService b {"idle": 2}`, `
			to b:http: {"idle":1}
			to b:grpc: {"idle":2}`},
		{"13, by the number of the port", `
			a: Mesh > MeshService b section=8080 {"idle": 1}
			a: Mesh > MeshService b {"idle": 2}`, `
			to b:http: {"idle":1}
			to b:grpc: {"idle":2}`},
		{"14: a section that does not exist", `
			a: Mesh > MeshService b section=nope {"idle": 1}
			b: Mesh > Mesh {"idle": 2}`, `
			to b:http: {"idle":2}`},
		{"15: labels of services", `
			P: Mesh > MeshService env=dev {"connect": 12}
			Q: Mesh > Mesh {"connect": 5, "idle": 11, "request": 32}`, `
			to b1:http: {"connect":12,"idle":11,"request":32}
			to b2:http: {"connect":12,"idle":11,"request":32}
			to b:http: {"connect":5,"idle":11,"request":32}`},
		{"16: a route inherits from its service", `
			P: Mesh > MeshService b {"idle": 30, "request": 25}
			Q: Mesh > MeshHTTPRoute r {"request": 15}
			R: Mesh > Mesh {"connect": 10, "request": 5}`, `
			to r/b:http: {"connect":10,"idle":30,"request":15} by R P Q
			to b:http: {"connect":10,"idle":30,"request":25} by R P`},
		{"17: three policies for a route", `
			P1: Mesh > MeshHTTPRoute r {"connect": 1, "request": 20}
			P2: Dataplane app=web > MeshHTTPRoute r {"connect": 2, "idle": 30}
			P3: Mesh > MeshHTTPRoute r {"connect": 3, "maxStream": 60}`, `
			to r/b:http: {"connect":2,"idle":30,"request":20,"maxStream":60} by P3 P1 P2`},
		{"18: objects merge", `
			P1: Mesh > Mesh {"detectors": {"totalFailures": 5}}
			P2: Mesh > MeshService b {"detectors": {"gatewayFailures": 3}}`, `
			to b:http: {"detectors":{"totalFailures":5,"gatewayFailures":3}}`},
		{"19: lists replace", `
			P1: Mesh > Mesh {"retryOn": ["A", "B"]}
			P2: Dataplane > Mesh {"retryOn": ["C"]}`, `
			to b:http: {"retryOn":["C"]}`},
		{"20: lists that append", `
			P1: Mesh = {"appendMatch": ["x"]}
			P2: Dataplane = {"appendMatch": ["y"]}`, `
			proxy: {"appendMatch":["x","y"]}`},
		{"21: rules merge by their matches", `
			P1: Mesh > Mesh {"rules":[{"matches":[{"path":"/m"}],"default": {"filters":["F1"],"backendRefs":["B1"]}}]}
			P2: Dataplane > Mesh {"rules": [{"matches": [{"path": "/m"}], "default": {"filters": ["F2"]}}]}`, `
			to b:http: {"rules":[{"matches":[{"path":"/m"}],"default":{"filters":["F2"],"backendRefs":["B1"]}}]}`},
		{"22: rules of the more specific policy come first", `
			P1: Mesh > Mesh {"rules": [{"matches": [{"path": "/1"}]}, {"matches": [{"path": "/2"}]}]}
			P2: Dataplane > Mesh {"rules": [{"matches": [{"path": "/3"}]}]}`, `
			to b:http: {"rules":[{"matches":[{"path":"/3"}],"default":{}},` +
			`{"matches":[{"path":"/1"}],"default":{}},{"matches":[{"path":"/2"}],"default":{}}]}`},
		{"23: origins of inbound rules", `
			aaa global: Mesh < {"idle": 1}
			bbb: Mesh < {"idle": 2}
			ccc zone: Mesh < {"idle": 3}`, `
			from http: {"idle":3} by aaa bbb ccc`},
		{"24: rules with matches", `
			a: Mesh < {"request": 10, "streamIdle": 5}
			a: Mesh < spiffe://m/ns/* {"request": 3}
			a: Mesh < spiffe://m/ns/a {"streamIdle": 1}`, `
			from http spiffe://m/ns/a: {"request":3,"streamIdle":1}
			from http spiffe://m/ns/b: {"request":3,"streamIdle":5}
			from http spiffe://m/other: {"request":10,"streamIdle":5}`},
		{"25: a shadow policy", `
			P1 shadow: Mesh > Mesh {"idle": 1}
			P2: Mesh > Mesh {"idle": 2}`, `
			to b:http: {"idle":2} by P2
			shadow to b:http: {"idle":1} by P2 P1`},
		{"26: a consumer policy affects its namespace", `
			P1 zone consumer ns=a: Mesh > MeshService b {"idle": 1}`, `
			to b:http: {"idle":1}
			ns=c to b:http: {}`},
		{"27: a producer policy affects all clients", `
			P1 kuma.io/origin=zone kuma.io/zone=west producer ns=b: Mesh > MeshService b {"idle": 1, "request": 1}
			P2 zone consumer ns=c: Mesh > MeshService b {"idle": 2}`, `
			to b:http: {"idle":1,"request":1}
			ns=c to b:http: {"idle":2,"request":1}`},
		{"28: the backends of one policy", `
			aa: Mesh = {"backends": ["zipkin"]}
			bb: Mesh = {"backends": ["otel"]}`, `
			proxy: {"backends":["zipkin"]} by bb aa`},
	} {
		t.Run(e.name, func(t *testing.T) {
			for line := range strings.Lines(e.effective) {
				request, want, ok := strings.Cut(strings.TrimSpace(line), ": ")
				if !ok {
					continue
				}
				want, wantBy, ordered := strings.Cut(want, " by ")
				request, shadow := strings.CutPrefix(request, "shadow ")
				proxy := web()
				if label, rest, found := strings.Cut(request, " "); found && strings.Contains(label, "=") {
					request, proxy = rest, web(label)
				}
				got, by := newWorld(t, e.policies, shadow).effective(t, proxy, request)
				if got != want || ordered && by != wantBy {
					t.Errorf("%s: the conf is %s by %s, want %s by %s", request, got, by, want, wantBy)
				}
			}
		})
	}
}
