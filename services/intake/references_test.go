package intake

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// watchedStore notes which objects are looked at.
type watchedStore struct {
	storage.Store
	mu   sync.Mutex
	keys []string
}

func (w *watchedStore) note(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys = append(w.keys, key)
}

func (w *watchedStore) Get(ctx context.Context, key string) ([]byte, error) {
	w.note(key)
	return w.Store.Get(ctx, key)
}

func (w *watchedStore) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	w.note(key)
	return w.Store.GetRange(ctx, key, offset, length)
}

func (w *watchedStore) Open(ctx context.Context, key string) (storage.Object, error) {
	w.note(key)
	return w.Store.Open(ctx, key)
}

func (w *watchedStore) Stat(ctx context.Context, key string) (storage.Info, error) {
	w.note(key)
	return w.Store.Stat(ctx, key)
}

func (w *watchedStore) Load(ctx context.Context, key string) ([]byte, string, error) {
	w.note(key)
	return w.Store.Load(ctx, key)
}

// TestForeignObjectsAreNotRead: a stranger names another one's objects in every statement that
// holds a reference, with sizes from one byte on and guessed digests. No answer tells anything:
// none of the objects is opened, and one that is there is answered as one that is not.
func TestForeignObjectsAreNotRead(t *testing.T) {
	house := house(t)
	watched := &watchedStore{Store: house.Store()}
	log, err := eventlog.New(house.Conn(), watched)
	if err != nil {
		t.Fatal(err)
	}
	start(t, log)
	o := outsider{t, log, "r"}
	o.must(events.GroupOpenedType, "x1", o.opened())
	for member := range 2 {
		o.must(events.RolloutStartedType, fmt.Sprintf("x1-%d", member), o.started(member))
	}
	done := o.finished("x1-1", nil)
	o.must(events.RolloutFinishedType, "x1-1", done)

	secret := []byte("a stranger's secret")
	there := []string{
		"weights/other/v000001/model-0123456789abcdef.safetensors", "weights/other/current",
		"runs/old/batches/trainer/000001-0123456789abcdef.arrow",
		"runs/old/trajectories/g000001-0-0123456789abcdef.arrow",
		"runs/r/batches/trainer/000001-0123456789abcdef.arrow", "runs/r/log/1.arrow",
		"runs/r/tools/answer", "index/some/page", "rondo-probe/x",
		storage.BlobKey(storage.Digest([]byte("another text"))),
		"runs/r/trajectories/g000001-0-0123456789abcdef.arrow",
	}
	for _, key := range there {
		if err := house.Store().Put(t.Context(), key, secret); err != nil {
			t.Fatal(err)
		}
	}
	states := map[string]func(ref storage.Ref) string{
		"log": func(ref storage.Ref) string {
			s := scored(done)
			s.Log = &ref
			return o.state(events.RolloutScoredType, "x1-1", s)
		},
		"judgement": func(ref storage.Ref) string {
			s := scored(done)
			s.Judgement = &ref
			return o.state(events.RolloutScoredType, "x1-1", s)
		},
		"workspace": func(ref storage.Ref) string {
			f := o.finished("x1-0", nil)
			f.Workspace = &ref
			return o.state(events.RolloutFinishedType, "x1-0", f)
		},
		"trajectory": func(ref storage.Ref) string {
			f := o.finished("x1-0", nil)
			f.Trajectory = ref
			return o.state(events.RolloutFinishedType, "x1-0", f)
		},
		"weights": func(ref storage.Ref) string {
			body := mustJSON(t, events.WeightsSubmitted{Version: 1, Run: "r",
				Files: []events.WeightsFile{{Name: "model.safetensors", Blob: ref}}})
			return send(t, log, submission{subject: "rondo.in._.weights.small.submitted", body: string(body)}).Error
		},
		"snapshot": func(ref storage.Ref) string {
			return send(t, log, submission{subject: "rondo.in.fresh.run.fresh.opened",
				body: openedBody(t, func(c *runfile.RunConfig) { c.Tasks[0].Snapshot = ref })}).Error
		},
		"body": func(ref storage.Ref) string {
			return send(t, log, submission{"rondo.in.r.rollout.g000001-0.annotated",
				map[string]string{events.HeaderDataRef: ref.Key}, string(mustJSON(t, ref))}).Error
		},
	}
	for name, state := range states {
		for _, key := range there {
			if name == "trajectory" && key == there[len(there)-1] {
				continue // a rollout's trajectory in the run's own folder is refused by its name, below
			}
			for size := int64(1); size <= 3; size++ {
				ask := func(key string) string {
					guess := storage.Ref{Key: key, SHA256: strings.Repeat("ab", 32), Size: size}
					refused := state(guess)
					if refused == "" {
						t.Fatalf("%s: %s is taken in", name, key)
					}
					return strings.ReplaceAll(refused, key, "KEY")
				}
				refused := ask(key)
				for _, n := range []int64{size, int64(len(secret))} {
					if strings.Contains(refused, storage.Digest(secret[:n])) {
						t.Errorf("%s: the answer holds the digest of %d bytes of %s: %s", name, n, key, refused)
					}
				}
				if absent := key[:len(key)-1] + "z"; ask(absent) != refused {
					t.Errorf("%s: %s is there, and answered otherwise than %s: %s", name, key, absent, refused)
				}
			}
		}
	}
	for _, key := range there {
		if slices.Contains(watched.keys, key) {
			t.Errorf("%s was opened", key)
		}
	}
	for _, e := range servicetest.All(t, house, events.Catalogue, events.DeadLetteredType) {
		for n := range secret {
			if strings.Contains(string(e.Data), storage.Digest(secret[:n+1])) {
				t.Errorf("the dead letter holds a digest: %s", e.Data)
			}
		}
	}
}

