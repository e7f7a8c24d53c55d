package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// The service is deleted before its status is created, and stored again before the table hears of either.
func TestACreateWhoseOwnerReturnsIsMade(t *testing.T) {
	m := newMirrored(t)
	m.lags = true
	m.user(kind.Meshes.Make("", "default", kind.Mesh{}), services("web")[2])
	m.deliver(len(m.late))
	m.now = m.now.Add(time.Second)
	key := services("web")[2].Key()
	m.removes(key)
	m.step()
	m.user(services("web")[2])
	m.drain()
	if left := m.stale(); len(left) > 0 {
		t.Errorf("never written: %v", left)
	}
}

// ahead is a writer whose creations are in the snapshot before it returns.
type ahead struct {
	*mirrored
	after func(resource.Any)
}

func (a *ahead) Create(ctx context.Context, o resource.Any, owner *resource.Key) (string, error) {
	v, err := a.mirrored.Create(ctx, o, owner)
	a.after(o)
	return v, err
}

// sameAddress stores services until two want the same virtual IP, and returns their requests.
func (m *mirrored) sameAddress() (one, two Request) {
	request := func(name string) Request { return Request{kind.MeshExternalServices.Name, "default", name} }
	ip := func(name string) string {
		w := m.writes(m.reader(), kind.MeshExternalServices.Name, name)
		return w.Do[0].Create.(*resource.Object[kind.MeshExternalServiceStatus]).Spec.VIP.IP
	}
	m.user(services("a")[2])
	for i := range 10 {
		m.user(services(fmt.Sprintf("b%d", i))[2])
	}
	m.deliver(len(m.late))
	m.now = m.now.Add(time.Second)
	for i := range 10 {
		if name := fmt.Sprintf("b%d", i); ip(name) == ip("a") {
			return request("a"), request(name)
		}
	}
	m.t.Fatal("no two services want the same address")
	return one, two
}

// The former leader stored an address that the new leader's table does not have yet.
func TestANewLeaderReservesTheAddressesThatItsTableLacks(t *testing.T) {
	m := follow(newWorld(t, "241.0.0.0/30"), false, slog.New(slog.DiscardHandler))
	m.lags = true
	one, two := m.sameAddress()
	m.rn.dequeue(m.now)
	m.rn.write(t.Context(), m.rn.jobs[one])
	if err := m.rn.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.rn.dequeue(m.now)
	m.rn.write(t.Context(), m.rn.jobs[two])
	m.addresses() // fails where both have the same
}

// The snapshot has the row of one service, and the followers of the commit have not been called yet.
func TestAnAddressIsReservedUntilItsCommitIsHeard(t *testing.T) {
	m := follow(newWorld(t, "241.0.0.0/30"), false, slog.New(slog.DiscardHandler))
	m.lags = true
	one, two := m.sameAddress()
	var pending []*table.Changes
	var puts []resource.Any
	m.rn.writer = &ahead{m, func(o resource.Any) {
		// the hub's commit, before it has told its followers
		stored := m.rows[o.Key()]
		pending = append(
			pending,
			m.plan.State.Tables.DB.Commit(func(tx *table.Tx) { m.plan.State.Tables.Put(tx, stored) }),
		)
		puts = append(puts, stored)
		m.late = nil
	}}
	m.rn.dequeue(m.now)
	m.rn.write(context.Background(), m.rn.jobs[one])
	m.rn.write(context.Background(), m.rn.jobs[two])
	m.rc.Observe(puts, nil, pending, m.now)
	m.addresses() // fails where both have the same
}

// A deletion that follows from an absent row is not done, since the row is stored again. What the row needs
// is due at once.
func TestADeletionThatIsVoidDelaysNothing(t *testing.T) {
	m := newMirrored(t)
	m.lags = true
	o := services("web")[2]
	m.user(
		kind.Meshes.Make("", "default", kind.Mesh{}),
		kind.ExternalMaterials.Make("default", "web", kind.ExternalMaterial{}),
	)
	m.deliver(len(m.late))
	m.user(o) // stored, not heard
	m.now = m.now.Add(time.Second)
	m.step()
	u := Request{"MeshExternalService", "default", "web"}
	m.deliver(len(m.late))
	if m.rn.jobs[u].due.Sub(m.now) > 20*time.Millisecond {
		t.Errorf("the writes of the service wait for %v", m.rn.jobs[u].due.Sub(m.now))
	}
}

// The first write comes to what is stored, and another request has reserved the address of the second.
func TestADeclinedWriteIsNotRepeated(t *testing.T) {
	m := newMirrored(t)
	m.lags = true
	m.user(services("web")[0])
	m.deliver(1)
	svc := *m.rows[services("web")[0].Key()].(*resource.Object[kind.MeshService])
	other := &job{
		request: Request{"x", "", ""},
		unseen:  map[resource.Key]string{kind.MeshServices.Key("d", "q"): "9"},
		check:   m.now.Add(time.Hour),
	}
	m.rn.jobs[other.request] = other
	m.rn.reserved["1.2.3.4"] = other
	u := Request{"test", "", ""}
	m.rn.setWrites(
		u,
		Writes{
			Do: []Write{
				{Put: &svc},
				{
					Create: kind.MeshServiceStatuses.Make(
						"default",
						"web",
						kind.MeshServiceStatus{VIPs: []kind.VIP{{IP: "1.2.3.4"}}},
					),
				},
			},
		},
		m.now,
	)
	j := m.rn.jobs[u]
	n := 0
	for range 50 {
		due, unsure, _ := m.rn.dequeue(m.now)
		for _, d := range due {
			n++
			m.rn.write(context.Background(), d)
		}
		for _, d := range unsure {
			m.rn.compare(context.Background(), d)
		}
	}
	if n != 1 || !m.rn.declined[j] {
		t.Errorf("the request is written %d times at one moment, declined %v", n, m.rn.declined[j])
	}
}
