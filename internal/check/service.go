package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weft/internal/inspect"
	"weft/internal/pki"
	"weft/internal/service"
	"weft/kind"
	"weft/resource"
)

// meshService checks the backends of a service, and whether a caller is allowed. That of another zone is checked there.
func (l *checker) meshService(o *resource.Object[kind.MeshService]) {
	object := objectOf(o.Key())
	l.serviceStatus(o, object)
	if l.Tables.IsRemote(o) {
		return
	}
	l.fullNamespace(o)
	members := slices.Collect(l.Services.Members(l.r, o))
	l.unvouched(o)
	l.takenSNIs(o)
	if !l.matches(o, members) {
		return
	}
	for _, port := range o.Spec.Ports {
		key := service.DestinationKey{Mesh: o.Mesh, Zone: l.Tables.Zone, Service: o.Name, Port: port.Port}
		if len(l.Services.Endpoints.Get(l.r, key).Endpoints) == 0 {
			l.found(serviceWithoutEndpoints, object, "port %d has no endpoint: %s", port.Port, whyNone(port, members))
		}
		for _, older := range l.Services.Preceding.Get(l.r, key) {
			l.found(listenerExcluded, object, "the proxies that reach %s too get no listener of this one at %s: the "+
				"older service has the address", older.Service(), kind.HostPort(older.VIP, port.Port))
		}
		l.callers(o, port, members)
	}
}

// takenSNIs reports the ports of a service whose SNI in the format of the mesh another service has.
func (l *checker) takenSNIs(meshService *resource.Object[kind.MeshService]) {
	for _, port := range meshService.Spec.Ports {
		if name, holder := l.Tables.TakenSNI(l.r, meshService, port.Port); name != "" {
			l.found(sniTaken, objectOf(meshService.Key()), "port %d has an SNI of another format, since %s has %s",
				port.Port, holder, name)
		}
	}
}

// matches returns whether a service has members, and reports one without.
func (l *checker) matches(meshService *resource.Object[kind.MeshService], members []*service.Member) bool {
	if len(members) > 0 {
		return true
	}
	severity := Error
	if meshService.Label(kind.ManagedBy) == kind.GeneratedBy {
		severity = Warning // generated for Dataplanes that are gone; it will be deleted too
	}
	l.add(serviceMatchesNothing, severity, objectOf(meshService.Key()), "no Dataplane matches its selector (%s)%s",
		selectorText(&meshService.Spec.Selector),
		butUnreachable(l.Services.UnreachableOutbounds(l.r, meshService)))
	return false
}

// fullNamespace finds that the namespace of a MeshService may not have another one with as many ports as one may have.
func (l *checker) fullNamespace(o *resource.Object[kind.MeshService]) {
	reason := l.full.Get(l.r, namespaceKey{o.Mesh, o.Label(kind.NamespaceLabel)})
	if reason != "" {
		l.found(namespaceFull, objectOf(kind.Meshes.Key("", o.Mesh)), "a further MeshService may be left out, "+
			"with an event of its Service: %s", reason)
	}
}

// maxUnvouched is how many Dataplanes without a voucher are reported for a service.
const maxUnvouched = 10

// unvouched reports the Dataplanes that a service's selector matches and that are no members of it, since they have no
// voucher.
func (l *checker) unvouched(meshService *resource.Object[kind.MeshService]) {
	unvouched := slices.DeleteFunc(l.Services.UnvouchedInbounds(l.r, meshService), l.mayConnect)
	unvouched = slices.CompactFunc(unvouched, func(a, b service.Unvouched) bool { return a.Dataplane == b.Dataplane })
	for i := range unvouched[:min(len(unvouched), maxUnvouched)] {
		u := &unvouched[i]
		l.found(memberUnvouched, objectOf(u.Dataplane.Key()), "it is no member of %s, whose selector matches it: %s",
			meshService.Key(), unvouchedReason(u))
	}
	if more := len(unvouched) - maxUnvouched; more > 0 {
		l.found(memberUnvouched, objectOf(meshService.Key()),
			"its selector matches %d more Dataplanes that are no members", more)
	}
}

// mayConnect reports whether an inbound lacks a voucher for its address alone, and its agent, which may vouch for it,
// has not connected yet.
func (l *checker) mayConnect(u service.Unvouched) bool {
	status, ok := l.Tables.ListenerStatuses.Find(l.r, u.Dataplane.Mesh, u.Dataplane.Name)
	return (!ok || status.Spec.Run == "") && !slices.ContainsFunc(u.Missing, func(fact string) bool {
		return kind.ReadFact(fact).Address == ""
	})
}

// unvouchedReason returns why an inbound is no member of a service, with what to do.
func unvouchedReason(u *service.Unvouched) string {
	if slices.Contains(u.Missing, service.NamespaceFact) {
		return "the service selects Pods of another namespace; write the MeshService in the namespace of the Pods, " +
			"or in the system namespace with " + kind.NamespaceLabel + " in its selector"
	}
	return pki.UnvouchedMember(u.Dataplane, u.Missing)
}

