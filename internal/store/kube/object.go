package kube

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"weft/resource"

	"weft/internal/store"
)

// Labels and annotations of this store. All other labels of an object are labels of its row.
const (
	// recordLabel has the kind of a record's row.
	recordLabel = "kuma.io/record"
	// ownerLabel has the digest of the owner's key, to find the rows of an owner.
	ownerLabel = "kuma.io/owner"
	// ownerKindLabel has the owner's kind.
	ownerKindLabel = "kuma.io/owner-kind"
	// ownerAnnotation has the owner's key and UID, nameAnnotation the name of a row that is not NAME.NAMESPACE.
	ownerAnnotation = "kuma.io/owner"
	nameAnnotation  = "kuma.io/name"
	// vouchedAnnotation has the vouched facts, labelsAnnotation the labels that no label of Kubernetes can have.
	vouchedAnnotation = "kuma.io/vouched"
	labelsAnnotation  = "kuma.io/labels"
	// unknownAnnotation has the fields of a row's body that this release does not know, beside its labels, its spec and
	// its vouched facts. The API server keeps unknown fields of the spec alone.
	unknownAnnotation = "kuma.io/unknown-fields"
	// recordAnnotation has the row of a Lease.
	recordAnnotation = "kuma.io/record"
)

// annotated are labels whose values may be longer than those of Kubernetes. They are always annotations.
var annotated = []string{"kuma.io/display-name", "k8s.kuma.io/service-account", "kuma.io/workload"}

// rowAnnotations are the annotations that belong to a row.
var rowAnnotations = slices.Concat(annotated, []string{nameAnnotation, vouchedAnnotation, labelsAnnotation,
	unknownAnnotation})

// maxUnknown bounds unknownAnnotation, in bytes. An object has 256 KiB of annotations at most.
const maxUnknown = 64 << 10

// storeLabels are the labels of an object that are no labels of its row.
var storeLabels = []string{recordLabel, ownerLabel, ownerKindLabel}

// PrivateType is the type of the Kubernetes Secrets that have rows of the control plane itself.
const PrivateType = "system.kuma.io/record"

// object is an object of the API server. Fields that this package does not read are kept in an update.
type object struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metadata          `json:"metadata"`
	Mesh       string            `json:"mesh,omitempty"`
	Spec       json.RawMessage   `json:"spec,omitempty"`
	Status     json.RawMessage   `json:"status,omitempty"`
	Type       string            `json:"type,omitempty"` // of a Secret
	Data       map[string][]byte `json:"data,omitempty"` // of a Secret
}

type metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace,omitempty"`
	UID               string            `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	Generation        int64             `json:"generation,omitempty"`
	CreationTimestamp *time.Time        `json:"creationTimestamp,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	OwnerReferences   json.RawMessage   `json:"ownerReferences,omitempty"`
	Finalizers        []string          `json:"finalizers,omitempty"`
	ManagedFields     []managed         `json:"managedFields,omitempty"`
}

type managed struct {
	Manager     string          `json:"manager,omitempty"`
	Operation   string          `json:"operation,omitempty"`
	APIVersion  string          `json:"apiVersion,omitempty"`
	Time        *time.Time      `json:"time,omitempty"`
	FieldsType  string          `json:"fieldsType,omitempty"`
	FieldsV1    json.RawMessage `json:"fieldsV1,omitempty"`
	Subresource string          `json:"subresource,omitempty"`
}

// record is the spec of a record, or the value of a private Secret.
type record struct {
	Kind     string    `json:"kind"`
	Mesh     string    `json:"mesh,omitempty"`
	Name     string    `json:"name"`
	Body     []byte    `json:"body,omitempty"`
	Created  time.Time `json:"created"`
	Modified time.Time `json:"modified"`
}

// leaseSpec is the spec of a Lease.
type leaseSpec struct {
	HolderIdentity       string `json:"holderIdentity,omitempty"`
	LeaseDurationSeconds int64  `json:"leaseDurationSeconds,omitempty"`
	AcquireTime          string `json:"acquireTime,omitempty"`
	RenewTime            string `json:"renewTime,omitempty"`
	LeaseTransitions     uint64 `json:"leaseTransitions,omitempty"`
}

