package rest

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/internal/access"
	"weft/internal/admission"
	"weft/kind"
	"weft/resource"
)

// proxies returns an API with five Dataplanes of two meshes, which were created in the order of the list.
func proxies(t *testing.T) *world {
	w := newWorld(t, newStore(t))
	for _, mesh := range []string{"shop", "bank"} {
		w.put(t, "/meshes/"+mesh, `{"type":"Mesh"}`)
	}
	w.put(t, "/meshes/shop/meshservices/web", `{"type":"MeshService","spec":{"ports":[{"port":80}],
		"selector":{"dataplaneTags":{"kuma.io/service":"web"}}}}`)
	expiry := time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)
	for i, p := range []struct {
		mesh, name, service, address, envoy, agent string
		certified, connected                       bool
	}{
		{"shop", "c", "web", "10.0.0.3", "1.40.1", "1.2.0", true, true},
		{"bank", "b", "web", "10.0.0.1", "1.40.12", "1.3.0", false, true},
		{"shop", "a", "api", "fd00::1", "1.4.0", "", true, false},
		{"bank", "e", "api", "10.0.0.1", "", "", false, false},
		{"shop", "d", "web", "192.168.0.1", "1.40.1", "1.3.0", true, true},
	} {
		w.put(t, "/meshes/"+p.mesh+"/dataplanes/"+p.name, fmt.Sprintf(`{"type":"Dataplane","networking":{"address":%q,
			"inbound":[{"port":8080,"tags":{"kuma.io/service":%q}}]}}`, p.address, p.service))
		if p.envoy == "" {
			continue
		}
		insight := kind.DataplaneInsight{Subscriptions: []kind.Subscription{{ID: "1",
			ControlPlaneInstanceID: "instance-1", ConnectTime: kind.Time{Time: expiry},
			Version: kind.VersionOfAgent(p.envoy, p.agent)}}}
		if !p.connected {
			insight.Subscriptions[0].DisconnectTime = &kind.Time{Time: expiry}
		}
		if p.certified {
			end := expiry.Add(time.Duration(i) * time.Hour)
			insight.Certificate = &kind.Certificate{Expiration: kind.Time{Time: end}}
		}
		w.storeRow(t, kind.DataplaneInsights.Make(p.mesh, p.name, insight))
	}
	return w
}

// follow returns the names of a list, page by page.
func (w *world) follow(t *testing.T, target string) (names []string) {
	t.Helper()
	for target != "" {
		var page []string
		page, target = w.names(t, target)
		names = append(names, page...)
	}
	return names
}

// Pages in each order are the list in that order, and its end in the opposite one.
func TestOrdersOfLists(t *testing.T) {
	w := proxies(t)
	w.put(t, "/meshes/shop/dataplanes/a", `{"type":"Dataplane","labels":{"x":"y"},"networking":{"address":"fd00::1",
		"inbound":[{"port":8080,"tags":{"kuma.io/service":"api"}}]}}`)
	for target, want := range map[string]string{
		"/dataplanes?sort=name": "a b c d e", "/dataplanes?sort=mesh": "b e a c d",
		"/dataplanes?sort=zone":         "b e a c d",
		"/dataplanes?sort=creationTime": "c b a e d", "/dataplanes?sort=modificationTime": "c b e d a",
		"/dataplanes/_overview?sort=status": "e a b c d", "/meshes/shop/dataplanes?sort=name": "a c d",
		"/meshes/shop/dataplanes?sort=creationTime":   "c a d",
		"/meshes/shop/dataplanes/_overview?sort=name": "a c d", "/meshes?sort=name": "bank shop",
		"/meshes/shop/service-insights?sort=status": "web",
	} {
		for _, size := range []string{"", "&size=1", "&size=2"} {
			if got := strings.Join(w.follow(t, target+size), " "); got != want {
				t.Errorf("%s%s: %s, want %s", target, size, got, want)
			}
			opposite := strings.Replace(target, "sort=", "sort=-", 1) + size
			got := w.follow(t, opposite)
			if slices.Reverse(got); strings.Join(got, " ") != want {
				t.Errorf("%s: the opposite of %s, want %s", opposite, got, want)
			}
		}
	}
}

