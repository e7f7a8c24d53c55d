package admission_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/internal/admission"
	"weft/internal/sni"
	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

// knownSNIs are the SNIs of other services, and the format of new ones.
type knownSNIs struct {
	format  sni.Format
	holders map[string]resource.Key
}

func (k *knownSNIs) Format() sni.Format { return k.format }

func (k *knownSNIs) Owners(name string) []resource.Key {
	if key, ok := k.holders[name]; ok {
		return []resource.Key{key}
	}
	return nil
}

// IsOwn reports whether the name of a service does not begin with "remote".
func (k *knownSNIs) IsOwn(service resource.Key) bool {
	return !strings.HasPrefix(service.Name, "remote")
}

func newSNIWriter(t *testing.T) (*admission.Writer, *knownSNIs) {
	t.Helper()
	rows := memory.New(memory.Options{})
	t.Cleanup(func() { _ = rows.Close() })
	names := &knownSNIs{format: sni.V1, holders: map[string]resource.Key{}}
	w := admission.New(rows, admission.Options{Zone: "east", SNIs: names})
	put(t, w, `{type: Mesh, name: m}`)
	return w, names
}

func snis(o resource.Any) string {
	var ports []string
	for _, port := range kind.PortsOf(o) {
		var names []string
		for _, name := range port.SNIs {
			names = append(names, name.Value)
		}
		ports = append(ports, strings.Join(names, " "))
	}
	return strings.Join(ports, ", ")
}

// webSNI is the SNI of a port of the MeshService web of mesh m in zone east.
func webSNI(format sni.Format, number uint32) string {
	return format.Name(sni.Port{Kind: "MeshService", Mesh: "m", Zone: "east", Name: "web", Number: number})
}

func webWith(ports string) string {
	return `{type: MeshService, mesh: m, name: web, spec: {selector: {dataplaneRef: {name: a}}, ports: [` + ports +
		`]}}`
}

// TestSNIs: every port has one, and keeps it whatever a user writes.
func TestSNIs(t *testing.T) {
	w, names := newSNIWriter(t)
	at80, at81, newer := webSNI(sni.V1, 80), webSNI(sni.V2, 81), webSNI(sni.V2, 80)

	wrote := func(ports, want string) {
		t.Helper()
		if d := cmp.Diff(want, snis(put(t, w, webWith(ports)).Object)); d != "" {
			t.Errorf("after %s:\n%s", ports, d)
		}
	}
	wrote(`{port: 80}`, at80)
	names.format = sni.V2
	wrote(`{port: 80}, {port: 81}`, at80+", "+at81)
	wrote(`{port: 80, appProtocol: http}, {port: 81}`, at80+", "+at81)
	wrote(`{port: 80, snis: [{value: `+newer+`}]}, {port: 81}`, at80+", "+at81)
	if err := admission.Modify(t.Context(), w, kind.MeshServices, "m", "web",
		func(o *resource.Object[kind.MeshService]) bool {
			o.Spec.Ports[0].SNIs = []kind.SNI{{Value: newer}, {Value: at80}}
			return true
		}); err != nil {
		t.Fatal(err)
	}
	wrote(`{port: 80}`, newer+" "+at80)
	wrote(`{port: 80, snis: [{value: `+at80+`}]}`, newer+" "+at80)
	wrote(`{port: 81}`, at81)
	wrote(`{port: 80}`, newer)
}

// TestSNIsOfAnExport: a service that is written anew with its former SNIs gets them.
func TestSNIsOfAnExport(t *testing.T) {
	w, _ := newSNIWriter(t)
	newer, older := webSNI(sni.V2, 80), webSNI(sni.V1, 80)
	o := put(t, w, webWith(`{port: 80, snis: [{value: `+newer+`}, {value: `+older+`}]}`)).Object
	if got, want := snis(o), newer+" "+older; got != want {
		t.Errorf("the names are %q, want %q", got, want)
	}
}

func TestMultiZoneServicesHaveSNIs(t *testing.T) {
	w, _ := newSNIWriter(t)
	o := put(t, w,
		`{type: MeshMultiZoneService, mesh: m, name: web,
			spec: {selector: {meshService: {}}, ports: [{port: 80}]}}`).Object
	want := sni.V1.Name(sni.Port{Kind: "MeshMultiZoneService", Mesh: "m", Name: "web", Number: 80})
	if got := snis(o); got != want {
		t.Errorf("the name is %q, want %q, which is the same whichever zone wrote it", got, want)
	}
}