// microTime is the form of times in a Lease.
const microTime = "2006-01-02T15:04:05.000000Z07:00"

// place is where the rows of a kind are, or with a name where one row is.
type place struct {
	kind            *Kind // of the rows
	of              *Kind // of the objects: for a status the kind that has it
	system          string
	namespace, name string
	leaseDuration   time.Duration
}

// rowsOf returns where the rows of a kind are. A kind that is not known has records.
func (s *Store) rowsOf(name string) place {
	k := s.kinds[name]
	if k == nil {
		k = &Kind{Name: name}
	}
	of := k
	if k.StatusOf != "" {
		of = s.kinds[k.StatusOf]
	}
	return place{kind: k, of: of, system: s.options.Namespace, leaseDuration: s.options.LeaseDuration}
}

// ownable returns where rows of an owner of a kind may be.
func (s *Store) ownable(owner string) []place {
	places := s.ownRows()
	for _, name := range slices.Sorted(maps.Keys(s.kinds)) {
		if k := s.kinds[name]; k.StatusOf == "" && !k.own() && k.Owner == owner {
			places = append(places, s.rowsOf(name))
		}
	}
	return places
}

// ownRows returns where the control plane's own rows of all kinds are, except Leases.
func (s *Store) ownRows() []place {
	return []place{s.rowsOf(""), {kind: &Kind{Private: true}, of: &Kind{Private: true}, system: s.options.Namespace}}
}

// own reports whether rows of the kind are the control plane's own.
func (k *Kind) own() bool { return k.Plural == "" && k.SecretType == "" && k.StatusOf == "" }

// isSecret reports whether the objects are Kubernetes Secrets.
func (p place) isSecret() bool { return p.of.SecretType != "" || p.of.Private }

// place returns where a row is. It returns Invalid for a name that no object can have.
func (s *Store) place(key resource.Key) (place, error) {
	p := s.rowsOf(key.Kind)
	if p.of.own() {
		p.namespace, p.name = p.system, strings.ToLower(key.Kind)+"-"+digest(key)
		if p.of.Lease != nil {
			p.name = p.of.Lease(key.Name, nil).Name
		}
		return p, nil
	}
	p.name, p.namespace = p.of.object(key.Name, p.system)
	if problems := validation.IsDNS1123Subdomain(p.name); len(problems) > 0 {
		return p, invalidName(key, problems[0])
	}
	if p.namespace == "" {
		return p, nil
	}
	if problems := validation.IsDNS1123Label(p.namespace); len(problems) > 0 {
		return p, invalidName(key, problems[0])
	}
	return p, nil
}

// object returns the name and the namespace of the object of a row that users know. The namespace is empty for a kind
// of cluster scope. A row whose name has no namespace is in the system namespace.
func (k *Kind) object(row, system string) (name, namespace string) {
	switch {
	case k.SecretType != "":
		return row, system
	case !k.Namespaced:
		return row, ""
	case k.System:
		return strings.TrimSuffix(row, "."+system), system
	}
	if at := strings.LastIndexByte(row, '.'); at > 0 && at < len(row)-1 {
		return row[:at], row[at+1:]
	}
	return row, system
}

// syncedName matches the names of copies of other control planes' resources, which have a hash over their mesh.
var syncedName = regexp.MustCompile(`-([0-9a-f]{16}|copy-[0-9a-f]{32})$`)

// places returns where a row may be; new rows are at the first place. The name of a row without a namespace is unique
// in its mesh, and an object's in the system namespace: an object of a mesh other than the default one is NAME.MESH. An
// earlier release wrote it as NAME, and one that is found there stays.
func (s *Store) places(key resource.Key) ([]place, error) {
	at, err := s.place(key)
	if err != nil || !at.of.Namespaced || !at.of.Meshed || key.Mesh == defaultMesh || at.namespace != at.system ||
		strings.HasSuffix(key.Name, "."+at.system) || syncedName.MatchString(key.Name) {
		return []place{at}, err
	}
	former := at
	at.name += "." + key.Mesh
	if problems := validation.IsDNS1123Subdomain(at.name); len(problems) > 0 {
		return nil, invalidName(key, problems[0])
	}
	return []place{at, former}, nil
}

// defaultMesh is the mesh of an object that names none.
const defaultMesh = "default"

