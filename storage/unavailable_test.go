package storage_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/rondo-rl/rondo/storage"
)

// TestUnavailable: what is in the object, in the request, or in the reader that a store was
// given is not the store's.
func TestUnavailable(t *testing.T) {
	odd := errors.New("odd")
	_, source := io.ReadAll(storage.Exactly(t.Context(), io.MultiReader(strings.NewReader("ab"), iotest.ErrReader(odd)),
		5, 5))
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":              {nil, false},
		"an answer 503":        {odd, true},
		"a full disk":          {syscall.ENOSPC, true},
		"a broken line":        {io.ErrUnexpectedEOF, true},
		"the client's time":    {context.DeadlineExceeded, true},
		"not found":            {fmt.Errorf("get: %w", storage.ErrNotFound), false},
		"corrupt":              {storage.ErrCorrupt, false},
		"another was faster":   {storage.ErrConflict, false},
		"exists":               {storage.ErrExists, false},
		"a bad key":            {storage.ErrKey, false},
		"a range outside":      {storage.ErrRange, false},
		"too large":            {storage.ErrTooLarge, false},
		"not the size":         {storage.ErrSource, false},
		"a reader that failed": {fmt.Errorf("part 1: %w", source), false},
	} {
		err := storage.Unavailable(t.Context(), c.err)
		if got := errors.Is(err, storage.ErrUnavailable); got != c.want || !errors.Is(err, c.err) ||
			err != nil && err.Error() != c.err.Error() {
			t.Errorf("%s: %v: unavailable is %v", name, err, got)
		}
	}
	if !errors.Is(source, odd) {
		t.Errorf("the reader's error is %v", source)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := storage.Unavailable(ended, odd); errors.Is(err, storage.ErrUnavailable) {
		t.Error("who has gone away is told that the store is unavailable")
	}
}
