package join

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"weft/internal/mirror"
	"weft/internal/pki"
	"weft/internal/store"
	"weft/internal/wait"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// logs have what a control plane's store says of the kinds that travel: what is to be told to others, and what
// is held of theirs.
type logs struct {
	self    kind.Owner
	rows    store.Store
	serving func(context.Context, resource.Key) error // nil: whatever is stored may be told at once
	log     *slog.Logger

	kinds map[string]*kindLog
	// mended is raised when something is there, or gone, for want of which a resource may have been refused.
	mended *wait.Broadcast
	read   *wait.Broadcast // raised by every batch of the store
	remade *wait.Broadcast // raised when there is a mesh again that had gone
	zoned  *wait.Broadcast // raised when there is another zone, or one less, or one stands otherwise than before

	mu       sync.Mutex
	opened   bool
	disabled map[string]bool // zones that may not connect
	expired  map[string]bool // zones that have been away for too long
	zones    map[string]bool // that there are, and whether each is enabled; of a global control plane
	links    map[string]link // of zones, by their names
	gone     map[string]bool // meshes that were deleted since the start
	pending  map[resource.Key]context.CancelFunc
	ctx      context.Context
}

// kindLog is one kind of the logs.
type kindLog struct {
	kind    resource.Descriptor
	log     *zonesync.Log
	changed *wait.Broadcast

	mu   sync.Mutex
	rows map[resource.Key]known
	held map[kind.Owner]map[zonesync.Key]zonesync.Hash // what others own
	// sizes are how much each owner has.
	sizes map[kind.Owner]size
}

// known is what is known of a stored row.
type known struct {
	key     zonesync.Key
	version string
	bytes   int // of the body
}

// stored is the spec of a row as it stands in the store, so that fields of a later release travel too.
type stored struct{ body []byte }

func newLogs(self kind.Owner, rows store.Store, log *slog.Logger) *logs {
	l := &logs{
		self: self, rows: rows, log: log, kinds: map[string]*kindLog{}, mended: &wait.Broadcast{}, read: &wait.Broadcast{}, zoned: &wait.Broadcast{}, remade: &wait.Broadcast{},
		disabled: map[string]bool{}, expired: map[string]bool{}, zones: map[string]bool{}, links: map[string]link{}, gone: map[string]bool{}, pending: map[resource.Key]context.CancelFunc{},
	}
	for _, d := range Traveling() {
		l.kinds[d.Describe().Name] = &kindLog{
			kind: d, log: zonesync.NewLog(newEpoch()), changed: &wait.Broadcast{},
			rows: map[resource.Key]known{}, held: map[kind.Owner]map[zonesync.Key]zonesync.Hash{}, sizes: map[kind.Owner]size{},
		}
	}
	return l
}

func newEpoch() uint64 {
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails
	return binary.BigEndian.Uint64(random[:]) | 1
}

// follow reads the store until ctx ends. It returns once the logs have what was there.
func (l *logs) follow(ctx context.Context) (wait func(), err error) {
	l.ctx = ctx
	kinds := []string{kind.Zones.Name, kind.ZoneInsights.Name}
	for name := range l.kinds {
		kinds = append(kinds, name)
	}
	return mirror.Start(ctx, mirror.Config{Store: l.rows, Kinds: kinds, Decode: undecoded, Apply: l.apply, Log: l.log})
}

// open has the logs speak.
func (l *logs) open() {
	for _, k := range l.kinds {
		k.log.Open()
		k.changed.Send()
	}
}

// undecoded keeps a row's body, and reads its labels.
func undecoded(row store.Row) (resource.Any, error) {
	var labeled struct{ Labels map[string]string }
	if err := json.Unmarshal(row.Body, &labeled); err != nil {
		return nil, err
	}
	of := &resource.Kind[stored]{Info: resource.Info{Name: row.Key.Kind}}
	o := of.Make(row.Key.Mesh, row.Key.Name, stored{row.Body})
	o.Labels, o.Version = labeled.Labels, row.Version
	return o, nil
}

// mends are the kinds for want of which a resource of another kind may have been rejected: its mesh, its Dataplane, and
// what says which zone has a trust domain and which roots prove it.
var mends = map[string]bool{
	kind.Meshes.Name: true, kind.Dataplanes.Name: true, kind.MeshTrusts.Name: true, kind.MeshIdentities.Name: true,
}