func invalidName(key resource.Key, problem string) error {
	return &resource.Error{Code: resource.Invalid, Detail: key.String() + " is invalid", Problems: resource.Problems{
		{Field: "name", Reason: problem}}}
}

// collection returns the path of the objects: of one namespace if the place has one, else of all.
func (p place) collection() string {
	switch {
	case p.isSecret():
		return "/api/v1/namespaces/" + p.system + "/secrets"
	case p.of.Lease != nil:
		return "/apis/coordination.k8s.io/v1/namespaces/" + p.system + "/leases"
	case p.of.own():
		return "/apis/" + resource.APIVersion + "/namespaces/" + p.system + "/" + RecordPlural
	case p.of.System:
		return "/apis/" + resource.APIVersion + "/namespaces/" + p.system + "/" + p.of.Plural
	case p.namespace != "":
		return "/apis/" + resource.APIVersion + "/namespaces/" + p.namespace + "/" + p.of.Plural
	}
	return "/apis/" + resource.APIVersion + "/" + p.of.Plural
}

func (p place) path() string { return p.collection() + "/" + p.name }

// subresource returns the end of the path of an update.
func (p place) subresource() string {
	if p.kind.StatusOf != "" {
		return "/status"
	}
	return ""
}

// selector returns the query that selects the objects of the kind in their collection.
func (p place) selector() map[string]string {
	switch {
	case p.of.SecretType != "":
		return map[string]string{"fieldSelector": "type=" + p.of.SecretType}
	case p.of.own() && p.of.Name != "":
		return map[string]string{"labelSelector": recordLabel + "=" + p.of.Name}
	case p.of.Private:
		return map[string]string{"fieldSelector": "type=" + PrivateType}
	}
	return map[string]string{}
}

// selectorWith returns the selector of the kind with a condition on labels.
func (p place) selectorWith(labels string) map[string]string {
	query := p.selector()
	query["labelSelector"] = strings.Trim(query["labelSelector"]+","+labels, ",")
	return query
}

// body is the stored form of a resource.
type body struct {
	Labels  map[string]string `json:"labels,omitempty"`
	Spec    json.RawMessage   `json:"spec"`
	Vouched json.RawMessage   `json:"vouched,omitempty"`
	// Unknown are the other fields, which a later release writes.
	Unknown map[string]json.RawMessage `json:"-"`
}

func decodeBody(raw []byte) (b body, err error) {
	if err = json.Unmarshal(raw, &b); err == nil {
		err = b.addUnknown(raw)
	}
	return b, err
}

// addUnknown adds the fields of a JSON object, except those with the names of the known ones.
func (b *body) addUnknown(raw []byte) error {
	err := json.Unmarshal(raw, &b.Unknown)
	maps.DeleteFunc(b.Unknown, func(name string, _ json.RawMessage) bool {
		return slices.ContainsFunc([]string{"labels", "spec", "vouched"}, func(known string) bool {
			return strings.EqualFold(known, name) // as a decoder of the body reads it
		})
	})
	return err
}

func (b *body) encode() ([]byte, error) {
	known, err := json.Marshal(b)
	if err != nil || len(b.Unknown) == 0 {
		return known, err
	}
	unknown, err := json.Marshal(b.Unknown)
	return slices.Concat(known[:len(known)-1], []byte(","), unknown[1:]), err // spec is always there
}

// unknownFields returns the value of unknownAnnotation, or Invalid for one above its bound.
func (b *body) unknownFields(key resource.Key) (string, error) {
	if len(b.Unknown) == 0 {
		return "", nil
	}
	text, err := json.Marshal(b.Unknown)
	if err == nil && len(text) > maxUnknown {
		err = &resource.Error{Code: resource.Invalid, Detail: key.String() + " can't be stored in Kubernetes",
			Problems: resource.Problems{{Field: strings.Join(slices.Sorted(maps.Keys(b.Unknown)), ", "),
				Reason: fmt.Sprintf("unknown to this release, with %d bytes, and an object keeps at most %d bytes of "+
					"such fields; upgrade this control plane", len(text), maxUnknown)}}}
	}
	return string(text), err
}

