package gc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	dirstore "github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/storage/s3"
	"github.com/rondo-rl/rondo/storage/storagetest"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// lab is a plane whose policy p gets versions.
type lab struct {
	*testing.T
	log   *eventlog.Log
	store *dying
	dir   string // of the objects; "" for a bucket
	last  int64
}

// dying is a store whose process may be killed before one of its writes.
type dying struct {
	storage.Store
	left    int // writes until it dies; negative: it does not
	written func(key string)
}

var errDead = errors.New("killed")

func (d *dying) write(key string) error {
	if d.left == 0 {
		return errDead
	}
	d.left--
	if d.written != nil {
		d.written(key)
	}
	return nil
}

func (d *dying) Delete(ctx context.Context, key string) error {
	if err := d.write(key); err != nil {
		return err
	}
	return d.Store.Delete(ctx, key)
}

func (d *dying) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	if err := d.write(key); err != nil {
		return err
	}
	return d.Store.PutIfAbsent(ctx, key, data)
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	store, err := dirstore.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return newLabIn(t, store, dir)
}

func newLabIn(t *testing.T, store storage.Store, dir string) *lab {
	t.Helper()
	l := &lab{T: t, store: &dying{Store: store, left: -1}, dir: dir}
	var err error
	if l.log, err = eventlog.New(natstest.Log(t).Conn(), l.store); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lab) state(run string, typ events.Type, entity, ordinal string, data any) events.Event {
	l.Helper()
	return servicetest.Append(l.T, l.log, servicetest.Event(l.T, run, typ, entity, ordinal, data))
}

// file is the file of a model with a number, which holds one tensor, with some content.
func (l *lab) file(number int, content string) []byte {
	l.Helper()
	values := make([]float32, len(content))
	for i := range values {
		values[i] = float32(content[i])
	}
	var file bytes.Buffer
	if err := safetensors.Write(&file, []safetensors.Data{safetensors.NewF32(fmt.Sprint("w", number),
		[]int64{int64(len(values))}, values)}, nil); err != nil {
		l.Fatal(err)
	}
	return file.Bytes()
}

// publish publishes the next version, of a file for each content.
func (l *lab) publish(run string, contents ...string) int64 {
	l.Helper()
	l.last++
	var files []weights.Content
	for i, content := range contents {
		files = append(files, weights.Content{Name: fmt.Sprintf("model-%d.safetensors", i), Data: l.file(i, content)})
	}
	published, err := weights.Publish(l.Context(), l.store.Store, "p", l.last, files...)
	if err != nil {
		l.Fatal(err)
	}
	fact := events.WeightsPublished{Policy: "p", Version: l.last, Run: run, ThroughStep: l.last,
		Manifest: published.Ref}
	l.state(events.Catalogue, events.WeightsPublishedType, "p", events.Ordinal(l.last), fact)
	return l.last
}

// tell tells a run of the last version.
func (l *lab) tell(run string) {
	l.Helper()
	l.state(run, events.WeightsPublishedType, "p", events.Ordinal(l.last),
		events.WeightsPublished{Policy: "p", Version: l.last, Run: "other", Manifest: storage.Ref{}})
}

func (l *lab) open(run string, change func(*runfile.RunConfig)) {
	l.Helper()
	cfg := servicetest.Config("a")
	cfg.Policy, cfg.Staleness.Max = "p", 1
	change(&cfg)
	servicetest.OpenRun(l.T, l.log, run, cfg)
}

// age makes all objects two days old.
func (l *lab) age() {
	l.Helper()
	before := time.Now().Add(-48 * time.Hour)
	for info, err := range l.store.List(l.Context(), "") {
		if err == nil {
			err = os.Chtimes(filepath.Join(l.dir, info.Key), before, before)
		}
		if err != nil {
			l.Fatal(err)
		}
	}
}

// retention keeps so many versions, and of the others those of the last day.
func retention(keep int) WeightRetention {
	yesterday := time.Now().Add(-24 * time.Hour)
	return WeightRetention{ReplacedBefore: yesterday, Keep: keep, Cutoff: yesterday}
}