// A page continues behind the last row of the one before, whatever is created or deleted meanwhile.
func TestPagesOfAChangingOrder(t *testing.T) {
	w := proxies(t)
	first, next := w.names(t, "/dataplanes?sort=-creationTime&size=2")
	w.put(t, "/meshes/shop/dataplanes/new", `{"type":"Dataplane","networking":{"address":"10.0.0.9",
		"inbound":[{"port":8080,"tags":{"kuma.io/service":"web"}}]}}`)
	for _, gone := range []string{"/meshes/bank/dataplanes/e", "/meshes/bank/dataplanes/b"} {
		if r := w.do("DELETE", gone, "", nil); r.StatusCode != http.StatusOK {
			t.Fatal(text(r))
		}
	}
	if got := strings.Join(append(first, w.follow(t, next)...), " "); got != "d e a c" {
		t.Errorf("the pages have %s, want d e a c", got)
	}
}

// limit limits the reads of the administrator to some meshes.
func (w *world) limit(meshes ...string) {
	config := w.config()
	config.Guard.Rules[access.Read] = access.Rule{Limited: []access.MeshRule{
		{Meshes: meshes, Users: []string{access.AdminName}}}}
	w.handler = New(config)
}

// A user of some meshes pages through these alone, in each order, and the total is theirs.
func TestPagesOfSomeMeshes(t *testing.T) {
	w := proxies(t)
	w.put(t, "/meshes/shop-2", `{"type":"Mesh"}`)
	w.put(t, "/meshes/shop-2/dataplanes/f", `{"type":"Dataplane","networking":{"address":"10.0.0.6",
		"inbound":[{"port":8080,"tags":{"kuma.io/service":"web"}}]}}`)
	w.limit("shop", "shop-2")
	for target, want := range map[string]string{
		"/dataplanes?size=1": "f a c d", "/dataplanes?size=1&sort=name": "a c d f",
		"/dataplanes?size=1&name=":               "f a c d",
		"/dataplanes?size=3&filter[service]=web": "c d", "/dataplanes?size=1&sort=-mesh": "f d c a",
		"/dataplanes/_overview?size=1&sort=-status": "d c a f", "/meshes?size=1": "shop shop-2",
	} {
		if got := strings.Join(w.follow(t, target), " "); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
		var page listPage
		if err := json.Unmarshal([]byte(text(w.do("GET", target, "", nil))), &page); err != nil {
			t.Fatal(err)
		}
		if page.Total != len(strings.Fields(want)) {
			t.Errorf("%s: the total is %d, want that of %s", target, page.Total, want)
		}
	}
}

// Each filter of proxies keeps the proxies that it says, and all together those that every one keeps.
func TestFiltersOfProxies(t *testing.T) {
	w := proxies(t)
	for filter, want := range map[string]string{
		"filter[service]=web": "c d", "filter[service]=other": "",
		"filter[version.envoy]=1.40.1": "c d", "filter[version.envoy]=1.40": "b c d",
		"filter[version.envoy]=1":                                       "b a c d",
		"filter[version.agent]=1.3":                                     "b d",
		"filter[address]=10.0.0.1":                                      "b e",
		"filter[address]=FD00:0::01":                                    "a",
		"filter[certificate]=none":                                      "b e",
		"filter[certificate.expiresBefore]=2026-01-31T11:00:00Z":        "c",
		"filter[certificate.expiresBefore]=2026-01-31T13:30:00%2B01:00": "c a",
		"filter[status]=online":                                         "b c d",
		"filter[zone]=east":                                             "b e a c d",
		"filter[zone]=west":                                             "",
		"filter[zone]=":                                                 "",
		"filter[service]=web&filter[version.agent]=1.3&filter[status]=online&sort=-name": "d",
	} {
		for _, list := range []string{"/dataplanes?", "/dataplanes/_overview?size=2&"} {
			got := w.follow(t, list+filter)
			if slices.Sort(got); strings.Join(got, " ") != strings.Join(sortedFields(want), " ") {
				t.Errorf("%s%s keeps %s, want %s", list, filter, got, want)
			}
		}
	}
}

