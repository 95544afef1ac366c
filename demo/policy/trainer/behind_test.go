package trainer

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/demo/policy"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/storage"
)

// ready is a batch of a step whose content is told by a letter.
func ready(step int64, letter string) events.BatchReady {
	digest := storage.Digest([]byte(fmt.Sprint(letter, step)))
	return events.BatchReady{Step: step, Groups: []string{}, Rollouts: []string{},
		Files: []storage.Ref{{Key: "b/" + digest, SHA256: digest, Size: 1}}}
}

// state appends a fact of the feed.
func state(t *testing.T, log *eventlog.Log, typ events.Type, ordinal string, data any) {
	t.Helper()
	e, err := events.New("r", typ, "main", ordinal, data)
	if err != nil {
		t.Fatal(err)
	}
	if e, _, err = log.BehindLast(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if _, _, err := log.Appender.Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

// TestCheckpointAheadOfLog: a restored log has lost steps that the checkpoint was trained
// on, and the plane may have filled them with new batches. The checkpoint goes back to the
// last batch that both have, and its version stays. A log that has all of them, or that
// sends them again, changes nothing.
func TestCheckpointAheadOfLog(t *testing.T) {
	for name, c := range map[string]struct {
		log  []string // letter for the batch of each step from 1 on
		want int64
	}{
		"whole":               {[]string{"a", "a", "a", "a"}, 4},
		"ahead of checkpoint": {[]string{"a", "a", "a", "a", "a", "a"}, 4},
		"two lost":            {[]string{"a", "a"}, 2},
		"one filled":          {[]string{"a", "a", "a", "b"}, 3},
		"filled beyond":       {[]string{"a", "a", "b", "b", "b"}, 2},
		"all filled":          {[]string{"b", "b", "b", "b"}, 0},
		"empty":               {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			log := natstest.Log(t)
			if err := log.Streams.EnsureRun(t.Context(), "r"); err != nil {
				t.Fatal(err)
			}
			for i, letter := range c.log {
				step := int64(i + 1)
				state(t, log, events.BatchReadyType, events.Ordinal(step), ready(step, letter))
				state(t, log, events.BatchConsumedType, events.Ordinal(step), events.BatchConsumed{Step: step})
			}
			cfg := Config{Log: log, Run: "r", Feed: "main", Policy: "p", Dir: t.TempDir(),
				Options: policy.DefaultOptions(), Logger: slog.New(slog.DiscardHandler)}
			tr, err := open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for step := range int64(4) {
				tr.checkpoint.trained(ready(step+1, "a"))
			}
			if err := tr.meetLog(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := tr.checkpoint; got.Step != c.want || got.Version != 4 || len(got.Batches) != int(c.want) {
				t.Errorf("checkpoint of step %d, version %d, with %d batches; want step %d, version 4", got.Step,
					got.Version, len(got.Batches), c.want)
			}
			if c.want == 4 {
				return
			}
			if tr, err = open(cfg); err != nil || tr.checkpoint.Step != c.want || tr.checkpoint.Version != 4 {
				t.Errorf("on the disk: step %d, version %d, %v", tr.checkpoint.Step, tr.checkpoint.Version, err)
			}
		})
	}
}

// TestCheckpointNamesTheLastBatches: the list of batches does not grow with the run.
func TestCheckpointNamesTheLastBatches(t *testing.T) {
	var c checkpoint
	for step := range int64(batchesKept + 5) {
		c.trained(ready(step+1, "a"))
	}
	if len(c.Batches) != batchesKept || c.Batches[0].Step != 6 || c.Step != batchesKept+5 ||
		!c.has(ready(1, "b")) || c.has(ready(6, "b")) {
		t.Errorf("step %d names %d batches from step %d", c.Step, len(c.Batches), c.Batches[0].Step)
	}
}

// TestNoImages: a sample with images is refused, since its tokens alone are not what the model saw.
func TestNoImages(t *testing.T) {
	batch := &storage.Batch{Samples: []storage.Sample{{Rollout: "g1-0", Tokens: []int32{1}},
		{Rollout: "g1-1", Tokens: []int32{2}}}}
	if samples, err := samplesOf(batch); err != nil || len(samples) != 2 || samples[1].Tokens[0] != 2 {
		t.Errorf("without images: %+v, %v", samples, err)
	}
	batch.Samples[1].Images = []storage.Image{{MediaType: "image/png"}}
	if _, err := samplesOf(batch); err == nil || !strings.Contains(err.Error(), "sample 0 of rollout g1-1 has images") {
		t.Errorf("with an image: %v", err)
	}
}
