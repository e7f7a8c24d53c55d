package join

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"weft/internal/admission"
	"weft/internal/mirror"
	"weft/internal/pki"
	"weft/internal/store"
	"weft/internal/wait"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// logs have the stored resources of the synced kinds: the log of items for other control planes, and the hashes of
// items that others own.
type logs struct {
	self    kind.Owner
	rows    store.Store
	changes *mirror.Queue                             // of rows
	serving func(context.Context, resource.Key) error // nil: an item may be sent as soon as it is stored
	log     *slog.Logger

	kinds map[string]*kindLog
	// dependencyChanged is raised when a resource was created or deleted that a rejected item may depend on.
	dependencyChanged *wait.Broadcast
	batchRead         *wait.Broadcast // raised by every batch of the store
	meshRecreated     *wait.Broadcast // raised when a deleted mesh exists again
	// raised when a zone is created, deleted, enabled, disabled, connected or disconnected
	zonesChanged *wait.Broadcast

	mu       sync.Mutex
	opened   bool
	disabled map[string]bool      // zones that may not connect
	expired  map[string]bool      // zones that have been disconnected for longer than Expiry
	zones    map[string]bool      // on global, the existing zones, and whether each is enabled
	links    map[string]link      // by the name of the zone
	created  map[string]time.Time // of each mesh since the start, also of deleted ones
	pending  map[resource.Key]context.CancelFunc
	ctx      context.Context
}

// kindLog is one kind of the logs.
type kindLog struct {
	kind    resource.Descriptor
	log     *zonesync.Log
	changed *wait.Broadcast

	// of is the kind with which this one is deleted, and whose names it has; nil: it has names of its own.
	of *kindLog

	mu     sync.Mutex
	rows   map[resource.Key]known
	longer map[zonesync.Key]resource.Key                 // of items with a longer name, since another one had theirs
	hashes map[kind.Owner]map[zonesync.Key]zonesync.Hash // of items that others own
	// sizes is the size of each owner's items.
	sizes map[kind.Owner]ownerSize
}

// known is the state of a stored row.
type known struct {
	key     zonesync.Key
	version string
	size    ownerSize
}

// stored is the spec of a row as stored, so that fields of a later release are sent too.
type stored struct{ body []byte }

// newLogs returns the logs of a store whose changes come by their queue.
func newLogs(self kind.Owner, rows store.Store, log *slog.Logger) *logs {
	l := &logs{
		self: self, rows: rows, log: log, kinds: map[string]*kindLog{}, dependencyChanged: &wait.Broadcast{},
		batchRead: &wait.Broadcast{}, zonesChanged: &wait.Broadcast{}, meshRecreated: &wait.Broadcast{},
		disabled: map[string]bool{}, expired: map[string]bool{}, zones: map[string]bool{}, links: map[string]link{},
		created: map[string]time.Time{}, pending: map[resource.Key]context.CancelFunc{},
	}
	for _, d := range SyncedKinds() {
		l.kinds[d.Describe().Name] = &kindLog{
			kind: d, log: zonesync.NewLog(newEpoch()), changed: &wait.Broadcast{},
			rows: map[resource.Key]known{}, hashes: map[kind.Owner]map[zonesync.Key]zonesync.Hash{},
			sizes: map[kind.Owner]ownerSize{}, longer: map[zonesync.Key]resource.Key{},
		}
	}
	followed := append(slices.Collect(maps.Keys(l.kinds)), kind.Zones.Name, kind.ZoneInsights.Name)
	l.changes = mirror.NewQueue(followed...)
	for _, k := range l.kinds {
		info := k.kind.Describe()
		if of := kind.OwnerKind(info); of != kind.Meshes.Name && kind.HasSyncedName(info) {
			k.of = l.kinds[of]
		}
	}
	return l
}

func newEpoch() uint64 {
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails
	return binary.BigEndian.Uint64(random[:]) | 1
}

