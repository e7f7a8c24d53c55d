package check

import "slices"

// Severity is the severity of a finding.
type Severity string

const (
	// Error means: requests fail, or the system does not recover by itself.
	Error Severity = "error"
	// Warning means: the configuration has no effect, or requests will fail later.
	Warning Severity = "warning"
)

func rank(s Severity) int { return slices.Index([]Severity{Error, Warning}, s) }

// Problem is one kind of finding.
type Problem struct {
	ID       string   // also its anchor in docs/troubleshooting.md
	Severity Severity // the default of its findings
	Advice   string   // one sentence
}

func (p *Problem) docs() string { return "docs/troubleshooting.md#" + p.ID }

func problemIndex(id string) int {
	return slices.IndexFunc(problems, func(p *Problem) bool { return p.ID == id })
}

// Problems returns all problems in the order of a report.
func Problems() []*Problem { return slices.Clone(problems) }

var (
	serverCertificateExpiring = &Problem{"server-certificate-expiring", Warning,
		"Replace the files that the settings of the server name. A generated certificate is replaced when the " +
			"control plane restarts."}
	operatorsUnset = &Problem{"operators-unset", Warning,
		"Set access.static.operatorResources.users or .groups to those who speak for whole meshes, or to the " +
			"administrators (mesh-system:admin) if no others do."}
	identityCannotSign = &Problem{"identity-cannot-sign", Error,
		"Repair the CA of the MeshIdentity, or of the backend of the Mesh. Until then, no certificate is signed."}
	authorityExpiring = &Problem{"certificate-authority-expiring", Warning,
		"Replace the CA before it expires."}
	authorityChangePending = &Problem{"authority-change-pending", Warning,
		"Find the proxies that are slow or NACK updates. The former CA signs meanwhile."}
	noVirtualIP = &Problem{"no-virtual-ip", Error,
		"Set ipam.meshService.cidr to a larger range."}
	notTranslated = &Problem{"not-translated", Error,
		"Proxies keep their former configuration. This is a bug in weft: report it, with the control plane's log."}
	ownWriteFailed = &Problem{"own-write-failed", Error,
		"Remove the cause that the reason states. The control plane repeats the write at least once a minute."}
	storeTakesNoWrites = &Problem{"store-takes-no-writes", Error,
		"Free space where the store is, or end what makes it read-only. New proxies get no certificate before."}
	hostnameMissing = &Problem{"hostname-missing", Warning,
		"Rename one of the services, or correct the template."}
	noSpiffeID = &Problem{"no-spiffe-id", Error,
		"Correct the labels and tags of the Dataplane, or the templates of the MeshIdentity."}
	certificateExpired = &Problem{"certificate-expired", Error,
		"Read the log of its weft-dp or, with SPIRE, of its SPIRE agent: it has the reason of the failed renewal."}
	certificateExpiring = &Problem{"certificate-expiring", Warning,
		"Read the log of its weft-dp or, with SPIRE, of its SPIRE agent: it has the reason of the missing renewal."}
	domainNotTrusted = &Problem{"trust-domain-not-trusted", Error,
		"Create a MeshTrust for the trust domain, or correct its name."}
	certificateMissing = &Problem{"certificate-missing", Error,
		"Follow the message on the proxy's machine, or at the SPIRE server. Until then, the proxy neither serves nor " +
			"sends mTLS requests."}
	providersMixed = &Problem{"providers-mixed", Error,
		"Use one provider and one trust domain of SPIRE for the whole mesh. Otherwise, proxies with different roots " +
			"reject each other."}
	trustWithoutEffect = &Problem{"trust-without-effect", Warning,
		"Delete it: SPIRE provides the roots that proxies trust."}
	rootsNotTrusted = &Problem{"roots-not-trusted", Error,
		"Delete the MeshTrust in the zone that wrote it. If its roots are right, write them in a MeshTrust on the " +
			"global control plane."}
	signingKeyMissing = &Problem{"signing-key-missing", Error,
		"Generate new tokens, which also generates a new key, and start the proxies with them; or restore the Secret."}
	configRejected = &Problem{"config-rejected", Error,
		"The proxy keeps its former configuration. Read Envoy's message, then `weft inspect dataplane NAME --config`."}
	policyLeftOut = &Problem{"policy-left-out", Error,
		"Correct the policy: a write ends the exception. Read Envoy's message."}
	configNotAcked = &Problem{"config-not-acked", Warning,
		"The proxy is slow or stuck: check its machine, and read Envoy's log."}
	envoyTooOld = &Problem{"envoy-too-old", Error,
		"Give the proxy a newer Envoy."}
	sidecarMissing = &Problem{"sidecar-missing", Error,
		"Its requests are not in the mesh, and its ports are open: label the namespace, and replace the Pod."}
	notAdmitted = &Problem{"not-admitted", Warning,
		"Change the Dataplane's tags or mesh, or the Mesh's dataplaneProxyMembership; or delete the Dataplane."}
	proxyOffline = &Problem{"proxy-offline", Warning,
		"Start its weft-dp, or delete the Dataplane if it is no longer needed."}
	proxyNeverConnected = &Problem{"proxy-never-connected", Warning,
		"Start its weft-dp. If it runs, its log has the reason."}
	inboundNotReady = &Problem{"inbound-not-ready", Warning,
		"Verify that the application listens at its servicePort, and read the log of its weft-dp."}
	memberUnvouched = &Problem{"member-unvouched", Error,
		"Give its agent a token that vouches for what the service reads, or have an operator write the Dataplane."}
	policyUnvouched = &Problem{"policy-unvouched", Error,
		"Give its agent a token that vouches for what the policies select, or have an operator write the Dataplane."}
	membersExempt = &Problem{"members-exempt", Warning,
		"Give the agents tokens that vouch for their Dataplanes (`weft generate dataplane-token --dataplane-file`), " +
			"then remove unvouchedMembers from the Mesh."}
	listenerExcluded = &Problem{"listener-excluded", Warning,
		"Give one of the two another port, or delete the one that is not needed."}
	outboundWithoutBackend = &Problem{"outbound-without-backend", Warning,
		"Create the MeshService, or correct the outbound. Until then, no listener exists at its address."}
	serviceMatchesNothing = &Problem{"service-matches-nothing", Error,
		"Correct the selector, start the Dataplanes, or delete the service."}
	serviceWithoutEndpoints = &Problem{"service-without-endpoints", Error,
		"Every request to the port fails. `weft describe meshservice NAME` shows its members."}
	endpointsRetained = &Problem{"endpoints-retained", Warning,
		"Verify that the new members start. The former ones are retained for five minutes at most."}
	listenerDrainStuck = &Problem{"listener-drain-stuck", Warning,
		"Find the proxies that are slow or NACK updates. They may still send requests to the listener."}
	noAllowedClients = &Problem{"no-allowed-clients", Error,
		"Write a MeshTrafficPermission that allows its callers. `weft explain --from NAME --to SERVICE` shows the " +
			"SPIFFE ID of a caller."}
	denyCoversAllow = &Problem{"deny-covers-allow", Error,
		"A deny takes precedence over every allow: narrow it."}
	zoneNotConnected = &Problem{"zone-not-connected", Error,
		"Read the log of the zone's control plane: it has the reason for which global rejects the zone or does " +
			"not respond."}
	zoneUnknown = &Problem{"zone-unknown", Error,
		"The findings of the zone are missing: run `weft check` at its control plane. If it does not respond either, " +
			"its log has the reason."}
	replicaUnknown = &Problem{"replica-unknown", Error,
		"Open the port between the replicas (interCp.server.port), or upgrade the replica. Until then, run " +
			"`weft check` at each replica."}
	zoneWithoutEffect = &Problem{"zone-without-effect", Warning,
		"Delete it here (`weft delete zone NAME`). Zones belong to a global control plane: write it there if it " +
			"lacks it."}
	anotherStore = &Problem{"zone-has-another-store", Error,
		"If the control plane of the zone was reinstalled, run `weft zone replace NAME` on the global control plane. " +
			"Otherwise, find the second control plane with this name; if there is none, revoke the zone token."}
	deletionsWait = &Problem{"zone-deletions-wait", Error,
		"If the deletions are intended, run `weft zone replace NAME` on the global control plane. Otherwise, restore " +
			"the store of the zone from a newer backup."}
	zoneSyncLag = &Problem{"zone-sync-lag", Warning,
		"`weft inspect zones -o json` on global shows the kind that lags. Check the load of that control plane and " +
			"of its store."}
	syncItemRejected = &Problem{"sync-item-rejected", Error,
		"Remove the cause that the reason states. The control plane retries by itself."}
	zoneWithoutIngress = &Problem{"zone-without-ingress", Warning,
		"Run a Dataplane with networking.zoneIngress in the zone. If other zones should not reach it, no " +
			"action is needed."}
	ingressNotReady = &Problem{"ingress-not-ready", Warning,
		"Start its weft-dp. If it runs, its log has the reason for which it does not serve its listener."}
	hostNameNotResolved = &Problem{"host-name-not-resolved", Error,
		"Correct the host name or its DNS records, or this zone's resolvers (hostNames.resolvers)."}
	serviceWithoutSNI = &Problem{"service-without-sni", Warning,
		"Upgrade the control plane of its zone, which sets the SNI, or write the service again."}
	sniTaken = &Problem{"sni-of-another-service", Warning,
		"Find out who made a service with the same SNI: it does not happen by chance. No action is needed for the " +
			"traffic, which has the other SNI."}
	keyTaken = &Problem{"key-of-another-resource", Warning,
		"Find out who made the resource that has the key: it does not happen by chance. Rename it, or delete it if " +
			"it is a former copy of this one. Both apply meanwhile."}
	memberExcluded = &Problem{"member-excluded", Warning,
		"Give the MeshService the port with that appProtocol, add its namespace to selector.namespaces of the " +
			"MeshMultiZoneService if its owner may have the requests, or narrow the selector."}
	outboundUnreachable = &Problem{"outbound-unreachable", Error,
		"Create a MeshIdentity that selects the proxies of both sides: requests to other zones need mutual TLS."}
	permissionWithoutEffect = &Problem{"permission-without-effect", Warning,
		"Create a MeshIdentity that selects the proxies. Without one, they allow every client."}
	policyNotAccepted = &Problem{"policy-not-accepted", Error,
		"Correct the policy as the message says. Until then proxies keep their former configuration, have the " +
			"bound of a value, or are without the item or the policy."}
	policyRefNotFound = &Problem{"policy-ref-not-found", Warning,
		"Correct the name, the labels or the port, or create the resource. An item without a target has no effect, " +
			"and requests of a backend that does not exist get 500."}
	policyWithoutEffect = &Problem{"policy-without-effect", Warning,
		"Change the policy as the message says, or delete it. `weft inspect policies --for NAME` shows which policy " +
			"sets each field."}
	prefixWithinSegment = &Problem{"prefix-within-segment", Warning,
		"Write an entry for each caller that the rule is about, and edit the prefix."}
	faultsInjected = &Problem{"faults-injected", Warning,
		"Delete the MeshFaultInjection when the test is over."}
	selectorMatchesNothing = &Problem{"selector-matches-nothing", Warning,
		"Correct the selector, or delete the resource."}
)

