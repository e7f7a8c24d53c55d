package check_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"weft/internal/access"
	"weft/internal/check"
	"weft/internal/graph"
	"weft/internal/inspect"
	"weft/internal/pki"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

var update = flag.Bool("update", false, "rewrite the expectations; understand each difference first")

// now is the time of Look in every world. Its resources were written an hour earlier.
var now = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// Every file of testdata is a world and its findings. Each new file is a test.
func TestWorlds(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no worlds: %v", err)
	}
	// Those of many rows have tests of their own: generated_test.go, namespace_test.go.
	seen := map[string]bool{"generated-services-full": true, "namespace-full": true}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			report := storedWorld(t, archive).run()
			for _, f := range report.Findings {
				seen[f.Problem] = true
			}
			if got := written(report); *update {
				setFile(archive, "findings", got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(string(fileOf(archive, "findings")), got); diff != "" {
				t.Errorf("something else is found (-want +got); if that is right, run with -update:\n%s", diff)
			}
		})
	}
	for _, p := range check.Problems() {
		if !seen[p.ID] && p.ID != "replica-unknown" { // which is about another replica, and in no world of one
			t.Errorf("no world has the problem %s", p.ID)
		}
	}
}

// TestOneMesh: the findings about one mesh are those of all meshes about it.
func TestOneMesh(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			w := storedWorld(t, archive)
			all, dataplanes := w.run(), 0
			meshes := []string{"without-resources"}
			for m := range w.stage.Tables.Meshes.All(w.snapshot) {
				meshes = append(meshes, m.Name)
			}
			for _, mesh := range meshes {
				var want []check.Finding
				for _, f := range all.Findings {
					if f.Object.Mesh == mesh || f.Object.Type == kind.Meshes.Name && f.Object.Name == mesh {
						want = append(want, f)
					}
				}
				of := all.Part(mesh)
				if diff := cmp.Diff(want, of.Findings, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("the mesh %s (-want +got):\n%s", mesh, diff)
				}
				dataplanes += of.Dataplanes
			}
			if dataplanes != all.Dataplanes {
				t.Errorf("the meshes have %d Dataplanes, and all have %d", dataplanes, all.Dataplanes)
			}
		})
	}
}

// TestReadersOfSomeMeshes: a reader of one mesh has the findings about it, about zones as far as they concern it, and
// those that concern every mesh. These name nothing of a mesh.
func TestReadersOfSomeMeshes(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	ofZones := 0
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		w := storedWorld(t, archive)
		for mesh := range w.stage.Tables.Meshes.All(w.snapshot) {
			stranger, reader := w.run(), w.run()
			stranger.Limit(meshSet("without-resources"))
			reader.Limit(meshSet(mesh.Name))
			for _, f := range stranger.Findings {
				if f.Mesh != "" || f.Object.Mesh != "" || strings.Contains(f.Detail, mesh.Name) {
					t.Errorf("%s: a reader of no mesh has %+v", file, f)
				}
			}
			for _, f := range w.run().Findings {
				if f.Object.Type != kind.Zones.Name || !strings.Contains(f.Detail, mesh.Name) {
					continue
				}
				if ofZones++; f.Mesh == "" {
					t.Errorf("%s: a finding about a zone states no mesh: %+v", file, f)
				}
			}
			if len(reader.Findings) < len(stranger.Findings) || len(reader.Meshes) != 1 {
				t.Errorf("%s: the reader of %v has %d findings", file, reader.Meshes, len(reader.Findings))
			}
		}
	}
	if ofZones == 0 {
		t.Error("no finding about a zone concerns a mesh")
	}
}

// meshSet returns the set of one mesh.
func meshSet(mesh string) access.MeshSet {
	rules := access.Rules{access.Read: {Limited: []access.MeshRule{{Meshes: []string{mesh}, Users: []string{"ann"}}}}}
	return rules.Meshes(access.NewUser("ann", nil, access.ByUserToken), access.Read)
}

// The link of a finding leads to an existing section.
func TestEveryProblemIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range check.Problems() {
		if !bytes.Contains(text, []byte("\n### "+p.ID+"\n")) {
			t.Errorf("docs/troubleshooting.md has no section %s", p.ID)
		}
	}
	for _, heading := range regexp.MustCompile(`(?m)^### ([a-z]+(-[a-z]+)+)$`).FindAllSubmatch(text, -1) {
		if !slices.ContainsFunc(check.Problems(), func(p *check.Problem) bool { return p.ID == string(heading[1]) }) {
			t.Errorf("docs/troubleshooting.md explains %s, which nothing finds", heading[1])
		}
	}
}