// follow applies changes until ctx ends. It returns once the logs have the present rows.
func (l *logs) follow(ctx context.Context) (stopped func(), err error) {
	l.ctx = ctx
	changes, err := l.changes.Next(ctx)
	if err != nil {
		return nil, err
	}
	l.apply(changes)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			changes, err := l.changes.Next(ctx)
			if err != nil {
				return
			}
			l.apply(changes)
		}
	})
	return running.Wait, nil
}

// open lets the logs send.
func (l *logs) open() {
	for _, k := range l.kinds {
		k.log.Open()
		k.changed.Send()
	}
}

// undecoded keeps a row's body, and parses its labels.
func undecoded(row store.Row) (*resource.Object[stored], error) {
	var labeled struct{ Labels map[string]string }
	if err := json.Unmarshal(row.Body, &labeled); err != nil {
		return nil, err
	}
	of := &resource.Kind[stored]{Info: resource.Info{Name: row.Key.Kind}}
	o := of.Make(row.Key.Mesh, row.Key.Name, stored{row.Body})
	o.Labels, o.Version = labeled.Labels, row.Version
	return o, nil
}

// dependencies are the kinds that other kinds depend on, so that an item may be accepted after their change: the mesh,
// the Dataplane, and the resources that say which zone has a trust domain and which roots prove it.
var dependencies = map[string]bool{
	kind.Meshes.Name: true, kind.Dataplanes.Name: true, kind.MeshTrusts.Name: true, kind.MeshIdentities.Name: true,
}

// apply applies changes of the store.
func (l *logs) apply(b mirror.Changes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	raised := map[*kindLog]bool{}
	mended := len(b.Removed) > 0
	zones := false
	for _, row := range b.Put {
		key := row.Key
		of, err := undecoded(row)
		if err != nil {
			l.log.Error("a stored resource failed to decode; other control planes keep its previous version",
				"resource", key, "error", err)
			continue
		}
		switch key.Kind {
		case kind.Zones.Name:
			zones = l.putZone(of) || zones
			continue
		case kind.ZoneInsights.Name:
			zones = l.putLink(of) || zones
			continue
		}
		mended = mended || dependencies[key.Kind]
		if key.Kind == kind.Meshes.Name {
			// Where the queue has the last state alone, the time of the creation is another one.
			if was, known := l.created[key.Name]; known && !was.Equal(row.Created) {
				l.meshRecreated.Send()
			}
			l.created[key.Name] = row.Created
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
		raised[l.kinds[key.Kind]] = true
		l.remove(key)
	}
	l.opened = true
	l.batchRead.Send()
	for k := range raised {
		k.changed.Send()
	}
	if mended {
		l.dependencyChanged.Send()
	}
	if zones {
		l.zonesChanged.Send()
	}
}

// put adds a row. A row without an owner is sent once its owner is stored.
func (l *logs) put(key resource.Key, o *resource.Object[stored]) {
	k := l.kinds[key.Kind]
	was, is := k.add(key, o, l.ownerOf(&o.Meta))
	if was != nil && was.key != is.key {
		l.putInLog(k, zonesync.Item{Key: was.key, Deleted: true})
	}
	if o.Label(kind.OriginLabel) == "" {
		return
	}
	item := zonesync.Item{Key: is.key, Body: o.Spec.body}
	if l.serving != nil && l.opened && is.key.Owner == l.self && k.kind.Describe().Sync.Has(resource.ZoneToZones) {
		l.putOnceServed(key, k, item)
		return
	}
	l.putInLog(k, item)
}

// ownerOf returns the owner of a row: this control plane, if the row has no owner label.
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
	if was := k.drop(key); was != nil {
		l.putInLog(k, zonesync.Item{Key: was.key, Deleted: true})
	}
}

