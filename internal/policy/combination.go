package policy

import "slices"

// Rejected is a part without effect, because the conf that it is merged with would be invalid.
type Rejected struct {
	Origin Origin
	Reason string
}

// Merge merges the confs of parts in ascending order, as [Sort] leaves them. Without parts, the conf is empty. Where
// the merged conf would be invalid, the part that makes it so has no effect; see [Merged.Rejected]. That is the last
// one with which the conf turns from valid to invalid.
func (p *Plan) Merge(parts []Part) Merged {
	m := p.merge(parts)
	if p.Combination == nil {
		return m
	}
	var rejected []Rejected
	for p.conflict(m) != "" && len(parts) > 0 {
		last := len(parts) - 1
		for last > 0 && p.conflict(p.merge(parts[:last])) != "" {
			last--
		}
		reason := p.conflict(p.merge(parts[:last+1]))
		rejected = append(rejected, Rejected{parts[last].Origin(), reason})
		parts = slices.Delete(slices.Clone(parts), last, last+1)
		m = p.merge(parts)
	}
	m.Rejected = rejected
	return m
}

func (p *Plan) conflict(m Merged) string { return p.Combination.Conflict(m.Conf) }
