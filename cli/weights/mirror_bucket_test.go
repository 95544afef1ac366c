package weights

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/pipeline/presence"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/open"
	"github.com/rondo-rl/rondo/storage/storagetest"
	"github.com/rondo-rl/rondo/weights"
)

// lines is what a command has printed so far.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestMirrorFollowsIntoABucket: a mirror in S3 takes each version as it is published, goes on after
// it was stopped, and a side-car reads from it.
func TestMirrorFollowsIntoABucket(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", storagetest.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", storagetest.SecretKey)
	to := "s3://london?create=true&region=us-east-1&endpoint=" + storagetest.S3Dev(t)
	r := clitest.NewRecorded(t)
	follow := func() (said *lines, stop func()) {
		ctx, end := context.WithCancel(t.Context())
		ended, said := make(chan error, 1), &lines{}
		go func() {
			root := app.New(New)
			root.SetArgs([]string{"weights", "mirror", "small", "--to", to, "--dir", r.Dir, "--follow", "--json", "-q"})
			root.SetOut(said)
			ended <- root.ExecuteContext(ctx)
		}()
		return said, func() {
			end()
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("interrupted: %v", err)
			}
		}
	}
	mirrored := func(said *lines, version int64) {
		t.Helper()
		natstest.Eventually(t, fmt.Sprint("mirrored version ", version),
			func() bool { return strings.Contains(said.String(), fmt.Sprintf(`"version":%d,`, version)) })
	}
	publish(t, r, 1)
	var heard atomic.Pointer[presence.Mirror]
	deaf, err := presence.Hear(r.Log.Conn(), func(report presence.Report) {
		if report.Mirror != nil {
			heard.Store(report.Mirror)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer deaf()
	said, stop := follow()
	for version := int64(1); version <= 3; version++ {
		if version > 1 {
			publish(t, r, version)
		}
		mirrored(said, version)
	}
	natstest.Eventually(t, "the mirror says how far it is", func() bool {
		m := heard.Load()
		return m != nil && *m == presence.Mirror{Policy: "small", Region: "london", Current: 3}
	})
	stop()
	publish(t, r, 4)
	publish(t, r, 5)
	said, stop = follow()
	mirrored(said, 5)
	stop()
	store, err := open.Open(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, version := range []int64{1, 2, 3, 5} {
		manifest, err := weights.FetchManifest(t.Context(), store, "small", version)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range manifest.Files {
			if err := storage.VerifyBlob(t.Context(), store, file.Ref); err != nil {
				t.Errorf("version %d: %v", version, err)
			}
		}
	}
	if current, _, err := weights.Current(t.Context(), store, "small"); err != nil || current != 5 {
		t.Errorf("the mirror is at version %d: %v", current, err)
	}
	if output, err := clitest.Run(t, New, "weights", "fetch", "small", "--dir", r.Dir, "--to", t.TempDir(),
		"--from", to); err != nil || !strings.Contains(output, "of them nearby") {
		t.Errorf("a side-car beside it: %v\n%s", err, output)
	}
}
