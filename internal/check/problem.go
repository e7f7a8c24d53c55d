package check

import "slices"

// Severity says how bad a finding is.
type Severity string

const (
	// Error: requests fail, or will not recover by themselves.
	Error Severity = "error"
	// Warning: something is not as somebody meant it, or will fail later.
	Warning Severity = "warning"
)

func rank(s Severity) int { return slices.Index([]Severity{Error, Warning}, s) }

// Problem is one kind of thing that can be wrong.
type Problem struct {
	ID       string   // also its anchor in docs/troubleshooting.md
	Severity Severity // as it usually is
	Advice   string   // what to do, as a sentence
}

func (p *Problem) docs() string { return "docs/troubleshooting.md#" + p.ID }

func problemIndex(id string) int {
	return slices.IndexFunc(problems, func(p *Problem) bool { return p.ID == id })
}

// Problems are all that a look can find, in the order in which they are shown.
func Problems() []*Problem { return slices.Clone(problems) }

var (
	serverCertificateExpiring = &Problem{"server-certificate-expiring", Warning,
		"Replace the files of general.tlsCertFile and general.tlsKeyFile; one that the control plane made itself is made anew when it starts."}
	identityCannotSign = &Problem{"identity-cannot-sign", Error,
		"Repair the certificate authority that the MeshIdentity, or the backend of the Mesh, names; without another CA no certificate is signed."}
	authorityExpiring = &Problem{"certificate-authority-expiring", Warning,
		"Replace the certificate authority before it ends."}
	authorityChangePending = &Problem{"authority-change-pending", Warning,
		"Find the proxies that are slow or NACK updates; the former authority signs meanwhile."}
	noVirtualIP = &Problem{"no-virtual-ip", Error,
		"Set ipam.meshService.cidr to a larger range."}
	notTranslated = &Problem{"not-translated", Error,
		"Proxies keep what they had. It is a bug in weft: report it, with the control plane's log."}
	hostnameMissing = &Problem{"hostname-missing", Warning,
		"Rename one of the services, or correct the template."}
	noSpiffeID = &Problem{"no-spiffe-id", Error,
		"Correct the labels and tags of the Dataplane, or the templates of the MeshIdentity."}
	certificateExpired = &Problem{"certificate-expired", Error,
		"Look into the log of its weft-dp for why the certificate was not renewed, or of its SPIRE agent where that gives it."}
	certificateExpiring = &Problem{"certificate-expiring", Warning,
		"Look into the log of its weft-dp for why the certificate is not renewed, or of its SPIRE agent where that gives it."}
	domainNotTrusted = &Problem{"trust-domain-not-trusted", Error,
		"Create a MeshTrust for the trust domain, or correct its name."}
	certificateMissing = &Problem{"certificate-missing", Error,
		"Follow the message on the machine of the proxy, or at the SPIRE server; meanwhile the proxy neither serves nor sends mTLS requests."}
	providersMixed = &Problem{"providers-mixed", Error,
		"Use one provider for the whole mesh: with SPIRE and another one, or two trust domains, proxies with different roots reject each other."}
	trustWithoutEffect = &Problem{"trust-without-effect", Warning,
		"Delete it: SPIRE decides which roots proxies trust."}
	rootsNotTrusted = &Problem{"roots-not-trusted", Error,
		"Delete the MeshTrust in the zone that wrote it, unless its roots are right: then write them in a MeshTrust on the global control plane."}
	signingKeyMissing = &Problem{"signing-key-missing", Error,
		"Generate new tokens, which makes a new key, and start the proxies with them; or restore the Secret."}
	configRejected = &Problem{"config-rejected", Error,
		"The proxy goes on with what it had. Read Envoy's words, then `weft inspect dataplane NAME --config`."}
	configNotAcked = &Problem{"config-not-acked", Warning,
		"The proxy is slow or stuck: look at its machine, and at Envoy's log."}
	envoyTooOld = &Problem{"envoy-too-old", Error,
		"Give the proxy a newer Envoy."}
	notAdmitted = &Problem{"not-admitted", Warning,
		"Change the tags that the rule asks for, the Mesh's dataplaneProxyMembership, or the Dataplane's mesh; or delete the Dataplane."}
	proxyOffline = &Problem{"proxy-offline", Warning,
		"Start its weft-dp, or delete the Dataplane if it is gone for good."}
	proxyNeverConnected = &Problem{"proxy-never-connected", Warning,
		"Start weft-dp for it; if it runs, its log has the reason."}
	inboundNotReady = &Problem{"inbound-not-ready", Warning,
		"See that the application listens at its servicePort, and read the log of its weft-dp."}
	outboundWithoutBackend = &Problem{"outbound-without-backend", Warning,
		"Create the MeshService, or correct the outbound; nothing listens at its address meanwhile."}
	serviceMatchesNothing = &Problem{"service-matches-nothing", Error,
		"Correct the selector, start the Dataplanes, or delete the service."}
	serviceWithoutEndpoints = &Problem{"service-without-endpoints", Error,
		"Every request to the port fails. `weft describe meshservice NAME` shows its members."}
	endpointsRetained = &Problem{"endpoints-retained", Warning,
		"See that the new members come up; the former ones are kept five minutes at most."}
	listenerDrainStuck = &Problem{"listener-drain-stuck", Warning,
		"Find the proxies that are slow or NACK updates; they may still send requests there."}
	noAllowedClients = &Problem{"no-allowed-clients", Error,
		"Write a MeshTrafficPermission that allows its callers; `weft explain --from NAME --to SERVICE` tells which name a caller has."}
	denyCoversAllow = &Problem{"deny-covers-allow", Error,
		"A deny wins over every allow: narrow it."}
	zoneNotConnected = &Problem{"zone-not-connected", Error,
		"Look into the log of the zone's control plane: it says why global rejects the zone, or that global does not respond."}
	anotherStore = &Problem{"zone-has-another-store", Error,
		"If the control plane of the zone was installed anew, run `weft zone replace NAME` on the global control plane; else find the second control plane with this name, and revoke the zone token if there is none."}
	deletionsWait = &Problem{"zone-deletions-wait", Error,
		"If the zone is to lose them, run `weft zone replace NAME` on the global control plane; else restore the store of the zone from a newer backup."}
	zoneSyncLag = &Problem{"zone-sync-lag", Warning,
		"`weft inspect zones -o json` on global shows which kind lags; look at the load of that control plane and of its store."}
	syncItemRejected = &Problem{"sync-item-rejected", Error,
		"Do what the reason says; the control plane retries by itself."}
	zoneWithoutIngress = &Problem{"zone-without-ingress", Warning,
		"Run a Dataplane with networking.zoneIngress in the zone; leave it where other zones are not to reach it."}
	ingressNotReady = &Problem{"ingress-not-ready", Warning,
		"Start its weft-dp; if it runs, its log says why its listener is not served."}
	hostNameNotResolved = &Problem{"host-name-not-resolved", Error,
		"Correct the name or its records, or the resolvers of this zone's control plane (hostNames.resolvers)."}
	serviceWithoutSNI = &Problem{"service-without-sni", Warning,
		"Upgrade the control plane of its zone, which fills it in, or write the service again."}
	memberExcluded = &Problem{"member-excluded", Warning,
		"Give the MeshService the port with that appProtocol, or narrow the selector of the MeshMultiZoneService."}
	outboundUnreachable = &Problem{"outbound-unreachable", Error,
		"Create a MeshIdentity that selects the proxies of both sides: requests to other zones need mutual TLS."}
	permissionWithoutEffect = &Problem{"permission-without-effect", Warning,
		"Create a MeshIdentity that selects the proxies; without one they let everybody in."}
	selectorMatchesNothing = &Problem{"selector-matches-nothing", Warning,
		"Correct the selector, or delete the resource."}
)