// scene is the state of a control plane.
type scene struct {
	stage    *check.Stage
	snapshot *table.Snapshot
	check.World
}

// newScene returns a state without rows, in which nothing is wrong.
func newScene(zone string) *scene {
	stage := check.NewStage(graph.NewState(zone))
	return &scene{stage, stage.Tables.DB.Snapshot(), check.World{
		Ended:       func(string) (time.Time, bool) { return time.Time{}, false },
		ZoneInsight: func(string) *kind.ZoneInsight { return &kind.ZoneInsight{} },
		Pending:     map[state.ProxyKey]time.Time{}, Now: now,
	}}
}

func (s *scene) run() *check.Report { return check.Run(s.stage, s.snapshot, s.World) }

// world reads the resources of an archive, including rows of the control plane and insights, and its notes, one per
// line. The zone is east, or global where the archive has a file "global". A file "zone-proxy-namespaces" has the
// listed namespaces of zone proxies, a file "operators-unset" the missing settings of operators, a file "store-outage"
// why the store takes no writes, a file "replica.yaml" the state of the replica, and a file "link.yaml" the connection
// to global.
func world(t *testing.T, archive *txtar.Archive) (*scene, []resource.Any) {
	zone := "east"
	if fileOf(archive, "global") != nil {
		zone = ""
	}
	w := newScene(zone)
	zones := map[string]*kind.ZoneInsight{}
	w.ZoneInsight = func(name string) *kind.ZoneInsight {
		if known := zones[name]; known != nil {
			return known
		}
		return &kind.ZoneInsight{}
	}
	if reason := string(fileOf(archive, "store-outage")); reason != "" {
		w.StoreOutage = &check.Failure{Since: w.Now.Add(-5 * time.Minute), Reason: strings.TrimSpace(reason)}
	}
	if err := yaml.UnmarshalStrict(fileOf(archive, "replica.yaml"), &w.Replica); err != nil {
		t.Fatal(err)
	}
	if text := fileOf(archive, "link.yaml"); text != nil {
		if err := yaml.UnmarshalStrict(text, &w.Global); err != nil {
			t.Fatal(err)
		}
	}
	w.OperatorsUnset = strings.Fields(string(fileOf(archive, "operators-unset")))
	w.stage.Tables.ZoneProxyNamespaces = strings.Fields(string(fileOf(archive, "zone-proxy-namespaces")))
	var rows []resource.Any
	for _, doc := range bytes.Split(fileOf(archive, "resources.yaml"), []byte("\n---\n")) {
		o := parse(t, doc)
		if insight, ok := resource.SpecOf(o).(*kind.ZoneInsight); ok {
			zones[o.Key().Name] = insight
			continue
		}
		rows = append(rows, o)
	}
	for line := range strings.Lines(string(fileOf(archive, "notes"))) {
		rows = append(rows, note(t, w, rows, strings.Fields(line))...)
	}
	for _, o := range rows {
		if dp, ok := o.(*resource.Object[kind.Dataplane]); ok && strings.Contains(dp.Name, "unvouched") {
			kind.VouchToken(nil, dp, nil)
		} else if ok {
			kind.VouchOperator(nil, dp)
		}
	}
	return w, rows
}

// storedWorld returns the state of [world] with its rows.
func storedWorld(t *testing.T, archive *txtar.Archive) *scene {
	w, rows := world(t, archive)
	w.stage.Tables.DB.Commit(func(tx *table.Tx) {
		for _, o := range rows {
			w.stage.Tables.Put(tx, o)
		}
	})
	w.snapshot = w.stage.Tables.DB.Snapshot()
	return w
}

func parse(t *testing.T, doc []byte) resource.Any {
	var own struct {
		Type, Mesh, Name string
		Labels           map[string]string
		Spec             json.RawMessage
	}
	if err := yaml.Unmarshal(doc, &own); err != nil {
		t.Fatalf("%s\n%s", err, doc)
	}
	d := kind.ByName(own.Type)
	if d == nil {
		t.Fatalf("%q is no kind:\n%s", own.Type, doc)
	}
	o, err := d.New(), error(nil)
	if d.Describe().Hidden { // users cannot write it
		o.Envelope().Mesh, o.Envelope().Name, o.Envelope().Labels = own.Mesh, own.Name, own.Labels
		err = json.Unmarshal(own.Spec, resource.SpecOf(o))
	} else {
		o, err = resource.Parse(doc, kind.ByName)
	}
	if err != nil {
		t.Fatalf("%s\n%s", err, doc)
	}
	if problems := d.Prepare(o); len(problems) > 0 {
		t.Fatalf("%s: %v", o.Key(), problems)
	}
	o.Envelope().Created, o.Envelope().Modified = now.Add(-time.Hour), now.Add(-time.Hour)
	return o
}

