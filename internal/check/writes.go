package check

import (
	"weft/kind"
	"weft/resource"
)

// storeOutage finds that the store takes no writes.
func (l *controlChecker) storeOutage() {
	if o := l.StoreOutage; o != nil {
		l.found(storeTakesNoWrites, controlPlane, "the store has taken no writes for %s: %s; certificates are "+
			"renewed, and what is stored about proxies is of that time", age(o.Since), o.Reason)
	}
}

// ownWrites finds writes of the control plane itself that fail.
func (l *checker) ownWrites(row *resource.Object[kind.FailedWrites]) {
	for _, w := range row.Spec.Writes {
		l.found(ownWriteFailed, objectOrControlPlane(w.Of), "the control plane has not written %s for %s: %s", w.Write,
			age(w.Since.Time), w.Error).cause = w.Error
	}
	if more := row.Spec.Total - len(row.Spec.Writes); more > 0 {
		l.found(ownWriteFailed, controlPlane, "%d more writes of the control plane fail", more)
	}
}