var (
	generatedServicesFull = &Problem{"generated-services-full", Error,
		"Find the Dataplanes whose tags ask for so many services, or write MeshServices for those that are to stay: only generated ones are counted."}
	externalUnreachable = &Problem{"external-service-unreachable", Error,
		"Run a Dataplane with networking.zoneEgress in this zone and give it an identity, or find out what ails the one that is there."}
	zoneWithoutEgress = &Problem{"zone-without-egress", Error,
		"Run a Dataplane with networking.zoneEgress in this zone and give it an identity, or take routing.zoneEgress out of the Mesh."}
	externalSecrets = &Problem{"external-service-secrets", Error,
		"Write the Secret that the condition names, or correct it; until then the egresses use what was right last."}
)

var problems = []*Problem{
	serverCertificateExpiring,
	identityCannotSign, providersMixed, certificateMissing, authorityExpiring, authorityChangePending, domainNotTrusted, rootsNotTrusted, noSpiffeID, certificateExpired, certificateExpiring, signingKeyMissing,
	configRejected, configNotAcked, envoyTooOld,
	anotherStore, deletionsWait, zoneNotConnected, syncItemRejected, zoneSyncLag,
	noVirtualIP, generatedServicesFull, notTranslated,
	serviceMatchesNothing, serviceWithoutEndpoints, noAllowedClients, denyCoversAllow, endpointsRetained, listenerDrainStuck,
	zoneWithoutEgress, externalUnreachable, externalSecrets, ingressNotReady, hostNameNotResolved, outboundUnreachable, zoneWithoutIngress, serviceWithoutSNI, memberExcluded,
	notAdmitted, proxyOffline, proxyNeverConnected, inboundNotReady, outboundWithoutBackend,
	permissionWithoutEffect, trustWithoutEffect, selectorMatchesNothing, hostnameMissing,
}
