package trainerfeeder

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/projection"
)

// maxHintTexts bounds the texts and tokens of the hints of one batch, in bytes of their JSON:
// batch files have a limit.
const maxHintTexts = 8 << 20

// applyHinted keeps what the feed's hinter says of a rollout that may still be
// batched. It says it once.
func (d *Decider) applyHinted(tx *projection.Tx, e events.Event) error {
	said, err := events.Data[events.RolloutHinted](e)
	if err != nil || d.feed.Hints == "" || said.By != d.feed.Hints {
		return err
	}
	if may, err := mayBeBatched(tx, e.Entity); !may || err != nil {
		return err
	}
	if err := projection.Put(tx, hinted+e.Entity, said); err != nil {
		return err
	}
	count := len(said.Hints)
	return keepOutcome(tx, e, func(o *outcome) { o.Hints = &count })
}

// hint gives a member's samples the hints about them.
func hint(said *events.RolloutHinted, samples []storage.Sample) error {
	if said == nil {
		return nil
	}
	rows, err := said.Rows(samples)
	if err != nil {
		return fmt.Errorf("hints of %s: %w", said.By, err)
	}
	for i := range samples {
		samples[i].Hints = rows[i]
	}
	return nil
}

// teachSpans gives samples what a teacher says of the tokens that hints are about, with the hints
// in the context. Of all other tokens it says nothing.
func (d *Decider) teachSpans(ctx context.Context, ref *storage.Ref, said *events.RolloutHinted,
	samples []storage.Sample) error {
	var lists [][]float32
	if ref != nil && said != nil {
		data, err := storage.GetBlob(ctx, d.store, *ref)
		if err != nil {
			return err
		}
		lengths, _ := said.Lengths()
		if lists, err = events.UnpackSpans(data, lengths); err != nil {
			return err
		}
	}
	for i := range samples {
		s := &samples[i]
		s.TeacherLogprobs = append(s.TeacherLogprobs, events.SpanLogprobs(len(s.Tokens), s.Hints, lists))
		lists = lists[min(len(s.Hints), len(lists)):]
	}
	return nil
}

// shortenHints leaves out the texts and tokens of hints of which a batch has too many. The spans
// and what teachers say of them stay.
func shortenHints(members []*trained) {
	left := maxHintTexts
	for _, t := range members {
		for i := range t.samples {
			for k := range t.samples[i].Hints {
				h := &t.samples[i].Hints[k]
				text, err := json.Marshal(h)
				if left -= len(text); left < 0 || err != nil {
					h.Text, h.Tokens = "", nil
				}
			}
		}
	}
}