func sortedFields(text string) []string {
	fields := strings.Fields(text)
	slices.Sort(fields)
	return fields
}

// ZoneIngresses and ZoneEgresses have the filters of proxies, and a zone on global is online while it is connected.
func TestFiltersOfZones(t *testing.T) {
	w := newWorldOf(t, newStore(t), "")
	config := w.config()
	config.Zone = ""
	w.handler = New(config)
	since := kind.Time{Time: time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)}
	for _, zone := range []string{"east", "west"} {
		w.put(t, "/zones/"+zone, `{"type":"Zone"}`)
		w.receive(t, zone, kind.ZoneIngresses.Make("", "in-"+zone, kind.ZoneIngress{Zone: zone,
			Networking: kind.ZoneIngressNetworking{Address: "10.0.0.1", Port: 10001}}))
	}
	w.receive(t, "west", kind.ZoneIngressInsights.Make("", "in-west", kind.DataplaneInsight{
		Subscriptions: []kind.Subscription{{ID: "1", ControlPlaneInstanceID: "of west", ConnectTime: since,
			Version: kind.VersionOfEnvoy("1.40.1")}}}))
	w.storeRow(t, kind.ZoneInsights.Make("", "west", kind.ZoneInsight{Subscriptions: []kind.ZoneSubscription{
		{ID: "1", ControlPlaneInstanceID: "instance-1", ConnectTime: since}}}))
	for target, want := range map[string]string{
		"/zones?filter[status]=online": "west", "/zones/_overview?filter[status]=offline": "east",
		"/zones?sort=status":                       "east west",
		"/zone-ingresses?filter[zone]=west":        "in-west",
		"/zone-ingresses?filter[status]=online":    "in-west",
		"/zone-ingresses?filter[address]=10.0.0.1": "in-east in-west",
		"/zone-ingresses?filter[version.envoy]=1":  "in-west",
		"/zone-ingresses?filter[certificate]=none": "in-east in-west",
		"/zoneingresses/_overview?sort=-status":    "in-west in-east",
	} {
		var got []string
		for _, name := range w.follow(t, target) {
			got = append(got, regexp.MustCompile("-[0-9a-f]{16}$").ReplaceAllString(name, ""))
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
}

// On global, a service is found by its name there and by that in its zone, which several zones may have.
func TestServiceFiltersOnGlobal(t *testing.T) {
	w := newWorldOf(t, newStore(t), "")
	w.put(t, "/meshes/default", `{"type":"Mesh"}`)
	for _, zone := range []string{"east", "west"} {
		tags := map[string]string{kind.ServiceTag: "web"}
		w.receive(t, zone, kind.MeshServices.Make("default", "web", kind.MeshService{
			Selector: kind.ServiceSelector{DataplaneTags: tags}, Ports: []kind.ServicePort{{Port: 80}}}))
		dp := kind.Dataplanes.Make("default", "web-"+zone, kind.Dataplane{Networking: kind.Networking{
			Address: "10.0.0.1", Inbound: []kind.Inbound{{Port: 80, Tags: tags}}}})
		dp.Vouched.Operator = []string{kind.AddressFact("10.0.0.1"), kind.TagFact(kind.ServiceTag, "web")}
		w.receive(t, zone, dp)
	}
	nameOf := func(d *resource.Info, zone, name string) string {
		return kind.SyncedName(d, "default", name, kind.Owner{Zone: zone})
	}
	east := nameOf(&kind.Dataplanes.Info, "east", "web-east")
	both := east + " " + nameOf(&kind.Dataplanes.Info, "west", "web-west")
	for name, want := range map[string]string{"web": both, nameOf(&kind.MeshServices.Info, "east", "web"): east} {
		if got := strings.Join(w.follow(t, "/dataplanes?filter[service]="+name), " "); got != want {
			t.Errorf("the proxies of %s are %s, want %s", name, got, want)
		}
	}
}

// receive stores the copy of a resource of a zone, or of global for an empty zone.
func (w *world) receive(t *testing.T, zone string, o resource.Any) {
	t.Helper()
	meta := o.Envelope()
	labels := map[string]string{kind.OriginLabel: kind.OriginZone, kind.ZoneLabel: zone, kind.DisplayName: meta.Name}
	if zone == "" {
		labels[kind.OriginLabel] = kind.OriginGlobal
		delete(labels, kind.ZoneLabel)
	}
	maps.Copy(labels, meta.Labels)
	meta.Labels = labels
	body, err := resource.Body(o)
	if err == nil {
		err = w.writer.Receive(t.Context(), admission.Received{Kind: kind.ByName(o.Key().Kind), Mesh: o.Key().Mesh,
			Name: o.Key().Name, Owner: kind.Owner{Zone: zone}, Body: body})
	}
	if err != nil {
		t.Fatalf("%s of %s: %v", o.Key(), zone, err)
	}
}

// A query with a parameter that Kuma's API lacks has known parameters alone. An error names each other one.
func TestRejectedParametersOfLists(t *testing.T) {
	w := proxies(t)
	for target, field := range map[string]string{
		"/dataplanes?sort=size":                                  "sort",
		"/dataplanes?sort=":                                      "sort",
		"/meshes?sort=status":                                    "sort",
		"/zones?sort=status":                                     "sort",
		"/dataplanes?sort=name&hue=red":                          "hue",
		"/dataplanes?sort=name&sort=mesh":                        "sort",
		"/dataplanes?sort=name&offset=3":                         "offset",
		"/dataplanes?filter[zone]=a&filter[zone]=b":              "filter[zone]",
		"/meshes?filter[service]=web":                            "filter[service]",
		"/meshes/shop/meshservices?filter[status]=online":        "filter[status]",
		"/dataplanes?filter[hue]=red":                            "filter[hue]",
		"/dataplanes?filter[certificate]=some":                   "filter[certificate]",
		"/dataplanes?filter[certificate.expiresBefore]=tomorrow": "filter[certificate.expiresBefore]",
		"/dataplanes?filter[version.envoy]=":                     "filter[version.envoy]",
		"/dataplanes?filter[address]=":                           "filter[address]",
		"/dataplanes?after=shop/a":                               "after",
		"/dataplanes?sort=creationTime&after=creationTime~x~a":   "after",
		"/dataplanes?sort=name&after=-name~a~shop/a":             "after",
	} {
		r := w.do("GET", target, "", nil)
		var p problem
		if err := json.Unmarshal([]byte(text(r)), &p); err != nil {
			t.Fatal(err)
		}
		if r.StatusCode != http.StatusBadRequest || len(p.InvalidParameters) != 1 ||
			p.InvalidParameters[0].Field != field {
			t.Errorf("%s: %s, %v, want one problem of %s", target, r.Status, p.InvalidParameters, field)
		}
	}
	if r := w.do("GET", "/dataplanes?size=1&hue=red", "", nil); r.StatusCode != http.StatusOK {
		t.Errorf("an unknown parameter of a client of Kuma: %s", text(r))
	}
}

// A list has an ETag of its body, as this caller gets it, and a client that has the body gets none.
func TestValidationOfLists(t *testing.T) {
	w := proxies(t)
	for _, target := range []string{"/dataplanes?size=2", "/dataplanes/_overview?sort=name", "/mesh-insights",
		"/meshes/shop/service-insights?type=external"} {
		first := w.do("GET", target, "", nil)
		tag := first.Header.Get("ETag")
		if !strings.HasPrefix(tag, `W/"`) || text(first) == "" {
			t.Fatalf("%s: the ETag is %s", target, tag)
		}
		for _, stated := range []string{tag, `"other", ` + strings.TrimPrefix(tag, "W/"), "*"} {
			again := w.do("GET", target, "", http.Header{"If-None-Match": {stated}})
			if again.StatusCode != http.StatusNotModified || text(again) != "" || again.Header.Get("ETag") != tag {
				t.Errorf("%s with %s: %s, ETag %s", target, stated, again.Status, again.Header.Get("ETag"))
			}
		}
		if r := w.do("GET", target, "", http.Header{"If-None-Match": {`W/"other"`}}); r.StatusCode != http.StatusOK {
			t.Errorf("%s with another tag: %s", target, r.Status)
		}
		if r := w.do("PUT", "/meshes/shop", `{"type":"Mesh"}`,
			http.Header{"If-Match": {tag}}); r.StatusCode != http.StatusBadRequest {
			t.Errorf("a write with the ETag of a list: %s", r.Status)
		}
	}
}

// A body is compressed for a client that accepts it, unless another site caused the request.
func TestCompressionOfLists(t *testing.T) {
	w := proxies(t)
	plain := text(w.do("GET", "/dataplanes", "", nil))
	from := func(site string) http.Header {
		return http.Header{"Accept-Encoding": {"gzip"}, "Sec-Fetch-Site": {site}}
	}
	for name, test := range map[string]struct {
		header     http.Header
		target     string
		compressed bool
	}{
		"accepted":       {http.Header{"Accept-Encoding": {"br, gzip;q=0.5"}}, "/dataplanes", true},
		"own page":       {from("same-origin"), "/dataplanes", true},
		"not accepted":   {nil, "/dataplanes", false},
		"rejected":       {http.Header{"Accept-Encoding": {"gzip;q=0.0, br"}}, "/dataplanes", false},
		"small":          {http.Header{"Accept-Encoding": {"gzip"}}, "/zones", false},
		"of other sites": {from("cross-site"), "/dataplanes", false},
		"of neighbors":   {from("same-site"), "/dataplanes", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.do("GET", test.target, "", test.header)
			if got := r.Header.Get("Content-Encoding") == "gzip"; got != test.compressed {
				t.Fatalf("compressed: %v, want %v", got, test.compressed)
			}
			if !slices.Contains(r.Header.Values("Vary"), "Accept-Encoding") {
				t.Errorf("Vary is %q", r.Header.Values("Vary"))
			}
			if !test.compressed {
				return
			}
			body, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(body); err != nil || string(got) != plain {
				t.Errorf("the body is another one: %v\n%s", err, got)
			}
		})
	}
}

// A body is sent as it is where all compressors are in use, and does not wait.
func TestCompressorsAreBounded(t *testing.T) {
	c := newCompressors()
	if _, ok := c.compress([]byte("a")); !ok || len(c) != maxCompressors {
		t.Errorf("%d compressors are free, want %d", len(c), maxCompressors)
	}
	for range maxCompressors {
		<-c
	}
	if _, ok := c.compress([]byte("a")); ok {
		t.Error("there is another compressor")
	}
}

// A cursor is a part of a URL that comes back as it was.
func TestCursorsInURLs(t *testing.T) {
	for _, o := range []order{{}, {&orderFields[0], true}, {&orderFields[3], false}} {
		at := position{number: -7, text: "a b&c=é", row: "shop/a+b"}
		if o.field == nil || o.field.numeric {
			at.text = ""
		}
		if o.field == nil || !o.field.numeric {
			at.number = 0
		}
		values, err := url.ParseQuery(url.Values{"after": {o.cursor(&at)}}.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if got, fault := o.parseCursor(values.Get("after")); fault != "" || *got != at {
			t.Errorf("%s: %v %s, want %v", o.String(), got, fault, at)
		}
	}
}
