package kube

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft/internal/kube/api"
	"weft/internal/store"
	"weft/resource"
)

// Reasons for which the API server rejects a write, for errors.Is.
var (
	// ErrQuota is the error of a namespace whose ResourceQuota is used up.
	ErrQuota = errors.New("kube: the quota of the namespace is used up")
	// ErrTerminating is the error of a namespace that is being deleted.
	ErrTerminating = errors.New("kube: the namespace is being deleted")
	// ErrNoNamespace is the error of a namespace that does not exist.
	ErrNoNamespace = errors.New("kube: the namespace does not exist")
	// ErrForbidden is the error of a write that the control plane's roles do not allow.
	ErrForbidden = errors.New("kube: the control plane may not do this")
	// ErrInvalid is the error of a write that a definition or a webhook rejects.
	ErrInvalid = errors.New("kube: the API server rejects the object")
)

// namespaceTerminating is the cause of a rejected creation in a namespace that is being deleted.
const namespaceTerminating = "NamespaceTerminating"

// unlessConflict returns the store's error for an error of a write. A conflict stays as it is: the write is repeated.
func unlessConflict(err error) error {
	if apierrors.IsConflict(err) {
		return err
	}
	return failure(err, true)
}

// failure returns the store's error for an error of a request.
func failure(err error, write bool) error {
	status, responded := api.Status(err)
	var known *resource.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known), errors.Is(err, store.ErrUnavailable), errors.Is(err, ErrNoNamespace),
		store.IsRejection(err):
		return err
	case !responded:
		return unreachable(err, write)
	case status.Code == http.StatusNotFound && status.Details != nil && status.Details.Kind == "namespaces" && write:
		return rejected(resource.NotFound, ErrNoNamespace, status)
	case status.Code == http.StatusNotFound:
		return store.ErrNotFound
	case api.IsExpired(err):
		return store.ErrTooOld
	case status.Code == http.StatusForbidden && apierrors.HasStatusCause(err, namespaceTerminating):
		return rejected(resource.Conflict, ErrTerminating, status)
	case status.Code == http.StatusForbidden && strings.Contains(status.Message, "exceeded quota"):
		return rejected(resource.Forbidden, ErrQuota, status)
	case status.Code == http.StatusForbidden, status.Code == http.StatusUnauthorized:
		return rejected(resource.Unavailable, ErrForbidden, status)
	case status.Code == http.StatusRequestEntityTooLarge, status.Code >= 400 && status.Code < 429:
		return rejected(resource.Invalid, ErrInvalid, status)
	case write:
		return fmt.Errorf("%w: %w", store.ErrUncertain, err)
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// unreachable returns the error of a request without a response. A write may have happened unless no connection was
// made.
func unreachable(err error, write bool) error {
	if write && !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w: %w", store.ErrUncertain, err)
	}
	return fmt.Errorf("%w: %w", store.ErrUnreachable, err)
}

// rejected returns the API server's reasons as an error for users.
func rejected(code resource.Code, reason error, status metav1.Status) error {
	e := &resource.Error{Code: code, Detail: status.Message, Cause: reason}
	if status.Details != nil {
		for _, c := range status.Details.Causes {
			if c.Field != "" {
				e.Problems.Add(c.Field, "%s", c.Message)
			}
		}
	}
	return e
}