// putInLog puts an item into the log of its kind, if this control plane may send it.
func (l *logs) putInLog(k *kindLog, item zonesync.Item) {
	if !l.self.Global() && item.Key.Owner != l.self {
		return
	}
	if !item.Deleted {
		var told bool
		if item.Body, told = l.syncedBody(k, item); !told {
			item.Body, item.Deleted = nil, true
		}
	}
	if _, err := k.log.Put(item, time.Now()); err != nil {
		l.log.Error("a resource can't be sent to other control planes", "kind", k.kind.Describe().Name, "resource",
			item.Key, "error", err)
	}
}

// syncedBody returns the body of an item for other control planes; false if they do not get the item.
func (l *logs) syncedBody(k *kindLog, item zonesync.Item) (body []byte, told bool) {
	info := k.kind.Describe()
	switch {
	case info.Name == kind.MeshZoneAddresses.Name && l.ingressesUnused(item.Key.Owner.Zone):
		return nil, false
	case !info.Encrypted || item.Key.Owner != l.self:
		return item.Body, true
	}
	return publicHalf(resource.Key{Kind: info.Name, Mesh: item.Key.Mesh, Name: item.Key.Name}, item.Body)
}

// publicHalf returns the part of a secret that zones get.
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

// putOnceServed puts the latest state of a row into its log once it is served.
func (l *logs) putOnceServed(key resource.Key, k *kindLog, item zonesync.Item) {
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
			return // there is a later state, or the row was deleted
		}
		cancel()
		delete(l.pending, key)
		if err != nil {
			l.log.Warn("other zones get a resource that not all proxies of this zone serve yet", "resource", key,
				"error", err)
		}
		l.putInLog(k, item)
		k.changed.Send()
		l.batchRead.Send()
	}()
}

// putZone returns whether the zone is new, or was enabled or disabled.
func (l *logs) putZone(o *resource.Object[stored]) bool {
	var row struct{ Spec kind.Zone }
	_ = json.Unmarshal(o.Spec.body, &row) // for an unreadable row, the zone counts as enabled
	enabled := row.Spec.IsEnabled()
	was, known := l.zones[o.Name]
	l.zones[o.Name] = enabled
	l.setIngressesUnused(l.disabled, o.Name, !enabled)
	return !known || was != enabled
}

// ingressesUnused returns whether other zones may not use the ingresses of a zone.
func (l *logs) ingressesUnused(zone string) bool { return l.disabled[zone] || l.expired[zone] }

// setIngressesUnused sets one reason why other zones may not use the ingresses of a zone, and removes the ingresses
// from their logs or adds them again.
func (l *logs) setIngressesUnused(reasons map[string]bool, zone string, closed bool) {
	was := l.ingressesUnused(zone)
	if reasons[zone] = closed; l.ingressesUnused(zone) == was {
		return
	}
	k := l.kinds[kind.MeshZoneAddresses.Name]
	for key, row := range k.rowsOfOwner(kind.Owner{Zone: zone}) {
		item := zonesync.Item{Key: row.key, Deleted: true}
		if was {
			stored, err := l.rows.Get(l.ctx, key)
			if err != nil {
				continue // it was deleted; the next batch has that
			}
			item = zonesync.Item{Key: row.key, Body: stored.Body}
		}
		l.putInLog(k, item)
	}
	k.changed.Send()
}

// expire sets whether a zone has been disconnected for longer than Expiry, and returns whether that is a change.
func (l *logs) expire(zone string, expired bool) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	news = l.expired[zone] != expired
	l.setIngressesUnused(l.expired, zone, expired)
	return news
}

// zoneEnabled returns whether a zone exists, and whether it may connect.
func (l *logs) zoneEnabled(name string) (enabled, exists bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	enabled, exists = l.zones[name]
	return enabled, exists
}

