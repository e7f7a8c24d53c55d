package sql_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"weft/internal/store"
	weft "weft/internal/store/sql"
	"weft/internal/store/sql/postgrestest"
	"weft/internal/testnet"
	"weft/internal/testwait"
)

// writeUntilKilled is the variable that makes a second process of this test write until it is killed.
const writeUntilKilled = "WEFT_TEST_WRITE_UNTIL_KILLED"

// victim is the configuration of such a process.
type victim struct {
	SQLite   *weft.SQLite
	Postgres *weft.Postgres
	Round    int // the prefix of its rows
}

func (v victim) source() weft.Source {
	if v.SQLite != nil {
		return *v.SQLite
	}
	return *v.Postgres
}

func TestMain(m *testing.M) {
	if told := os.Getenv(writeUntilKilled); told != "" {
		if err := write(told); err != nil {
			fmt.Println("error", err)
		}
		return
	}
	testnet.Main(m)
}

// write creates and deletes rows as fast as possible, and prints each acknowledged write: "+ NAME" and "- NAME".
func write(told string) error {
	var v victim
	if err := json.Unmarshal([]byte(told), &v); err != nil {
		return err
	}
	s, err := weft.Open(context.Background(), v.source(), weft.Options{History: 100})
	if err != nil {
		return err
	}
	failed := make(chan error)
	for writer := range 4 {
		go func() { failed <- v.scribble(s, writer) }()
	}
	return <-failed
}

var printing sync.Mutex

func (v victim) scribble(s *weft.Store, writer int) error {
	for n := 0; ; n++ {
		name := fmt.Sprintf("%d-%d-%d", v.Round, writer, n)
		if _, err := s.Create(context.Background(), store.Row{Key: key(name), Body: []byte(name)}); err != nil {
			return err
		}
		acknowledge("+", name)
		if n%2 == 1 {
			continue
		}
		if err := s.Delete(context.Background(), key(name), ""); err != nil {
			return err
		}
		acknowledge("-", name)
	}
}

func acknowledge(what, name string) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(what, name)
}

func TestAcknowledgedWritesOutliveSIGKILL(t *testing.T) {
	dir := weft.SQLite{Dir: t.TempDir()}
	testKilled(t, 100, victim{SQLite: &dir})
}

func TestAcknowledgedWritesOutliveSIGKILLWithPostgres(t *testing.T) {
	at := postgrestest.Start(t).Database(t)
	testKilled(t, 10, victim{Postgres: &at})
}

// testKilled kills a writing process at random moments, during its start too, and compares its acknowledged writes with
// the store.
func testKilled(t *testing.T, rounds int, v victim) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	acknowledged := 0
	for v.Round = range rounds {
		writes := kill(t, v, random)
		acknowledged += len(writes)
		there := openSource(t, v.source())
		rows, _, err := there.List(t.Context(), "Thing")
		if err != nil {
			t.Fatal(err)
		}
		if err := there.Close(); err != nil {
			t.Fatal(err)
		}
		left := map[string]bool{}
		for _, row := range rows {
			left[row.Key.Name] = true
		}
		for name, created := range writes {
			if created && !left[name] && !deletedWithoutAck(name) {
				t.Errorf("round %d of seed %d: %s was created, and is not there", v.Round, seed, name)
			}
			if !created && left[name] {
				t.Errorf("round %d of seed %d: %s was deleted, and is there", v.Round, seed, name)
			}
		}
	}
	if acknowledged < rounds {
		t.Errorf("%d writes were acknowledged in %d rounds, which says little", acknowledged, rounds)
	}
}

// deletedWithoutAck reports whether the deletion of a created row may be in progress, without an acknowledgment.
func deletedWithoutAck(name string) bool {
	return strings.ContainsAny(name[len(name)-1:], "02468")
}

// kill starts a writing process and returns the last acknowledged write of each row. It kills the process within 50
// milliseconds of its start, in each fourth round, or of enough acknowledgments.
func kill(t *testing.T, v victim, random *rand.Rand) map[string]bool {
	t.Helper()
	told, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), writeUntilKilled+"="+string(told))
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	after := time.Duration(random.Int64N(int64(50 * time.Millisecond)))
	end := func() {
		testwait.Pass(after, "the process is at any point of its work")
		_ = command.Process.Kill()
	}
	if v.Round%4 == 0 {
		go end()
	}
	const enough = 10 // on a machine where no other write is acknowledged within the time
	writes := map[string]bool{}
	lines := bufio.NewReader(out)
	for n := 1; ; n++ {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // the rest of a line is no acknowledgment
		}
		if strings.HasPrefix(line, "error") {
			t.Fatal(line)
		}
		if n == enough {
			go end()
		}
		what, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		writes[name] = what == "+"
	}
	_ = command.Wait() // killed
	return writes
}