// newObject writes a new row into a new object.
func (p place) newObject(o *object, row store.Row, by owner) error {
	o.APIVersion, o.Kind = resource.APIVersion, p.of.Name
	o.Metadata.Name, o.Metadata.Namespace = p.name, p.namespace
	o.Metadata.Annotations, o.Metadata.Labels = map[string]string{}, map[string]string{}
	switch {
	case row.Owner == nil:
	case natives[by.Kind] != "":
		name, _, _ := strings.Cut(by.Name, "."+p.namespace)
		references, err := json.Marshal([]map[string]any{{"apiVersion": "v1", "kind": by.Kind, "name": name,
			"uid": by.UID, "controller": true}})
		if err != nil {
			return err
		}
		o.Metadata.OwnerReferences = references
	default:
		if err := o.Metadata.setOwner(by); err != nil {
			return err
		}
	}
	if p.of.own() {
		o.Metadata.Labels[recordLabel] = row.Key.Kind
		return p.fillRecord(o, row, time.Now().UTC())
	}
	return p.fill(o, row)
}

// fill writes a row into an object as it is stored.
func (p place) fill(o *object, row store.Row) error {
	o.Metadata.ManagedFields = nil // the server keeps them
	if p.of.own() {
		stored, err := p.recordOf(o)
		if err != nil {
			return err
		}
		return p.fillRecord(o, row, stored.Created)
	}
	b, err := decodeBody(row.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", row.Key, err)
	}
	if p.kind.StatusOf != "" {
		o.Status = withoutNulls(b.Spec)
		return nil
	}
	if err := p.fillMeta(&o.Metadata, row, b); err != nil {
		return err
	}
	if p.of.MeshField {
		o.Mesh = row.Key.Mesh
	}
	if p.of.SecretType == "" {
		o.Spec = withoutNulls(b.Spec)
		return nil
	}
	var secret struct{ Data []byte }
	if err := json.Unmarshal(b.Spec, &secret); err != nil {
		return fmt.Errorf("%s: %w", row.Key, err)
	}
	o.APIVersion, o.Kind, o.Type, o.Data = "v1", "Secret", p.of.SecretType, map[string][]byte{"value": secret.Data}
	return nil
}

func (p place) fillRecord(o *object, row store.Row, created time.Time) error {
	modified := time.Now().UTC()
	if created.After(modified) || o.Metadata.UID == "" {
		modified = created
	}
	raw, err := json.Marshal(record{Kind: row.Key.Kind, Mesh: row.Key.Mesh, Name: row.Key.Name, Body: row.Body,
		Created: created, Modified: modified})
	if err != nil {
		return err
	}
	switch {
	case p.of.Lease != nil:
		o.APIVersion, o.Kind, o.Metadata.Annotations = "coordination.k8s.io/v1", "Lease", withRecord(&o.Metadata, raw)
		o.Spec, err = p.leaseOf(row, modified)
		return err
	case p.of.Private:
		o.APIVersion, o.Kind, o.Type, o.Data = "v1", "Secret", PrivateType, map[string][]byte{"record": raw}
	default:
		o.Kind, o.Spec = RecordKind, raw
	}
	return nil
}

func withRecord(m *metadata, record []byte) map[string]string {
	annotations := map[string]string{recordAnnotation: string(record)}
	for name, value := range m.Annotations {
		if name != recordAnnotation {
			annotations[name] = value
		}
	}
	return annotations
}

// leaseOf returns the spec of a row's Lease. A Lease that counts its holders is not renewed, and never expires by
// itself.
func (p place) leaseOf(row store.Row, now time.Time) (json.RawMessage, error) {
	shows := p.of.Lease(row.Key.Name, row.Body)
	spec := leaseSpec{HolderIdentity: shows.Holder, LeaseTransitions: shows.Transitions}
	if shows.Transitions > 0 {
		spec.AcquireTime = now.Format(microTime)
	} else {
		spec.RenewTime = now.Format(microTime)
		spec.LeaseDurationSeconds = int64(p.leaseDuration / time.Second)
	}
	return json.Marshal(spec)
}