// note applies a fact that no resource has:
//
//	signing-key MESH                   the mesh has a signing key
//	authority IDENTITY DOMAIN DAYS     the MeshIdentity has a CA and a MeshTrust; the CA expires in DAYS
//	holds NAME IDENTITY DAYS           the proxy has a certificate below the root in the MeshTrust, for DAYS
//	signs IDENTITY DAYS                a CA signs for it that expires in DAYS, and another has waited for an hour
//	pending NAME MINUTES               the proxy has had a pending ACK for MINUTES
//	fresh NAME                         the resource was written just now
//	vouchers MESH                      the Mesh was written by a release that asks for vouchers of members
//	away MINUTES REASON                the zone has been disconnected from global for MINUTES, with the reason
func note(t *testing.T, w *scene, rows []resource.Any, words []string) []resource.Any {
	days := func(word string) (d time.Duration) {
		var n int
		if _, err := fmt.Sscan(word, &n); err != nil {
			t.Fatalf("%v: %v", words, err)
		}
		return time.Duration(n) * 24 * time.Hour
	}
	switch words[0] {
	case "signing-key":
		return []resource.Any{kind.Secrets.Make(words[1], pki.DataplaneRealm(words[1]).SigningKey("1").Name,
			kind.Secret{})}
	case "authority":
		cert, key, err := pki.NewCA(now.AddDate(0, 0, -3650).Add(days(words[3])), words[2])
		if err != nil {
			t.Fatal(err)
		}
		secret := kind.Secrets.Make("default", pki.CASecretName(words[1]),
			kind.Secret{Data: slices.Concat(cert, key)})
		trust := kind.MeshTrusts.Make("default", words[1],
			kind.MeshTrust{TrustDomain: words[2],
				CABundles: []kind.CABundle{{Type: "Pem", PEM: &kind.PEMBundle{Value: string(cert)}}}})
		return []resource.Any{secret, trust}
	case "holds":
		for _, o := range rows {
			if trust, ok := o.(*resource.Object[kind.MeshTrust]); ok && trust.Name == words[2] {
				certificate := kind.WorkloadCertificate{MeshIdentity: words[2], Root: pki.Roots(&trust.Spec)[0],
					SpiffeIDs: kind.SpiffeIDsOf("spiffe://" + trust.Spec.TrustDomain + "/" + words[1]),
					Until:     kind.Time{Time: now.Add(days(words[3]))}}
				return []resource.Any{kind.DataplaneCertificatesList.Make("default", words[1],
					kind.DataplaneCertificates{Certificates: []kind.WorkloadCertificate{certificate}})}
			}
		}
		t.Fatalf("%v: there is no such MeshTrust", words)
	case "signs":
		cert, key, err := pki.NewCA(now.AddDate(0, 0, -3650).Add(days(words[2])), "default.east.mesh.local")
		if err != nil {
			t.Fatal(err)
		}
		return []resource.Any{kind.SigningCAs.Make("default", words[1], kind.SigningCA{
			Authority: slices.Concat(cert, key), Next: &kind.NextCA{Since: kind.Time{Time: now.Add(-time.Hour)}},
		})}
	case "pending":
		since := now.Add(-days(words[2]) / (24 * 60))
		w.Pending[state.ProxyKey{Mesh: "default", Name: words[1]}] = since
	case "away":
		since := now.Add(-days(words[1]) / (24 * 60))
		w.Global = &inspect.GlobalLink{Since: kind.Time{Time: since}, Problem: strings.Join(words[2:], " ")}
	case "fresh":
		for _, o := range rows {
			if o.Key().Name == words[1] {
				o.Envelope().Created, o.Envelope().Modified = now, now
			}
		}
	case "vouchers":
		for _, o := range rows {
			if o.Key() == kind.Meshes.Key("", words[1]) {
				o.Envelope().Vouched.Complete = true
			}
		}
	default:
		t.Fatalf("%v is no note", words)
	}
	return nil
}

func written(report *check.Report) string {
	var b strings.Builder
	for _, f := range report.Findings {
		fmt.Fprintf(&b, "%s %s: %s: %s\n", f.Severity, f.Problem, f.Object, f.Detail)
	}
	return b.String()
}

func fileOf(a *txtar.Archive, name string) []byte {
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func setFile(a *txtar.Archive, name, text string) {
	a.Files = slices.DeleteFunc(a.Files, func(f txtar.File) bool { return f.Name == name })
	a.Files = append(a.Files, txtar.File{Name: name, Data: []byte(text)})
}
