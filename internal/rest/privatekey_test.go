package rest

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"weft/internal/access"
	"weft/internal/pki"
)

// TestPrivateKeysOfResources: a private key that a resource has as an inline value is shown to users who read Secrets,
// and to no other reader. What the others read can be written back: the key stays.
func TestPrivateKeysOfResources(t *testing.T) {
	a := newActors(t)
	certificate, key, err := pki.NewCA(time.Now(), "default")
	if err != nil {
		t.Fatal(err)
	}
	quoted := func(text []byte) string {
		raw, _ := json.Marshal(string(text)) // of a string
		return string(raw)
	}
	inline := func(text []byte) string {
		return `{"type":"InsecureInline","insecureInline":{"value":` + quoted(text) + `}}`
	}
	mesh := func(key string) string {
		return `{"type":"Mesh","name":"default","mtls":{"backends":[{"name":"ca-1","type":"provided","conf":{"cert":` +
			`{"inlineString":` + quoted(certificate) + `},"key":` + key + `}}]}}`
	}
	a.put(t, "/meshes/default", mesh(`{"inline":"`+base64.StdEncoding.EncodeToString(key)+`"}`))
	a.put(t, "/meshes/default", mesh(`{"inlineString":`+quoted(key)+`}`))
	a.put(t, "/meshes/default/meshidentities/id", `{"type":"MeshIdentity","spec":{"selector":{"dataplane":`+
		`{"matchLabels":{}}},"provider":{"type":"Bundled","bundled":{"ca":{"certificate":`+inline(certificate)+
		`,"privateKey":`+inline(key)+`}}}}}`)
	secret, public := quoted(key)[30:60], quoted(certificate)[60:90]
	for _, path := range []string{"/meshes", "/meshes/default", "/meshes/default?format=k8s", "/meshidentities",
		"/meshes/default/meshidentities", "/meshes/default/meshidentities/id", "/_kri/kri_m___east__default_",
		"/_kri/kri_mid_default_east__id_"} {
		for role, shown := range map[string]bool{"read": false, "read,write,operatorResources": false,
			"read,adminResources": true, access.AdminGroup: true} {
			got := a.as(role, "GET", path, "")
			body := got.Body.String()
			if got.Code != http.StatusOK && !strings.HasPrefix(path, "/_kri") {
				t.Fatalf("%s, %s: %d %s", role, path, got.Code, body)
			}
			if strings.Contains(body, secret) != (shown && got.Code == http.StatusOK) {
				t.Errorf("%s, %s: the key is shown: %t; %s", role, path, !shown, body)
			}
			if got.Code == http.StatusOK && !strings.Contains(body, public) {
				t.Errorf("%s, %s: the certificate is hidden: %s", role, path, body)
			}
		}
	}
	tag := func(role string) string { return a.as(role, "GET", "/meshidentities", "").Header().Get("ETag") }
	if shown, hidden := tag(access.AdminGroup), tag("read"); shown == "" || shown == hidden {
		t.Errorf("the list with the key has the ETag %s, and without it %s", shown, hidden)
	}
	operator := "write,operatorResources,read"
	for _, path := range []string{"/meshes/default", "/meshes/default/meshidentities/id"} {
		read := a.as(operator, "GET", path, "").Body.String()
		got := a.as(operator, "PUT", path, read)
		if got.Code != http.StatusOK || strings.Contains(got.Body.String(), secret) {
			t.Errorf("%s: written as it was read: %d %s", path, got.Code, got.Body)
		}
		read = strings.Replace(read, `"labels":{`, `"labels":{"team":"a",`, 1)
		if got := a.as(operator, "PUT", path, read); got.Code != http.StatusOK {
			t.Errorf("%s: written with a label: %d %s", path, got.Code, got.Body)
		}
		if kept := a.as(access.AdminGroup, "GET", path, ""); !strings.Contains(kept.Body.String(), secret) {
			t.Errorf("%s: the key is lost: %s", path, kept.Body)
		}
		other := path[:strings.LastIndex(path, "/")+1] + "other"
		document := regexp.MustCompile(`"name":"(default|id)"`).ReplaceAllString(read, `"name":"other"`)
		never := a.as(operator, "PUT", other, document)
		if never.Code != http.StatusBadRequest ||
			!strings.Contains(never.Body.String(), "was not shown to its reader") {
			t.Errorf("%s: asterisks without a stored value: %d %s", other, never.Code, never.Body)
		}
	}
	dryRun := a.as(operator, "PUT", "/meshes/default?dryRun=true", mesh(`{"inlineString":`+quoted(key)+`}`))
	if dryRun.Code != http.StatusOK || strings.Contains(dryRun.Body.String(), secret) {
		t.Errorf("a dry run: %d %s", dryRun.Code, dryRun.Body)
	}
}
