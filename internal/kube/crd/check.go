package crd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"golang.org/x/sync/errgroup"

	"weft/internal/kube/api"
	"weft/internal/store/kube"
	"weft/resource"
)

// Check returns the user that a client is, and an error if the API server lacks what a control plane needs: the
// definitions, the system namespace, or permissions of the user. The error names all of them, and what to do. pods is
// true for a control plane that serves the proxies of Pods.
func Check(ctx context.Context, client *api.Client, namespace string, pods bool) (user string, err error) {
	if user, err = User(ctx, client); err != nil {
		return "", err
	}
	if err := checkDefinitions(ctx, client); err != nil {
		return user, err
	}
	if err := checkPermissions(ctx, client, user, rules(namespace, pods)); err != nil {
		return user, err
	}
	err = client.Get(ctx, "/api/v1/namespaces/"+namespace, nil, nil)
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("the system namespace %s does not exist: create it with `kubectl create namespace %s`, or "+
			"name another one in KUMA_STORE_KUBERNETES_SYSTEM_NAMESPACE", namespace, namespace)
	}
	return user, err
}

// User returns the name of the user that a client is.
func User(ctx context.Context, client *api.Client) (string, error) {
	var self struct {
		Status struct{ UserInfo struct{ Username string } }
	}
	err := client.Create(ctx, "/apis/authentication.k8s.io/v1/selfsubjectreviews", map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}, &self)
	return self.Status.UserInfo.Username, err
}

// checkDefinitions returns an error that names the kinds without a definition.
func checkDefinitions(ctx context.Context, client *api.Client) error {
	missing, err := MissingDefinitions(ctx, client)
	if len(missing) == 0 {
		return err
	}
	var names []string
	for _, d := range missing {
		names = append(names, d.Metadata.Name)
	}
	if len(missing) == len(All()) {
		names = []string{"any kind of " + Group}
	}
	return fmt.Errorf("the API server has no definition of %s: apply the definitions of this release with `weft "+
		"install crds | kubectl apply --server-side -f -`", strings.Join(names, ", "))
}

// MissingDefinitions returns the definitions of the kinds that the API server does not serve.
func MissingDefinitions(ctx context.Context, client *api.Client) ([]Definition, error) {
	var served struct {
		Resources []struct{ Name string }
	}
	err := client.Get(ctx, "/apis/"+resource.APIVersion, nil, &served)
	if err != nil && !apierrors.IsNotFound(err) { // without any definition there is no such group
		return nil, err
	}
	return slices.DeleteFunc(All(), func(d Definition) bool {
		return slices.ContainsFunc(served.Resources, func(r struct{ Name string }) bool {
			return r.Name == d.Spec.Names.Plural
		})
	}), nil
}

// rule is a permission that the control plane needs.
type rule struct {
	group, resource, subresource string
	namespace                    string // empty: in all namespaces
	name                         string // empty: all objects
	verbs                        []string
}

func (r rule) String() string {
	text := strings.Trim(r.resource+"."+r.group, ".")
	if r.subresource != "" {
		text += "/" + r.subresource
	}
	if r.name != "" {
		text += " " + r.name
	}
	if r.namespace != "" {
		text += " in the namespace " + r.namespace
	}
	return text
}

// rules returns the permissions of a control plane without those of its webhooks' certificate, which the operator may
// make.
func rules(namespace string, pods bool) []rule {
	all := []string{"get", "list", "watch", "create", "update", "delete"}
	needed := []rule{
		{resource: "namespaces", namespace: namespace, name: namespace, verbs: []string{"get"}},
		{resource: "secrets", namespace: namespace, verbs: all},
		{group: "coordination.k8s.io", resource: "leases", namespace: namespace, verbs: all},
		{group: "authorization.k8s.io", resource: "subjectaccessreviews", verbs: []string{"create"}},
		{group: Group, resource: kube.RecordPlural, namespace: namespace, verbs: all},
	}
	if pods {
		needed = append(needed, ofPods...)
	}
	for _, d := range Kinds() {
		plural := Plural(d.Describe())
		needed = append(needed, rule{group: Group, resource: plural, verbs: all})
		if DefinitionOf(d).Spec.Versions[0].Subresources != nil {
			needed = append(needed, rule{group: Group, resource: plural, subresource: "status",
				verbs: []string{"update"}})
		}
	}
	return needed
}