// lastDays is how long before the end of an exemption its finding is an error.
const lastDays = 30 * 24 * time.Hour

// exemption reports a mesh that lets Dataplanes be members of services without a voucher.
func (l *checker) exemption(o *resource.Object[kind.Mesh]) {
	e := l.exempt.Get(l.r, o.Name)
	if !e.stated {
		return
	}
	text := "Dataplanes without a voucher are members of services until %s, then they leave"
	if e.over {
		text = "unvouchedMembers ended at %s: Dataplanes without a voucher are no members of services"
	}
	l.add(membersExempt, e.severity, objectOf(o.Key()), text, day(e.until))
}

// butUnreachable lists the Dataplanes that would match if the mesh admitted them.
func butUnreachable(excluded []service.Member) string {
	if len(excluded) == 0 {
		return ""
	}
	var names []string
	for i := range excluded {
		names = append(names, excluded[i].Dataplane.Name)
	}
	return " but those that the mesh does not admit: " + someOf(slices.Compact(names))
}

// serviceStatus reports the conditions of a service's status.
func (l *checker) serviceStatus(service *resource.Object[kind.MeshService], object Object) {
	status, ok := l.Tables.ServiceStatuses.Find(l.r, service.Mesh, service.Name)
	if !ok {
		return
	}
	l.conditions(status.Spec.Conditions, status.Spec.HostnameGenerators, object)
}

// conditions reports the conditions that services of every kind have.
func (l *checker) conditions(conditions []kind.Condition, generators []kind.HostnameGeneratorStatus, object Object) {
	for _, c := range conditions {
		switch {
		case c.Status != "False":
		case c.Type == "VIPAssigned":
			l.found(noVirtualIP, object, "%s", c.Message)
		case c.Type == kind.NamespaceAdmitted:
			l.found(namespaceNotAdmitted, object, "%s", c.Message)
		case c.Reason == "TranslationFailed":
			l.found(notTranslated, object, "%s", c.Message)
		}
	}
	for _, generator := range generators {
		for _, c := range generator.Conditions {
			if c.Status == "False" {
				l.found(hostnameMissing, object, "HostnameGenerator %s gives it no host name: %s",
					generator.HostnameGeneratorRef.CoreName, c.Message)
			}
		}
	}
}

// whyNone returns the reason for which no member is an endpoint of a port.
func whyNone(port kind.ServicePort, members []*service.Member) string {
	var others []string
	by := map[inspect.EndpointStatus][]string{}
	for _, m := range members {
		if status := inspect.StatusOf(m, port); status == inspect.AnotherPort {
			others = append(others, fmt.Sprintf("%s (%d)", m.Inbound.Name, m.Inbound.Port))
		} else {
			by[status] = append(by[status], m.Dataplane.Name)
		}
	}
	var reasons []string
	because := func(status inspect.EndpointStatus, reason string) {
		if names := by[status]; len(names) > 0 {
			reasons = append(reasons, reason+" "+someOf(names))
		}
	}
	because(inspect.Unserved, "not served by")
	because(inspect.Unhealthy, "failing the probe, or draining, at")
	because(inspect.NotReady, "NotReady at")
	if len(reasons) == 0 {
		slices.Sort(others)
		return fmt.Sprintf("its targetPort %s is none of the inbounds %s", targetText(port),
			someOf(slices.Compact(others)))
	}
	return strings.Join(reasons, "; ")
}

func targetText(port kind.ServicePort) string {
	switch {
	case port.TargetPort == nil:
		return fmt.Sprint(port.Port)
	case port.TargetPort.Name != "":
		return fmt.Sprintf("%q", port.TargetPort.Name)
	}
	return fmt.Sprint(port.TargetPort.Number)
}

func selectorText(s *kind.ServiceSelector) string {
	switch {
	case s.DataplaneRef != nil:
		return "dataplaneRef: " + s.DataplaneRef.Name
	case s.DataplaneLabels != nil:
		return "dataplaneLabels: " + pairs(s.DataplaneLabels.MatchLabels)
	}
	return "dataplaneTags: " + pairs(s.DataplaneTags)
}

// pairs formats labels or tags, sorted by key.
func pairs(labels map[string]string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, key+"="+labels[key])
	}
	return strings.Join(all, ", ")
}

// retained finds ports with retained endpoints, because the new ones do not serve yet.
func (l *checker) retained(row *resource.Object[kind.RetainedEndpoints]) {
	if l.Services.RetainedCount(l.r, row) == 0 {
		return
	}
	ready, serving := l.Services.Successors(l.r, row)
	l.found(endpointsRetained, objectOf(kind.MeshServices.Key(row.Mesh, row.Spec.Service)), "port %d would have no "+
		"endpoint, so its former ones have been retained for %s: of %d new members, %d serve", row.Spec.Port,
		age(row.Spec.Since.Time), ready, serving)
}
