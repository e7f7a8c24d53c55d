package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"weft/internal/access"
	"weft/internal/admission"
	"weft/internal/preview"
	"weft/internal/rest/kumactl"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

// Bounds of a request for a diff.
const (
	maxDiffBytes = 8 << 20
	maxDiffItems = 1000
	// maxDiffs is the number of diffs that are computed concurrently, each of another user. Further requests wait.
	maxDiffs = 2
	// A diff of the global control plane sends the change to a number of zones at once, and reads their responses of up
	// to a number of bytes each and together.
	zonesAtOnce      = 32
	maxReceivedBytes = 4 << 20
	maxZoneBytes     = 1 << 20
	maxZonesBytes    = 32 << 20
	// maxStoredTime is how long a zone is given to store what global has before it compares. The zone's acks are read
	// at each storedPoll.
	maxStoredTime = 2 * time.Second
	storedPoll    = 20 * time.Millisecond
)

// DiffRequest is a change to compare with the present configuration. First all resources of Apply are written, then
// those of Delete are deleted.
type DiffRequest struct {
	Apply  []json.RawMessage `json:"apply,omitempty"`
	Delete []ResourceName    `json:"delete,omitempty"`
}

// ResourceName identifies a resource.
type ResourceName struct {
	Type string `json:"type"`
	Mesh string `json:"mesh,omitempty"`
	Name string `json:"name"`
}

// problems returns the problems of the name of a resource of a kind, as a write has them.
func (n *ResourceName) problems(info *resource.Info) (problems resource.Problems) {
	switch problem := resource.MeshNameProblem(n.Mesh); {
	case info.Scope == resource.Mesh && problem != "":
		problems.Add("mesh", "%s", problem)
	case info.Scope != resource.Mesh && n.Mesh != "":
		problems.Add("mesh", "is %s, and a %s belongs to no mesh", resource.QuoteShort(n.Mesh), info.Name)
	}
	if problem := resource.NameProblem(n.Name); problem != "" {
		problems.Add("name", "%s", problem)
	}
	return problems
}

// DiffResponse is the effect of a change.
type DiffResponse struct {
	Resources []DiffResource `json:"resources"`
	// Zones are the effects on the proxies of each zone.
	Zones []preview.Diff `json:"zones"`
}

// DiffResource is the effect of a change on one resource.
type DiffResource struct {
	ResourceName
	Outcome  string   `json:"outcome"` // created, updated, unchanged or deleted
	Warnings []string `json:"warnings"`
}

// diff returns the effect that a change would have on the proxies, and changes nothing. The change is admitted as a
// write, so its caller must be allowed to write or preview that, and to read the values that are shown. Its caller must
// also be allowed to view the configuration of proxies where the query has fields=true.
func (a *api) diff(w http.ResponseWriter, r *http.Request) error {
	options, err := diffOptions(r)
	if err != nil {
		return err
	}
	shown, err := a.meshesOfDiff(r, options)
	if err != nil {
		return err
	}
	options.Reader = !a.Guard.isWriter(access.UserOf(r.Context()))
	ctx, cancel := context.WithTimeout(r.Context(), maxPreviewTime)
	defer cancel()
	leave, err := a.enterPreview(ctx, a.diffs) // before the body is read, which bounds the memory of the bodies
	if err != nil {
		return err
	}
	defer leave()
	request, err := readChange(w, r, maxDiffBytes)
	if err != nil {
		return err
	}
	if n := len(request.Apply) + len(request.Delete); n > maxDiffItems || n == 0 && !options.Shadow {
		return resource.Errorf(resource.Invalid, "the request has %d resources, want 1 to %d", n, maxDiffItems)
	}
	response, err := a.compare(r.WithContext(ctx), request, options)
	if err != nil {
		return previewTimeout(ctx, err)
	}
	for i := range response.Zones {
		response.Zones[i].Limit(shown.Has)
	}
	return writeJSON(w, http.StatusOK, response)
}