// gatewayAPI is the group of the Gateway API.
const gatewayAPI = "gateway.networking.k8s.io"

// ofPods are the permissions of a control plane that serves the proxies of Pods.
var ofPods = []rule{
	{group: "authentication.k8s.io", resource: "tokenreviews", verbs: []string{"create"}},
	{resource: "nodes", verbs: []string{"list", "watch"}},
	{resource: "namespaces", verbs: []string{"get", "list", "watch"}},
	{resource: "pods", verbs: []string{"get", "list", "watch"}},
	{resource: "services", verbs: []string{"get", "list", "watch"}},
	{group: "discovery.k8s.io", resource: "endpointslices", verbs: []string{"list", "watch"}},
	{resource: "events", verbs: []string{"create"}},
	{group: gatewayAPI, resource: "httproutes", verbs: []string{"get", "list", "watch"}},
	{group: gatewayAPI, resource: "httproutes", subresource: "status", verbs: []string{"update"}},
	{group: gatewayAPI, resource: "grpcroutes", verbs: []string{"get", "list", "watch"}},
	{group: gatewayAPI, resource: "grpcroutes", subresource: "status", verbs: []string{"update"}},
	{group: gatewayAPI, resource: "tcproutes", verbs: []string{"get", "list", "watch"}},
	{group: gatewayAPI, resource: "tcproutes", subresource: "status", verbs: []string{"update"}},
	{group: gatewayAPI, resource: "tlsroutes", verbs: []string{"get", "list", "watch"}},
	{group: gatewayAPI, resource: "tlsroutes", subresource: "status", verbs: []string{"update"}},
	{group: gatewayAPI, resource: "referencegrants", verbs: []string{"list", "watch"}},
	{resource: "configmaps", verbs: []string{"create"}},
	{resource: "configmaps", name: "kuma-control-plane-ca", verbs: []string{"get", "update"}},
}

// reviewers is the number of concurrent requests.
const reviewers = 16

// checkPermissions returns an error that names the permissions that a user lacks.
func checkPermissions(ctx context.Context, client *api.Client, user string, needed []rule) error {
	missing := make([][]string, len(needed)) // verbs by rule
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(reviewers)
	for i, r := range needed {
		group.Go(func() error {
			for _, verb := range r.verbs {
				allowed, err := isAllowed(ctx, client, r, verb)
				if err != nil {
					return err
				}
				if !allowed {
					missing[i] = append(missing[i], verb)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	byVerbs := map[string][]string{}
	for i, verbs := range missing {
		if len(verbs) > 0 {
			text := strings.Join(verbs, ", ")
			byVerbs[text] = append(byVerbs[text], needed[i].String())
		}
	}
	if len(byVerbs) == 0 {
		return nil
	}
	var faults []error
	for _, verbs := range slices.Sorted(maps.Keys(byVerbs)) {
		faults = append(faults, fmt.Errorf("the user %s may not %s %s", user, verbs,
			strings.Join(byVerbs[verbs], ", ")))
	}
	return fmt.Errorf("%w: bind the role of docs/kubernetes.md to the user", errors.Join(faults...))
}

// isAllowed returns whether the client's user has a permission.
func isAllowed(ctx context.Context, client *api.Client, r rule, verb string) (bool, error) {
	var review struct{ Status struct{ Allowed bool } }
	err := client.Create(ctx, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]string{
			"verb": verb, "group": r.group, "resource": r.resource, "subresource": r.subresource,
			"namespace": r.namespace, "name": r.name,
		}},
	}, &review)
	return review.Status.Allowed, err
}
