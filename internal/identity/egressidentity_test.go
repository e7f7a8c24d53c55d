package identity_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"

	"weft/internal/golden"
	"weft/internal/graph/graphtest"
	"weft/internal/identity"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// egressMeshes are the meshes of a system, without and with a mesh "default".
var egressMeshes = [][]string{{"shop"}, {"default"}, {"apple", "pear", "shop"}, {"apple", "default", "shop"}}

// egressIdentities are the MeshIdentities that a mesh may have, as the table writes them.
var egressIdentities = []struct {
	says       string
	identities []identity.EgressCandidate
}{
	{"one", []identity.EgressCandidate{{Name: "all", SelectsAll: true}}},
	{"several", []identity.EgressCandidate{{Name: "all-2", SelectsAll: true}, {Name: "all-1", SelectsAll: true},
		{Name: "a-part"}}},
	{"partial", []identity.EgressCandidate{{Name: "a-part"}}},
	{"Spire", []identity.EgressCandidate{{Name: "all", SelectsAll: true}, {Name: "spire-2", Spire: true},
		{Name: "spire-1", Spire: true}}},
}

func mtlsOf(mesh string) state.IdentityKey {
	return state.IdentityKey{Mesh: mesh, Name: kind.MTLSIdentity}
}

// holders are the parts of the meshes that have something: none, all of them or, of several, a single one.
func holders(meshes []string) map[string][]string {
	parts := map[string][]string{"-": nil, "every": meshes}
	if len(meshes) > 1 {
		for _, mesh := range meshes {
			parts[mesh] = []string{mesh}
		}
	}
	return parts
}

// Every combination of meshes, of the setting, of MeshIdentities and of mtls has the identity that the table says.
// (Zone Egress Identity.)
func TestIdentityOfAZoneEgress(t *testing.T) {
	const file = "testdata/egressidentity.txt"
	got := egressTable()
	if golden.Update() {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("zone egresses have other identities (-want +got); if that is right, run with -update:\n%s", diff)
	}
}

func egressTable() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "MESHES\t| KUMA_DEFAULTS_MESH\t| MESHIDENTITY\t| MTLS\t| IDENTITY ON EACH CHAIN\t| SAYS")
	for _, meshes := range egressMeshes {
		for _, named := range []string{"", meshes[len(meshes)-1]} {
			for _, has := range withIdentities(meshes) {
				for _, mtls := range sorted(holders(meshes)) {
					describeEgress(w, meshes, named, has, mtls)
				}
			}
		}
	}
	w.Flush()
	return b.String()
}

// identitiesOf is who has which MeshIdentities.
type identitiesOf struct {
	says       string
	meshes     []string
	identities []identity.EgressCandidate
}

func withIdentities(meshes []string) []identitiesOf {
	all := []identitiesOf{{says: "-"}}
	parts := holders(meshes)
	for _, has := range egressIdentities {
		for _, part := range sorted(parts)[1:] {
			all = append(all, identitiesOf{part + ": " + has.says, parts[part], has.identities})
		}
	}
	return all
}