func (l *lab) collect(keep int, remove bool) WeightsReport {
	l.Helper()
	r, err := CollectWeights(l.Context(), l.log.Archive, "p", retention(keep), remove)
	if err != nil {
		l.Fatal(err)
	}
	return r
}

// whole are the versions that can be fetched. Any other one must be said to be collected.
func (l *lab) whole() (versions []int64) {
	l.Helper()
	for version := int64(1); version <= l.last; version++ {
		_, _, err := weights.Fetch(l.Context(), l.store.Store, "p", version)
		switch {
		case err == nil:
			versions = append(versions, version)
		case !errors.Is(err, weights.ErrCollected):
			l.Errorf("version %d: %v", version, err)
		}
	}
	return versions
}

func (l *lab) count(prefix string) (n int) {
	l.Helper()
	for _, err := range l.store.List(l.Context(), prefix) {
		if err != nil {
			l.Fatal(err)
		}
		n++
	}
	return n
}

// TestCollectWeights: of old versions those go that nobody can need, with the files
// that no other version names.
func TestCollectWeights(t *testing.T) {
	up := func(n int64) (all []int64) {
		for v := n; v <= 10; v++ {
			all = append(all, v)
		}
		return all
	}
	for name, c := range map[string]struct {
		prepare func(l *lab)
		keep    int
		want    []int64
	}{
		"keep":  {func(*lab) {}, 3, up(8)},
		"least": {func(*lab) {}, 0, up(9)},
		"more":  {func(*lab) {}, 30, up(1)},
		"young": {func(l *lab) {
			l.publish("r", "new", "shared")
			l.publish("r", "new", "shared")
			l.last -= 2
		}, 2, up(10)},
		"replica": {func(l *lab) {
			l.state(events.Catalogue, events.WeightsActivatedType, "p",
				"a", events.WeightsActivated{Version: 4, Replica: "e"})
		}, 2, append([]int64{4}, up(9)...)},
		"lost": {func(l *lab) {
			l.state(events.Catalogue, events.WeightsActivatedType, "p",
				"a", events.WeightsActivated{Version: 4, Replica: "e", Lost: true})
		}, 2, up(9)},
		"open run": {func(l *lab) { l.open("o", func(c *runfile.RunConfig) { c.Staleness.Max = 4 }); l.tell("o") }, 2,
			up(6)},
		"new run": {func(l *lab) { l.open("o", func(*runfile.RunConfig) {}) }, 2, up(1)},
		"closed run": {func(l *lab) {
			l.open("o", func(*runfile.RunConfig) {})
			servicetest.CloseRun(l.T, l.log, "o")
		}, 2, up(9)},
		"other policy": {func(l *lab) { l.open("o", func(c *runfile.RunConfig) { c.Policy = "q" }) }, 2, up(9)},
		"pinned": {func(l *lab) {
			three := int64(3)
			l.open("o", func(c *runfile.RunConfig) { c.PolicyVersion = &three })
		}, 2, append([]int64{3}, up(9)...)},
		"promoted": {func(l *lab) {
			l.state(events.Catalogue, events.WeightsPromotedType, "p",
				"a", events.WeightsPromoted{Version: 5, Share: 0.5, Before: 3})
		}, 2, append([]int64{3, 5}, up(9)...)},
		"no longer promoted": {func(l *lab) {
			l.state(events.Catalogue, events.WeightsPromotedType, "p", "a", events.WeightsPromoted{Version: 5})
			l.state(events.Catalogue, events.WeightsPromotedType, "p", "b", events.WeightsPromoted{RolledBack: 5})
		}, 2, up(9)},
		"checkpoint": {func(l *lab) {
			l.open("r", func(*runfile.RunConfig) {})
			l.tell("r")
			l.state("r", events.BatchCheckpointedType, "trainer", "5", events.BatchCheckpointed{Step: 5})
		}, 2, up(5)},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			for v := range int64(10) {
				l.publish("r", fmt.Sprint("content ", v), "shared")
			}
			l.age()
			c.prepare(l)
			if dry := l.collect(c.keep, false); dry.Deleted != 0 || !slices.Equal(l.whole(), up(1)) {
				t.Fatalf("a dry run: %+v", dry)
			}
			l.collect(c.keep, true)
			if got := l.whole(); !slices.Equal(got, c.want) {
				t.Errorf("%v are left, want %v", got, c.want)
			}
			extra := 0
			if name == "young" {
				extra = 1
			}
			if files := l.count("weights/p/files/"); files != len(c.want)+1+extra {
				t.Errorf("%d files are left of %d versions that share one", files, len(c.want))
			}
			if again := l.collect(c.keep, true); again.Objects != 0 || again.Deleted != 0 {
				t.Errorf("a second run finds %+v", again)
			}
		})
	}
}

