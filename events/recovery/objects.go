package recovery

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
)

// ObjectsFound is what a check of an archived run's objects found.
type ObjectsFound struct {
	Count int   `json:"objects"`
	Bytes int64 `json:"object_bytes"`
	// Findings name each object that is not what an event says, and that event.
	Findings []string `json:"findings"`
}

// readingObjects is how many objects are read at once: a store may be far away.
const readingObjects = 8

// VerifyObjects reads every object again that the events of an archived run refer to, each once,
// and compares digests: bodies that are too large for the log, what payloads name, and the files of
// published weights, which their manifests name. Segments that cannot be read are left to
// [eventlog.Archive.Verify]. The error is a store that cannot be asked. progress, if set, is told
// of each segment's last sequence.
func VerifyObjects(ctx context.Context, store storage.Store, run string, sealed []events.SegmentSealed,
	progress func(seq uint64)) (ObjectsFound, error) {
	c := &objectCheck{store: store, seen: map[[sha256.Size]byte]bool{}, found: ObjectsFound{Findings: []string{}}}
	for _, s := range sealed {
		segment, err := eventlog.ReadSegment(ctx, store, run, s)
		if wrong(err) {
			continue
		}
		for i := 0; err == nil && i < segment.Parts(); i++ {
			var records []storage.Record
			if records, err = segment.Part(i); err == nil {
				err = c.part(ctx, run, records)
			}
		}
		if err != nil && !wrong(err) {
			return c.found, fmt.Errorf("objects of run %s: %w", run, err)
		}
		if progress != nil {
			progress(s.Last)
		}
	}
	return c.found, nil
}

// verifyTail is VerifyObjects of what a stream holds from a sequence on.
func verifyTail(ctx context.Context, log eventlog.Archive, run string, from uint64) (ObjectsFound, error) {
	c := &objectCheck{store: log.Store(), seen: map[[sha256.Size]byte]bool{}, found: ObjectsFound{Findings: []string{}}}
	err := log.Records(ctx, run, from, func(r storage.Record) error { return c.part(ctx, run, []storage.Record{r}) })
	return c.found, err
}

// objectCheck is a check at work. What it has seen takes 32 bytes for each object.
type objectCheck struct {
	store storage.Store
	mu    sync.Mutex
	seen  map[[sha256.Size]byte]bool
	found ObjectsFound
}

// finding is one that is put in order before it is told.
type finding struct {
	seq  int64
	text string
}

func (c *objectCheck) part(ctx context.Context, run string, records []storage.Record) error {
	var mu sync.Mutex
	var all []finding
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readingObjects)
	for _, r := range records {
		group.Go(func() error {
			texts, err := c.record(ctx, r)
			mu.Lock()
			defer mu.Unlock()
			for _, text := range texts {
				all = append(all, finding{r.Sequence, fmt.Sprintf("run %s: sequence %d: %s: %s", run,
					r.Sequence, r.ID, text)})
			}
			return err
		})
	}
	err := group.Wait()
	slices.SortStableFunc(all, func(a, b finding) int { return int(a.seq - b.seq) })
	for _, f := range all {
		c.found.Findings = append(c.found.Findings, f.text)
	}
	return err
}

// record checks what one event refers to.
func (c *objectCheck) record(ctx context.Context, r storage.Record) (findings []string, err error) {
	payload := r.Data
	if len(r.Header[events.HeaderDataRef]) > 0 {
		var body storage.Ref
		if err := json.Unmarshal(r.Data, &body); err != nil {
			return []string{fmt.Sprintf("body reference: %v", err)}, nil
		}
		if payload, err = c.read(ctx, body); err != nil {
			return broken(err)
		}
	}
	document, err := events.Document(payload)
	if err != nil {
		return []string{err.Error()}, nil
	}
	refs, err := storage.References(document)
	if err != nil {
		return nil, nil // no event of ours; the segment's digest vouches for its bytes
	}
	for _, ref := range refs {
		content, err := c.once(ctx, ref)
		if err == nil && content != nil && r.Type == string(events.WeightsPublishedType) {
			err = c.manifest(ctx, content)
		}
		texts, err := broken(err)
		if err != nil {
			return findings, err
		}
		findings = append(findings, texts...)
	}
	return findings, nil
}

// manifest checks the files of a set of weights.
func (c *objectCheck) manifest(ctx context.Context, content []byte) error {
	files, err := storage.References(content)
	if err != nil {
		return fmt.Errorf("manifest: %w: %w", storage.ErrCorrupt, err)
	}
	for _, file := range files {
		if _, err := c.once(ctx, file); err != nil {
			return err
		}
	}
	return nil
}

// wrong says that an object is not what it should be, as opposed to a store that fails.
func wrong(err error) bool { return errors.Is(err, eventlog.ErrBroken) || storage.IsUnusable(err) }

// broken turns what is wrong with an object into a finding.
func broken(err error) ([]string, error) {
	if wrong(err) {
		return []string{err.Error()}, nil
	}
	return nil, err
}

// once reads an object, unless it was read before: nil content.
func (c *objectCheck) once(ctx context.Context, ref storage.Ref) ([]byte, error) {
	id := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", ref.Key, ref.SHA256, ref.Size))
	c.mu.Lock()
	seen := c.seen[id]
	c.seen[id] = true
	c.mu.Unlock()
	if seen {
		return nil, nil
	}
	return c.read(ctx, ref)
}

func (c *objectCheck) read(ctx context.Context, ref storage.Ref) ([]byte, error) {
	content, err := storage.GetBlob(ctx, c.store, ref)
	if err != nil && !wrong(err) {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found.Count++
	c.found.Bytes += int64(len(content))
	return content, err
}
