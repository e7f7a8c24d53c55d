package objects

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"weft/internal/kube/api"
	"weft/internal/kube/convert"
)

// WriteRouteStatus stores the status of a route at the parents of this control plane, until no other client was faster.
// It does nothing where the route is gone, or has the status.
func WriteRouteStatus(ctx context.Context, client *api.Client, status *convert.RouteStatus) error {
	collection := convert.RoutePaths[status.Kind]
	slash := strings.LastIndex(collection, "/")
	path := collection[:slash] + "/namespaces/" + status.Namespace + collection[slash:] + "/" + status.Name
	for {
		var route map[string]json.RawMessage
		var stored map[string]json.RawMessage
		var parents []json.RawMessage
		err := client.Get(ctx, path, nil, &route)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil && route["status"] != nil {
			err = json.Unmarshal(route["status"], &stored)
		}
		if err == nil && stored["parents"] != nil {
			err = json.Unmarshal(stored["parents"], &parents)
		}
		if err != nil {
			return err
		}
		wanted, changed, err := status.Set(parents, time.Now())
		if err != nil || !changed {
			return err
		}
		if wanted == nil {
			wanted = []json.RawMessage{} // the field is required
		}
		all, err := json.Marshal(wanted)
		if err != nil {
			return err
		}
		if stored == nil {
			stored = map[string]json.RawMessage{}
		}
		stored["parents"] = all
		if route["status"], err = json.Marshal(stored); err != nil {
			return err
		}
		err = client.Update(ctx, path+"/status", route, nil)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if !apierrors.IsConflict(err) {
			return err
		}
	}
}