var (
	generatedServicesFull = &Problem{"generated-services-full", Error,
		"Find the Dataplanes whose tags generate so many services, or write MeshServices for the needed ones: only " +
			"generated ones count."}
	namespaceFull = &Problem{"namespace-full", Error,
		"Find what makes so many MeshServices or policies in the namespace and delete those that are not needed, or " +
			"raise runtime.kubernetes.namespaceBound."}
	namespaceNotAdmitted = &Problem{"namespace-not-admitted", Warning,
		"Delete the MeshService, or have dataplaneProxyMembership of the Mesh admit Pods of its namespace."}
	externalUnreachable = &Problem{"external-service-unreachable", Error,
		"Run a Dataplane with networking.zoneEgress in this zone and give it an identity, or repair the existing one."}
	zoneProxyNamespace = &Problem{"zone-proxy-namespace", Error,
		"Run zone proxies in the system namespace, or add the namespace to the value " +
			"controlPlane.zoneProxyNamespaces of the chart if its owners may have the keys and traffic of the mesh."}
	routeUngranted = &Problem{"route-without-grant", Error,
		"Write the grant in the finding if the owner of the service agrees, or remove the backend. At the end, its " +
			"share of the requests gets 500."}
	zoneWithoutEgress = &Problem{"zone-without-egress", Error,
		"Run a Dataplane with networking.zoneEgress in this zone and give it an identity, or remove " +
			"routing.zoneEgress from the Mesh."}
	externalSecrets = &Problem{"external-service-secrets", Error,
		"Write or correct the Secret in the condition. Until then, the egresses use the last valid one."}
)