// fillMeta writes the labels, the mesh, the name, the vouched facts and unknown fields. It keeps other annotations and
// the owner.
func (p place) fillMeta(m *metadata, row store.Row, b body) error {
	unknown, err := b.unknownFields(row.Key)
	if err != nil {
		return err
	}
	labels, annotations := map[string]string{}, maps.Clone(m.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	for _, name := range rowAnnotations {
		delete(annotations, name)
	}
	others := map[string]string{}
	for name, value := range b.Labels {
		switch {
		case slices.Contains(annotated, name):
			annotations[name] = value
		case len(validation.IsQualifiedName(name)) == 0 && len(validation.IsValidLabelValue(value)) == 0:
			labels[name] = value
		default:
			others[name] = value
		}
	}
	if len(others) > 0 {
		text, _ := json.Marshal(others)
		annotations[labelsAnnotation] = string(text)
	}
	if len(b.Vouched) > 0 {
		annotations[vouchedAnnotation] = string(b.Vouched)
	}
	if unknown != "" {
		annotations[unknownAnnotation] = unknown
	}
	if row.Key.Name != p.shownName(m) {
		annotations[nameAnnotation] = row.Key.Name
	}
	if p.of.Meshed {
		labels[resource.MeshLabel] = row.Key.Mesh
	}
	for _, name := range storeLabels {
		if value, ok := m.Labels[name]; ok {
			labels[name] = value
		}
	}
	m.Labels, m.Annotations = labels, annotations
	return nil
}

// shownName returns the name of the row of an object without the annotation.
func (p place) shownName(m *metadata) string {
	if p.of.Namespaced {
		return m.Name + "." + m.Namespace
	}
	return m.Name
}

// setOwner writes the owner of an object's row.
func (m *metadata) setOwner(by owner) error {
	text, err := json.Marshal(by)
	if err != nil {
		return err
	}
	m.Labels[ownerLabel], m.Labels[ownerKindLabel] = digest(by.Key), by.Kind
	m.Annotations[ownerAnnotation] = string(text)
	return nil
}

// ownerIn returns the owner of an object's row; nil without one.
func ownerIn(o *object) *owner {
	text := o.Metadata.Annotations[ownerAnnotation]
	var by owner
	if text == "" || json.Unmarshal([]byte(text), &by) != nil {
		return nil
	}
	return &by
}

// ownedByNative reports whether an object of Kubernetes itself owns an object, see natives.
func (o *object) ownedByNative() bool {
	var references []struct{ APIVersion, Kind string }
	if json.Unmarshal(o.Metadata.OwnerReferences, &references) != nil {
		return false
	}
	return slices.ContainsFunc(references, func(by struct{ APIVersion, Kind string }) bool {
		return by.APIVersion == "v1" && natives[by.Kind] != ""
	})
}

// withoutNulls returns JSON without the fields that are null, which definitions do not accept.
func withoutNulls(raw json.RawMessage) json.RawMessage {
	if !bytes.Contains(raw, []byte("null")) {
		return raw
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return raw
	}
	removeNulls(v)
	cleaned, _ := json.Marshal(v)
	return cleaned
}

func removeNulls(v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if value == nil {
				delete(v, name)
			}
			removeNulls(value)
		}
	case []any:
		for _, item := range v {
			removeNulls(item)
		}
	}
}

// row returns the row of an object; false where the object has none: a status that was never written.
func (p place) row(o *object) (store.Row, bool, error) {
	key, err := p.keyOf(o)
	if err != nil {
		return store.Row{}, false, err
	}
	row := store.Row{Key: key}
	if by := ownerIn(o); by != nil {
		row.Owner = &by.Key
	}
	if p.of.own() {
		r, err := p.recordOf(o)
		if err != nil {
			return store.Row{}, false, err
		}
		row.Body, row.Created, row.Modified = r.Body, r.Created, r.Modified
		row.Version = version(o.Metadata.UID, row.Modified.Format(time.RFC3339Nano), string(r.Body))
		return row, true, nil
	}
	if o.Metadata.CreationTimestamp != nil {
		row.Created = o.Metadata.CreationTimestamp.UTC()
	}
	row.Modified = modified(o, strings.TrimPrefix(p.subresource(), "/"))
	if p.kind.StatusOf != "" {
		if len(o.Status) == 0 || string(o.Status) == "null" {
			return row, false, nil
		}
		row.Owner = &resource.Key{Kind: p.of.Name, Mesh: key.Mesh, Name: key.Name}
		row.Version = version(o.Metadata.UID, "status", string(o.Status))
		row.Body, err = p.normal(body{Spec: o.Status})
		return row, true, err
	}
	b := p.bodyOf(o)
	content, err := b.encode()
	if err != nil {
		return store.Row{}, false, err
	}
	row.Version = version(o.Metadata.UID, fmt.Sprint(o.Metadata.Generation), string(content))
	row.Body, err = p.normal(b)
	return row, true, err
}