// TestCollectWeightsBesidePublishers: a file that is uploaded, submitted or published while
// versions are collected stays.
func TestCollectWeightsBesidePublishers(t *testing.T) {
	l := newLab(t)
	for v := range 6 {
		l.publish("r", fmt.Sprint("content ", v), fmt.Sprint("other ", v))
	}
	l.age()
	submitted := func(version int64, number int, content string) events.WeightsSubmitted {
		data := l.file(number, content)
		ref := storage.Ref{Key: weights.FileKey("p", storage.Digest(data)),
			SHA256: storage.Digest(data), Size: int64(len(data))}
		return events.WeightsSubmitted{Version: version, Run: "r",
			Files: []events.WeightsFile{{Name: "model.safetensors", Blob: ref}}}
	}
	pending := submitted(9, 0, "content 0") // long ago, and nobody has answered
	l.state(events.Catalogue, events.WeightsSubmittedType, "p", "9", pending)
	rejected := submitted(3, 0, "content 1")
	at := l.state(events.Catalogue, events.WeightsSubmittedType, "p", "3", rejected)
	l.state(events.Catalogue, events.WeightsRejectedType, "p", fmt.Sprintf("submission-%d", at.Seq),
		events.WeightsRejected{Version: 3})
	queued := submitted(10, 1, "other 0") // and not taken in
	offering, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		_, _ = l.log.Submitter.Submit(offering, eventlog.Submission{Run: events.Catalogue,
			Type: events.WeightsSubmittedType, Entity: "p", Data: queued, ID: "q"})
	}()
	natstest.Eventually(t, "the submission waits", func() bool {
		waits := false
		err := l.log.Archive.ReachSubmissions(t.Context(), func(string) error { waits = true; return nil })
		return err == nil && waits
	})
	again := false
	l.store.written = func(key string) {
		if strings.HasSuffix(key, "collected.json") && !again {
			again = true
			l.publish("r", "content 2", "new") // a file of an old version, uploaded again
		}
	}
	l.collect(2, true)
	for _, s := range []events.WeightsSubmitted{pending, queued} {
		if _, err := l.store.Stat(t.Context(), s.Files[0].Blob.Key); err != nil {
			t.Errorf("a file of the submission of version %d: %v", s.Version, err)
		}
	}
	if _, err := l.store.Stat(t.Context(), rejected.Files[0].Blob.Key); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a file of a rejected submission, which no version names any more: %v", err)
	}
	if got := l.whole(); !again || !slices.Equal(got, []int64{5, 6, 7}) {
		t.Errorf("%v are left", got)
	}
}