// awaitZone returns once the logs have a Zone that was created just now.
func (l *logs) awaitZone(ctx context.Context, name string) error {
	for {
		zoned := l.zonesChanged.Next()
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

// traveling returns the rows of synced kinds.
func (l *logs) traveling(rows []resource.Key) []resource.Key {
	return slices.DeleteFunc(slices.Clone(rows), func(key resource.Key) bool { return l.kinds[key.Kind] == nil })
}

// await returns once the logs have rows, and the items that may be sent are in the logs.
func (l *logs) await(ctx context.Context, rows mirror.Rows) error {
	return mirror.Copy{Stored: mirror.StoredIn(l.rows), Shown: l.shown, Changed: l.batchRead.Next}.Await(ctx, rows)
}

// shown returns the version of a row in the logs, and whether its item is in the log.
func (l *logs) shown(key resource.Key) (version string, ready bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kinds[key.Kind].version(key), l.pending[key] == nil
}

// add sets the state of a row, and returns its state before.
func (k *kindLog) add(key resource.Key, o *resource.Object[stored], owner kind.Owner) (was *known, is known) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before, had := k.rows[key]
	if had {
		was = &before
		k.release(before)
	}
	is = known{zonesync.Key{Owner: owner, Mesh: o.Mesh, Name: kind.OwnerName(k.kind.Describe(), &o.Meta)}, o.Version,
		k.sizeOf(o.Spec.body)}
	k.addSize(owner, 1, is.size)
	k.rows[key] = is
	if kind.IsLongerSyncedName(key.Name) {
		k.longer[is.key] = key
	}
	if k.hashes[is.key.Owner] == nil {
		k.hashes[is.key.Owner] = map[zonesync.Key]zonesync.Hash{}
	}
	k.hashes[is.key.Owner][is.key] = zonesync.Sum(is.key, o.Spec.body)
	return was, is
}

func (k *kindLog) drop(key resource.Key) *known {
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
	k.addSize(key.Owner, -1, row.size)
	delete(k.longer, key)
	delete(k.hashes[key.Owner], key)
	if len(k.hashes[key.Owner]) == 0 {
		delete(k.hashes, key.Owner)
	}
}

func (k *kindLog) version(key resource.Key) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.rows[key].version
}

// key returns the key of an item's row, or the one that a new row has unless another item has it.
func (k *kindLog) key(item zonesync.Key) resource.Key {
	if k.of != nil {
		key := k.of.key(item)
		key.Kind = k.kind.Describe().Name
		return key
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if longer, ok := k.longer[item]; ok {
		return longer
	}
	r := receivedOf(k.kind, zonesync.Item{Key: item})
	return r.Key()
}

// replaced returns the row that an item replaces, without a version for a new row. It returns nil where the row has
// another owner, or is equal to the item.
func (k *kindLog) replaced(item zonesync.Item) *admission.ReceivedRow {
	key := k.key(item.Key)
	k.mu.Lock()
	defer k.mu.Unlock()
	stored, ok := k.rows[key]
	is := k.hashes[item.Key.Owner][item.Key]
	if ok && (stored.key != item.Key || is == zonesync.Sum(item.Key, item.Body)) {
		return nil
	}
	return &admission.ReceivedRow{Key: key, Version: stored.version}
}

// storedItems returns the items of owners for which a condition is true.
func (k *kindLog) storedItems(of func(kind.Owner) bool) []zonesync.StoredItem {
	k.mu.Lock()
	defer k.mu.Unlock()
	var items []zonesync.StoredItem
	for owner, hashes := range k.hashes {
		if !of(owner) {
			continue
		}
		for key, hash := range hashes {
			items = append(items, zonesync.StoredItem{Key: key, Hash: hash})
		}
	}
	return items
}

// rowsOfOwner returns the rows of an owner.
func (k *kindLog) rowsOfOwner(owner kind.Owner) map[resource.Key]known {
	return k.rowsWhere(func(of kind.Owner) bool { return of == owner })
}

// rowsWhere returns the rows of owners for which a condition is true.
func (k *kindLog) rowsWhere(of func(kind.Owner) bool) map[resource.Key]known {
	k.mu.Lock()
	defer k.mu.Unlock()
	rows := map[resource.Key]known{}
	for key, row := range k.rows {
		if of(row.key.Owner) {
			rows[key] = row
		}
	}
	return rows
}
