package rest

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"weft/internal/admission"
	"weft/resource"
)

// Headers and parameters by which a user agrees to the removal of fields that the client drops, as comma-separated
// names.
const (
	removeHeader = "Weft-Remove-Fields"
	removeQuery  = "removeFields"
)

// kumactlAgent matches the User-Agent of kumactl: its release, and the product and commit of its build.
var kumactlAgent = regexp.MustCompile(`^kumactl/([0-9A-Za-z.+-]{1,64}) \([^()]*; ([A-Za-z ]{1,64})/[^()/;]*\)$`)

// kumactlClient is a kumactl of some release.
type kumactlClient struct {
	release string // such as 2.14.3, or unknown
	product string // the product that it was built for, such as Kuma
}

// kumactlOf returns the kumactl that sent a request, or false for other clients. A User-Agent that begins like
// kumactl's and continues in another form has an unknown release.
func kumactlOf(r *http.Request) (kumactlClient, bool) {
	agent := r.UserAgent()
	if !strings.HasPrefix(agent, "kumactl/") {
		return kumactlClient{}, false
	}
	if parts := kumactlAgent.FindStringSubmatch(agent); parts != nil {
		return kumactlClient{parts[1], parts[2]}, true
	}
	return kumactlClient{"unknown", "Kuma"}, true
}

// dropped has the fields that kumactl drops when it reads a file: those of every release, and those that only releases
// after 2.x drop.
type dropped struct{ always, after2 []string }

var kumactlDrops = map[string]dropped{
	"Mesh": {
		always: []string{"dataplaneProxyMembership"},
		after2: []string{"mtls", "routing"},
	},
	"Dataplane": {
		always: []string{"networking.zoneIngress", "networking.zoneEgress"},
		after2: []string{"networking.inbound[].tags", "networking.outbound[].tags",
			"networking.transparentProxying.reachableServices"},
	},
	"MeshService":           {after2: []string{"selector.dataplaneTags"}},
	"MeshMultiZoneService":  {always: []string{"ports[].targetPort"}},
	"MeshTrafficPermission": {always: []string{"rules[].matches"}},
	"MeshTCPRoute":          {always: []string{"to[].rules[].matches"}},
}

// tooOldToWrite returns a Conflict for a kumactl before 2.13. It drops further fields, among them the rules of
// permissions. The version 0.0.0 is that of every build of a branch without a release, such as the 3.0 preview.
func tooOldToWrite(r *http.Request) error {
	by, ok := kumactlOf(r)
	if !ok {
		return nil
	}
	var major, minor, patch int
	n, _ := fmt.Sscanf(by.release, "%d.%d.%d", &major, &minor, &patch)
	unreleased := major == 0 && minor == 0 && patch == 0
	if n >= 2 && !unreleased && (major < 2 || major == 2 && minor < 13) {
		return resource.Errorf(resource.Conflict,
			"kumactl %s drops fields of this API; use kumactl 2.13 or newer, or `weft apply`", by.release)
	}
	return nil
}

// senderOf returns the fields of a kind that the client of a request drops, and those that its user agrees to lose.
func senderOf(r *http.Request, kindName string) admission.Sender {
	by, ok := kumactlOf(r)
	if !ok {
		return admission.Sender{}
	}
	fields := kumactlDrops[kindName]
	lacks := fields.always
	if !strings.HasPrefix(by.release, "2.") {
		lacks = slices.Concat(lacks, fields.after2)
	}
	sender := admission.Sender{Name: "kumactl/" + by.release, Lacks: lacks, OmitsZero: true}
	for _, list := range append(r.Header.Values(removeHeader), r.URL.Query()[removeQuery]...) {
		for field := range strings.SplitSeq(list, ",") {
			if field = strings.TrimSpace(field); field != "" {
				sender.Removes = append(sender.Removes, field)
			}
		}
	}
	return sender
}

// otherKRI returns a warning about an identifier of another resource in a resource. Clients compute the zone and the
// namespace from labels that a file may lack.
func otherKRI(text string, o resource.Any, d resource.Descriptor) []string {
	own, ok := resource.KRIOf(o.Envelope(), d.Describe())
	if text == "" || !ok {
		return nil
	}
	written, ok := resource.ParseKRI(text)
	if ok && written.Code == own.Code && written.Mesh == own.Mesh &&
		(written.Name == own.Name || written.Name == o.Key().Name) {
		return nil
	}
	return []string{fmt.Sprintf("kri: %.300q is ignored: it does not identify %s, whose kri is %s", text, o.Key(), own)}
}