func TestSNIsAreRejected(t *testing.T) {
	w, names := newSNIWriter(t)
	own := webSNI(sni.V1, 80)
	other := sni.V1.Name(sni.Port{Kind: "MeshService", Mesh: "m", Zone: "east", Name: "bank", Number: 80})
	for name, test := range map[string]struct{ ports, says string }{
		"another service's": {`{port: 80, snis: [{value: ` + other + `}]}`,
			`spec.ports[0].snis[0].value: "` + other + `" is not an SNI of this port`},
		"another port's": {`{port: 81}, {port: 82, snis: [{value: ` + own + `}]}`,
			`spec.ports[1].snis[0].value: "` + own + `" is not`},
		"somebody's website": {`{port: 80, snis: [{value: ` + own + `}, {value: example.com}]}`,
			`spec.ports[0].snis[1].value: "example.com" is not`},
		"nothing": {`{port: 80, snis: [{value: ""}]}`, `spec.ports[0].snis[0].value: "" is not`},
		"twice": {`{port: 80, snis: [{value: ` + own + `}, {value: ` + own + `}]}`,
			`spec.ports[0].snis[1].value: "` + own + `" is listed twice`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.Put(t.Context(), parse(t, webWith(test.ports)), admission.Change{})
			wantError(t, err, resource.Invalid, test.says)
		})
	}

	names.holders[own] = kind.MeshServices.Key("m", "remote")
	_, err := w.Put(t.Context(), parse(t, webWith(`{port: 80, snis: [{value: `+own+`}]}`)), admission.Change{})
	wantError(t, err, resource.Invalid, "is also the SNI of MeshService m/remote; rename the service")
	names.holders[own] = kind.MeshServices.Key("m", "web")
	put(t, w, webWith(`{port: 80}`))
}

// TestIngressAddressIsNotStored: it is computed on reading, and can be written back.
func TestIngressAddressIsNotStored(t *testing.T) {
	w, _ := newSNIWriter(t)
	doc := strings.Replace(webWith(`{port: 80}`), "spec: {",
		`spec: {zoneIngress: {address: 10.0.0.1, port: 1, sni: x, endpoints: [{address: 10.0.0.1, port: 1, `+
			`healthy: true}]}, `, 1)
	if stored := resource.SpecOf(put(t, w, doc).Object).(*kind.MeshService); stored.ZoneIngress != nil {
		t.Errorf("stored is %+v", stored.ZoneIngress)
	}
}

// TestExternalServicesWithOneName: an egress distinguishes external services by their SNIs alone, those of later
// formats too.
func TestExternalServicesWithOneName(t *testing.T) {
	w, names := newSNIWriter(t)
	api := parse(t, `{type: MeshExternalService, mesh: m, name: api, spec: {match: {port: 443}, endpoints: `+
		`[{address: a.b, port: 443}]}}`)
	name := sni.V2.Name(sni.Port{Kind: "MeshExternalService", Mesh: "m", Zone: "east", Name: "api", Number: 443})
	names.holders[name] = kind.MeshExternalServices.Key("m", "other")
	_, err := w.Put(t.Context(), api, admission.Change{})
	wantError(t, err, resource.Invalid,
		`"`+name+`" is also the SNI of MeshExternalService m/other; rename the service`)
	names.holders[name] = api.Key()
	if _, err := w.Put(t.Context(), api, admission.Change{}); err != nil {
		t.Errorf("its own name: %v", err)
	}
}

// TestAnSNIThatAnotherServiceHas: a port whose SNI another service has gets one that no other port can have. One that
// has its SNI keeps it, whatever another service has.
func TestAnSNIThatAnotherServiceHas(t *testing.T) {
	w, names := newSNIWriter(t)
	names.holders[webSNI(sni.V1, 80)] = kind.MeshServices.Key("m", "remote")
	want := webSNI(sni.V2, 80) + ", " + webSNI(sni.V1, 81)
	for range 2 {
		if got := snis(put(t, w, webWith(`{port: 80}, {port: 81}`)).Object); got != want {
			t.Errorf("the SNIs are %q, want %q", got, want)
		}
		names.holders[webSNI(sni.V1, 81)] = kind.MeshServices.Key("m", "remote")
	}
}

// TestReceivedSNIsThatAnotherServiceHas: a zone accepts the MeshService that had an SNI first, also where a service of
// its own has the SNI. No control plane accepts a second owner beside that of another zone, and global none at all.
func TestReceivedSNIsThatAnotherServiceHas(t *testing.T) {
	for _, test := range []struct{ zone, holder, rejection string }{
		{"east", "web", ""},
		{"east", "remote", "is also the SNI of MeshService m/remote"},
		{"", "web", "is also the SNI of MeshService m/web"},
	} {
		rows := memory.New(memory.Options{})
		t.Cleanup(func() { _ = rows.Close() })
		name := sni.V1.Name(sni.Port{Kind: "MeshService", Mesh: "m", Zone: "west", Name: "bank", Number: 80})
		w := admission.New(rows, admission.Options{Zone: test.zone, Joined: true, SNIs: &knownSNIs{format: sni.V1,
			holders: map[string]resource.Key{name: kind.MeshServices.Key("m", test.holder)}}})
		_, err := admission.New(rows, admission.Options{}).Put(t.Context(), parse(t, `{type: Mesh, name: m}`),
			admission.Change{})
		if err != nil {
			t.Fatal(err)
		}
		err = w.Receive(t.Context(), received(west, kind.MeshServices, "bank",
			`{"selector":{"dataplaneRef":{"name":"a"}},"ports":[{"port":80,"snis":[{"value":"`+name+`"}]}]}`))
		if test.rejection == "" && err != nil || test.rejection != "" && (err == nil ||
			!strings.Contains(resource.Line(err), test.rejection)) {
			t.Errorf("%+v: the error is %v", test, err)
		}
	}
}
