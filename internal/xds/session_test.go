package xds

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
)

var update = flag.Bool("update", false, "rewrite the traces in testdata; read the difference before you keep it")

// TestSessions plays each script of testdata. Lines that begin at the margin are commands, the indented
// lines below are the responses of the session:
//
//	commit SET +TYPE:NAME@VERSION -TYPE:NAME ...    several sets may follow one another
//	follow SET ...                                  the resource sets of the stream
//	connect                                         a new stream
//	request TYPE +NAME -NAME NAME=VERSION ...       subscribe, unsubscribe, initial version
//	ack TYPE | nack TYPE MESSAGE                    for the oldest response of the type
//	acked                                           up to which revision
//	after DURATION                                  time passes; how long until the session looks again
func TestSessions(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts in testdata: %v", err)
	}
	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := newStage(t).play(string(script))
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(string(script), got); diff != "" {
				t.Errorf("the trace differs; understand why before running with -update (-want +got):\n%s", diff)
			}
		})
	}
}

// stage is a catalog and one client whose requests a script writes.
type stage struct {
	t       *testing.T
	catalog *Catalog
	sets    map[string]*ResourceSet
	session *session
	unacked [numTypes][]*manifest
	now     time.Time
	trace   strings.Builder
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, catalog: NewCatalog(), sets: map[string]*ResourceSet{}, now: time.Unix(1_000_000, 0)}
	s.connect()
	return s
}

func (s *stage) play(script string) string {
	lines := bufio.NewScanner(strings.NewReader(script))
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "  ") {
			continue
		}
		s.trace.WriteString(line + "\n")
		if fields := strings.Fields(line); len(fields) > 0 && !strings.HasPrefix(line, "#") {
			s.command(fields[0], fields[1:])
			s.flush()
		}
	}
	return s.trace.String()
}

func (s *stage) command(name string, args []string) {
	switch name {
	case "connect":
		s.session.leave()
		s.connect()
	case "commit":
		s.commit(args)
	case "follow":
		var sets []*ResourceSet
		for _, name := range args {
			sets = append(sets, s.set(name))
		}
		s.session.follow(sets)
	case "request":
		s.request(s.typ(args[0]), args[1:])
	case "ack":
		t := s.typ(args[0])
		s.step(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: t.URL(), ResponseNonce: s.nonce(t)})
	case "nack":
		t := s.typ(args[0])
		s.step(&discoveryv3.DeltaDiscoveryRequest{
			TypeUrl: t.URL(), ResponseNonce: s.nonce(t),
			ErrorDetail: &status.Status{Message: strings.Join(args[1:], " ")},
		})
	case "acked":
		revision := s.catalog.Revision()
		for revision > 0 && !s.session.inSyncAt(revision) {
			revision--
		}
		s.tell("acked at %d of %d", revision, s.catalog.Revision())
	case "after":
		s.after(args[0])
	default:
		s.t.Fatalf("no command %q", name)
	}
}

func (s *stage) connect() {
	s.session = newSession(s.catalog, func() {})
	s.unacked = [numTypes][]*manifest{}
}

func (s *stage) set(name string) *ResourceSet {
	if s.sets[name] == nil {
		s.sets[name] = s.catalog.NewResourceSet()
	}
	return s.sets[name]
}

func (s *stage) commit(args []string) {
	var changes []Change
	for _, arg := range args {
		if arg[0] != '+' && arg[0] != '-' {
			changes = append(changes, Change{Set: s.set(arg)})
			continue
		}
		change := &changes[len(changes)-1]
		typ, name, _ := strings.Cut(arg[1:], ":")
		name, version, _ := strings.Cut(name, "@")
		if arg[0] == '+' {
			change.Changed = append(change.Changed, fake(s.typ(typ), name, version))
		} else {
			change.Removed = append(change.Removed, Key{s.typ(typ), name})
		}
	}
	s.catalog.Commit(changes...)
}

// fake returns a resource whose version can be read.
func fake(t Type, name, version string) *Resource {
	size := 0
	if strings.HasSuffix(version, "big") {
		size = chunkBytes * 2 / 3
	}
	wire, err := proto.Marshal(&discoveryv3.Resource{Name: name, Version: version,
		Aliases: []string{strings.Repeat("x", size)}})
	if err != nil {
		panic(err)
	}
	return &Resource{Type: t, Name: name, Version: version, Wire: wire}
}

func (s *stage) request(t Type, args []string) {
	request := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: t.URL(), InitialResourceVersions: map[string]string{}}
	for _, arg := range args {
		name, version, stated := strings.Cut(arg, "=")
		switch {
		case stated:
			request.InitialResourceVersions[name] = version
		case arg[0] == '+':
			request.ResourceNamesSubscribe = append(request.ResourceNamesSubscribe, arg[1:])
		default:
			request.ResourceNamesUnsubscribe = append(request.ResourceNamesUnsubscribe, arg[1:])
		}
	}
	s.step(request)
}

func (s *stage) nonce(t Type) string {
	if len(s.unacked[t]) == 0 {
		return "stale"
	}
	nonce := s.unacked[t][0].nonce
	s.unacked[t] = s.unacked[t][1:]
	return nonce
}

func (s *stage) step(request *discoveryv3.DeltaDiscoveryRequest) {
	outcome, err := stepWith(s.t, s.session, request)
	if err != nil {
		s.tell("stream rejected: %v", err)
	}
	for _, r := range outcome.nacks {
		s.tell("rejected %s %s@%s: %s", r.Type, r.Name, r.Version, r.Message)
	}
}

func (s *stage) after(duration string) {
	passed, err := time.ParseDuration(duration)
	if err != nil {
		s.t.Fatal(err)
	}
	s.now = s.now.Add(passed)
	if next := s.session.retry(s.now); next.IsZero() {
		s.tell("does not look again")
	} else {
		s.tell("looks again in %s", next.Sub(s.now))
	}
}

func (s *stage) flush() {
	s.session.retry(s.now)
	for _, r := range s.session.ready() {
		s.unacked[r.typ] = append(s.unacked[r.typ], r.manifest)
		s.tell("<- %s", describe(s.t, r))
	}
}

func (s *stage) tell(format string, args ...any) {
	fmt.Fprintf(&s.trace, "  "+format+"\n", args...)
}

func (s *stage) typ(name string) Type {
	for t, n := range typeNames {
		if n == name {
			return Type(t)
		}
	}
	s.t.Fatalf("no type %q", name)
	return 0
}

// describe decodes a response as a client would.
func describe(t *testing.T, r *response) string {
	var message discoveryv3.DeltaDiscoveryResponse
	if err := proto.Unmarshal(r.wire, &message); err != nil {
		t.Fatalf("the response does not decode: %v", err)
	}
	typ, _ := TypeOf(message.TypeUrl)
	text := typ.String()
	for _, resource := range message.Resources {
		text += " " + resource.Name + "@" + resource.Version
	}
	for _, name := range message.RemovedResources {
		text += " -" + name
	}
	if len(message.Resources)+len(message.RemovedResources) == 0 {
		text += " (nothing)"
	}
	return text
}
