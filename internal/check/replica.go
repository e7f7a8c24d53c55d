package check

import (
	"slices"
	"time"

	"weft/kind"
	"weft/resource"
)

// Replica is the state of the replica that checks, beside the rows of the store. Only the replica itself knows it.
type Replica struct {
	Certificates []ServerCertificate
	// Unread is what it cannot read of the store.
	Unread []Unread
	// Lag is the failure of stored changes to arrive, and Audit that of the audit log; without a start there is none.
	Lag, Audit Failure
	// Proxies are those that cannot connect, or soon will not.
	Proxies []ProxyAccess
	// APIServer are the calls that the API server of Kubernetes rejects.
	APIServer []CallFailure
	// RejectedZones are the last attempts of zones that this replica of global has rejected.
	RejectedZones map[string]Rejection
	ZoneToken     ZoneToken
	// Leaderless is the time since which no replica leads; zero: one does.
	Leaderless time.Time
}

// Unread is a part of the store whose changes do not arrive.
type Unread struct {
	Key     resource.Key // of a row; zero: kinds cannot be read
	Of      string       // the kinds
	Failure Failure
}

// storeTime is how long the store may fail, or be without a leader, until that is a finding: a restart of a database,
// or the lease of a replica, takes as long.
const storeTime = 30 * time.Second

var (
	storeNotFollowed = &Problem{"store-not-followed", Error,
		"End what keeps the control plane from reading the store: its log has the error. A restart reads everything " +
			"anew."}
	resourceUnreadable = &Problem{"resource-unreadable", Error,
		"Write the resource again, or delete it. If its encryption key is missing, put the key file back."}
	auditLogFailing = &Problem{"audit-log-failing", Error,
		"Free space where the audit log is, or set KUMA_AUDIT_OUTPUT to another place and restart the control plane."}
	noLeader = &Problem{"no-leader", Error,
		"Read the logs of the replicas: each has the reason for which it does not take the leadership."}
)

// replica finds what is wrong with the replica that checks.
func (l *controlChecker) replica() {
	l.serverCertificates()
	l.unread()
	l.lag()
	l.access()
	l.apiServer()
	if a := l.Replica.Audit; !a.Since.IsZero() {
		l.found(auditLogFailing, controlPlane, "the audit log has not been written for %s: %s; requests that it must "+
			"record are rejected", age(a.Since), a.Reason)
	}
	if since := l.Replica.Leaderless; !since.IsZero() && l.Now.Sub(since) > storeTime {
		l.found(noLeader, controlPlane, "no replica has led for %s: nothing changes that the control plane writes "+
			"itself, such as CAs, statuses and generated services", age(since))
	}
}

// unread finds rows that cannot be read, and kinds that are not followed.
func (l *controlChecker) unread() {
	for _, u := range l.Replica.Unread {
		switch failed := l.Now.Sub(u.Failure.Since); {
		case u.Key != resource.Key{}:
			l.found(resourceUnreadable, objectOrControlPlane(u.Key), "%s has not been readable for %s, and its "+
				"former version stays in use: %s", u.Key, age(u.Failure.Since), u.Failure.Reason)
		case failed > storeTime:
			l.found(storeNotFollowed, controlPlane, "changes of %s have not arrived for %s: %s", u.Of,
				age(u.Failure.Since), u.Failure.Reason)
		}
	}
}

// lag finds that stored changes do not arrive for a reason that no read has shown.
func (l *controlChecker) lag() {
	failing := slices.ContainsFunc(l.Replica.Unread, func(u Unread) bool { return u.Of != "" })
	if lag := l.Replica.Lag; !failing && !lag.Since.IsZero() && l.Now.Sub(lag.Since) > storeTime {
		l.found(storeNotFollowed, controlPlane, "changes have not arrived for %s: %s", age(lag.Since),
			lag.Reason)
	}
}

// objectOrControlPlane returns the object of a row that users know, else the control plane.
func objectOrControlPlane(key resource.Key) Object {
	if d := kind.ByName(key.Kind); d != nil && !d.Describe().Hidden && key.Name != "" {
		return objectOf(key)
	}
	return controlPlane
}
