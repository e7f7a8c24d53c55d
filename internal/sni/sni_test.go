package sni_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weft/internal/sni"
	"weft/kind"
	"weft/resource"
)

// A name that was given once is answered by ingresses and dialed by clients of releases to come, so that no
// format may ever change.
func TestFormats(t *testing.T) {
	long := "payments.a-very-long-name-of-a-service-that-somebody-chose-to-write-out.team"
	for _, test := range []struct {
		port   sni.Port
		v1, v2 string
	}{
		{
			sni.Port{Kind: "MeshService", Mesh: "default", Zone: "east", Name: "web", Number: 80},
			"a6b70ca98a72441a7.web.80.default.ms", "b3f3e587458d2bae196f211b945caaa73.80.ms",
		},
		{
			sni.Port{Kind: "MeshMultiZoneService", Mesh: "default", Name: "web", Number: 80},
			"af3b71fe1adcad3b3.web.80.default.mzms", "b91a42d2af5961740141b98bbca74e6b9.80.mzms",
		},
		{
			sni.Port{Kind: "MeshService", Mesh: "default", Zone: "east", Name: long, Number: 8080},
			"a09d29c87f1e227ab.payments.a-very-long-name-of-a-service-that-somebody-chose-to-x.8080.default.ms",
			"b720a727142c8c4e4f2e1944191eb7df3.8080.ms",
		},
		{
			sni.Port{Kind: "MeshExternalService", Mesh: "default", Name: "api", Number: 443},
			"aed22d4b0ed1c902b.api.443.default.mes", "be5070c0e798e76fb99be715e3b8e1736.443.mes",
		},
	} {
		if got := sni.V1.Name(test.port); got != test.v1 {
			t.Errorf("v1 of %+v is %q, want %q", test.port, got, test.v1)
		}
		if got := sni.V2.Name(test.port); got != test.v2 {
			t.Errorf("v2 of %+v is %q, want %q", test.port, got, test.v2)
		}
	}
}

// An external service has one name in each format, the same in every zone that it was synced to, and a zone's own
// of the same name has others.
func TestNamesOfAnExternalService(t *testing.T) {
	service := func(name string, labels map[string]string) sni.Port {
		o := kind.MeshExternalServices.Make("default", name, kind.MeshExternalService{})
		o.Labels = labels
		return sni.PortOf(o, 443)
	}
	global := service("api", map[string]string{kind.OriginLabel: "global"})
	synced := service(kind.SyncedName(&kind.MeshExternalServices.Info, "default", "api", kind.Owner{}),
		map[string]string{kind.OriginLabel: "global", kind.DisplayName: "api"})
	own := service("api", map[string]string{kind.OriginLabel: "zone", kind.ZoneLabel: "east"})
	if want := []string{"aed22d4b0ed1c902b.api.443.default.mes",
		"be5070c0e798e76fb99be715e3b8e1736.443.mes"}; !slices.Equal(sni.InAllFormats(global), want) {
		t.Errorf("the names are %q, want %q", sni.InAllFormats(global), want)
	}
	if !slices.Equal(sni.InAllFormats(global), sni.InAllFormats(synced)) {
		t.Errorf("global calls it %q, a zone %q", sni.InAllFormats(global), sni.InAllFormats(synced))
	}
	for _, name := range sni.InAllFormats(own) {
		if slices.Contains(sni.InAllFormats(global), name) {
			t.Errorf("a zone's own service and global's are both called %q", name)
		}
	}
}

// drawPort draws whatever kind takes as names, with the lengths at which something is cut more often than others.
func drawPort(t *rapid.T, label string) sni.Port {
	resourceName := rapid.Custom(func(t *rapid.T) string {
		return rapid.OneOf(
			rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,5}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,5}[a-z0-9])?){0,3}`),
			rapid.StringMatching(`[a-z0-9]([-a-z0-9]{58,68}[a-z0-9])`),
			rapid.StringMatching(`[a-z0-9]{57,64}(\.[a-z0-9]{1,3}){1,60}`).Filter(func(s string) bool {
				return len(s) <= 253
			}),
			rapid.StringMatching(`[a-z0-9]{253}`),
		).Draw(t, "name")
	}).Filter(func(name string) bool { return resource.NameProblem(name) == "" })
	meshName := rapid.OneOf(rapid.StringMatching(`[a-z]([-a-z0-9]{0,5}[a-z0-9])?`),
		rapid.StringMatching(`[a-z][-a-z0-9]{61}[a-z0-9]`))
	return sni.Port{
		Kind: rapid.SampledFrom([]string{"MeshService", "MeshMultiZoneService", "MeshExternalService"}).Draw(t,
			label+" kind"),
		Mesh:      meshName.Draw(t, label+" mesh"),
		Zone:      rapid.OneOf(rapid.Just(""), meshName).Draw(t, label+" zone"),
		Namespace: rapid.OneOf(rapid.Just(""), meshName).Draw(t, label+" namespace"),
		Name:      resourceName.Draw(t, label+" name"),
		Number:    rapid.Uint32Range(1, 65535).Draw(t, label+" port"),
	}
}

// Whatever a user may call a service, a mesh or a zone, the name is one of a host and says of itself what is
// true.
func TestAnyNameIsAHostName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		port := drawPort(t, "a")
		for _, format := range sni.Formats() {
			name := format.Name(port)
			if !kind.IsHostname(name) {
				t.Fatalf("%s: %q (%d characters) is no host name", format, name, len(name))
			}
			if told, ok := sni.Parse(name); !ok ||
				told != (sni.Parsed{Format: format, Kind: port.Kind, Number: port.Number}) {
				t.Fatalf("%s: %q reads as %+v, %t", format, name, told, ok)
			}
			if made := sni.FormatOf(name, port); made != format {
				t.Fatalf("%s: %q is taken for one of %v", format, name, made)
			}
		}
	})
}

// Two ports that differ in anything have different names, and none is another's in any format.
func TestNamesDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawPort(t, "a")
		b := drawPort(t, "b")
		others := []sni.Port{b}
		for _, take := range []func(c *sni.Port){
			func(c *sni.Port) { c.Kind = b.Kind }, func(c *sni.Port) { c.Mesh = b.Mesh },
			func(c *sni.Port) { c.Zone = b.Zone }, func(c *sni.Port) { c.Namespace = b.Namespace },
			func(c *sni.Port) { c.Name = b.Name }, func(c *sni.Port) { c.Number = b.Number },
		} {
			c := a // differs in one field alone
			take(&c)
			others = append(others, c)
		}
		for _, other := range others {
			for _, f := range sni.Formats() {
				for _, g := range sni.Formats() {
					if same := f.Name(a) == g.Name(other); same != (a == other && f == g) {
						t.Fatalf("%s of %+v is %q, %s of %+v is %q", f, a, f.Name(a), g, other, g.Name(other))
					}
				}
			}
			if made := sni.FormatOf(sni.V1.Name(other), a); (made != nil) != (a == other) {
				t.Fatalf("the name of %+v is taken for one of %+v", other, a)
			}
		}
	})
}
