package push

import (
	"time"

	"weft/internal/proxy"
	"weft/internal/table"
)

// publisher moves the differences of commits to the clients: into the resource sets of streams, to the sessions of
// agents, and to the senders of host names. The lock of the table's writer guards it.
type publisher struct {
	sets      *resourceSets
	hostNames *groupNames
	used      *Proxies
	additions *AdditionBatcher
}

// publish moves the differences of a commit into the resource sets. Streams move to another group together with these
// differences, once the set of that group is complete: a listener of their own may name clusters of that group.
func (p *publisher) publish(changes *table.Changes) {
	e := edits{}
	p.sets.publishZoneProxies(e, changes)
	changed := p.used.update(e, changes)
	together := len(changed.moved) > 0 || changed.explicit || p.hostNames.changes(changes)
	var delays func(proxy.Group) bool
	if p.additions.open && !together {
		delays = mayDelayAdditions
	}
	grew, overtakes := p.sets.groups.publish(e, changes, delays)
	if together || overtakes {
		p.sets.groups.release(e)
	}
	p.sets.commit(e, p.used.moves(changed)...)
	if grew {
		p.additions.begin(p.sets.catalog.Revision())
	}
	p.used.finish(changed)
	p.used.tellNames(p.hostNames.publish(changes))
	p.used.tellNames(p.hostNames.publishLate())
}

// publishLate publishes all additions that wait.
func (p *publisher) publishLate() (revision uint64, changed bool) {
	e := edits{}
	p.sets.groups.release(e)
	p.sets.commit(e)
	p.used.tellNames(p.hostNames.publishLate())
	return p.sets.catalog.Revision(), len(e) > 0
}

func (p *publisher) waits() bool { return p.sets.groups.waits() }

func (p *publisher) latest() time.Time { return p.sets.groups.latest }

func (p *publisher) proxies() int { return len(p.used.used) }
