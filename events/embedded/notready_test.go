package embedded

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestNotReady: a server that does not get ready says whether its disk is
// full, broken, slow or well.
func TestNotReady(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		fails error
		want  string
	}{
		"full":  {0, syscall.ENOSPC, "within 2m0s, and a write to its disk fails: no space left on device"},
		"slow":  {3 * time.Second, nil, "Its disk has room, and took a write in 3s"},
		"hangs": {time.Minute, nil, "Its disk hangs or is very slow, and need not be full"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := notReady(startTimeout, func() error { time.Sleep(c.takes); return c.fails })
				if !strings.Contains(err.Error(), c.want) || c.fails != nil && !errors.Is(err, c.fails) {
					t.Errorf("%v, want %q", err, c.want)
				}
				time.Sleep(c.takes) // until the write has ended
				synctest.Wait()
			})
		})
	}
	if err := tryWrite(t.TempDir()); err != nil {
		t.Error(err)
	}
}
