package sim

import (
	"flag"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	seeds = flag.Uint64("seeds", 1000, "the number of worlds that TestSeeds simulates")
	seed  = flag.Uint64("seed", 0, "the world that TestSeed replays, with a trace of its steps")
)

const steps = 600

// TestSeeds simulates many worlds. It prints a failing seed with the command that shows its steps.
func TestSeeds(t *testing.T) {
	each(*seeds, func(seed uint64) bool {
		err := Run(seed, steps, None, nil)
		if err != nil {
			t.Errorf("seed %d: %v\nsee its steps: go test ./internal/sim -run TestSeed$ -seed %d -v", seed, err, seed)
		}
		return err == nil
	})
}

// TestSeed replays one world.
func TestSeed(t *testing.T) {
	if *seed == 0 {
		t.Skip("a seed that failed is replayed with -seed")
	}
	if err := Run(*seed, steps, None, os.Stdout); err != nil {
		t.Error(err)
	}
}

// each calls a function with the seeds 1 to n, on all cores, until it returns false.
func each(n uint64, live func(seed uint64) bool) {
	var next atomic.Uint64
	var stop atomic.Bool
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for seed := next.Add(1); seed <= n && !stop.Load(); seed = next.Add(1) {
				if !live(seed) {
					stop.Store(true)
				}
			}
		})
	}
	all.Wait()
}

// TestFaults injects each fault of a caller of zonesync, and expects that some seed finds it.
func TestFaults(t *testing.T) {
	for name, fault := range map[string]Fault{
		"applied early": AppliedEarly, "open early": OpenEarly, "not awaited": NotAwaited,
		"acked early": AckedEarly, "forwarded early": ForwardedEarly, "unowned": Unowned,
		"twin admitted": TwinAdmitted, "trust taken": TrustTaken, "acked for all": AckedForAll,
	} {
		t.Run(name, func(t *testing.T) {
			var found atomic.Bool
			each(10_000, func(seed uint64) bool {
				err := Run(seed, steps, fault, nil)
				if err != nil && found.CompareAndSwap(false, true) {
					t.Logf("seed %d: %v", seed, err)
				}
				return err == nil
			})
			if !found.Load() {
				t.Error("no seed finds it")
			}
		})
	}
}
