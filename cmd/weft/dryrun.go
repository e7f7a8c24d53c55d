package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"weft/internal/client"
	"weft/internal/rest"
	"weft/resource"
)

// tryAll returns the result that writing each of the manifests would have, as if those before it were written. The
// error names every manifest that is rejected.
func tryAll(ctx context.Context, c *client.Client, manifests []manifest) ([]rest.DryRunResource, error) {
	var request rest.DiffRequest
	size := 0
	for _, m := range manifests {
		body, err := resource.MarshalJSON(m.object, nil, m.kind, resource.Universal)
		if err != nil {
			return nil, err
		}
		size += len(body) + len(",")
		request.Apply = append(request.Apply, body)
	}
	if most := rest.MaxDryRunBytes - 1000; len(manifests) > rest.MaxDryRunItems || size > most {
		return nil, fmt.Errorf("the files have %d resources with %d bytes; all are checked before the first is "+
			"written, which is possible for %d with %d: write them in parts, Meshes first", len(manifests), size,
			rest.MaxDryRunItems, most)
	}
	return try(ctx, c, request, "apply", manifests)
}

// tryRemovals returns the result that deleting each of the manifests would have, as [tryAll] does. The outcome of one
// that does not exist is "absent".
func tryRemovals(ctx context.Context, c *client.Client, manifests []manifest) ([]rest.DryRunResource, error) {
	var request rest.DiffRequest
	for _, m := range manifests {
		key := m.object.Key()
		request.Delete = append(request.Delete, rest.ResourceName{Type: key.Kind, Mesh: key.Mesh, Name: key.Name})
	}
	if len(manifests) > rest.MaxDryRunItems {
		return nil, fmt.Errorf("the files have %d resources; all are checked before the first is deleted, which is "+
			"possible for %d: delete them in parts", len(manifests), rest.MaxDryRunItems)
	}
	return try(ctx, c, request, "delete", manifests)
}

// try sends a change of manifests, which are in one list of the request, to be checked.
func try(ctx context.Context, c *client.Client, request rest.DiffRequest, list string,
	manifests []manifest) ([]rest.DryRunResource, error) {
	var response rest.DryRunResponse
	err := c.Post(ctx, "/_dry-run", request, &response)
	if resource.CodeOf(err) == resource.NotFound { // of the path: problems of resources are problems of the change
		return nil, errEarlierRelease
	}
	if err != nil {
		return nil, placed(err, list, manifests)
	}
	if len(response.Resources) != len(manifests) {
		return nil, fmt.Errorf("the control plane checked %d of %d resources", len(response.Resources), len(manifests))
	}
	return response.Resources, nil
}

// errEarlierRelease is the error of a control plane that cannot check a change as a whole.
var errEarlierRelease = errors.New("the control plane is of an earlier release, which cannot check a change as a " +
	"whole; upgrade it")

// warnOfEarlierRelease prints what writes to a control plane of an earlier release lack, for [errEarlierRelease], and
// returns any other error.
func warnOfEarlierRelease(command *cobra.Command, err error) error {
	if err != errEarlierRelease {
		return err
	}
	printWarnings(command, []string{"the control plane is of an earlier release, which checks each resource when it " +
		"is written: where one is rejected, those before it stay written"})
	return nil
}

// itemField matches the field of a problem of a change: the list, the index in it, and the field of the item.
var itemField = regexp.MustCompile(`^(apply|delete)\[(\d+)\](?:\.(.*))?$`)

// placed returns the error of a change in which each problem has the place and the key of its manifest. Manifests are
// in the order of the files.
func placed(err error, list string, manifests []manifest) error {
	var rejected *resource.Error
	if !errors.As(err, &rejected) {
		return err
	}
	byItem := map[int]*resource.Error{}
	var rest resource.Problems
	for _, problem := range rejected.Problems {
		found := itemField.FindStringSubmatch(problem.Field)
		if found == nil || found[1] != list {
			rest = append(rest, problem)
			continue
		}
		i, err := strconv.Atoi(found[2])
		if err != nil || i >= len(manifests) {
			rest = append(rest, problem)
			continue
		}
		if byItem[i] == nil {
			byItem[i] = &resource.Error{Code: rejected.Code}
		}
		byItem[i].Problems = append(byItem[i].Problems, resource.Problem{Field: found[3], Reason: problem.Reason})
	}
	if len(byItem) == 0 {
		return err
	}
	items := make([]int, 0, len(byItem))
	for i := range byItem {
		items = append(items, i)
	}
	slices.SortFunc(items, func(a, b int) int { return cmp.Compare(manifests[a].number, manifests[b].number) })
	faults := []error{}
	for _, i := range items {
		m := manifests[i]
		byItem[i].Detail = fmt.Sprintf("%s: %s is rejected", m.at, m.object.Key())
		faults = append(faults, byItem[i])
	}
	for _, problem := range rest {
		faults = append(faults, errors.New(problem.String()))
	}
	faults = append(faults, errNothingWritten)
	return errors.Join(faults...)
}

// errNothingWritten ends the errors of a change that is checked before its first write.
var errNothingWritten = errors.New("nothing was changed, since all resources are checked before the first is written")

// reachable returns err, and nil for the error of a control plane that does not respond.
func reachable(err error) error {
	if unreachable := (*client.Unreachable)(nil); errors.As(err, &unreachable) {
		return nil
	}
	return err
}