// apply takes a batch of the store.
func (l *logs) apply(b mirror.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	raised := map[*kindLog]bool{}
	mended := len(b.Removed) > 0
	zones := false
	for _, o := range b.Put {
		key, of := o.Key(), o.(*resource.Object[stored])
		switch key.Kind {
		case kind.Zones.Name:
			zones = l.putZone(of) || zones
			continue
		case kind.ZoneInsights.Name:
			zones = l.putLink(of) || zones
			continue
		}
		mended = mended || mends[key.Kind]
		if key.Kind == kind.Meshes.Name && l.gone[key.Name] {
			delete(l.gone, key.Name)
			l.remade.Send()
		}
		raised[l.kinds[key.Kind]] = true
		l.put(key, of)
	}
	for _, key := range b.Removed {
		switch key.Kind {
		case kind.Zones.Name:
			delete(l.zones, key.Name)
			delete(l.disabled, key.Name)
			delete(l.expired, key.Name)
			zones = true
			continue
		case kind.ZoneInsights.Name:
			delete(l.links, key.Name)
			continue
		}
		if key.Kind == kind.Meshes.Name {
			l.gone[key.Name] = true
		}
		raised[l.kinds[key.Kind]] = true
		l.remove(key)
	}
	l.opened = true
	l.read.Send()
	for k := range raised {
		k.changed.Send()
	}
	if mended {
		l.mended.Send()
	}
	if zones {
		l.zoned.Send()
	}
}

// put takes a row. A row of nobody's is not told until its owner stands in it.
func (l *logs) put(key resource.Key, o *resource.Object[stored]) {
	k := l.kinds[key.Kind]
	was, is := k.note(key, o, l.ownerOf(&o.Meta))
	if was != nil && was.key != is.key {
		l.tell(k, zonesync.Item{Key: was.key, Deleted: true})
	}
	if o.Label(kind.OriginLabel) == "" {
		return
	}
	item := zonesync.Item{Key: is.key, Body: o.Spec.body}
	if l.serving != nil && l.opened && is.key.Owner == l.self && k.kind.Describe().Sync.Has(resource.ZoneToZones) {
		l.tellServed(key, k, item)
		return
	}
	l.tell(k, item)
}

// ownerOf answers whose a row is. One that does not say so is this control plane's own.
func (l *logs) ownerOf(meta *resource.Meta) kind.Owner {
	if meta.Label(kind.OriginLabel) == "" {
		return l.self
	}
	return kind.OwnerOf(meta)
}

func (l *logs) remove(key resource.Key) {
	k := l.kinds[key.Kind]
	if cancel := l.pending[key]; cancel != nil {
		cancel()
		delete(l.pending, key)
	}
	if was := k.forget(key); was != nil {
		l.tell(k, zonesync.Item{Key: was.key, Deleted: true})
	}
}

// tell puts an item into the log of its kind, if it may travel on from here at all.
func (l *logs) tell(k *kindLog, item zonesync.Item) {
	if !l.self.Global() && item.Key.Owner != l.self {
		return
	}
	if !item.Deleted {
		var told bool
		if item.Body, told = l.forOthers(k, item); !told {
			item.Body, item.Deleted = nil, true
		}
	}
	if _, err := k.log.Put(item, time.Now()); err != nil {
		l.log.Error("a resource can't travel to other control planes", "kind", k.kind.Describe().Name, "resource", item.Key, "error", err)
	}
}

// forOthers answers what of a row others are told.
func (l *logs) forOthers(k *kindLog, item zonesync.Item) (body []byte, told bool) {
	info := k.kind.Describe()
	switch {
	case info.Name == kind.MeshZoneAddresses.Name && l.unused(item.Key.Owner.Zone):
		return nil, false
	case !info.Encrypted || item.Key.Owner != l.self:
		return item.Body, true
	}
	return publicHalf(resource.Key{Kind: info.Name, Mesh: item.Key.Mesh, Name: item.Key.Name}, item.Body)
}

// publicHalf is a row of a secret as zones are told of it.
func publicHalf(key resource.Key, body []byte) ([]byte, bool) {
	var row struct {
		Labels map[string]string `json:"labels"`
		Spec   kind.Secret       `json:"spec"`
	}
	if json.Unmarshal(body, &row) != nil {
		return nil, false
	}
	data, told := pki.ForZones(key, row.Spec.Data)
	if !told || string(data) == string(row.Spec.Data) {
		return body, told
	}
	row.Spec.Data = data
	body, err := json.Marshal(row)
	return body, err == nil
}

// tellServed tells a row once it may be: the latest state of it, however long that takes.
func (l *logs) tellServed(key resource.Key, k *kindLog, item zonesync.Item) {
	if cancel := l.pending[key]; cancel != nil {
		cancel()
	}
	ctx, cancel := context.WithCancel(l.ctx)
	l.pending[key] = cancel
	go func() {
		err := l.serving(ctx, key)
		l.mu.Lock()
		defer l.mu.Unlock()
		if ctx.Err() != nil {
			return // there is a later state, or none
		}
		cancel()
		delete(l.pending, key)
		if err != nil {
			l.log.Warn("other zones are told of a resource that this zone does not serve everywhere yet", "resource", key, "error", err)
		}
		l.tell(k, item)
		k.changed.Send()
		l.read.Send()
	}()
}

// putZone says whether the zone is new, or was enabled or disabled.
func (l *logs) putZone(o *resource.Object[stored]) bool {
	var row struct{ Spec kind.Zone }
	_ = json.Unmarshal(o.Spec.body, &row) // of a row that can't be read, what it was last
	enabled := row.Spec.Enabled == nil || *row.Spec.Enabled
	was, known := l.zones[o.Name]
	l.zones[o.Name] = enabled
	l.close(l.disabled, o.Name, !enabled)
	return !known || was != enabled
}