func sorted(parts map[string][]string) []string {
	var names []string
	for name := range parts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func describeEgress(w *tabwriter.Writer, names []string, named string, has identitiesOf, mtls string) {
	var meshes []identity.EgressMesh
	for _, name := range names {
		mesh := identity.EgressMesh{Name: name, MTLS: slices.Contains(holders(names)[mtls], name)}
		if slices.Contains(has.meshes, name) {
			mesh.Identities = has.identities
		}
		meshes = append(meshes, mesh)
	}
	slices.Reverse(meshes) // their order decides nothing
	choice := identity.ChooseEgressIdentity(meshes, named)
	setting := named
	if named == "" {
		setting = "-"
	}
	fmt.Fprintf(w, "%s\t| %s\t| %s\t| %s\t| %s\t| %s\n", strings.Join(names, " "), setting, has.says, mtls,
		chains(&choice, names), describeChoice(&choice))
}

// chains says what the chains of each mesh present; once where all present the same.
func chains(c *identity.EgressChoice, meshes []string) string {
	var all []string
	for _, mesh := range meshes {
		source := c.IdentityOf(mesh)
		short := source.Mesh + "/" + source.Name
		switch {
		case source == state.IdentityKey{}:
			short = "none"
		case source.Name == kind.MTLSIdentity:
			short = source.Mesh + "'s mtls"
		}
		all = append(all, short)
	}
	if len(slices.Compact(slices.Clone(all))) == 1 {
		return all[0]
	}
	for i, mesh := range meshes {
		all[i] = mesh + ": " + all[i]
	}
	return strings.Join(all, ", ")
}

func describeChoice(c *identity.EgressChoice) string {
	switch {
	case c.Notice != "":
		return "set KUMA_DEFAULTS_MESH"
	case c.Problem != "":
		return "error: no identity"
	}
	return "-"
}

// The rules one by one, each with the sentence that it comes from.
func TestRulesOfEgressIdentities(t *testing.T) {
	all, part, spire := identity.EgressCandidate{
		Name:       "all",
		SelectsAll: true,
	}, identity.EgressCandidate{
		Name: "a-part",
	},
		identity.EgressCandidate{
			Name:  "spire",
			Spire: true,
		}
	mesh := func(name string, identities ...identity.EgressCandidate) identity.EgressMesh {
		return identity.EgressMesh{Name: name, Identities: identities}
	}
	withMTLS := func(name string, identities ...identity.EgressCandidate) identity.EgressMesh {
		return identity.EgressMesh{Name: name, MTLS: true, Identities: identities}
	}
	type meshes = []identity.EgressMesh
	for _, c := range []struct {
		rule   string
		meshes meshes
		named  string
		want   state.IdentityKey
	}{
		{"a system of one mesh needs no setting", meshes{mesh("shop", all)}, "",
			state.IdentityKey{Mesh: "shop", Name: "all"}},
		{"a system of one mesh with mtls needs no setting", meshes{withMTLS("shop")}, "", mtlsOf("shop")},
		{"the named mesh alone counts", meshes{withMTLS("default", all), mesh("shop", all)}, "shop",
			state.IdentityKey{Mesh: "shop", Name: "all"}},
		{"of the named mesh, Spire comes first", meshes{withMTLS("shop", all, spire)}, "shop",
			state.IdentityKey{Mesh: "shop", Name: "spire"}},
		{"of the named mesh, those that select all come before its mtls", meshes{withMTLS("shop", part, all)}, "shop",
			state.IdentityKey{Mesh: "shop", Name: "all"}},
		{"of the named mesh, mtls comes last", meshes{withMTLS("shop", part)}, "shop", mtlsOf("shop")},
		{"never another mesh's than the named one's", meshes{withMTLS("default", all), mesh("shop", part)}, "shop",
			state.IdentityKey{}},
		{"never another mesh's than the named one's, there or not", meshes{withMTLS("default", all)}, "shop",
			state.IdentityKey{}},
		{"a mesh with mtls comes before any MeshIdentity", meshes{mesh("default", all, spire), withMTLS("shop")}, "",
			mtlsOf("shop")},
		{"also where one mesh has both", meshes{withMTLS("default", all)}, "", mtlsOf("default")},
		{"the mtls of the mesh default first", meshes{withMTLS("apple"), withMTLS("default")}, "", mtlsOf("default")},
		{"then mtls by name", meshes{withMTLS("shop"), withMTLS("apple")}, "", mtlsOf("apple")},
		{"a Spire MeshIdentity of any mesh comes before those of default",
			meshes{mesh("default", all), mesh("shop", spire)}, "", state.IdentityKey{Mesh: "shop", Name: "spire"}},
		{"those of default come before others", meshes{mesh("apple", all), mesh("default", all)}, "",
			state.IdentityKey{Mesh: "default", Name: "all"}},
		{"default needs a qualifying one", meshes{mesh("apple", all), mesh("default", part)}, "",
			state.IdentityKey{Mesh: "apple", Name: "all"}},
		{"one that selects a part gives none", meshes{mesh("default", part)}, "", state.IdentityKey{}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			choice := identity.ChooseEgressIdentity(c.meshes, c.named)
			if choice.Chosen != c.want {
				t.Errorf("chosen is %v, want %v", choice.Chosen, c.want)
			}
			if (choice.Problem == "") != (c.want != state.IdentityKey{}) {
				t.Errorf("the problem is %q", choice.Problem)
			}
		})
	}
}

// The operator of several meshes reads which one is used, and what decides it.
func TestNoticeWithoutDefaultMesh(t *testing.T) {
	all := []identity.EgressCandidate{{Name: "all", SelectsAll: true}}
	choice := identity.ChooseEgressIdentity([]identity.EgressMesh{{Name: "shop", Identities: all},
		{Name: "apple", Identities: all}}, "")
	want := `no default mesh is defined and there are several: set KUMA_DEFAULTS_MESH to the one whose identity zone ` +
		`egresses shall have; meanwhile MeshIdentity apple/all is used`
	if choice.Notice != want {
		t.Errorf("the notice is %q, want %q", choice.Notice, want)
	}
}

// Under mtls the clients of each such mesh see a name of their own mesh; all others see the chosen one's.
func TestMTLSChainsPresentOwnIdentity(t *testing.T) {
	choice := identity.ChooseEgressIdentity([]identity.EgressMesh{{Name: "shop", MTLS: true}, {Name: "pear"},
		{Name: "apple", MTLS: true}}, "")
	for mesh, want := range map[string]string{"apple": "apple", "pear": "apple", "shop": "shop"} {
		if on := choice.IdentityOf(mesh); on != (mtlsOf(want)) {
			t.Errorf("chains of %s present %v, want the mtls of %s", mesh, on, want)
		}
	}
	if want := []state.IdentityKey{mtlsOf("apple"), mtlsOf("shop")}; !slices.Equal(choice.Sources(), want) {
		t.Errorf("all sources are %v, want %v", choice.Sources(), want)
	}
}

// The mesh that KUMA_DEFAULTS_MESH names gives the identity of the zone's ZoneEgresses, in the state of the mesh as in
// the rules. (Zone Egress Identity.)
func TestEgressIdentityOfNamedMesh(t *testing.T) {
	for named, want := range map[string]state.IdentityKey{
		"": mtlsOf("pear"), "shop": mtlsOf("shop"), "default": {Mesh: "default", Name: "all"}, "plain": {},
		"nowhere": {},
	} {
		t.Run("named "+named, func(t *testing.T) {
			s := graphtest.ManyMeshes(t)
			s.Tables.DefaultMesh = named
			choice := s.Identity.EgressChoice.Get(table.Eval(s.Tables.DB.Snapshot()), "east")
			if choice.Chosen != want {
				t.Errorf("the identity is %v, want %v", choice.Chosen, want)
			}
			p := s.Proxies.Proxy.Get(table.Eval(s.Tables.DB.Snapshot()), state.ZoneEgressProxy("ze"))
			if (len(p.Chains) > 0) != (want != state.IdentityKey{}) {
				t.Errorf("it has %d filter chains with the identity %v", len(p.Chains), want)
			}
		})
	}
}
