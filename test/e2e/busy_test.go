package e2e

import (
	"flag"
	"os"

	"weft/internal/process"
)

// busy is how `make drills BUSY=1` runs the drills on a machine that other processes keep busy.
var busy = flag.Bool("busy", false, "run 6 busy processes per core beside the tests; then drills send 100 requests "+
	"a second")

// busyPerCore is the number of busy processes per core under -busy.
const busyPerCore = 6

// startBusy starts processes that spin, until they are ended.
func startBusy(n int) (end func(), err error) {
	var all []*process.Process
	end = func() {
		for _, p := range all {
			p.Kill()
		}
	}
	for range n {
		p := process.New("", "a busy loop", "/bin/sh", "-c", "while :; do :; done")
		p.Log = os.DevNull
		if err := p.Start(); err != nil {
			return end, err
		}
		all = append(all, p)
	}
	return end, nil
}