// TestCollectWeightsKilled: over random histories, collectors that are killed before any of their
// writes leave every version whole or collected, and delete nothing that a version needs that
// stays; the next one finishes.
func TestCollectWeightsKilled(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			l := newLab(t)
			for range 4 + rng.IntN(6) {
				var contents []string
				for i := range 1 + rng.IntN(3) {
					contents = append(contents, fmt.Sprint("content ", i, rng.IntN(5)))
				}
				l.publish("r", contents...)
			}
			prefix, _ := weights.VersionObjects("p", 1)
			for _, name := range []string{"delta.json", "from-v000000.delta"} {
				if err := l.store.Put(t.Context(), prefix+name, []byte("{}")); err != nil {
					t.Fatal(err)
				}
			}
			l.age()
			keep := 2 + rng.IntN(2)
			dry := l.collect(keep, false)
			for dies := 0; ; dies++ {
				l.store.left = dies % 3
				_, err := CollectWeights(t.Context(), l.log.Archive, "p", retention(keep), true)
				l.store.left = -1
				left := l.whole()
				if kept := left[max(0, len(left)-keep):]; len(kept) != keep || kept[0] != l.last-int64(keep)+1 {
					t.Fatalf("%v are left, want at least the last %d of %d", left, keep, l.last)
				}
				if err == nil {
					break
				}
				if !errors.Is(err, errDead) || dies > 200 {
					t.Fatalf("after %d kills: %v", dies, err)
				}
			}
			if got := l.whole(); len(got) != keep {
				t.Errorf("%v are left, want %d", got, keep)
			}
			if end := l.collect(keep, false); end.Objects != 0 || int(l.last)-keep != len(dry.Versions) {
				t.Errorf("at first %+v, in the end %+v", dry, end)
			}
			if n := l.count(prefix); n != 2 {
				t.Errorf("%d objects of version 1 are left, want its manifest and that it is collected", n)
			}
		})
	}
}

// TestCollectWeightsLeavesDeltasOfTrainers: a delta that a trainer made lies among the files. It
// stays as long as its version, also while its submission has no answer.
func TestCollectWeightsLeavesDeltasOfTrainers(t *testing.T) {
	l := newLab(t)
	upload := func(content string) storage.Ref {
		t.Helper()
		ref, err := weights.Upload(t.Context(), l.store.Store, "p", strings.NewReader(content), int64(len(content)))
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	l.publish("r", "a content of some length 1")
	var deltas []storage.Ref
	for version := int64(2); version <= 5; version++ {
		ref := upload(fmt.Sprint("a delta to ", version))
		model := l.file(0, fmt.Sprint("a content of some length ", version))
		file := weights.File{Name: "model.safetensors", Ref: upload(string(model))}
		published, err := weights.PublishFrom(t.Context(), l.store.Store, "p", version, []weights.File{file},
			&weights.MadeDelta{Base: version - 1, Ref: ref})
		if err != nil || published.Delta == nil || published.Delta.Ref != ref {
			t.Fatalf("%+v, %v", published, err)
		}
		l.last = version
		l.state(events.Catalogue, events.WeightsPublishedType, "p", events.Ordinal(version),
			events.WeightsPublished{Policy: "p", Version: version, Manifest: published.Ref})
		deltas = append(deltas, ref)
	}
	waits := upload("a delta whose submission waits")
	pending := events.WeightsSubmitted{Version: 9, Run: "r", Delta: &events.WeightsDelta{Base: 5, Blob: waits}}
	l.state(events.Catalogue, events.WeightsSubmittedType, "p", "9", pending)
	l.age()
	l.collect(2, true)
	if got := l.whole(); !slices.Equal(got, []int64{4, 5}) {
		t.Fatalf("%v are left", got)
	}
	for i, ref := range append(deltas, waits) {
		if _, err := l.store.Stat(t.Context(), ref.Key); (err == nil) != (i >= 2) {
			t.Errorf("delta %d: %v", i, err)
		}
	}
}

// TestCollectWeightsInABucket does the same in S3.
func TestCollectWeightsInABucket(t *testing.T) {
	store, err := s3.Open(t.Context(), s3.Config{Endpoint: storagetest.S3Dev(t), Bucket: "weights",
		AccessKey: storagetest.AccessKey, SecretKey: storagetest.SecretKey, CreateBucket: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	l := newLabIn(t, store, "")
	for v := range 5 {
		l.publish("r", fmt.Sprint("content ", v), "shared")
	}
	later := time.Now().Add(time.Hour) // by which everything is old
	r, err := CollectWeights(t.Context(), l.log.Archive,
		"p", WeightRetention{ReplacedBefore: later, Keep: 2, Cutoff: later}, true)
	if err != nil || r.Deleted != 3 || len(r.Versions) != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	if got := l.whole(); !slices.Equal(got, []int64{4, 5}) || l.count("weights/p/files/") != 3 {
		t.Errorf("%v are left", got)
	}
}