// ofReplicas are the problems that only the replica that has them can find.
var ofReplicas = []*Problem{serverCertificateExpiring, serverCertificateUnreadable, storeTakesNoWrites,
	storeNotFollowed, resourceUnreadable, auditLogFailing, apiServerRejects, proxyRejected, tokenExpiring,
	configNotAcked, zoneNotConnected, zoneRejected, zoneTokenExpiring, zoneSyncStopped, zoneSyncLag, syncItemRejected}

// ofEveryMesh are the problems of the control plane and of zones that concern every mesh. Their findings have no Mesh,
// and name nothing of one.
var ofEveryMesh = []*Problem{serverCertificateExpiring, serverCertificateUnreadable, storeTakesNoWrites,
	storeNotFollowed, auditLogFailing, noLeader, zoneNotConnected, zoneRejected, zoneTokenExpiring, zoneUnknown,
	replicaUnknown, zoneSyncStopped, zoneSyncLag}

var problems = []*Problem{
	serverCertificateExpiring, serverCertificateUnreadable, operatorsUnset, storeTakesNoWrites, storeNotFollowed,
	resourceUnreadable, auditLogFailing, noLeader, ownWriteFailed, apiServerRejects,
	identityCannotSign, providersMixed, certificateMissing, authorityExpiring, authorityChangePending, domainNotTrusted,
	certificateDistrusted, rootsNotTrusted, noSpiffeID, certificateExpired, certificateExpiring, signingKeyMissing,
	proxyRejected, tokenExpiring,
	configRejected, policyLeftOut, configNotAcked, envoyTooOld,
	anotherStore, deletionsWait, zoneNotConnected, zoneRejected, zoneTokenExpiring, zoneUnknown, replicaUnknown,
	zoneWithoutEffect, syncItemRejected, zoneSyncStopped, zoneSyncLag,
	noVirtualIP, generatedServicesFull, namespaceFull, namespaceNotAdmitted, notTranslated,
	serviceMatchesNothing, serviceWithoutEndpoints, noAllowedClients, denyCoversAllow, endpointsRetained,
	listenerDrainStuck,
	zoneProxyNamespace, zoneWithoutEgress, externalUnreachable, externalSecrets, ingressNotReady, hostNameNotResolved,
	outboundUnreachable,
	zoneWithoutIngress, serviceWithoutSNI, sniTaken, keyTaken, memberExcluded,
	sidecarMissing, podWithoutDataplane, notAdmitted, proxyOffline, proxyNeverConnected, inboundNotReady,
	memberUnvouched, policyUnvouched, membersExempt, listenerExcluded,
	outboundWithoutBackend,
	routeUngranted, policyNotAccepted, policyRefNotFound, policyWithoutEffect,
	prefixWithinSegment, faultsInjected, permissionWithoutEffect, trustWithoutEffect, selectorMatchesNothing,
	hostnameMissing,
}
