// Package mirror copies a policy's versions into the store of another region.
//
// A version's delta and files come first, under the keys of the origin, each verified
// while it streams; then the manifest, byte for byte, and the pointer. So a reader there
// never sees a version of which a file is missing, and a mirror that is killed goes on at
// the file that it was at.
package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
)

// copiers copy files at once. A store takes up to 64 MiB for each that it writes.
const copiers = 3

// Mirror copies versions of one policy from one store to another. Several may do so at once.
type Mirror struct {
	From, To storage.Store
	Policy   string
	// Told, which may be nil, is told how many of the bytes that a version lacks are there.
	// Several goroutines call it.
	Told func(version, done, total int64)
}

// Copied says what was done for a version.
type Copied struct {
	Version int64 `json:"version"`
	Bytes   int64 `json:"bytes"`  // of its files and its delta
	Copied  int64 `json:"copied"` // of these bytes; the others were there
	Current int64 `json:"current"`
}

// Version copies a version. What is there with its size is not copied again, and a version that is
// there is looked through for what it lacks. storage.ErrNotFound where the origin has no such
// version, storage.ErrCorrupt where its bytes are not those of the manifest: these are not written.
func (m *Mirror) Version(ctx context.Context, version int64) (Copied, error) {
	copied, err := m.version(ctx, version)
	if err != nil {
		return copied, fmt.Errorf("mirror policy %s, version %d: %w", m.Policy, version, err)
	}
	return copied, nil
}

func (m *Mirror) version(ctx context.Context, version int64) (Copied, error) {
	copied := Copied{Version: version}
	manifest, data, err := weights.ReadManifest(ctx, m.From, m.Policy, version)
	if err == nil {
		err = weights.CheckWhole(ctx, m.From, m.Policy, version)
	}
	if err != nil {
		return copied, err
	}
	d, err := weights.FetchDelta(ctx, m.From, m.Policy, version)
	if err != nil && !storage.IsUnusable(err) { // a version is whole without its delta
		return copied, err
	}
	if d != nil { // before the files: followers of the version before need no more
		n, err := m.copyAll(ctx, version, []storage.Ref{d.Ref})
		copied.Copied += n
		if storage.IsUnusable(err) {
			d = nil
		} else if err != nil {
			return copied, err
		} else {
			copied.Bytes += d.Size
		}
	}
	var files []storage.Ref
	for _, file := range manifest.Files {
		copied.Bytes += file.Size
		if !slices.Contains(files, file.Ref) {
			files = append(files, file.Ref)
		}
	}
	n, err := m.copyAll(ctx, version, files)
	if copied.Copied += n; err != nil {
		return copied, err
	}
	if d != nil {
		if err := m.describe(ctx, version); err != nil {
			return copied, err
		}
	}
	copied.Current, err = weights.Reveal(ctx, m.To, m.Policy, version, data)
	return copied, err
}

// missing are the objects that are not there with their sizes. One of another size is what a store
// that lost power has left.
func (m *Mirror) missing(ctx context.Context, refs []storage.Ref) (missing []storage.Ref, err error) {
	for _, ref := range refs {
		info, err := m.To.Stat(ctx, ref.Key)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return nil, err
		}
		if err != nil || info.Size != ref.Size {
			missing = append(missing, ref)
		}
	}
	return missing, nil
}

// copyAll copies the objects that are missing, a few at once, in their order.
func (m *Mirror) copyAll(ctx context.Context, version int64, all []storage.Ref) (int64, error) {
	refs, err := m.missing(ctx, all)
	if err != nil {
		return 0, err
	}
	total, done := int64(0), atomic.Int64{}
	for _, ref := range refs {
		total += ref.Size
	}
	add := func(n int) {
		if now := done.Add(int64(n)); m.Told != nil {
			m.Told(version, now, total)
		}
	}
	copying, ctx := errgroup.WithContext(ctx)
	copying.SetLimit(copiers)
	for _, ref := range refs {
		copying.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return m.copy(ctx, ref, add)
		})
	}
	err = copying.Wait()
	return done.Load(), err
}

// copy copies an object in pieces. Where its bytes are others the reader
// fails, and nothing is written.
func (m *Mirror) copy(ctx context.Context, ref storage.Ref, add func(int)) (err error) {
	from, err := storage.ReadBlob(ctx, m.From, ref)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	return m.To.PutReader(ctx, ref.Key, &progress{from, add}, ref.Size)
}

// progress tells of what is read.
type progress struct {
	io.Reader
	add func(int)
}

func (t *progress) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	t.add(n)
	return n, err
}

// describe copies what describes the version's delta, which is written once.
func (m *Mirror) describe(ctx context.Context, version int64) error {
	key := weights.DeltaKey(m.Policy, version)
	data, _, err := m.From.Load(ctx, key)
	if err != nil {
		return err
	}
	err = m.To.PutIfAbsent(ctx, key, data)
	if !errors.Is(err, storage.ErrExists) {
		return err
	}
	present, _, loadErr := m.To.Load(ctx, key)
	if loadErr != nil {
		return loadErr
	}
	if !bytes.Equal(present, data) {
		return fmt.Errorf("%s describes another delta there: %w", key, err)
	}
	return nil
}

// Lag is how far a mirror is behind.
type Lag struct {
	Current  int64   `json:"current"`  // at the mirror; -1: it has no version
	Newest   int64   `json:"newest"`   // at the origin
	Versions int     `json:"versions"` // published behind the mirror's current one
	Seconds  float64 `json:"seconds"`  // since the first of them was published
}

// LagOf tells how far the store to is behind from at a moment.
func LagOf(ctx context.Context, from, to storage.Store, policy string, now time.Time) (lag Lag, err error) {
	if lag.Newest, _, err = weights.Current(ctx, from, policy); err != nil {
		return lag, err
	}
	lag.Current, _, err = weights.Current(ctx, to, policy)
	if errors.Is(err, storage.ErrNotFound) {
		lag.Current, err = -1, nil
	}
	if err != nil || lag.Current >= lag.Newest {
		return lag, err
	}
	published, err := weights.Versions(ctx, from, policy)
	if err != nil {
		return lag, err
	}
	for _, v := range published {
		if v.Version <= lag.Current || v.Version > lag.Newest {
			continue
		}
		if lag.Versions++; lag.Versions == 1 {
			lag.Seconds = max(0, now.Sub(v.Manifest.Modified).Seconds())
		}
	}
	return lag, nil
}

// Newest are the newest versions of the origin, at most so many, the oldest first: in this order
// the mirror's pointer never skips one that is still to come.
func (m *Mirror) Newest(ctx context.Context, most int) (versions []int64, err error) {
	current, _, err := weights.Current(ctx, m.From, m.Policy)
	if err != nil {
		return nil, err
	}
	published, err := weights.Versions(ctx, m.From, m.Policy)
	if err != nil {
		return nil, err
	}
	for _, v := range published {
		if v.Version <= current && v.Collected.IsZero() { // one above is not whole yet
			versions = append(versions, v.Version)
		}
	}
	return versions[max(0, len(versions)-most):], nil
}
