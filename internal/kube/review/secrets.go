package review

import (
	"context"

	authentication "k8s.io/api/authentication/v1"

	"weft/resource"
)

// accessReviews is the path of the reviews of users' permissions.
const accessReviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

// administers returns the check of a user's references to Secrets: the user may get the Secrets of the system
// namespace, which have the values. Without a response of the API server the user may not.
func (r *Reviewer) administers(user authentication.UserInfo) func(context.Context) error {
	return func(ctx context.Context) error {
		var review struct{ Status struct{ Allowed bool } }
		err := r.Client.Create(ctx, accessReviews, map[string]any{
			"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
			"spec": map[string]any{
				"user": user.Username, "uid": user.UID, "groups": user.Groups, "extra": user.Extra,
				"resourceAttributes": map[string]string{"verb": "get", "resource": "secrets", "namespace": r.Namespace},
			},
		}, &review)
		switch {
		case err != nil:
			return resource.Errorf(resource.Unavailable, "the API server does not say whether the user %q may get "+
				"Secrets (SubjectAccessReview): %v; try again", user.Username, err)
		case !review.Status.Allowed:
			return resource.Errorf(resource.Forbidden, "the user %q may not get the Secrets of the namespace %s; let "+
				"an administrator write it", user.Username, r.Namespace)
		}
		return nil
	}
}