// compare tries a change, and returns its effect on the proxies.
func (a *api) compare(r *http.Request, request *DiffRequest, options preview.Options) (*DiffResponse, error) {
	// The change is compared with all earlier writes, of other replicas too.
	mayLack := !a.View.AwaitStored(r.Context(), maxStoredTime)
	if _, err := a.read(r.Context()); err != nil {
		return nil, err
	}
	trial := a.Writer.Trial()
	response := &DiffResponse{Resources: []DiffResource{}, Zones: []preview.Diff{}}
	err := a.try(r, trial, request, false, a.permitDiff(options), func(tried DiffResource, _ resource.Any) error {
		response.Resources = append(response.Resources, tried)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var change preview.Change
	if change.Put, change.Removed, err = trial.Changes(); err != nil {
		return nil, err
	}
	if response.Zones, err = a.diffZones(r.Context(), change, options); err != nil {
		return nil, err
	}
	for i := range response.Zones {
		if zone := &response.Zones[i]; mayLack && zone.Pending == "" && zone.Problem == "" {
			zone.Pending = "this replica may lack writes of other replicas"
		}
	}
	return response, nil
}

// shownBy returns the actions of what a diff shows.
func shownBy(options preview.Options) []access.Action {
	if options.Fields {
		return []access.Action{access.Read, access.ViewConfigDump}
	}
	return []access.Action{access.Read}
}

// meshesOfDiff returns the meshes of which the caller may read what a diff shows, or an error where there is none.
func (a *api) meshesOfDiff(r *http.Request, options preview.Options) (access.MeshSet, error) {
	shown := access.AllMeshes()
	for _, action := range shownBy(options) {
		if err := a.Guard.permit(r, action, access.AnyMesh); err != nil {
			return shown, err
		}
		shown = shown.Intersect(a.Guard.Rules.Meshes(access.UserOf(r.Context()), action))
	}
	return shown, nil
}

// permitDiff returns the check of each write of a diff: its caller may preview it, and read what is shown of it.
func (a *api) permitDiff(options preview.Options) permitTry {
	return func(r *http.Request, info *resource.Info, key resource.Key) error {
		if err := a.Guard.permitPreview(r, info, key); err != nil {
			return err
		}
		for _, action := range shownBy(options) {
			if err := a.Guard.permit(r, action, access.ReadScope(key)); err != nil {
				return err
			}
		}
		return nil
	}
}

func diffOptions(r *http.Request) (options preview.Options, err error) {
	if err := unknownParameters(r, "fields", "shadow"); err != nil {
		return options, err
	}
	values := r.URL.Query()
	for name, into := range map[string]*bool{"fields": &options.Fields, "shadow": &options.Shadow} {
		if *into, err = strconv.ParseBool(values.Get(name)); err != nil && values.Get(name) != "" {
			return options, invalidQuery(resource.Problem{Field: name,
				Reason: strconv.Quote(values.Get(name)) + " is neither true nor false"})
		}
	}
	return options, nil
}

// tryPut writes a document in a trial, and returns the result with the object as it would be stored. The result has the
// name of a document that is rejected, where it has one.
func (a *api) tryPut(r *http.Request, trial *admission.Trial, document json.RawMessage, permit permitTry) (DiffResource,
	resource.Any, error) {
	written, err := kind.Parse(document)
	if err != nil {
		var tried DiffResource
		_ = json.Unmarshal(document, &tried.ResourceName) // what the document has of it
		return tried, nil, err
	}
	key := written.Object.Key()
	tried := DiffResource{ResourceName{key.Kind, key.Mesh, key.Name}, "unchanged", []string{}}
	if key.Name == "" {
		return tried, nil, resource.Errorf(resource.Invalid, "a %s has no name", key.Kind)
	}
	d, scope := kind.ByName(key.Kind), access.WriteScope(key)
	if err := permit(r, d.Describe(), key); err != nil {
		return tried, nil, err
	}
	if n, most := len(document), d.Describe().Bytes(); n > most {
		return tried, nil, resource.Errorf(resource.Invalid, "%s has %d bytes, at most %d are read", key, n, most)
	}
	result, err := trial.Put(r.Context(), written.Object, admission.Change{
		Sender:      kumactl.SenderOf(r, d.Describe().Name),
		Administers: a.allows(r, access.AdminResources, scope),
		Vouches:     a.allows(r, access.OperatorResources, scope),
	})
	switch {
	case result.Created:
		tried.Outcome = "created"
	case result.Changed:
		tried.Outcome = "updated"
	}
	tried.Warnings = append(tried.Warnings, result.Warnings...)
	return tried, result.Object, err
}

// tryDelete deletes a resource in a trial, and returns the warnings about the deletion.
func (a *api) tryDelete(r *http.Request, trial *admission.Trial, name ResourceName, permit permitTry) ([]string,
	error) {
	d := kind.ByName(name.Type)
	if d == nil {
		return nil, resource.Errorf(resource.Invalid, "%q is not a type of this control plane", name.Type)
	}
	key := resource.Key{Kind: name.Type, Mesh: name.Mesh, Name: name.Name}
	if err := permit(r, d.Describe(), key); err != nil {
		return nil, err
	}
	if problems := name.problems(d.Describe()); len(problems) > 0 {
		return nil, &resource.Error{Code: resource.Invalid, Detail: "the name is invalid", Problems: problems}
	}
	warnings := trial.DeletionWarnings(r.Context(), key)
	return warnings, trial.Delete(r.Context(), key, admission.Change{})
}

// diffZones compares the proxies of this zone. On the global control plane, it compares those of every zone.
func (a *api) diffZones(ctx context.Context, change preview.Change, options preview.Options) ([]preview.Diff, error) {
	if a.Zone == "" {
		return a.diffEveryZone(ctx, change, options)
	}
	diff, err := a.Inspector.Diff(ctx, change, options)
	if err != nil {
		return nil, err
	}
	return []preview.Diff{*diff}, nil
}

// diffEveryZone has each zone compare its proxies, sorted by zone. A zone without a response has the reason in Problem.
func (a *api) diffEveryZone(ctx context.Context, change preview.Change, options preview.Options) ([]preview.Diff,
	error) {
	rows, err := a.read(ctx, kind.Written()...)
	if err != nil {
		return nil, err
	}
	received, err := preview.ReceivedOf(&change, rows.need)
	if err != nil {
		return nil, err
	}
	if size := received.Size(); size > maxReceivedBytes {
		return nil, resource.Errorf(resource.Invalid, "the change has %d bytes, and zones are sent %d at most; "+
			"compare it in parts, or send it to the control plane of each zone", size, maxReceivedBytes)
	}
	diffs := []preview.Diff{}
	for o := range rows.State.Tables.ResourcesAfter(rows.Snapshot, kind.Zones.Name, "", "") {
		diffs = append(diffs, preview.Diff{Zone: o.Key().Name, Groups: []preview.Group{}})
	}
	most := min(maxZoneBytes, maxZonesBytes/max(len(diffs), 1))
	var zones errgroup.Group
	zones.SetLimit(zonesAtOnce)
	for i := range diffs {
		zones.Go(func() error {
			lacks := a.awaitStored(ctx, diffs[i].Zone)
			diff, err := a.RemoteZones.Diff(ctx, diffs[i].Zone, received, options, most)
			if err != nil {
				diffs[i].Problem = a.problemOf(err)
				return nil
			}
			diffs[i] = *diff
			if lacks != "" {
				diffs[i].Pending = lacks
			}
			return nil
		})
	}
	return diffs, zones.Wait()
}

// awaitStored waits until a zone has stored what global has of each kind, and not longer than [maxStoredTime]. It
// returns which kinds the zone lacks resources of; empty: none.
func (a *api) awaitStored(ctx context.Context, zone string) string {
	if a.Links == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, maxStoredTime)
	defer cancel()
	for {
		var lacking []string
		for name, link := range a.Links(zone) {
			if link.Connected && !link.Current {
				lacking = append(lacking, name)
			}
		}
		slices.Sort(lacking)
		switch {
		case len(lacking) == 0:
			return ""
		case wait.Sleep(ctx, storedPoll) != nil:
			return "the zone has not stored all that global has of " + strings.Join(lacking, ", ")
		}
	}
}

// problemOf returns the text of an error for the caller. That of an internal error is in the log.
func (a *api) problemOf(err error) string {
	if resource.CodeOf(err) != resource.Internal {
		return err.Error()
	}
	a.Log.Error("a zone's diff failed", "error", err)
	return "an internal error, which the log of the control plane has"
}
