package zonesync

import "fmt"

// Protocol is the newest version of the protocol that this release speaks. Each change of what is said, or of
// what it means, has a line:
//
//	1  2026-11-21  the first
const Protocol = 1

// oldest is what the release before this one speaks, so that zones and global can be upgraded one by one, in
// either order.
const oldest = 1

// agree answers the version that two sides go on with: the lower of what each speaks.
func agree(theirs uint32) (uint32, error) {
	if agreed := min(theirs, Protocol); agreed >= oldest {
		return agreed, nil
	}
	return 0,
		fmt.Errorf("it speaks version %d of zone sync, and this release speaks %d to %d; upgrade it to a release "+
			"that is next to this one", theirs, oldest, Protocol)
}