func (p place) normal(b body) ([]byte, error) {
	raw, err := b.encode()
	if err != nil || p.kind.Normal == nil {
		return raw, err
	}
	return p.kind.Normal(raw), nil
}

func (p place) recordOf(o *object) (record, error) {
	raw := []byte(o.Spec)
	switch {
	case p.of.Private:
		raw = o.Data["record"]
	case p.of.Lease != nil:
		raw = []byte(o.Metadata.Annotations[recordAnnotation])
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("%w: the object %s has no row: %w", store.ErrUnavailable, o.Metadata.Name, err)
	}
	return r, nil
}

// keyOf returns the key of an object's row.
func (p place) keyOf(o *object) (resource.Key, error) {
	if p.of.own() {
		r, err := p.recordOf(o)
		return resource.Key{Kind: r.Kind, Mesh: r.Mesh, Name: r.Name}, err
	}
	key := resource.Key{Kind: p.kind.Name, Name: p.shownName(&o.Metadata)}
	if p.of.System && o.Metadata.Namespace != p.system {
		return key, &resource.Error{Code: resource.Invalid, Detail: p.of.Name + " " + o.Metadata.Name + " is invalid",
			Problems: resource.Problems{{Field: "metadata.namespace", Reason: fmt.Sprintf(
				"is %s, and a %s concerns the whole mesh; write it in the namespace %s", o.Metadata.Namespace,
				p.of.Name, p.system)}}}
	}
	if p.of.Meshed {
		key.Mesh = defaultMesh
		if o.Mesh != "" {
			key.Mesh = o.Mesh
		}
		if mesh := o.Metadata.Labels[resource.MeshLabel]; mesh != "" {
			key.Mesh = mesh
		}
	}
	// An annotation that users can write gives no object the row of another one.
	if name := o.Metadata.Annotations[nameAnnotation]; name != "" {
		object, namespace := p.of.object(name, p.system)
		if namespace == o.Metadata.Namespace && (object == o.Metadata.Name ||
			p.of.Meshed && object+"."+key.Mesh == o.Metadata.Name) {
			key.Name = name
		}
	}
	return key, nil
}

func (p place) bodyOf(o *object) body {
	b := body{Spec: o.Spec, Labels: map[string]string{}}
	for name, value := range o.Metadata.Labels {
		if !slices.Contains(storeLabels, name) && (name != resource.MeshLabel || !p.of.Meshed) {
			b.Labels[name] = value
		}
	}
	for _, name := range annotated {
		if value, ok := o.Metadata.Annotations[name]; ok {
			b.Labels[name] = value
		}
	}
	_ = json.Unmarshal([]byte(o.Metadata.Annotations[labelsAnnotation]), &b.Labels) // of this store alone
	if vouched := o.Metadata.Annotations[vouchedAnnotation]; json.Valid([]byte(vouched)) {
		b.Vouched = json.RawMessage(vouched)
	}
	if unknown := o.Metadata.Annotations[unknownAnnotation]; unknown != "" && b.addUnknown([]byte(unknown)) != nil {
		b.Unknown = nil // this store alone writes it
	}
	switch {
	case p.of.SecretType != "":
		b.Spec, _ = json.Marshal(map[string][]byte{"data": o.Data["value"]})
	case len(b.Spec) == 0:
		b.Spec = json.RawMessage("{}")
	}
	return b
}

// modified returns the time of the last write of an object, or of its subresource.
func modified(o *object, subresource string) time.Time {
	var last time.Time
	if o.Metadata.CreationTimestamp != nil {
		last = o.Metadata.CreationTimestamp.UTC()
	}
	for _, m := range o.Metadata.ManagedFields {
		if m.Subresource == subresource && m.Time != nil && m.Time.Sub(last) > time.Second {
			last = m.Time.UTC()
		}
	}
	return last
}

// version returns an opaque version of a row's content.
func version(parts ...string) string {
	sum := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}
