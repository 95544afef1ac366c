package storage

import (
	"context"
	"errors"
)

// ErrUnavailable means that the store did not do what it was asked for, and that neither the object nor the request is to blame: the server is
// away, overloaded or refuses everybody, or the disk is full or broken. The same call may succeed later.
var ErrUnavailable = errors.New("the object store is unavailable")

// kinds are the failures that are in the object or in the request.
var kinds = []error{ErrNotFound, ErrExists, ErrConflict, ErrKey, ErrRange, ErrTooLarge, ErrCorrupt, ErrSource}

// Unavailable marks an error of an implementation as ErrUnavailable, unless it is of one of the other kinds, the caller's context has ended, or the
// reader failed that the implementation was given. The text stays the same. It is for those who implement Store.
func Unavailable(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			return err
		}
	}
	var source *sourceError
	if errors.As(err, &source) {
		return err
	}
	return unavailable{err}
}

type unavailable struct{ error }

func (u unavailable) Unwrap() error        { return u.error }
func (u unavailable) Is(target error) bool { return target == ErrUnavailable }

// sourceError is an error of the reader that Exactly reads.
type sourceError struct{ error }

func (s *sourceError) Unwrap() error { return s.error }