// TestOwnObjectsTellNothing: also within the sender's own prefixes an answer holds nothing of what
// was found: the object may have come there by another hand.
func TestOwnObjectsTellNothing(t *testing.T) {
	log := house(t)
	start(t, log)
	o := outsider{t, log, "r"}
	o.must(events.GroupOpenedType, "x1", o.opened())
	o.must(events.RolloutStartedType, "x1-0", o.started(0))
	const secret = "swordfish"
	finished := o.finished("x1-0", func(tr *storage.Trajectory) {
		tr.StopReason, tr.Messages[1].Content = secret,
			secret
	})
	finished.StopReason = "finished"
	if refused := o.state(events.RolloutFinishedType, "x1-0", finished); !strings.Contains(refused,
		"stop_reason finished") || strings.Contains(refused, secret) {
		t.Errorf("another stop reason: %q", refused)
	}
	for name, change := range map[string]func(*storage.Trajectory){
		"run_id":    func(tr *storage.Trajectory) { tr.Run = secret },
		"task":      func(tr *storage.Trajectory) { tr.Task = secret },
		"workspace": func(tr *storage.Trajectory) { tr.Messages[1].Workspace = "weights/" + secret },
	} {
		finished := o.finished("x1-0", change)
		finished.Task = "a"
		if refused := o.state(events.RolloutFinishedType, "x1-0", finished); !strings.Contains(refused, name) ||
			strings.Contains(refused, secret) {
			t.Errorf("%s: %q", name, refused)
		}
	}
	ref, err := storage.PutNamed(t.Context(), log.Store(), "runs/r/trajectories/x1-0", "arrow", []byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	// Another object was put into the place of the one that is named.
	if err := log.Store().Put(t.Context(), ref.Key, []byte("sword-fight, and more")); err != nil {
		t.Fatal(err)
	}
	finished = o.finished("x1-0", nil)
	finished.Trajectory = ref
	if refused := o.state(events.RolloutFinishedType, "x1-0", finished); !strings.Contains(refused, "no object") ||
		strings.Contains(refused, storage.Digest([]byte("sword-fig"))) {
		t.Errorf("another content: %q", refused)
	}
}

// TestReferencesAreReadAsTheyAreDecoded: spelling a reference's keys
// otherwise hides it from nobody.
func TestReferencesAreReadAsTheyAreDecoded(t *testing.T) {
	log := house(t)
	start(t, log)
	body, err := json.Marshal(events.WeightsSubmitted{Version: 1, Run: "r", Files: []events.WeightsFile{{
		Name: "model.safetensors", Blob: storage.Ref{Key: "weights/other/current",
			SHA256: strings.Repeat("ab", 32), Size: 1}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, spelt := range []string{`"REF"`, `"\u0072ef"`, `"ref":"blobs/x","ref"`} {
		text := strings.Replace(string(body), `"ref"`, spelt, 1)
		if answer := send(t, log, submission{subject: "rondo.in._.weights.small.submitted",
			body: text}); answer.Error == "" {
			t.Errorf("%s was taken in", text)
		}
	}
}