// unused says whether nobody is to use the ingresses of a zone.
func (l *logs) unused(zone string) bool { return l.disabled[zone] || l.expired[zone] }

// close notes why the ingresses of a zone are not to be used, or that there is no such reason any more, and takes
// them from all others or gives them back.
func (l *logs) close(reasons map[string]bool, zone string, closed bool) {
	was := l.unused(zone)
	if reasons[zone] = closed; l.unused(zone) == was {
		return
	}
	k := l.kinds[kind.MeshZoneAddresses.Name]
	for key, row := range k.of(kind.Owner{Zone: zone}) {
		item := zonesync.Item{Key: row.key, Deleted: true}
		if was {
			stored, err := l.rows.Get(l.ctx, key)
			if err != nil {
				continue // it went, which the next batch says
			}
			item = zonesync.Item{Key: row.key, Body: stored.Body}
		}
		l.tell(k, item)
	}
	k.changed.Send()
}

// expire notes whether a zone has been away for too long, and says whether that is news.
func (l *logs) expire(zone string, expired bool) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	news = l.expired[zone] != expired
	l.close(l.expired, zone, expired)
	return news
}

// zoneEnabled says whether there is a zone, and whether it may connect.
func (l *logs) zoneEnabled(name string) (enabled, exists bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	enabled, exists = l.zones[name]
	return enabled, exists
}

// awaitZone returns once a Zone that was made just now is known.
func (l *logs) awaitZone(ctx context.Context, name string) error {
	for {
		zoned := l.zoned.Next()
		if _, exists := l.zoneEnabled(name); exists {
			return nil
		}
		select {
		case <-zoned:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// traveling leaves out rows of kinds that stay where they are.
func (l *logs) traveling(rows []resource.Key) []resource.Key {
	return slices.DeleteFunc(slices.Clone(rows), func(key resource.Key) bool { return l.kinds[key.Kind] == nil })
}

// await returns once the logs have rows as the store has them now, and whatever may be told of them is.
func (l *logs) await(ctx context.Context, rows []resource.Key) error {
	for {
		next := l.read.Next()
		var err error
		if rows, err = l.behind(ctx, rows); len(rows) == 0 || err != nil {
			return err
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// behind are the rows that the logs have otherwise than the store.
func (l *logs) behind(ctx context.Context, rows []resource.Key) (behind []resource.Key, err error) {
	for _, key := range rows {
		version := ""
		row, err := l.rows.Get(ctx, key)
		switch {
		case err == nil:
			version = row.Version
		case !errors.Is(err, store.ErrNotFound):
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		l.mu.Lock()
		pending := l.pending[key] != nil
		l.mu.Unlock()
		if pending || l.kinds[key.Kind].version(key) != version {
			behind = append(behind, key)
		}
	}
	return behind, nil
}

// note remembers a row, and answers what was known of it before.
func (k *kindLog) note(key resource.Key, o *resource.Object[stored], owner kind.Owner) (was *known, is known) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before, had := k.rows[key]
	if had {
		was = &before
		k.release(before)
	}
	is = known{zonesync.Key{Owner: owner, Mesh: o.Mesh, Name: kind.DisplayNameOf(&o.Meta)}, o.Version, len(o.Spec.body)}
	k.count(owner, 1, is.bytes)
	k.rows[key] = is
	if k.held[is.key.Owner] == nil {
		k.held[is.key.Owner] = map[zonesync.Key]zonesync.Hash{}
	}
	k.held[is.key.Owner][is.key] = zonesync.Sum(is.key, o.Spec.body)
	return was, is
}

func (k *kindLog) forget(key resource.Key) *known {
	k.mu.Lock()
	defer k.mu.Unlock()
	was, had := k.rows[key]
	if !had {
		return nil
	}
	delete(k.rows, key)
	k.release(was)
	return &was
}

func (k *kindLog) release(row known) {
	key := row.key
	k.count(key.Owner, -1, -row.bytes)
	delete(k.held[key.Owner], key)
	if len(k.held[key.Owner]) == 0 {
		delete(k.held, key.Owner)
	}
}

func (k *kindLog) version(key resource.Key) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.rows[key].version
}

// inventory answers what is held of those whom a condition names.
func (k *kindLog) inventory(of func(kind.Owner) bool) []zonesync.StoredItem {
	k.mu.Lock()
	defer k.mu.Unlock()
	var held []zonesync.StoredItem
	for owner, items := range k.held {
		if !of(owner) {
			continue
		}
		for key, hash := range items {
			held = append(held, zonesync.StoredItem{Key: key, Hash: hash})
		}
	}
	return held
}

// of answers the rows of an owner.
func (k *kindLog) of(owner kind.Owner) map[resource.Key]known {
	k.mu.Lock()
	defer k.mu.Unlock()
	rows := map[resource.Key]known{}
	for key, row := range k.rows {
		if row.key.Owner == owner {
			rows[key] = row
		}
	}
	return rows
}
