package storage_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

func TestUnusableIsOnlyWhatLiesInTheObject(t *testing.T) {
	for err, want := range map[error]bool{
		storage.ErrNotFound: true, storage.ErrCorrupt: true, storage.ErrKey: true, storage.ErrTooLarge: true,
		storage.ErrExists: false, storage.ErrConflict: false, storage.ErrRange: false,
		context.DeadlineExceeded: false, // the store did not answer
	} {
		t.Run(err.Error(), func(t *testing.T) {
			if got := storage.IsUnusable(fmt.Errorf("read blob: %w", err)); got != want {
				t.Errorf("IsUnusable is %v, want %v", got, want)
			}
		})
	}
	if storage.IsUnusable(nil) {
		t.Error("no error is taken for an unusable object")
	}
}
