package zonesync

import "fmt"

// Protocol is the newest version of the protocol that this release supports. Each change of a message or of its meaning
// has a line:
//
// \t1  2026-11-21  the first
const Protocol = 1

// oldest is the oldest supported version. It is that of the former release, so that zones and global can be upgraded
// one at a time, in either order.
const oldest = 1

// agree returns the version for a session: the lower of the newest versions of both sides.
func agree(theirs uint32) (uint32, error) {
	if agreed := min(theirs, Protocol); agreed >= oldest {
		return agreed, nil
	}
	return 0,
		fmt.Errorf("it speaks version %d of zone sync, and this release speaks %d to %d; upgrade it to a release "+
			"that is next to this one", theirs, oldest, Protocol)
}
